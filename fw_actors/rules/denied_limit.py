"""How many refusals of one user a minute are recorded one by one: the rest is counted.

Without a limit, any user fills the Audit Events with refusals, at the price of a request each.
"""

from __future__ import annotations

from typing import Final

RECORDED_PER_MINUTE: Final = 20
_MINUTE_MS: Final = 60_000


def minute_of(now: int) -> tuple[int, int]:
    """Return the first millisecond of the clock's minute that `now` is in, and of the next one."""
    begin = now - now % _MINUTE_MS
    return begin, begin + _MINUTE_MS


def more_refused(recorded: int, more: int | None) -> int | None:
    """Return how many refusals beyond the limit a minute has, with the one that just happened.

    Args:
        recorded: refusals of this minute that have an event of their own.
        more: what the event that counts the others says; None without such an event.

    Returns: None when this refusal is recorded on its own.
    """
    if more is None:
        return None if recorded < RECORDED_PER_MINUTE else 1
    return more + 1
