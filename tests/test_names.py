"""A class name means one thing in the whole product."""

from __future__ import annotations

import ast
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
