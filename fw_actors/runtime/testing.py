"""A failure injector for tests: drops, delays or crashes on messages as they leave a mailbox.

    with injecting(runtime.ref("dispatcher"), nth({2: Drop(), 5: Delay(3.0), 7: Crash()})) as harm:
        ...
    assert [entry.fault for entry in harm.done] == [Drop(), Delay(3.0), Crash()]

It works on a single actor over all its restarts, or on a pool as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fw_actors.runtime.cell import Cell
from fw_actors.runtime.errors import ActorError
from fw_actors.runtime.mailbox import Item
from fw_actors.runtime.messages import Message
from fw_actors.runtime.pool import KeyedPool
from fw_actors.runtime.ref import ActorRef
from fw_actors.runtime.reply import PendingReply


@dataclass(frozen=True, slots=True)
class Drop:
    """The message is lost: no handler, no answer, no dead letter; its asker waits in vain."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The message comes so many seconds later, behind others that came after it.

    An instance that goes away meanwhile takes it along; its asker is told so.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class Crash:
    """The instance fails as if the message's handler had raised `InjectedCrash`."""


Fault = Drop | Delay | Crash
Plan = Callable[[int, Message], Fault | None]
"""Decides on each message: how many there were with it, and the message itself."""


class InjectedCrash(Exception):
    """The failure that a `Crash` stands for."""


@dataclass(frozen=True, slots=True)
class Done:
    """One fault that was brought about, at which actor, on which message of all (from 1)."""

    actor: str
    number: int
    message: str
    fault: Fault


@dataclass(slots=True)
class Injector:
    """What `injecting` gives: how many messages it saw, and what it did to them."""

    plan: Plan
    seen: int = 0
    done: list[Done] = field(default_factory=list)

    def tamper(self, cell: Cell, item: Item) -> Item | None:
        """Let an item pass, or bring its fault about; None when there is nothing to handle.

        Raises CrashedError, as a turn does.
        """
        message = item.message if isinstance(item, PendingReply) else item
        self.seen += 1
        fault = self.plan(self.seen, message)
        if fault is None:
            return item
        self.done.append(Done(cell.name, self.seen, type(message).__name__, fault))
        if isinstance(fault, Delay):
            Delayed(cell, item, fault.seconds)
        elif isinstance(fault, Crash):
            cell.recent.append(type(message))
            if isinstance(item, PendingReply):
                cell.current = item
            raise cell.note_failure("handler", InjectedCrash(f"on message {self.seen}"))
        return None


class Delayed:
    """A message on its way round; comes back through the side lane, so that no room is needed."""

    def __init__(self, cell: Cell, item: Item, seconds: float) -> None:
        self._cell, self._item, self._seconds = cell, item, seconds
        cell.hold(self)
        cell.runtime.deadlines.add(self, seconds)

    def expire(self) -> None:
        """Put the message into the side lane."""
        self._cell.arrive(self)

    def take(self) -> Item:
        """Give the message."""
        self._cell.release(self)
        return self._item

    def abandon(self, fault: ActorError) -> None:
        """Lose the message with the instance that was to get it."""
        self._cell.runtime.deadlines.withdraw(self, self._seconds)
        if isinstance(self._item, PendingReply):
            self._item.abandon(fault)


def nth(faults: Mapping[int, Fault]) -> Plan:
    """Return the plan that brings each fault about on the message of its number, from 1."""
    return lambda number, _: faults.get(number)


@contextmanager
def injecting(target: ActorRef | KeyedPool, plan: Plan) -> Iterator[Injector]:
    """Tamper with the messages of a single actor, or of all actors of a pool, while the block runs.

    Results of work, timers and watches are left alone: they come through another lane.
    """
    injector = Injector(plan)
    place = target if isinstance(target, KeyedPool) else target.cell
    place.set_tamper(injector.tamper)
    try:
        yield injector
    finally:
        place.set_tamper(None)
