"""How many attempts a receiver may have in flight (B-230, B-231, B-232, B-233).

A receiver starts with one place and doubles with each answer up to the limit; one that lets an
attempt wait over a second for the head of its answer, or time out, is back at one. Slow ones may
not take the last quarter of all places, so that a healthy receiver always finds one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SLOW_SECONDS: Final = 1.0
RESERVE: Final = 4  # one place in four is closed to slow receivers


@dataclass(slots=True)
class ReceiverSlots:
    """One receiver's window and what it has in flight."""

    limit: int
    window: int = 1
    slow: bool = False
    in_flight: int = 0
    paused: bool = False
    """Whether an operator has asked that nothing be started here."""

    @property
    def free(self) -> int:
        """Places that are free for this receiver, as far as it alone is concerned."""
        return 0 if self.paused else max(0, self.window - self.in_flight)

    @property
    def health(self) -> str:
        """How it does, in a word: paused, slow or healthy."""
        return "paused" if self.paused else "slow" if self.slow else "healthy"

    def take(self, places: int) -> None:
        """Attempts begin."""
        self.in_flight += places

    def answered(self, seconds: float) -> None:
        """An attempt ended with an answer whose head came after `seconds`."""
        self.in_flight -= 1
        if seconds > SLOW_SECONDS:
            self._slow_down()
        else:
            self.slow = False
            self.window = min(self.limit, self.window * 2)

    def timed_out(self) -> None:
        """An attempt ended without an answer in time."""
        self.in_flight -= 1
        self._slow_down()

    def ended(self) -> None:
        """An attempt ended in a way that says nothing of the receiver's pace."""
        self.in_flight -= 1

    def _slow_down(self) -> None:
        self.window = 1
        self.slow = True


def startable(receiver: ReceiverSlots, free_places: int, all_places: int) -> int:
    """Return how many attempts may start at a receiver, with `free_places` of `all_places` free."""
    if receiver.slow:
        free_places -= all_places // RESERVE
    return max(0, min(receiver.free, free_places))
