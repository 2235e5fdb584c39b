"""Writes JSON for answers: camelCase structs, times in ISO 8601 UTC with milliseconds and Z."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

MS_PER_SECOND: Final = 1000
ENCODER: Final = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """Return `value` as JSON in UTF-8. Raises TypeError for what JSON can't hold."""
    return ENCODER.encode(value)


def iso_time(milliseconds: int) -> str:
    """Return a time in ms since the epoch as interface §1 writes it: 2026-02-28T12:00:00.000Z."""
    seconds, rest = divmod(milliseconds, MS_PER_SECOND)
    whole = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return f"{whole.isoformat()}.{rest:03d}Z"
