"""What holds deliveries of a Webhook back: a pause.

Times in ms since the epoch.
"""

from __future__ import annotations

from typing import Final

NOT_PAUSED: Final = 0
UNTIL_RESUMED: Final = 2**53 - 1
"""The end of a pause that has none: later than any clock."""


def pause_end(since: int | None, until: int | None, now: int) -> int:
    """Return when a pause ends: `NOT_PAUSED`, `UNTIL_RESUMED` or a time after `now`.

    Args:
        since: when it began; None without one.
        until: when it ends by itself; None: not before it is ended.
    """
    if since is None or (until is not None and until <= now):
        return NOT_PAUSED
    return UNTIL_RESUMED if until is None else until
