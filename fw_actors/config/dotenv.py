"""The file `.env`: `NAME=value` lines with `#` comments and optional quotes (interface §8).

What stands between quotes is taken as it is; without quotes, white space around the value falls
away, and a `#` after white space begins a comment. Nothing is expanded, and a name stands once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LINE_BREAK: Final = re.compile(r"\r\n|\n|\r")
_NOTHING: Final = re.compile(r"\s*(?:#.*)?\Z")
_ASSIGNMENT: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)\Z", re.DOTALL)
_QUOTED: Final = re.compile(r"""\s*(['"])(?P<text>.*?)\1\s*(?:\#.*)?\Z""", re.DOTALL)
_COMMENT: Final = re.compile(r"\s#.*", re.DOTALL)


@dataclass(frozen=True)
class DotEnv:
    """The values by name, and a sentence for each line that can't be read."""

    values: dict[str, str]
    problems: tuple[str, ...]


def parse_dotenv(text: str) -> DotEnv:
    """Read the text of a `.env` file. No sentence shows a value, since it may be a password."""
    values: dict[str, str] = {}
    problems: list[str] = []
    for number, line in enumerate(_LINE_BREAK.split(text), 1):
        if _NOTHING.match(line):
            continue
        assignment = _ASSIGNMENT.match(line)
        if assignment is None:
            problems.append(f"line {number} is not NAME=value")
            continue
        name, value = assignment[1], _value(assignment[2])
        if value is None:
            problems.append(f"line {number}: the quotes around {name}'s value are not closed")
        elif name in values:
            problems.append(f"line {number}: {name} stands there twice")
        else:
            values[name] = value
    return DotEnv(values, tuple(problems))


def _value(text: str) -> str | None:
    """Return the value out of what stands after the `=`, None when its quotes are not closed."""
    if text.lstrip().startswith(("'", '"')):
        quoted = _QUOTED.match(text)
        return quoted["text"] if quoted else None
    return _COMMENT.sub("", text).strip()
