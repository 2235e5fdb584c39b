"""Applies one mutation to a copy of the project and runs the tests that must find it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.mutants.mutation import SIMULATION, Mutation

ROOT: Final = Path(__file__).parents[2]
SEEDS: Final = "1-150"
_FOLDERS: Final = (
    "fw_actors", "fw_cli", "fw_client", "supervisors", "web", "examples", "tests", "deploy", "docs",
    "scripts", ".github", "benchmarks",
)  # fmt: skip
_FILES: Final = (
    "pyproject.toml", "constraints.txt", "constraints-dev.txt", "constraints-build.txt",
    "constraints-audit.txt", "constraints-alone.txt", "constraints-otel.txt",
    "README.md", "SECURITY.md", "LICENSE", "CHANGELOG.md",
)  # fmt: skip
_SECONDS: Final = 1800


def applies(mutation: Mutation) -> bool:
    """Whether the line that is to be changed stands where it is said to, once."""
    return (ROOT / mutation.file).read_text().count(mutation.old) == 1


def mutated(mutation: Mutation) -> str:
    """Return the text of the mutation's file with the fault in it."""
    return (ROOT / mutation.file).read_text().replace(mutation.old, mutation.new)


def hunt(mutation: Mutation, folder: Path, seeds: str = SEEDS) -> str | None:
    """Return how the mutation was found; None when nothing turned red.

    Args:
        folder: an empty one, for the copy.
        seeds: of the simulation; it ends at the first that breaks a promise.
    """
    _copy_with(mutation, folder)
    if mutation.found_by == SIMULATION:
        said = _run(folder, "tests.simulation", "--seeds", seeds, "--jobs", "1", "--first")
        return None if said is None else _broken_promise(said)
    said = _run(
        folder, "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", mutation.found_by
    )
    # A test that is named has to fail itself: a module that cannot be imported proves nothing.
    red = "FAILED" if mutation.names_a_test else ("FAILED", "ERROR")
    failed = [line for line in (said or "").splitlines() if line.startswith(red)]
    return failed[0] if failed else None


def _broken_promise(said: str) -> str:
    """Return the line of the first seed that broke a promise.

    Raises: RuntimeError if the simulation itself has failed, which proves nothing.
    """
    for line in said.splitlines():
        if line.startswith("seed ") and "the simulation failed" not in line:
            return line
    raise RuntimeError(f"The simulation has failed by itself: {said[-2000:]}")


def _copy_with(mutation: Mutation, folder: Path) -> None:
    """Copy the project, compiled modules included, and put the fault into the copy."""
    for name in _FOLDERS:
        shutil.copytree(ROOT / name, folder / name)
    for name in _FILES:
        shutil.copy2(ROOT / name, folder)
    changed = folder / mutation.file
    for compiled in (changed.parent / "__pycache__").glob(f"{changed.stem}.*"):
        compiled.unlink()
    changed.write_text(mutated(mutation))


def _run(folder: Path, *command: str) -> str | None:
    """Run a module in the copy; what it printed when it failed."""
    environ = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    return None if done.returncode == 0 else done.stdout or done.stderr
