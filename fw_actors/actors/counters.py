"""Counts and durations for `/metrics`: given to whom it concerns, read in one place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The bounds of durations; the longest timeout of a receiver is 60 s."""


class Counter:
    """How often each outcome came since the start. For trio's own thread."""

    def __init__(self, outcomes: Iterable[str]) -> None:
        """`outcomes` are shown from the start, at 0."""
        self._counts = dict.fromkeys(outcomes, 0)

    def add(self, outcome: str) -> None:
        """Count one."""
        self._counts[outcome] = self._counts.get(outcome, 0) + 1

    def counts(self) -> Mapping[str, int]:
        """Return the counts so far."""
        return dict(self._counts)


class Histogram:
    """How many observations came up to each bound. For trio's own thread."""

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        """`bounds`: ascending, each belongs to its bucket; what is above the last has one too."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one. Below zero counts as zero: a wall clock may have gone back."""
        if value < 0.0:
            value = 0.0
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, int]]:
        """Return each bound as text and how many observations are not above it; `+Inf` last."""
        names = (*map(str, self._bounds), "+Inf")
        return list(zip(names, accumulate(self._counts), strict=True))


class DeliveryMeter(Counter):
    """What came of attempts, how long they took, and how long first ones had waited."""

    def __init__(self, outcomes: Iterable[str]) -> None:
        super().__init__(outcomes)
        self.took = Histogram()
        self.waited = Histogram()
