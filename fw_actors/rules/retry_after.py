"""What a receiver's `Retry-After` asks for. Source: interface §7, "Waits"; RFC 9110 10.2.3.

Untrusted: whatever it says is clamped before it is used, and what can't be read is ignored.
"""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

LONGEST_SECONDS: Final = 3600
HONOURED: Final = frozenset({429, 503})
"""The statuses whose `Retry-After` counts."""

_SECONDS: Final = re.compile(r"[0-9]{1,18}\Z")
_DATE: Final = re.compile(r"[A-Za-z]{3,9},? [ -~]{15,40}\Z")


def retry_after_seconds(status: int, value: str | None, now: int) -> float:
    """Return how many seconds an answer asks to wait: 0 to 3600, 0 where it asks for nothing.

    Args:
        status: of the answer.
        value: of its header `Retry-After`; None where there is none.
        now: milliseconds since the epoch.
    """
    if value is None or status not in HONOURED:
        return 0.0
    text = value.strip()
    if _SECONDS.match(text):
        return float(min(LONGEST_SECONDS, int(text)))
    if not _DATE.match(text):
        return 0.0
    try:
        moment = parsedate_to_datetime(text)
        at = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return 0.0
    return min(float(LONGEST_SECONDS), max(0.0, at - now / 1000))
