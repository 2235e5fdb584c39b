"""Keeps all deadlines of a runtime in one sleeping task.

Asks, timers, idle times and restart waits come by the thousand and in few different lengths.
Within one length the order of arrival is the order of falling due, so each length has an
`OrderedDict`: adding and withdrawing cost half a microsecond, and nothing is ever sorted.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import Final, Protocol

import trio

LENGTHS_KEPT: Final = 32  # whether anything falls due after them or not


class Expiring(Protocol):
    """Something that falls due. `expire` is called once, on trio's thread, and must not raise."""

    def expire(self) -> None: ...


Pending = OrderedDict[Expiring, float]


class Deadlines:
    """The deadlines of one runtime. `run` is its task; without it nothing falls due.

    Made inside `trio.run`. `now()` is trio's time, without the way through trio's globals.
    """

    def __init__(self) -> None:
        self.now = trio.lowlevel.current_clock().current_time
        self._lengths: dict[float, Pending] = {}
        self._scope = trio.CancelScope(shield=True)
        self._wake_at = inf
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, self._lengths.values()))

    def add(self, entry: Expiring, seconds: float) -> Pending:
        """Call `entry.expire()` in `seconds` from now, unless it is withdrawn before.

        Returns: where it is noted; taking it out there is the shortest way to withdraw it.
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
        """Forget an entry that was added with the same `seconds`; unknown ones are ignored."""
        pending = self._lengths.get(seconds)
        if pending is not None:
            pending.pop(entry, None)

    def pass_all(self) -> None:
        """Have everything fall due that is noted now, whatever its time."""
        for pending in list(self._lengths.values()):
            for entry in list(pending):
                if pending.pop(entry, None) is not None:
                    entry.expire()

    async def run(self) -> None:
        """Sleep until the next deadline, over and over; ends after `close`.

        A withdrawn deadline is woken for once: cheaper than moving the alarm at each withdrawal.
        """
        while not self._closed:
            with self._scope:
                await trio.sleep_forever()
            self._scope = trio.CancelScope(shield=True)
            self._wake_at = inf
            if not self._closed:
                self._fire(self.now())

    def close(self) -> None:
        """End the task; what has not fallen due never will."""
        self._closed = True
        self._lengths.clear()
        self._scope.cancel()

    def _of_new_length(self, seconds: float) -> Pending:
        """Begin a length of time; lengths of which nothing is left go when there are many."""
        if len(self._lengths) >= LENGTHS_KEPT:
            self._lengths = {length: kept for length, kept in self._lengths.items() if kept}
        pending: Pending = OrderedDict()
        self._lengths[seconds] = pending
        return pending

    def _fire(self, now: float) -> None:
        for length in list(self._lengths.values()):
            while length and next(iter(length.values())) <= now:
                entry, _ = length.popitem(last=False)
                entry.expire()
        # A second pass, since what expired may have added deadlines of any length.
        self._lengths = {seconds: length for seconds, length in self._lengths.items() if length}
        self._wake_at = min(
            (next(iter(length.values())) for length in self._lengths.values()), default=inf
        )
        self._scope.deadline = self._wake_at
