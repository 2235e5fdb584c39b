"""Times: whole milliseconds in the store, ISO 8601 UTC with `Z` in documents and in JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(instant: datetime) -> int:
    """Return milliseconds since the epoch; a time without an offset is UTC."""
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    whole = instant - _EPOCH
    return (whole.days * 86_400 + whole.seconds) * 1000 + whole.microseconds // 1000


@lru_cache(maxsize=4096)  # as below
def ms_of(text: str) -> int:
    """Return milliseconds since the epoch of ISO 8601. Raises: ValueError, OverflowError."""
    return to_ms(datetime.fromisoformat(text))


@lru_cache(maxsize=4096)  # the few times of a document stand in it, its rows and its events
def iso(ms: int) -> str:
    """Return ISO 8601 UTC with milliseconds and `Z` (interface §1, Times)."""
    seconds, rest = divmod(ms, 1000)
    instant = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None, microsecond=rest * 1000)
    return instant.isoformat(timespec="milliseconds") + "Z"
