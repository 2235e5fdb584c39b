"""Reads docs/asvs.toml: the requirements of OWASP ASVS 5.0, levels 1 and 2, and their answers."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "docs" / "asvs.toml"
YES: Final = "yes"
ANSWERS: Final = (YES, "no", "not applicable")
_KEYS: Final = {"level", "about", "answer", "why", "tests", "faults", "page"}


@dataclass(frozen=True)
class Requirement:
    """One requirement and its answer.

    `tests`: functions as `path::name`. `faults`: names of deliberate faults, each found by one of
    the tests. `page`: where a documented decision stands, as `file.md#heading`.
    """

    number: str
    level: int
    about: str
    answer: str
    why: str
    tests: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    page: str | None = None

    @property
    def chapter(self) -> int:
        """The number before the first point."""
        return int(self.number.partition(".")[0])


@dataclass(frozen=True)
class Standard:
    """The whole file. `numbers` lists what the standard has, by level; `chapters` their titles."""

    version: str
    chapters: Mapping[int, str]
    numbers: Mapping[int, tuple[str, ...]]
    requirements: tuple[Requirement, ...]


def read_standard(file: Path = FILE) -> Standard:
    """Return what the file says. Raises: ValueError for a row with a missing or unknown key."""
    found = tomllib.loads(file.read_text())
    standard = found.pop("standard")
    return Standard(
        standard["version"],
        {int(number): title for number, title in standard["chapters"].items()},
        {int(level): tuple(text.split()) for level, text in standard["levels"].items()},
        tuple(_requirement(number, row) for number, row in found.items()),
    )


def _requirement(number: str, row: Mapping[str, Any]) -> Requirement:
    unknown = set(row) - _KEYS
    if unknown:
        raise ValueError(f"{number}: unknown {', '.join(sorted(unknown))}")
    try:
        return Requirement(
            number,
            row["level"],
            row["about"],
            row["answer"],
            row["why"],
            tuple(row.get("tests", ())),
            tuple(row.get("faults", ())),
            row.get("page"),
        )
    except KeyError as error:
        raise ValueError(f"{number}: {error} is missing") from None
