"""What a document may be called, and how a DocType declares where its names come from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fw_actors.documents.field import CONTROLS_AND_BREAKS, Field

NAME_CHARACTERS: Final = 140
NAME_RULE: Final = f"a name is 1 to {NAME_CHARACTERS} characters without / and outer white space"
_NAMINGS: Final = "naming is given, random, field:<field> or series:<prefix>.#####"
_SERIES: Final = re.compile(r"series:(?P<prefix>[^#/]*?)\.(?P<digits>#+)\Z")
_LONGEST_NUMBER: Final = 19  # digits of the last number that a counter of 64 bits can give


def is_name(name: object) -> bool:
    """Whether a document may have this name (interface §3)."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= NAME_CHARACTERS
        and name == name.strip()
        and "/" not in name
        and ((name.isascii() and name.isprintable()) or not CONTROLS_AND_BREAKS.search(name))
    )


@dataclass(frozen=True)
class Naming:
    """How a new document gets its name: given, by a field, from a series, or at random."""

    kind: str
    field: str = ""
    prefix: str = ""
    digits: int = 0


def parse_naming(naming: object, fields: Mapping[str, Field]) -> Naming | str:
    """Return how a declaration names its documents, or what is wrong with it (interface §3)."""
    if not isinstance(naming, str):
        return _NAMINGS
    if naming in ("given", "random"):
        return Naming(naming)
    if naming.startswith("field:"):
        target = naming.removeprefix("field:")
        if target not in fields or fields[target].type not in ("Data", "Link", "Select"):
            return f"naming: there is no text field {target}"
        return Naming("field", field=target)
    return _parse_series(naming)


def _parse_series(naming: str) -> Naming | str:
    series = _SERIES.match(naming)
    if series is None:
        return _NAMINGS
    prefix, digits = series["prefix"], len(series["digits"])
    if not is_name(prefix + "1" * max(digits, _LONGEST_NUMBER)):
        return f"naming: {prefix!r} begins no name: {NAME_RULE}"
    return Naming("series", prefix=prefix, digits=digits)
