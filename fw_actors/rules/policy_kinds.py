"""The kinds of values in a policy: each says what it takes, in words for a person.

True and false are no numbers, and a whole number is written without a fraction (interface §6).
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from typing import Final, Protocol

_LINE_CHARACTERS: Final = frozenset("\t\n\r")
_MOST_SHOWN: Final = 30


class Kind(Protocol):
    """What a key's value may be."""

    def problem(self, value: object) -> str | None:
        """Return what is wrong with a value, as a sentence without its subject, or None."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` to `high`, both included."""

    low: int
    high: int

    def problem(self, value: object) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool) and self._holds(value):
            return None
        return f"must be a whole number from {self.low} to {self.high}, not {_given(value)}"

    def _holds(self, value: int) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Number:
    """A number from `low` to `high`, both included; fractions are allowed."""

    low: float
    high: float

    def problem(self, value: object) -> str | None:
        if isinstance(value, int | float) and not isinstance(value, bool) and self._holds(value):
            return None
        return f"must be a number from {self.low:g} to {self.high:g}, not {_given(value)}"

    def _holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false; with `or_null`, null as a third answer."""

    or_null: bool = False

    def problem(self, value: object) -> str | None:
        if isinstance(value, bool) or (self.or_null and value is None):
            return None
        answers = "true, false or null" if self.or_null else "true or false"
        return f"must be {answers}, not {_given(value)}"


@dataclass(frozen=True, slots=True)
class Text:
    """Text of at most `longest` characters; control characters never, line breaks with `lines`."""

    longest: int
    lines: bool = False
    blank: bool = False

    def problem(self, value: object) -> str | None:
        if not isinstance(value, str):
            return f"must be text, not {_given(value)}"
        if len(value) > self.longest:
            return f"must have at most {self.longest} characters"
        if not self.blank and not value.strip():
            return "must not be blank"
        allowed = _LINE_CHARACTERS if self.lines else frozenset()
        if any(unicodedata.category(c) in ("Cc", "Cs") and c not in allowed for c in value):
            return "must not hold control characters or halves of characters"
        return None


def kind_of(value: object) -> str:
    """Return in words what a JSON value is; nothing of what it holds."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"


def _given(value: object) -> str:
    """Return a number, true, false or null itself; of everything else only what it is."""
    if value is None or isinstance(value, int | float):
        shown = json.dumps(value)
        return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"
    return kind_of(value)
