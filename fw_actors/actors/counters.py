"""Counts by outcome for `/metrics`: given to whom it concerns, read in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


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
