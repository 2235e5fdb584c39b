"""Class names mean one thing in the whole product, and set-up that tests share stands in kits."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("fw_actors", "fw_cli", "fw_client", "supervisors", "web")


def _classes() -> Iterator[tuple[str, str]]:
    """Yield each class with its module."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    yield node.name, file.relative_to(ROOT).as_posix()


def test_class_names_are_unique() -> None:
    """A reader who meets a class name knows which class it is."""
    modules = defaultdict(set)
    for name, module in _classes():
        modules[name].add(module)
    assert {name: sorted(found) for name, found in modules.items() if len(found) > 1} == {}


def test_shared_setup_is_imported_from_no_test_module() -> None:
    """A test module is read for its tests; what others need of it belongs in a kit."""
    found = []
    for file in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                module = node.module or ""
            elif isinstance(node, ast.Import):
                module = node.names[0].name
            else:
                continue
            if re.match(r"tests\.(\w+\.)*test_\w+$", module):
                found.append(f"{file.relative_to(ROOT)}:{node.lineno}: {module}")
    assert found == []
