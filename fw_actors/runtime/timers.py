"""All deadlines of a runtime, kept by one sleeping task.

Asks, timers, idle times and restart delays come by the thousand but in few different lengths.
Within one length the order of arrival is the order of expiry, so each length has an
`OrderedDict`: to add or withdraw a deadline costs half a microsecond, and nothing is sorted.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

import trio

LENGTHS_KEPT: Final = 32  # also while they are empty: most lengths are used again at once


class Expiring(Protocol):
    """An object with a deadline. `expire` is called once, on trio's thread, and must not raise."""

    def expire(self) -> None: ...


DeadlineQueue = OrderedDict[Expiring, float]
"""The deadlines of one length, with their times of expiry, in order."""


@dataclass(frozen=True, slots=True)
class DeadlineStatistics:
    """Numbers of the deadlines of one runtime, and of their queues."""

    pending: int
    lengths: int
    """Queues, empty ones included."""


class Deadlines:
    """The deadlines of one runtime. `run` is its task; without it nothing expires.

    Must be created inside `trio.run`. `now()` is trio's time, without a look-up of the runner.
    """

    def __init__(self) -> None:
        self.now = trio.lowlevel.current_clock().current_time
        self._lengths: dict[float, DeadlineQueue] = {}
        self._scope = trio.CancelScope(shield=True)
        self._wake_at = inf
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, self._lengths.values()))

    def add(self, entry: Expiring, seconds: float) -> DeadlineQueue:
        """Call `entry.expire()` in `seconds` from now, unless it is withdrawn before.

        Returns the queue of this length: to pop the entry there is the fastest withdrawal.
        """
        due = self.now() + seconds
        pending = self._lengths.get(seconds)
        if pending is None:
            pending = self._of_new_length(seconds)
        pending[entry] = due
        if due < self._wake_at:
            self._wake_at = due
            self._scope.deadline = due
        return pending

    def withdraw(self, entry: Expiring, seconds: float) -> None:
        """Remove an entry that was added with the same `seconds`; does nothing if unknown."""
        pending = self._lengths.get(seconds)
        if pending is not None:
            pending.pop(entry, None)

    def expire_all(self) -> None:
        """Expire all present entries now, whatever their time."""
        for pending in list(self._lengths.values()):
            for entry in list(pending):
                if pending.pop(entry, None) is not None:
                    entry.expire()

    async def run(self) -> None:
        """Sleep until the next deadline, again and again, until `close`.

        May wake up for a deadline that was withdrawn: cheaper than to find the next one, and set
        the alarm anew, at each withdrawal.
        """
        while not self._closed:
            with self._scope:
                await trio.sleep_forever()
            self._scope = trio.CancelScope(shield=True)
            self._wake_at = inf
            if not self._closed:
                self._fire(self.now())

    def statistics(self) -> DeadlineStatistics:
        """Return the number of entries and of queues."""
        return DeadlineStatistics(len(self), len(self._lengths))

    def close(self) -> None:
        """End the task; entries that have not expired never will."""
        self._closed = True
        self._lengths.clear()
        self._scope.cancel()

    def _of_new_length(self, seconds: float) -> DeadlineQueue:
        """Add a queue for a new length; drop empty queues if there are many."""
        if len(self._lengths) >= LENGTHS_KEPT:
            self._lengths = {length: kept for length, kept in self._lengths.items() if kept}
        pending: DeadlineQueue = OrderedDict()
        self._lengths[seconds] = pending
        return pending

    def _fire(self, now: float) -> None:
        for length in list(self._lengths.values()):
            while length and next(iter(length.values())) <= now:
                entry, _ = length.popitem(last=False)
                entry.expire()
        # Look again: an entry that expired may have added deadlines of any length.
        self._lengths = {seconds: length for seconds, length in self._lengths.items() if length}
        self._wake_at = min(
            (next(iter(length.values())) for length in self._lengths.values()), default=inf
        )
        self._scope.deadline = self._wake_at
