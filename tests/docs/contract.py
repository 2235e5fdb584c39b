"""The rules of docs/contract.md, and where they are cited.

`python -m tests.docs.contract` prints the rules that no test cites.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "contract.md"
SUFFIXES: Final = frozenset({".py", ".md", ".toml", ".bash", ".sh", ".yml"})
NOT_OURS: Final = frozenset({"build", "data", "dist", "node_modules"})

NUMBER: Final = r"[ABCDHOR]-[1-9][0-9]{1,2}"
RULE: Final = re.compile(rf"^(?:- |\| )\*\*({NUMBER})\*\* (.+)$", re.MULTILINE)
# No part of a longer word: UTF-8, SHA-256, ADR-12, SO-00001, a date, base64.
CITATION: Final = re.compile(rf"(?<![\w.+/=-]){NUMBER}(?![\w+/=-])")


@cache
def rules() -> tuple[tuple[str, str], ...]:
    """Each rule as its number and its text, in the order of the page."""
    return tuple((number, text) for number, text in RULE.findall(PAGE.read_text()))


def files(folder: Path = ROOT) -> Iterator[Path]:
    """The files of the repository that may cite a rule."""
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink() or entry.name.startswith(".") or entry.name in NOT_OURS:
            continue
        if entry.is_dir():
            yield from files(entry)
        elif entry.suffix in SUFFIXES and entry != PAGE:
            yield entry


def citations(text: str) -> frozenset[str]:
    """The rules that a text cites."""
    return frozenset(CITATION.findall(text))


@cache
def cited() -> dict[Path, frozenset[str]]:
    """The rules that each file cites."""
    found = {
        file: citations(file.read_text(encoding="utf-8", errors="replace")) for file in files()
    }
    return {file: numbers for file, numbers in found.items() if numbers}


def untested() -> list[tuple[str, str]]:
    """The rules that no test cites, in the order of the page."""
    tests = ROOT / "tests"
    own = frozenset(tests.glob("docs/*contract*"))  # what stands in them are examples
    found = {
        n
        for file, numbers in cited().items()
        for n in numbers
        if file.is_relative_to(tests) and file not in own
    }
    return [(number, text) for number, text in rules() if number not in found]


if __name__ == "__main__":
    missing = untested()
    for number, text in missing:
        sys.stdout.write(f"{number:6} {text}\n")
    sys.stdout.write(f"{len(missing)} of {len(rules())} rules are cited by no test.\n")
