"""Time and randomness of a runtime: wall clocks, deadlines, and entropy.

No other module reads the wall clock or makes random values. Monotonic time (deadlines, timers,
idle times) is `trio.current_time()`.

All deadlines of a runtime are kept by one sleeping task. Asks, timers, idle times and restart
delays come by the thousand but in few different lengths. Within one length the order of arrival is
the order of expiry, so each length has an `OrderedDict`: to add or withdraw a deadline costs half a
microsecond, and nothing is sorted. Deadlines of further lengths, and those that travel with a
request, stand in one heap.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from types import TracebackType
from typing import Final, Protocol

import trio

MS_PER_SECOND: Final = 1000
MS_PER_MINUTE: Final = 60_000
MS_PER_HOUR: Final = 3_600_000
MS_PER_DAY: Final = 86_400_000
SECONDS_PER_DAY: Final = 86_400
MINUTES_PER_HOUR: Final = 60
HOURS_PER_DAY: Final = 24
NS_PER_MS: Final = 1_000_000
US_PER_MS: Final = 1000

LENGTHS_KEPT: Final = 32  # also while they are empty: most lengths are used again at once
START_SECONDS: Final = 60.0  # for an actor to start, or a child
SHUTDOWN_SECONDS: Final = 5.0  # for it to stop


class Clock(Protocol):
    """A wall clock."""

    def now(self) -> int:
        """Return milliseconds since the epoch (UTC)."""


class SystemClock:
    """The machine's clock, shifted by `offset_seconds`. Callable from any thread."""

    def __init__(self, offset_seconds: float = 0) -> None:
        self._offset_ms = round(offset_seconds * MS_PER_SECOND)

    def now(self) -> int:
        """Return milliseconds since the epoch (UTC)."""
        return time.time_ns() // NS_PER_MS + self._offset_ms


class TrioClock:
    """A wall clock that starts at `start_ms` when it is created, and follows trio's clock.

    Under `trio.testing.MockClock` it jumps with that clock. Create it inside `trio.run`, and call
    it only in trio's thread, where deterministic runs do everything.
    """

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._began = trio.current_time()

    def now(self) -> int:
        """Return milliseconds since the epoch (UTC)."""
        return self._start_ms + round((trio.current_time() - self._began) * MS_PER_SECOND)


class Expiring(Protocol):
    """An object with a deadline. `expire` is called once, on trio's thread, and must not raise."""

    def expire(self) -> None: ...


DeadlineQueue = dict[Expiring, float]
"""Deadlines with their times of expiry: of one length and in order, or a `SortedDeadlines`."""


class SortedDeadlines(DeadlineQueue):
    """Deadlines of any length. One that was withdrawn stays in the heap until it is found there."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[float, int, Expiring]] = []
        self._numbers = count()

    def __setitem__(self, entry: Expiring, due: float) -> None:
        super().__setitem__(entry, due)
        heappush(self._heap, (due, next(self._numbers), entry))
        if len(self._heap) > 2 * len(self) + LENGTHS_KEPT:
            self._heap = [item for item in self._heap if self.get(item[2]) == item[0]]
            heapify(self._heap)

    def first(self) -> float:
        """Return the time of the first deadline; infinity if there is none."""
        while self._heap:
            due, _, entry = self._heap[0]
            if self.get(entry) == due:
                return due
            heappop(self._heap)
        return inf

    def pop_first(self) -> Expiring:
        """Remove the deadline that `first` has found."""
        _, _, entry = heappop(self._heap)
        del self[entry]
        return entry


class TimeLimit:
    """Cancels the block of a task if it takes too long.

    `place_of` tells the place where the task is then.
    """

    __slots__ = ("_deadlines", "_place_of", "_scope", "_seconds", "_task", "place")

    def __init__(
        self,
        deadlines: Deadlines,
        seconds: float,
        place_of: Callable[[trio.lowlevel.Task], str],
    ) -> None:
        self._deadlines, self._seconds, self._place_of = deadlines, seconds, place_of
        self._task = trio.lowlevel.current_task()
        self._scope = trio.CancelScope()
        self.place = ""
        """`file:line` of the task when its time was over; empty before."""

    @property
    def exceeded(self) -> bool:
        """Whether the block was cancelled by this."""
        return self._scope.cancelled_caught

    def expire(self) -> None:
        """Cancel the block; called by the runtime's deadlines."""
        self.place = self._place_of(self._task)
        self._scope.cancel()

    def __enter__(self) -> None:
        if self._seconds < inf:
            self._deadlines.add(self, self._seconds)
        self._scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._deadlines.withdraw(self, self._seconds)
        return self._scope.__exit__(kind, error, traceback)


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
        self._lengths: dict[float, OrderedDict[Expiring, float]] = {}
        self._sorted = SortedDeadlines()
        self._unkept = 0
        """Deadlines of further lengths since empty queues were looked for."""
        self._scope = trio.CancelScope(shield=True)
        self._wake_at = inf
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, self._lengths.values())) + len(self._sorted)

    def add(self, entry: Expiring, seconds: float, now: float | None = None) -> DeadlineQueue:
        """Call `entry.expire()` in `seconds` from now, unless it is withdrawn before.

        `now` is trio's time, if the caller has just read it.
        Returns the queue of this length: to pop the entry there is the fastest withdrawal.
        """
        due = (self.now() if now is None else now) + seconds
        pending: DeadlineQueue | None = self._lengths.get(seconds)
        if pending is None:
            pending = self._of_new_length(seconds)
        pending[entry] = due
        if due < self._wake_at:
            self._wake_at = due
            self._scope.deadline = due
        return pending

    def add_at(self, entry: Expiring, due: float) -> DeadlineQueue:
        """Do as `add` does, with a time of expiry."""
        self._sorted[entry] = due
        if due < self._wake_at:
            self._wake_at = due
            self._scope.deadline = due
        return self._sorted

    def withdraw(self, entry: Expiring, seconds: float) -> None:
        """Remove an entry that was added with the same `seconds`; does nothing if unknown."""
        pending = self._lengths.get(seconds)
        if pending is None or pending.pop(entry, None) is None:
            self._sorted.pop(entry, None)

    def expire_all(self) -> None:
        """Expire all entries now, also those that are not due."""
        for pending in [*self._lengths.values(), self._sorted]:
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
        self._sorted.clear()
        self._scope.cancel()

    def _of_new_length(self, seconds: float) -> DeadlineQueue:
        """Return a queue for a new length: one of its own, or the sorted one if there are many."""
        if len(self._lengths) >= LENGTHS_KEPT:
            self._unkept += 1
            if self._unkept % LENGTHS_KEPT == 1:
                self._lengths = {length: kept for length, kept in self._lengths.items() if kept}
            if len(self._lengths) >= LENGTHS_KEPT:
                return self._sorted
        pending: OrderedDict[Expiring, float] = OrderedDict()
        self._lengths[seconds] = pending
        return pending

    def _fire(self, now: float) -> None:
        for length in list(self._lengths.values()):
            while length and next(iter(length.values())) <= now:
                entry, _ = length.popitem(last=False)
                entry.expire()
        while self._sorted.first() <= now:
            self._sorted.pop_first().expire()
        # Look again: an entry that expired may have added deadlines of any length.
        self._lengths = {seconds: length for seconds, length in self._lengths.items() if length}
        heads = (next(iter(length.values())) for length in self._lengths.values())
        self._wake_at = min(heads, default=inf)
        self._wake_at = min(self._wake_at, self._sorted.first())
        self._scope.deadline = self._wake_at


class Entropy(Protocol):
    """A source of randomness."""

    def bytes(self, n: int, /) -> bytes:
        """Return `n` random bytes."""

    def uniform(self, low: float, high: float) -> float:
        """Return a number between `low` and `high`, both included."""


class SystemEntropy:
    """The operating system's randomness: unpredictable, fit for tokens and keys."""

    bytes = staticmethod(os.urandom)

    def __init__(self) -> None:
        self._random = secrets.SystemRandom()

    def uniform(self, low: float, high: float) -> float:
        """Return a number between `low` and `high`, both included."""
        return self._random.uniform(low, high)


class SeededEntropy:
    """A repeatable sequence for tests and simulations; never for tokens of a real service."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bytes(self, n: int, /) -> bytes:
        """Return the next `n` bytes of the sequence."""
        return self._random.randbytes(n)

    def uniform(self, low: float, high: float) -> float:
        """Return a number between `low` and `high`, both included."""
        return self._random.uniform(low, high)
