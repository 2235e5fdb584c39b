"""Sums up the counters of a pool's actors, those that have gone included."""

from __future__ import annotations

from collections.abc import Collection

from fw_actors.runtime.inspection import NodeSnapshot
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


def snapshot_of(
    name: str, state: str, capacity: int, alive: int, awake: Collection[KeyedCell], resting: Totals
) -> NodeSnapshot:
    """Return a pool as one node, from its awake cells and the totals of all others."""
    totals = Totals()
    totals.add(resting)
    depth = waiting = 0
    for cell in awake:
        totals.add(cell)
        depth += cell.mailbox.depth
        waiting += cell.mailbox.waiting
    return NodeSnapshot(
        name=name,
        kind="pool",
        state=state,
        depth=depth,
        capacity=capacity,
        waiting=waiting,
        alive=alive,
        running=len(awake),
        handled=totals.handled,
        failed=totals.failed,
        skipped=totals.skipped,
        restarts=totals.restarts,
        last_error=totals.last_error,
        handler_seconds=totals.handler_seconds,
    )
