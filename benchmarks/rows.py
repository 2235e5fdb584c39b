"""The rows of a benchmark: alternating rounds of fw and of a reference, summarised."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import msgspec


@dataclass(frozen=True)
class Effort:
    """How much is measured. `tell` is called with a line of progress after each round.

    With `long`, suites that have more rows, or bigger ones, take the minutes that these need.
    `only`: names of the rows to measure; all, where it is empty.
    """

    events: int
    rounds: int
    tell: Callable[[str], None]
    long: bool = False
    only: frozenset[str] = frozenset()

    def wants(self, *names: str) -> bool:
        """Whether one of these rows is to be measured."""
        return not self.only or not self.only.isdisjoint(names)


class BenchmarkRow(msgspec.Struct, frozen=True):
    """One comparison. `ratio` above 1 means that ours is better, whatever the unit; `aim` is the
    least that it should be, if the row has an aim."""

    suite: str
    name: str
    unit: str
    ours: float
    reference: float
    reference_name: str
    ratio: float
    aim: float | None = None

    @property
    def reaches_aim(self) -> bool:
        """Whether the ratio is what it should be, or there is no aim."""
        return self.aim is None or self.ratio >= self.aim


@dataclass(frozen=True)
class SecondReference:
    """Another way to do the work of a comparison, with a row of its own."""

    row: str
    measure: Callable[[], float]
    name: str


@dataclass(frozen=True)
class Comparison:
    """Two ways to do the same work. Each side does it once and returns its figure in `unit`.

    More of it is better, as of something per second, unless `less_is_better`. `second` is measured
    in the same rounds: its row has the same figures of ours.
    """

    suite: str
    name: str
    unit: str
    ours: Callable[[], float]
    reference: Callable[[], float]
    reference_name: str
    less_is_better: bool = False
    aim: float | None = None
    second: SecondReference | None = None

    def measure(self, effort: Effort) -> BenchmarkRow:
        """Run both sides in turns, so that a busy spell of the machine meets both."""
        return self.measure_all(effort)[0]

    def measure_all(self, effort: Effort) -> Sequence[BenchmarkRow]:
        """Run all sides in turns; return the row, and that of the second reference, if any."""
        ours: list[float] = []
        reference: list[float] = []
        others: list[float] = []
        for number in range(1, effort.rounds + 1):
            ours.append(_undisturbed(self.ours))
            reference.append(_undisturbed(self.reference))
            line = f"{figure(ours[-1])} against {figure(reference[-1])}"
            if self.second is not None:
                others.append(_undisturbed(self.second.measure))
                line += f" and {figure(others[-1])}"
            effort.tell(
                f"{self.suite}/{self.name} round {number} of {effort.rounds}: {line} {self.unit}"
            )
        first = self.row(ours, reference)
        if self.second is None:
            return [first]
        row, name = self.second.row, self.second.name
        other = replace(self, name=row, reference_name=name, aim=None)
        return [first, other.row(ours, others)]

    def row(self, ours: list[float], reference: list[float]) -> BenchmarkRow:
        """Return the row of these rounds: medians, and their ratio."""
        mine, theirs = median(ours), median(reference)
        ratio = theirs / mine if self.less_is_better else mine / theirs
        return BenchmarkRow(
            self.suite, self.name, self.unit, mine, theirs, self.reference_name, ratio, self.aim
        )


def figure(value: float) -> str:
    """Return a figure as people read it: small ones with two decimals."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _undisturbed(side: Callable[[], float]) -> float:
    """Run one side without the garbage that the other has left."""
    gc.collect()
    return side()
