"""Counters, histograms and samples for `/metrics`.

Counters are passed to their users and rendered in one place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Literal

SECONDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""The bounds of durations; the longest timeout of a receiver is 60 s."""


@dataclass(frozen=True)
class MetricSample:
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
        self.durations = Histogram()
        self.waits = Histogram()
