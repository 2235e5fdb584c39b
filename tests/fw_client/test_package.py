"""The contents of the package (H-220)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fw_client.sync_client import FOLDER, MADE, sync_module

ADAPTERS = {"flask", "quart", "fastapi", "starlette"}


def imported() -> dict[str, set[str]]:
    """The packages that each module imports, the standard library's left out."""
    found: dict[str, set[str]] = {}
    for file in FOLDER.rglob("*.py"):
        names = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
        tops = {name.partition(".")[0] for name in names}
        found[file.relative_to(FOLDER).as_posix()] = tops - sys.stdlib_module_names - {"fw_client"}
    return found


def test_fw_client_imports_only_httpx() -> None:
    """Trio only where it runs already; a framework only in the adapter for it."""
    found = {name: libraries - {"httpx"} for name, libraries in imported().items()}
    others = {name: libraries for name, libraries in found.items() if libraries}
    assert others.pop("async_library.py") == {"trio"}
    assert all(name.startswith("receiver/") for name in others)
    assert all(libraries <= ADAPTERS for libraries in others.values())


def test_fw_client_names_its_extra_without_httpx() -> None:
    code = "import sys; sys.modules['httpx'] = None; import fw_client"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    hint = "fw_client needs the library httpx: pip install 'fw-actors[client]'"
    assert result.stderr.splitlines()[-1] == f"ModuleNotFoundError: {hint}"


@pytest.mark.parametrize("source", MADE, ids=lambda source: source.stem)
def test_sync_client_is_generated_from_async_client(source: Path) -> None:
    """`python -m tests.fw_client.sync_client` makes it."""
    target, _ = MADE[source]
    assert target.read_text() == sync_module(source)
