"""Finds actors that would wait for each other for ever, before they do.

An ask, a wait for room or a wait for others to stop inside a handler holds the actor up, so it is
an edge from this actor to the other one, for as long as it lasts. Most actors wait for nobody, so
the search mostly ends at its first step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from fw_actors.runtime.cell import Cell
from fw_actors.runtime.errors import AskCycle

CURRENT: Final[ContextVar[Cell | None]] = ContextVar("current actor", default=None)
"""The actor whose handler this task runs; tasks that a handler starts inherit it."""


def join(waiter: Cell, other: Cell) -> None:
    """Add the edge from `waiter` to `other`; who adds one takes it away by `leave`.

    Raises AskCycle when it would close a ring; then there is no edge.
    """
    ring = _path(other, waiter)
    if ring:
        raise AskCycle([waiter.name, *ring])
    waiter.waits = (*waiter.waits, other)


def leave(waiter: Cell, other: Cell) -> None:
    """Take an edge away: the wait is over."""
    left = list(waiter.waits)
    left.remove(other)
    waiter.waits = tuple(left)


@contextmanager
def waiting_for(others: Iterable[Cell]) -> Iterator[None]:
    """Have edges from the actor whose handler this is, if any, to all others while the block runs.

    Raises AskCycle when one of them would close a ring.
    """
    waiter = CURRENT.get()
    if waiter is None:
        yield
        return
    joined: list[Cell] = []
    try:
        for other in others:
            join(waiter, other)
            joined.append(other)
        yield
    finally:
        for other in joined:
            leave(waiter, other)


def _path(start: Cell, goal: Cell) -> list[str]:
    """Return the names on a way of edges from `start` to `goal`; empty when there is none."""
    came_from: dict[Cell, Cell | None] = {start: None}
    todo = [start]
    for cell in todo:
        if cell is goal:
            names: list[str] = []
            step: Cell | None = cell
            while step is not None:
                names.append(step.name)
                step = came_from[step]
            return names[::-1]
        for other in cell.waits:
            if other not in came_from:
                came_from[other] = cell
                todo.append(other)
    return []
