"""A hasher whose hashes take virtual time: its queue under load, without a core at work."""

from __future__ import annotations

import outcome
import trio

from fw_actors.hashing import Hasher
from fw_actors.hashing.hasher import HashJob, HashSlots


class VirtualSlots(HashSlots):
    """Slots whose threads are tasks: each job takes `seconds` of trio's clock."""

    def __init__(self, nursery: trio.Nursery, count: int, seconds: float) -> None:
        super().__init__(count)
        self._nursery, self._seconds = nursery, seconds

    def start(self, first: HashJob) -> None:
        self._nursery.start_soon(self._serve_slowly, first)

    async def _serve_slowly(self, first: HashJob) -> None:
        job: HashJob | None = first
        while job is not None:
            await trio.sleep(self._seconds)
            result = outcome.capture(job.work)
            following = self.next_job()
            job.answer(result)
            job = following


def take_virtual_time(hasher: Hasher, nursery: trio.Nursery, count: int, seconds: float) -> None:
    """Have a site's hasher compute `count` hashes at once, each in `seconds` of virtual time."""
    hasher.slots = VirtualSlots(nursery, count, seconds)
