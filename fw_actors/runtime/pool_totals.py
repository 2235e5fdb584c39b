"""Sums up the counters of a pool's actors, those that have gone included."""

from __future__ import annotations

from fw_actors.runtime.keyed_cell import KeyedCell


class Totals:
    """Sums of the counters of cells; a cell can be added and taken out, other totals added."""

    __slots__ = ("failed", "handled", "handler_seconds", "last_error", "restarts", "skipped")

    def __init__(self) -> None:
        self.handled = self.failed = self.skipped = self.restarts = 0
        self.handler_seconds = 0.0
        self.last_error: str | None = None

    def add(self, other: KeyedCell | Totals) -> None:
        """Add another's counters; the last error is the other's, if it has one."""
        self.handled += other.handled
        self.failed += other.failed
        self.skipped += other.skipped
        self.restarts += other.restarts
        self.handler_seconds += other.handler_seconds
        self.last_error = other.last_error or self.last_error

    def take_out(self, cell: KeyedCell) -> None:
        """Undo an `add` of this cell, whose counters are as they were then."""
        self.handled -= cell.handled
        self.failed -= cell.failed
        self.skipped -= cell.skipped
        self.restarts -= cell.restarts
        self.handler_seconds -= cell.handler_seconds
