"""Remembers messages that reached nobody, and why; bounded, and sparing with the log."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from fw_actors.runtime.clock import Clock
from fw_actors.runtime.log import Log

REMEMBERED: Final = 64


class Reason(Enum):
    """Why a message reached nobody."""

    FULL = "the mailbox was full"
    GONE = "no such actor was running"
    DROPPED = "a newer message took its place"
    STOPPED = "the actor stopped before its turn came"
    NOT_HANDLED = "the actor has no handler for it"
    FAILED = "no actor could be made for it"
    POOL_FULL = "the pool was at capacity, and none of it idle"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One such message: its type, never its contents. `at` in ms since the epoch."""

    recipient: str
    message: str
    reason: Reason
    at: int


class DeadLetters:
    """Counts by reason, and the last 64 of them."""

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock = clock
        self._log = log
        self._counts: Counter[Reason] = Counter()
        self._last: deque[DeadLetter] = deque(maxlen=REMEMBERED)

    def add(self, recipient: str, message: object, reason: Reason) -> None:
        """Note one; the 1st, 2nd, 4th, 8th… of a reason are logged."""
        letter = DeadLetter(recipient, type(message).__name__, reason, self._clock.now())
        self._last.append(letter)
        self._counts[reason] += 1
        count = self._counts[reason]
        if count & (count - 1) == 0:
            self._log.warning(
                "dead_letter",
                recipient=recipient,
                message_type=letter.message,
                reason=reason.value,
                count=count,
            )

    def counts(self) -> dict[Reason, int]:
        """How many there were, for every reason."""
        return {reason: self._counts[reason] for reason in Reason}

    def last(self) -> tuple[DeadLetter, ...]:
        """The last ones, oldest first."""
        return tuple(self._last)
