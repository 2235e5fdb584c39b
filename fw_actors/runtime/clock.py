"""The only sources of wall-clock time and of randomness.

Monotonic time (deadlines, timers, idle times) is `trio.current_time()`.
"""

from __future__ import annotations

import os
import random
import secrets
import time
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
