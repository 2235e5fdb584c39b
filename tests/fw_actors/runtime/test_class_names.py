"""The class names of the runtime and the supervisors."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
PRODUCT = ("fw_actors", "fw_cli", "supervisors", "web")


def test_class_names_of_the_runtime_mean_one_thing_in_the_repository() -> None:
    """A Reply or a State of the runtime's own would be taken for another one."""
    defined: defaultdict[str, list[Path]] = defaultdict(list)
    for folder in PRODUCT:
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    defined[node.name].append(file.relative_to(ROOT))
    twice = {name: files for name, files in defined.items() if len(files) > 1}
    assert len(defined) > 500
    assert {name: files for name, files in twice.items() if any(map(is_ours, files))} == {}


def is_ours(file: Path) -> bool:
    return file.parts[:2] == ("fw_actors", "runtime") or file.parts[:-1] == ("supervisors",)
