"""JSON, Date and Datetime fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.documents.fields import CONTROLS, LARGEST_INTEGER, Field, ShapeError
from fw_actors.errors import ValidationError
from fw_actors.runtime.clock import MS_PER_SECOND, SECONDS_PER_DAY

MAX_LEVELS: Final = 32  # as in a request (H-12), whose body is a level itself


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
            if depth > MAX_LEVELS:
                raise ShapeError(f"{self.name} must not be nested deeper than {MAX_LEVELS} levels.")
            if isinstance(leaf, str) and CONTROLS.search(leaf):
                raise ShapeError(f"{self.name} must not hold a control character.")
            if isinstance(leaf, int) and abs(leaf) > LARGEST_INTEGER:
                raise ShapeError(f"{self.name} must not hold a number beyond 2^53.")
        return copy

    def is_same(self, one: Any, other: Any) -> bool:
        """Compare as JSON does: true is not 1, and false is not 0."""
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
    """Yield the keys and leaves of a JSON value, empty containers included, each with its nesting
    depth.
    """
    waiting = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, dict | list):
            depth += 1
            inner = (*each, *each.values()) if isinstance(each, dict) else each
            waiting += [(one, depth) for one in inner]
        if not isinstance(each, dict | list) or not each:
            yield each, depth


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(instant: datetime) -> int:
    """Return milliseconds since the epoch; a time without an offset is UTC."""
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    whole = instant - _EPOCH
    return (
        whole.days * SECONDS_PER_DAY + whole.seconds
    ) * MS_PER_SECOND + whole.microseconds // 1000


@lru_cache(maxsize=4096)  # as below
def ms_of(text: str) -> int:
    """Return milliseconds since the epoch of ISO 8601. Raises: ValueError, OverflowError."""
    return to_ms(datetime.fromisoformat(text))


@lru_cache(maxsize=4096)  # the few times of a document stand in it, its rows and its events
def iso(ms: int) -> str:
    """Return ISO 8601 UTC with milliseconds and `Z` (H-35)."""
    seconds, rest = divmod(ms, MS_PER_SECOND)
    instant = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None, microsecond=rest * 1000)
    return instant.isoformat(timespec="milliseconds") + "Z"


_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")


class Date(Field):
    """A day, `YYYY-MM-DD`."""

    type = "Date"
    wanted = "a date as YYYY-MM-DD"

    def _accept(self, value: Any) -> str:
        if isinstance(value, date) and not isinstance(value, datetime):
            return value.isoformat()
        if not isinstance(value, str):
            raise self.shape()
        try:
            if not _DATE.match(value):
                raise ValueError
            return date.fromisoformat(value).isoformat()
        except ValueError:
            raise ValidationError(
                f"{self.name} must be a date as YYYY-MM-DD.", field=self.name
            ) from None


class Datetime(Field):
    """An instant: ISO 8601 with an offset (none means UTC), kept to the millisecond."""

    type = "Datetime"
    column = sa.BigInteger()
    wanted = "a time as ISO 8601"

    def _accept(self, value: Any) -> str:
        if not isinstance(value, str | datetime):
            raise self.shape()
        try:
            return iso(to_ms(value) if isinstance(value, datetime) else ms_of(value))
        except (ValueError, OverflowError):
            raise ValidationError(
                f"{self.name} must be a time as ISO 8601.", field=self.name
            ) from None

    def to_store(self, value: Any) -> int | None:
        return None if value is None else ms_of(value)

    def from_store(self, value: Any) -> str | None:
        return None if value is None else iso(value)
