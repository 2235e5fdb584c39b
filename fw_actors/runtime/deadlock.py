"""Deadlock detection: a wait-for graph of actors and requests, searched before each wait.

An ask, a wait for room, or a wait for others to stop inside a handler blocks the actor, so it is an
edge from this actor to the request or to the other actor until the wait ends. A request has an edge
to the actor to which it was sent and, once its reply is kept, to every node for which its work
waits. A wait that would close a cycle raises AskCycle. Most actors do not wait, so the search
usually ends at its first step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

from trio.lowlevel import current_task

if TYPE_CHECKING:
    from trio.lowlevel import Task

    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.reply import PendingReply


class WaitNode(Protocol):
    """An actor's cell, a request or a topic, in the wait-for graph."""

    @property
    def cell(self) -> NamedNode:
        """The actor or the topic itself; for a request, the actor to which it was sent."""

    @property
    def waits_for(self) -> Sequence[WaitNode]:
        """The edges of this node, all of which it needs."""

    @property
    def any_of(self) -> Sequence[WaitNode]:
        """Edges of which one is enough: the workers of a pool."""


class NamedNode(WaitNode, Protocol):
    """An actor's cell or a topic, which AskCycle shows by its name."""

    @property
    def name(self) -> str: ...


class Waiter(Protocol):
    """An actor's handler, or a piece of its work, that waits for other actors."""

    needs_deadline: bool
    """Whether it blocks its actor while it waits."""

    @property
    def serves(self) -> PendingReply[Any] | None:
        """The request whose answer it computes."""

    def begin_wait(self, other: WaitNode) -> None:
        """Add an edge, to be removed by `end_wait`.

        Raises AskCycle, and adds nothing, if the edge would close a cycle.
        """

    def end_wait(self, other: WaitNode) -> None:
        """Remove one edge: the wait is over."""


class HandlerTask:
    """A task that runs handlers or work, and the waiter that it currently runs."""

    __slots__ = ("task", "waiter")

    def __init__(self, waiter: Waiter | None = None) -> None:
        self.task: Task | None = current_task()
        self.waiter = waiter

    def close(self) -> None:
        """Let the task end: its context refers to this object."""
        self.task = self.waiter = None


CURRENT: Final[ContextVar[HandlerTask | None]] = ContextVar("handler task", default=None)
"""The task of the handler that started this task, directly or not."""


def current_waiter() -> Waiter | None:
    """Return the handler or work that waits for this task, if there is one.

    A task that a handler has started in a nursery outside the handler blocks no actor.
    """
    handler_task = CURRENT.get()
    if handler_task is None:
        return None
    task = current_task()
    while task is not handler_task.task:
        nursery = task.parent_nursery
        if nursery is None:
            CURRENT.set(None)
            return None
        task = nursery.parent_task
    return handler_task.waiter


@contextmanager
def waiting_for(others: Iterable[ActorCell]) -> Iterator[None]:
    """Let the actor that runs this block, if any, wait for all `others` while the block runs.

    Raises AskCycle if one of these waits would close a cycle.
    """
    waiter = current_waiter()
    if waiter is None:
        yield
        return
    added: list[ActorCell] = []
    try:
        for other in others:
            waiter.begin_wait(other)
            added.append(other)
        yield
    finally:
        for other in added:
            waiter.end_wait(other)


def path_between(
    start: WaitNode, goal: WaitNode, assumed: frozenset[WaitNode] = frozenset()
) -> list[str]:
    """Return the names of the actors on a shortest path; empty if there is none.

    A pool leads to the goal if each of its workers does. In the search from a worker its pool is in
    `assumed`, that is, it is taken to lead to the goal: a worker that waits for its own pool cannot
    serve the pool.
    """
    came_from: dict[WaitNode, WaitNode | None] = {start: None}
    queue = [start]
    for node in queue:
        if node is goal or node in assumed:
            return _names_to(node, came_from)
        edges = node.waits_for
        if node.any_of:
            pool = assumed | {node}
            if all(path_between(worker, goal, pool) for worker in node.any_of):
                edges = node.any_of
        for other in edges:
            if other not in came_from:
                came_from[other] = node
                queue.append(other)
    return []


def _names_to(node: WaitNode, came_from: Mapping[WaitNode, WaitNode | None]) -> list[str]:
    """Return the names of the actors on the path that has led to `node`."""
    cells: list[NamedNode] = []
    step: WaitNode | None = node
    while step is not None:
        if not cells or cells[-1] is not step.cell:  # a request, then its actor
            cells.append(step.cell)
        step = came_from[step]
    return [cell.name for cell in reversed(cells)]


def without(edges: Sequence[WaitNode], other: WaitNode) -> tuple[WaitNode, ...]:
    """Return the edges without one to `other`."""
    left = list(edges)
    left.remove(other)
    return tuple(left)
