"""Brings back jobs that wait for a time which only a clock that was wrong can have given.

Source: pitfalls, "Queue and delivery": a next attempt further away than the cap and five minutes
is due now, logged once.
"""

from __future__ import annotations

from math import inf
from typing import Final

import trio

from fw_actors.runtime import Log
from fw_actors.store import Store, jobs

EVERY_SECONDS: Final = 60.0
MARGIN_SECONDS: Final = 300.0
_MS: Final = 1000


class Recall:
    """Looks at one queue: at the first call, once a minute, and when the clock has gone back."""

    def __init__(self, queue: str, cap_seconds: float) -> None:
        """`cap_seconds`: the longest wait between two tries; leases are shorter than the margin."""
        self._queue, self._far_ms = queue, round((cap_seconds + MARGIN_SECONDS) * _MS)
        self._next = -inf
        self._latest = 0

    async def look(self, store: Store, log: Log, now: int) -> None:
        """Bring back what is too far away, when it is time to look; `now` in ms of the clock.

        Raises: OverloadedError.
        """
        went_back, self._latest = now < self._latest, now
        if trio.current_time() < self._next and not went_back:
            return
        self._next = -inf  # until it has been done
        count = await store.write(lambda tx: jobs.recall(tx, self._queue, tx.now + self._far_ms))
        self._next = trio.current_time() + EVERY_SECONDS
        if count:
            log.warning("queue.recalled", queue=self._queue, jobs=count)
