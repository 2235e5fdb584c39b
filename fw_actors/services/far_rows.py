"""Deliveries that are due later than any wait can be: a clock was ahead when they were written.

Source: pitfalls, Queue and delivery: "further away than the cap and five minutes is due now".
"""

from __future__ import annotations

from typing import Final

from fw_actors.services.events import QUEUE
from fw_actors.store import Tx, jobs

MARGIN_SECONDS: Final = 300.0


class FarRows:
    """Looks for them at the first claim of a process, and whenever the clock has gone back."""

    def __init__(self, longest_wait: float) -> None:
        """`longest_wait`: seconds."""
        self._farthest_ms = round((longest_wait + MARGIN_SECONDS) * 1000)
        self._latest_now = 0
        self._looked = False

    def bring_forward(self, tx: Tx) -> int:
        """Make them due now; return how many there were."""
        went_back = tx.now < self._latest_now
        self._latest_now = tx.now
        if self._looked and not went_back:
            return 0
        tx.after_commit(self._note)
        latest = tx.now + self._farthest_ms
        return sum(
            jobs.bring_forward(tx, QUEUE, head.partition, latest) for head in jobs.heads(tx, QUEUE)
        )

    def _note(self) -> None:
        self._looked = True
