"""The field type JSON: any JSON value, kept as a copy and stored as its text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from fw_actors.documents.field import CONTROLS, LARGEST_INTEGER, Field, ShapeError

MOST_LEVELS: Final = 32  # as in a request (interface §1), whose body is a level itself


class JSON(Field):
    """Any JSON value, stored as its text."""

    type = "JSON"
    wanted = "a JSON value"

    def _accept(self, value: Any) -> Any:
        """Return a copy in JSON's own types, so that what is stored is what the document shows."""
        try:
            copy = json.loads(json.dumps(value, allow_nan=False, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError):
            raise self.shape() from None
        for leaf, depth in _leaves(copy):
            if depth > MOST_LEVELS:
                raise ShapeError(f"{self.name} is nested deeper than {MOST_LEVELS} levels.")
            if isinstance(leaf, str) and CONTROLS.search(leaf):
                raise ShapeError(f"{self.name} holds a control character.")
            if isinstance(leaf, int) and abs(leaf) > LARGEST_INTEGER:
                raise ShapeError(f"{self.name} holds a number beyond 2^53.")
        return copy

    def is_same(self, one: Any, other: Any) -> bool:
        """See `Field.is_same`: to JSON, true is not 1 and false is not 0."""
        if isinstance(one, bool) or isinstance(other, bool):
            return one is other
        if isinstance(one, dict) and isinstance(other, dict):
            return one.keys() == other.keys() and all(self.is_same(one[k], other[k]) for k in one)
        if isinstance(one, list) and isinstance(other, list):
            return len(one) == len(other) and all(map(self.is_same, one, other))
        return bool(one == other)

    def to_store(self, value: Any) -> str | None:
        return None if value is None else msgspec.json.encode(value).decode()

    def from_store(self, value: Any) -> Any:
        return None if value is None else msgspec.json.decode(value)


def _leaves(value: Any) -> Iterator[tuple[Any, int]]:
    """Yield the keys and the values of a JSON value that are no containers, or empty ones, each
    with how many containers it is in, itself included."""
    waiting = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, dict | list):
            depth += 1
            inner = (*each, *each.values()) if isinstance(each, dict) else each
            waiting += [(one, depth) for one in inner]
        if not isinstance(each, dict | list) or not each:
            yield each, depth
