"""A pool as one node of the tree: the sums of the counters of all actors it ever had."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from fw_actors.runtime.snapshot import NodeSnapshot

if TYPE_CHECKING:
    from fw_actors.runtime.keyed_cell import KeyedCell


class CounterTotals:
    """Sums of the counters of cells. Cells can be added and subtracted, other totals added."""

    __slots__ = (
        "cancelled",
        "failed",
        "handled",
        "handler_seconds",
        "last_error",
        "passed_on",
        "restarts",
    )

    def __init__(self) -> None:
        self.handled = self.failed = self.cancelled = self.restarts = self.passed_on = 0
        self.handler_seconds = 0.0
        self.last_error: str | None = None

    def add(self, other: KeyedCell | CounterTotals) -> None:
        """Add counters; take over the last error, if there is one."""
        self.handled += other.handled
        self.failed += other.failed
        self.cancelled += other.cancelled
        self.restarts += other.restarts
        self.passed_on += other.passed_on
        self.handler_seconds += other.handler_seconds
        self.last_error = other.last_error or self.last_error

    def subtract(self, cell: KeyedCell) -> None:
        """Undo an `add` of this cell, whose counters must be as they were then."""
        self.handled -= cell.handled
        self.failed -= cell.failed
        self.cancelled -= cell.cancelled
        self.restarts -= cell.restarts
        self.passed_on -= cell.passed_on
        self.handler_seconds -= cell.handler_seconds


def pool_node(
    name: str,
    state: str,
    capacity: int,
    alive: int,
    active: Collection[KeyedCell],
    inactive: CounterTotals,
) -> NodeSnapshot:
    """Return a pool as one node, from its active cells and the totals of all others."""
    totals = CounterTotals()
    totals.add(inactive)
    depth = waiting = running = 0
    for cell in active:
        totals.add(cell)
        depth += cell.mailbox.depth
        running += cell.actor is not None
        waiting += cell.mailbox.waiting
    return NodeSnapshot(
        name=name,
        kind="pool",
        state=state,
        depth=depth,
        capacity=capacity,
        waiting=waiting,
        alive=alive,
        running=running,
        handled=totals.handled,
        failed=totals.failed,
        cancelled=totals.cancelled,
        restarts=totals.restarts,
        passed_on=totals.passed_on,
        last_error=totals.last_error,
        handler_seconds=totals.handler_seconds,
    )
