"""Machines in virtual time: processors that are busy for a while, and a disk that syncs.

Both advance trio's clock only, so that a hundred of them run in one process under MockClock.
"""

from __future__ import annotations

from heapq import heapify, heapreplace

import trio


class Processors:
    """Processors that take work in its order. `busy` is the time they were used (s)."""

    def __init__(self, count: int) -> None:
        self._free = [0.0] * count
        heapify(self._free)
        self.busy = 0.0

    async def run(self, seconds: float) -> None:
        """Wait for a free processor, and use it for `seconds`."""
        begin = max(trio.current_time(), self._free[0])
        heapreplace(self._free, begin + seconds)
        self.busy += seconds
        await trio.sleep_until(begin + seconds)


class SimulatedDisk:
    """A disk whose sync takes `seconds`; all who wait when one begins share it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begin = float("-inf")  # of the latest sync, which may be ahead
        self.syncs = 0

    async def sync(self) -> None:
        """Wait until everything written before this call is durable."""
        now = trio.current_time()
        if now > self._begin:  # it has begun without this write
            self._begin = max(now, self._begin + self._seconds)
            self.syncs += 1
        await trio.sleep_until(self._begin + self._seconds)
