"""Samples, counters, histograms and a store with a deadline, for `/metrics` and readiness probes.

Counters are passed to their users and rendered in one place. A read of the store cannot be
cancelled once it has begun, and a frozen or unreachable database server blocks it indefinitely:
the actor waits, and its callers leave at the deadline.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, Literal

from fw_actors.errors import OverloadedError
from fw_actors.runtime import Actor, ActorError, MailboxPolicy, Overflow, Ref, Request, handles
from fw_actors.store import Store, StoreError, Tx

SECONDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""The bounds of durations; the longest timeout of a receiver is 60 s."""


@dataclass(frozen=True)
class Reading:
    """One sample for `/metrics`. A counter's name omits `_total`: the renderer adds it.

    A histogram's `value` is the sum of its observations; `buckets` are pairs of an upper bound,
    as text, and the number of observations that do not exceed it.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    buckets: Sequence[tuple[str, int]] = ()


class Counter:
    """Counts outcomes since the start. For trio's own thread."""

    def __init__(self, outcomes: Iterable[str]) -> None:
        """`outcomes` are shown from the start, with 0."""
        self._counts = dict.fromkeys(outcomes, 0)

    def add(self, outcome: str) -> None:
        """Count one occurrence of an outcome."""
        self._counts[outcome] = self._counts.get(outcome, 0) + 1

    def counts(self) -> Mapping[str, int]:
        """Return the counts so far."""
        return dict(self._counts)


class Histogram:
    """Counts observations by upper bound. For trio's own thread."""

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        """`bounds` are ascending and inclusive; a last bucket counts everything above."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count an observation. Negative values count as zero: a wall clock may go back."""
        if value < 0.0:
            value = 0.0
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, int]]:
        """Return each bound as text with the number of observations up to it; `+Inf` last."""
        names = (*map(str, self._bounds), "+Inf")
        return list(zip(names, accumulate(self._counts), strict=True))


class DeliveryMeter(Counter):
    """Counts attempts by outcome; measures their durations and the wait of first attempts."""

    def __init__(self, outcomes: Iterable[str]) -> None:
        super().__init__(outcomes)
        self.took = Histogram()
        self.waited = Histogram()


class ReadSnapshot(Request[Any | None], frozen=True):
    """Request to run `fn` against a snapshot; answered with its result, None on failure."""

    fn: Callable[[Tx], Any]


class StoreProbe(Actor):
    """Reads one snapshot at a time; requests whose callers have left are skipped."""

    mailbox = MailboxPolicy(capacity=64, overflow=Overflow.REFUSE)

    def __init__(self, store: Store, *, reserved: bool = False) -> None:
        """`reserved` is passed to `Store.read`."""
        self._store, self._reserved = store, reserved

    @handles(ReadSnapshot)
    async def read(self, message: ReadSnapshot) -> Any | None:
        """Run the read, however long it takes."""
        try:
            return await self._store.read(message.fn, reserved=self._reserved)
        except (OverloadedError, StoreError):
            return None
        except Exception as defect:  # repeated on each probe, it must not stop the actor
            self.context.log.error("probe.failed", error=self.context.one_line(defect))
            return None


async def read_with_deadline(probe: Ref, fn: Callable[[Tx], Any], seconds: float) -> Any | None:
    """Return the result of `fn` (never None), or None if the store does not answer within
    `seconds`."""
    try:
        return await probe.ask(ReadSnapshot(fn), deadline=seconds)
    except ActorError:
        return None


async def answers(probe: Ref, seconds: float) -> bool:
    """Return whether the store's threads answer within `seconds`.

    A refusal is an answer: a database that is away is no reason to end the process, since service
    resumes by itself when it is back (O-14).
    """
    try:
        await probe.ask(ReadSnapshot(_nothing), deadline=seconds)
    except ActorError:
        return False
    return True


def _nothing(tx: Tx) -> None:
    """Read nothing: the transaction itself is the question."""
