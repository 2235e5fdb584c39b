"""Watches: messages to an actor about the ends and starts of another one's instances.

Instances are numbered over the whole runtime: that number is an instance's life. A watcher gets
one `Down` for each life that ends while it watches. A watch on an actor without an instance is
notified at once, since it might wait for ever otherwise, but not of an end that its owner was
told before: so a handler of `Down` may watch again, and waits for the next instance's end.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fw_actors.runtime.errors import ActorError
from fw_actors.runtime.messages import Message
from fw_actors.runtime.operations import PendingOperations, Timer, made_message, operations_of

if TYPE_CHECKING:
    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.ref import Ref

MAX_UNDELIVERED: Final = 64


@dataclass(frozen=True, slots=True)
class Down:
    """An instance of the actor `name` ended; `error` is None after an ordered end.

    `life` is the instance's number, which later instances of the runtime exceed; 0 if there was
    none, or if a passivated keyed actor was not watched when it ended.
    """

    name: str
    error: str | None
    life: int = 0


@dataclass(frozen=True, slots=True)
class Up:
    """An instance of the actor `name` has started; `life` is its number, as in `Down`."""

    name: str
    life: int


@dataclass(frozen=True, slots=True)
class Presence:
    """The state of a watched actor when the watch begins."""

    alive: bool
    life: int | None
    """The present instance's life, or else the last one's; None if nobody knows."""
    last_error: str | None


class Watch:
    """A subscription to the ends and starts of another actor's instances: `context.watch`."""

    __slots__ = ("_cell", "_pending", "_ref", "_repeat", "_then", "_undelivered", "_up")
    serves: Final = None

    def __init__(
        self,
        cell: ActorCell,
        ref: Ref,
        then: Callable[[Down], Message],
        up: Callable[[Up], Message] | None,
        repeat: bool,
    ) -> None:
        """Raises MailboxFull and ActorGone, as `PendingOperations.add_timer`."""
        self._cell, self._ref, self._then, self._up, self._repeat = cell, ref, then, up, repeat
        self._undelivered: deque[Down | Up] = deque(maxlen=MAX_UNDELIVERED)
        self._pending = True
        operations = operations_of(cell)
        presence = ref.presence()
        operations.add_timer(self)
        ref.add_watch(self)
        if not presence.alive and not _ends_told(operations).covers(ref.name, presence.life):
            self.down(Down(ref.name, presence.last_error, presence.life or 0))

    def down(self, down: Down) -> None:
        """Queue the completion: an instance has ended, or there was none when the watch began."""
        if not self._repeat:
            self._ref.remove_watch(self)
        self._queue(down)

    def up(self, up: Up) -> None:
        """Queue the completion if starts are asked for: an instance has started."""
        if self._up is not None:
            self._queue(up)

    def cancel(self) -> None:
        """End the watch, also messages that were not handled yet; may be called at any time."""
        if self._pending:
            self._pending = False
            self._ref.remove_watch(self)
            operations_of(self._cell).remove_timer(self)

    def take(self) -> Message | None:
        """Return the next message, and end a watch that does not repeat; None if cancelled."""
        if not self._pending:
            return None
        event = self._undelivered.popleft()
        if self._undelivered:
            operations_of(self._cell).complete(self)
        if isinstance(event, Up):
            assert self._up is not None
            return made_message(self._up(event))
        _ends_told(operations_of(self._cell)).add(self._ref.name, event.life)
        if not self._repeat:
            self.cancel()
        return made_message(self._then(event))

    def abandon(self, error: ActorError) -> None:
        """End the watch because the watching instance has ended."""
        self._pending = False
        self._ref.remove_watch(self)

    def _queue(self, event: Down | Up) -> None:
        if not self._undelivered:
            operations_of(self._cell).complete(self)
        self._undelivered.append(event)


class EndsTold:
    """The ends of other actors that an instance was told of, by their names.

    Bounded: one that is forgotten is told once more, if it is watched again.
    """

    __slots__ = ("_limit", "_lives")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lives: OrderedDict[str, int] = OrderedDict()

    def add(self, name: str, life: int) -> None:
        """Record that the instance was told of the end of a life."""
        self._lives[name] = life
        self._lives.move_to_end(name)
        if len(self._lives) > self._limit:
            self._lives.popitem(last=False)

    def covers(self, name: str, life: int | None) -> bool:
        """Return whether the instance was told of this end, or of any if the life is unknown."""
        told = self._lives.get(name)
        return told is not None and life in (None, told)


def _ends_told(operations: PendingOperations) -> EndsTold:
    if operations.ends_told is None:
        operations.ends_told = EndsTold(operations.max_timers)
    return operations.ends_told


def cancel_timers(cell: ActorCell) -> None:
    """Cancel the timers and watches of a cell: a stopping actor does not wait for them."""
    for operation in cell.pending:
        if isinstance(operation, Timer | Watch):
            operation.cancel()
