"""Takes the picture of one actor: what can be seen of its cell, as a frozen value."""

from __future__ import annotations

from collections.abc import Mapping

from fw_actors.runtime.cell import Cell
from fw_actors.runtime.inspection import Inspection, NodeSnapshot


def node_of(cell: Cell) -> NodeSnapshot:
    """Return what can be seen of one actor from outside."""
    return NodeSnapshot(
        name=cell.name,
        kind="actor",
        state=cell.state.value,
        depth=cell.mailbox.depth,
        capacity=cell.mailbox.capacity,
        waiting=cell.mailbox.waiting,
        alive=int(cell.actor is not None),
        running=int(cell.awake and cell.actor is not None),
        handled=cell.handled,
        failed=cell.failed,
        skipped=cell.skipped,
        restarts=cell.restarts,
        last_error=cell.last_error,
        handler_seconds=cell.handler_seconds,
        recent=cell.last_messages,
    )


def inspection_of(cell: Cell, described: Mapping[str, object]) -> Inspection:
    """Return what can be seen of one actor from inside."""
    return Inspection(
        actor=node_of(cell),
        works=cell.works,
        timers=cell.timers,
        holds=len(cell.holds or ()),
        described=dict(described),
    )
