"""Deadlock detection: a wait-for graph of actors, searched before each wait.

An ask, a wait for room or a wait for others to stop inside a handler blocks the actor, so it is an
edge from this actor to the other one until the wait is over. A wait that would close a cycle
raises AskCycle. Most actors wait for nobody, so the search mostly ends at its first step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fw_actors.runtime.cell import ActorCell

CURRENT: Final[ContextVar[ActorCell | None]] = ContextVar("current actor", default=None)
"""The actor whose handler this task runs; tasks that a handler starts inherit it."""


@contextmanager
def waiting_for(others: Iterable[ActorCell]) -> Iterator[None]:
    """Let the actor that runs this block, if any, wait for all `others` while the block runs.

    Raises AskCycle if one of these waits would close a cycle.
    """
    waiter = CURRENT.get()
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


def path_between(start: ActorCell, goal: ActorCell) -> list[str]:
    """Return the names on a shortest path from `start` to `goal`; empty if there is none."""
    came_from: dict[ActorCell, ActorCell | None] = {start: None}
    queue = [start]
    for cell in queue:
        if cell is goal:
            names: list[str] = []
            step: ActorCell | None = cell
            while step is not None:
                names.append(step.name)
                step = came_from[step]
            return names[::-1]
        for other in cell.waits_for:
            if other not in came_from:
                came_from[other] = cell
                queue.append(other)
    return []
