"""The pause of a Webhook and its limit of requests a second, as rules without I/O.

A limit is a bucket that fills as time passes. It is kept as one number, the time up to which the
requests that time allows have been used; so a process that has it locked knows all of it, and
a limit that changes has no state to convert. At most a tenth of a second can be unused: more would
let a Webhook that was idle exceed its limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NOT_PAUSED: Final = 0
UNTIL_RESUMED: Final = 2**53 - 1
"""The end of a pause that has none: later than any clock."""
MAX_RATE: Final = 10_000
WINDOW_US: Final = 100_000
BATCH_US: Final = WINDOW_US // 2
"""Requests that come due within this time are claimed together."""
MAX_SKEW_US: Final = 5_000_000
"""A time used up further ahead than this was written before the clock was set back."""
_US: Final = 1_000_000
_US_PER_MS: Final = 1000


def pause_end(since: int | None, until: int | None, now: int) -> int:
    """Return when a pause ends (ms): `NOT_PAUSED`, `UNTIL_RESUMED` or a time after `now`.

    Args:
        since: when it began; None without one.
        until: when it ends by itself; None: not before it is ended.
    """
    if since is None or (until is not None and until <= now):
        return NOT_PAUSED
    return UNTIL_RESUMED if until is None else until


@dataclass(frozen=True, slots=True)
class RateAllowance:
    """The requests that a limit allows at one moment. Times in microseconds since the epoch."""

    interval: int
    """Between two requests."""
    used_until: int
    now: int

    @property
    def requests(self) -> int:
        """The number of requests that may start now."""
        return max(0, (self.now - self.used_until) // self.interval)

    def used_after(self, requests: int) -> int:
        """Return the time up to which the limit is used after so many requests."""
        return self.used_until + requests * self.interval

    def next_at(self, requests: int) -> int:
        """Return when more may start after so many requests, in ms: one, or a batch of them."""
        at = self.used_after(requests) + max(self.interval, BATCH_US)
        return -(-at // _US_PER_MS)


def rate_allowance(rate: int, used_until: int, now: int) -> RateAllowance:
    """Return what a limit of `rate` requests a second allows at `now` (ms).

    `used_until`: as it was stored, 0 at first. One that lies ahead by more than clocks of nodes
    may differ is of a clock that was set back since, and counts as now.
    """
    interval, moment = _US // rate, now * _US_PER_MS
    if used_until > moment + MAX_SKEW_US:
        used_until = moment
    return RateAllowance(interval, max(used_until, moment - max(interval, WINDOW_US)), moment)
