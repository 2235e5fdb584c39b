"""A library that is missing: the error names the extra that brings it (C-100)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fw_cli.extras import advice

WITHOUT = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
sys.argv = ["fw", *sys.argv[2:]]
from fw_cli.__main__ import main
main()
"""


def run(folder: Path, missing: str, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT, missing, *args],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        (
            "psycopg.conninfo",
            "PostgreSQL needs the library psycopg: pip install 'fw-actors[postgres]'",
        ),
        ("textual", "fw console needs the library textual: pip install 'fw-actors[console]'"),
        ("structlog", "fw needs the library structlog: pip install 'fw-actors[service]'"),
    ],
)
def test_advice_names_the_extra_of_a_library(library: str, expected: str) -> None:
    assert advice(ModuleNotFoundError(name=library)) == expected


@pytest.mark.parametrize("name", [None, "fw_actors.storage"])
def test_advice_is_none_for_module_of_project(name: str | None) -> None:
    """A missing module of our own is a defect; nothing to install would mend it."""
    assert advice(ModuleNotFoundError(name=name)) is None


@pytest.mark.parametrize("missing", ["click", "structlog", "quart,sqlalchemy", "cryptography"])
def test_fw_without_service_extra_names_extra(tmp_path: Path, missing: str) -> None:
    done = run(tmp_path, missing, "init", "site")
    if done.returncode == 0:
        done = run(tmp_path / "site", missing, "doctor")
    assert done.returncode == 1
    assert "pip install 'fw-actors[service]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_fw_on_sqlite_works_without_the_other_extras(tmp_path: Path) -> None:
    assert run(tmp_path, "psycopg,textual", "init", "site").returncode == 0
    done = run(tmp_path / "site", "psycopg,textual", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr


def test_fw_without_postgresql_driver_names_extra(tmp_path: Path) -> None:
    assert run(tmp_path, "psycopg", "init", "site").returncode == 0
    done = run(tmp_path / "site", "psycopg", "migrate", FW_DATABASE="postgresql://nowhere/fw")
    assert done.returncode == 1
    assert "pip install 'fw-actors[postgres]'" in done.stderr
