"""Immutable snapshots of a running system, for the console, `/metrics` and tests.

The console and `/metrics` read the same snapshot. It shows types, counts and names; never the
contents of a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fw_actors.runtime.mailbox import DeadLetter, DeadLetterReason

if TYPE_CHECKING:
    from fw_actors.runtime.cell import Cell


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """One node of the tree: a supervisor, a task, a single actor, or a pool as a whole."""

    name: str
    kind: str
    """supervisor, task, actor or pool."""
    state: str
    depth: int = 0
    """Messages in the mailbox; of a pool, in all its mailboxes."""
    capacity: int = 0
    """Places in the mailbox; of a pool, how many actors it may hold."""
    waiting: int = 0
    """Senders that wait for room."""
    alive: int = 1
    """Instances: of a pool, how many there are."""
    running: int = 0
    """Of a pool, how many have something to do."""
    handled: int = 0
    failed: int = 0
    skipped: int = 0
    """Questions that were withdrawn before their turn came."""
    restarts: int = 0
    last_error: str | None = None
    handler_seconds: float = 0.0
    recent: tuple[str, ...] = ()
    """Types of the last 16 messages, oldest first."""
    children: tuple[NodeSnapshot, ...] = ()

    def walk(self) -> Iterator[NodeSnapshot]:
        """Yield this node and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Inspection:
    """One actor, seen between two of its messages."""

    actor: NodeSnapshot
    works: int
    """Pieces of work under way or not yet taken up."""
    timers: int
    """Timers and watches pending."""
    holds: int
    """Those and the kept replies."""
    described: Mapping[str, object]
    """What the actor's `describe()` returned."""


@dataclass(frozen=True, slots=True)
class RuntimeSnapshot:
    """Everything that is alive in a runtime."""

    tree: tuple[NodeSnapshot, ...]
    deadlines: int
    """Asks with a deadline, timers, idle pools and restarts that wait."""
    workers: int
    workers_parked: int
    late_replies: int
    """Answers that came when nobody waited any more."""
    dead_letters: Mapping[DeadLetterReason, int]
    last_dead_letters: tuple[DeadLetter, ...]

    def walk(self) -> Iterator[NodeSnapshot]:
        """Yield every node, parents first."""
        for node in self.tree:
            yield from node.walk()


class Inspectable(Protocol):
    """A node of the tree."""

    @property
    def name(self) -> str:
        """Its name among its siblings."""

    def snapshot(self) -> NodeSnapshot:
        """Return what can be seen of it and of all below it."""


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
