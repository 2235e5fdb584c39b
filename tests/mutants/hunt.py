"""Applies one mutation to a copy of the project and lets its finder look for it there."""

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
_COPIED: Final = ("fw_actors", "fw_cli", "supervisors", "web", "examples", "tests")


def applies(mutation: Mutation) -> bool:
    """Whether the line that is to be changed stands where it is said to, once."""
    return (ROOT / mutation.file).read_text().count(mutation.old) == 1


def hunt(mutation: Mutation, folder: Path, seeds: str = SEEDS) -> str | None:
    """Return how the mutation was found; None when nothing turned red.

    Args:
        folder: an empty one, for the copy.
        seeds: of the simulation; it ends at the first that breaks a promise.
    """
    for name in _COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    changed = folder / mutation.file
    changed.write_text(changed.read_text().replace(mutation.old, mutation.new))
    if mutation.found_by == SIMULATION:
        said = _run(folder, "tests.simulation", "--seeds", seeds, "--jobs", "1", "--first")
        return None if said is None else said.splitlines()[0]
    said = _run(
        folder, "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", mutation.found_by
    )
    failed = [line for line in (said or "").splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else None


def _run(folder: Path, *command: str) -> str | None:
    """Run a module in the copy; what it printed when it failed."""
    environ = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    return None if done.returncode == 0 else done.stdout or done.stderr
