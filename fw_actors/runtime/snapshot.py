"""Immutable snapshots of a running system, for the console, `/metrics` and tests.

They show types, counts and names, never the contents of a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypedDict

import trio

from fw_actors.runtime.mailbox import DeadLetter, DeadLetterReason

if TYPE_CHECKING:
    from fw_actors.runtime.cell import ActorCell


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """One node of the tree: a supervisor, a task, a single actor, or a pool as a whole."""

    name: str
    kind: str
    """supervisor, task, actor or pool."""
    state: str
    depth: int = 0
    """Messages in the mailbox; for a pool, in all its mailboxes."""
    capacity: int = 0
    """The limit of messages in the mailbox; for a pool, the limit of actors."""
    waiting: int = 0
    """Senders that wait for room."""
    alive: int = 1
    """Instances: 0 or 1 for an actor."""
    running: int = 0
    """Instances that have something to do."""
    handled: int = 0
    failed: int = 0
    cancelled: int = 0
    """Requests that were withdrawn before a handler began them."""
    passed_on: int = 0
    """Runtime errors in handlers of told messages that did not fail the instance."""
    restarts: int = 0
    last_error: str | None = None
    handler_seconds: float = 0.0
    recent: tuple[str, ...] = ()
    """Types of the last 16 messages, oldest first."""
    waits_for: tuple[str, ...] = ()
    """Actors for which the current handler waits."""
    children: tuple[NodeSnapshot, ...] = ()

    def walk(self) -> Iterator[NodeSnapshot]:
        """Yield this node and all its descendants, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Inspection:
    """One actor between two of its messages."""

    actor: NodeSnapshot
    works: int
    """Pieces of work whose completion was not handled yet."""
    timers: int
    """Pending timers and watches."""
    pending: int
    """All pending operations: work, timers, watches, kept replies and a stash."""
    watches: int
    """Watches of other actors on this one."""
    stashed: int
    """Stashed messages."""
    phase: str | None
    """The name of the actor's phase, if it has phases."""
    described: Mapping[str, object]
    """The result of the actor's `describe()`."""


@dataclass(frozen=True, slots=True)
class RuntimeSnapshot:
    """The state of a whole runtime."""

    tree: tuple[NodeSnapshot, ...]
    deadlines: int
    """Pending deadlines: of asks, timers, pools with idle actors, delayed restarts."""
    workers: int
    workers_parked: int
    late_replies: int
    """Answers to requests that were withdrawn."""
    dead_letters: Mapping[DeadLetterReason, int]
    last_dead_letters: tuple[DeadLetter, ...]

    def walk(self) -> Iterator[NodeSnapshot]:
        """Yield every node, parents first."""
        for node in self.tree:
            yield from node.walk()


class Inspectable(Protocol):
    """A node at the top of the tree."""

    @property
    def name(self) -> str:
        """The node's name among its siblings."""

    def snapshot(self) -> NodeSnapshot:
        """Return the node with its children."""


class HasCounters(Protocol):
    """An actor's cell, or the sums of several."""

    handled: int
    failed: int
    cancelled: int
    passed_on: int
    restarts: int
    last_error: str | None
    handler_seconds: float


class Counters(TypedDict):
    """The counters of a node, as arguments of `NodeSnapshot`."""

    handled: int
    failed: int
    cancelled: int
    passed_on: int
    restarts: int
    last_error: str | None
    handler_seconds: float


def counters_of(counting: HasCounters) -> Counters:
    """Return the counters of a node."""
    return Counters(
        handled=counting.handled,
        failed=counting.failed,
        cancelled=counting.cancelled,
        passed_on=counting.passed_on,
        restarts=counting.restarts,
        last_error=counting.last_error,
        handler_seconds=counting.handler_seconds,
    )


def node_of(cell: ActorCell) -> NodeSnapshot:
    """Return an actor as a node of the tree."""
    return NodeSnapshot(
        name=cell.name,
        kind="actor",
        state=cell.state.value,
        depth=cell.mailbox.depth,
        capacity=cell.mailbox.capacity,
        waiting=cell.mailbox.waiting,
        alive=int(cell.actor is not None),
        running=int(cell.scheduled and cell.actor is not None),
        recent=cell.last_messages,
        waits_for=tuple(other.cell.name for other in cell.waits_for),
        **counters_of(cell),
    )


def inspection_of(cell: ActorCell, described: Mapping[str, object]) -> Inspection:
    """Return an inspection of an actor; `described` is the result of its `describe()`."""
    phase = None if cell.actor is None else cell.actor.context.phase
    return Inspection(
        actor=node_of(cell),
        works=cell.works,
        timers=cell.timers,
        pending=len(cell.pending),
        watches=len(cell.watches),
        stashed=cell.stashed,
        phase=None if phase is None else phase.name,
        described=dict(described),
    )


LIBRARIES: Final = ("contextlib", "outcome", "trio")
FRAMEWORK: Final = ("fw_actors.runtime", "supervisors")
SERVICE: Final = "supervisors.service"


def place_of(task: trio.lowlevel.Task) -> str:
    """Return the `file:line` where a task waits: its innermost frame outside of the runtime."""
    place = inside = "unknown"
    for frame, line in task.iter_await_frames():
        module = str(frame.f_globals.get("__name__", ""))
        if _is_within(module, LIBRARIES):
            continue
        inside = f"{frame.f_code.co_filename}:{line}"
        if module.startswith(SERVICE) or not _is_within(module, FRAMEWORK):
            place = inside
    return inside if place == "unknown" else place


def _is_within(module: str, packages: Sequence[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in packages)
