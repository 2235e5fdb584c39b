"""The state machine behind a ref: lifecycle, mailbox, turns and pending work of one actor.

A cell outlives its instances. It has three lanes, read in this order before each message: control
(`inspections`, `suspended`, `trace`, and the stop of a single actor), the side lane (results of
work, timers, watches; bounded by what the actor began itself, so never refused; it takes turns
with the mailbox), and the mailbox. Who runs the cell is its children's affair: `SingleCell` has a
task of its own, `KeyedCell` borrows a parked worker.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import trio

from fw_actors.runtime.errors import ActorError, ActorFailed, ActorGone, MailboxFull, NotHandled
from fw_actors.runtime.mailbox import DeadLetterReason, Item, Overflow
from fw_actors.runtime.messages import HandlerTable, Message
from fw_actors.runtime.reply import Hold, Holder, PendingReply
from fw_actors.runtime.snapshot import inspection_of

if TYPE_CHECKING:
    from fw_actors.runtime.mailbox import Mailbox, MailboxPolicy
    from fw_actors.runtime.system import Ground


class State(Enum):
    """Where an actor is in its life."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    FAILED = "failed"


class Instance(Protocol):
    """What a cell runs: an `Actor`, as far as the cell has to know it."""

    mailbox: ClassVar[MailboxPolicy]
    handlers: ClassVar[HandlerTable]

    async def started(self) -> None: ...

    async def stopping(self) -> None: ...

    def describe(self) -> dict[str, object]: ...


class Arrival(Hold, Protocol):
    """A hold that ends with a message to its own actor, through the side lane."""

    def take(self) -> Message | PendingReply[Any] | None:
        """Give the message and end the hold; None when there is nothing to handle any more."""


@dataclass(frozen=True, slots=True)
class Down:
    """An instance of the single actor `name` went away; `error` is one line, None when in order."""

    name: str
    error: str | None


class Watcher(Protocol):
    """Somebody who is told when an instance has gone."""

    def fire(self, down: Down) -> None:
        """Hear of it; must not raise."""


class CrashedError(Exception):
    """Carries a failure out of the turn in which it happened; it never reaches a caller."""

    def __init__(self, error: Exception) -> None:
        super().__init__(type(error).__name__)
        self.error = error


INSPECTIONS: Final = 16
RECENT: Final = 16


Tamper = Callable[["Cell", Item], Item | None]
"""What a test does to items as they leave the mailbox; see `testing`."""


class Cell(Holder):
    """The common part; see the module."""

    __slots__ = (
        "__weakref__",
        "actor",
        "alert",
        "awake",
        "current",
        "failed",
        "handled",
        "handler_seconds",
        "inspections",
        "last_error",
        "mailbox",
        "overflow",
        "recent",
        "restarts",
        "side",
        "side_was_last",
        "skipped",
        "suspended",
        "tamper",
        "timers",
        "trace",
        "waits",
        "watchers",
        "works",
    )

    def __init__(self, runtime: Ground, name: str, mailbox: Mailbox) -> None:
        super().__init__(runtime, name)
        self.mailbox = mailbox
        self.overflow = Overflow.WAIT
        self.actor: Instance | None = None
        self.awake = True
        """Whether somebody runs this cell, or will without being woken."""
        self.alert = False
        """Whether the next turn has to look beyond the mailbox: control lane, side lane, trace."""
        self.current: PendingReply[Any] | None = None
        """The question that the running handler still has to answer."""
        self.side: deque[Arrival] | None = None
        self.side_was_last = False
        self.works = 0
        self.timers = 0
        self.inspections: deque[PendingReply[Any]] | None = None
        self.suspended = False
        self.trace: Callable[[Message], object] | None = None
        self.tamper: Tamper | None = None
        self.waits: tuple[Cell, ...] = ()
        self.watchers: dict[Watcher, None] | None = None
        self.recent: list[type[Message]] = []
        """Types of the last messages, oldest first: a few more than `last_messages` tells of."""
        self.handled = self.failed = self.skipped = self.restarts = 0
        self.handler_seconds = 0.0
        self.last_error: str | None = None

    # What the children decide.

    @abstractmethod
    def wake(self) -> None:
        """See that the cell is run; called when it is not awake."""

    @abstractmethod
    def stop(self, deadline: float) -> None:
        """Ask the cell to end in order, before `deadline` on trio's clock."""

    @property
    @abstractmethod
    def state(self) -> State:
        """Where the actor is in its life."""

    @property
    def last_messages(self) -> tuple[str, ...]:
        """Names of the types of the last 16 messages, oldest first; never their contents."""
        return tuple(kind.__name__ for kind in self.recent[-RECENT:])

    def set_tamper(self, tamper: Tamper | None) -> None:
        """Have items pass through `tamper` as they leave the mailbox; for tests."""
        self.tamper = tamper
        self.alert = True

    # Messages coming in.

    def tell(self, message: Message) -> bool:
        """Put a message; False and a dead letter when there is no room or nobody is there."""
        try:
            self.mailbox.put(message)
        except trio.WouldBlock:
            if self.overflow is not Overflow.DROP_OLDEST:
                self.runtime.dead_letters.add(self.name, message, DeadLetterReason.FULL)
                return False
            self._put_in_place_of_oldest(message)
        except trio.ClosedResourceError:
            self.runtime.dead_letters.add(self.name, message, DeadLetterReason.GONE)
            return False
        if not self.awake:
            self.wake()
        return True

    def offer(self, item: Item) -> bool:
        """Put an item; False when the sender has to wait for room.

        Raises ActorGone and MailboxFull.
        """
        try:
            self.mailbox.put(item)
        except trio.WouldBlock:
            if self.overflow is Overflow.WAIT:
                return False
            if self.overflow is Overflow.REFUSE:
                raise MailboxFull(self.name, self.mailbox.capacity) from None
            self._put_in_place_of_oldest(item)
        except trio.ClosedResourceError:
            raise ActorGone(self.name) from None
        if not self.awake:
            self.wake()
        return True

    async def offer_when_room(self, item: Item) -> None:
        """Put an item, waiting for room. Raises ActorGone when the actor stops meanwhile.

        Nobody has to be woken: only the cell's own run makes room, and it sees what comes then.
        """
        try:
            await self.mailbox.put_when_room(item)
        except trio.ClosedResourceError:
            raise ActorGone(self.name) from None

    def arrive(self, arrival: Arrival) -> None:
        """Put something into the side lane."""
        if self.side is None:
            self.side = deque()
        self.side.append(arrival)
        self.alert = True
        if not self.awake:
            self.wake()

    def inspect(self, slot: PendingReply[Any]) -> None:
        """Put a request for an inspection into the control lane. Raises MailboxFull."""
        if self.inspections is None:
            self.inspections = deque()
        if len(self.inspections) >= INSPECTIONS:  # those that timed out take no room
            self.inspections = deque(waiting for waiting in self.inspections if waiting.wanted)
        if len(self.inspections) >= INSPECTIONS:
            raise MailboxFull(self.name, INSPECTIONS, "inspections")
        self.inspections.append(slot)
        self.alert = True
        if not self.awake:
            self.wake()

    def _put_in_place_of_oldest(self, item: Item) -> None:
        self._discard(self.mailbox.take(), DeadLetterReason.DROPPED)
        self.mailbox.put(item)

    def _discard(self, item: Item, reason: DeadLetterReason) -> None:
        if isinstance(item, PendingReply):
            if reason is DeadLetterReason.DROPPED:
                item.abandon(MailboxFull(self.name, self.mailbox.capacity))
            else:
                item.abandon(ActorGone(self.name))
        else:
            self.runtime.dead_letters.add(self.name, item, reason)

    # What others may do to it beside sending: the supervisor's hand, and death watch.

    def suspend(self) -> None:
        """Handle nothing after the message in hand."""
        self.suspended = True
        self.alert = True

    def resume(self) -> None:
        """Go on."""
        self.suspended = False
        if not self.awake:
            self.wake()

    def watch(self, watcher: Watcher) -> None:
        """Have `watcher` told when the present instance has gone."""
        if self.watchers is None:
            self.watchers = {}
        self.watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        """Tell it no longer; unknown ones are ignored."""
        if self.watchers is not None:
            self.watchers.pop(watcher, None)

    # Ends: one place settles whoever still waits.

    def note_failure(self, phase: str, error: Exception) -> CrashedError:
        """Count and log a failure of the instance; returns what to raise.

        `phase` is construct, start, handler or stop. The failure's asker gets ActorFailed.
        """
        self.failed += 1
        self.last_error = self.runtime.one_line(error)
        if self.current is not None:
            self.current.abandon(ActorFailed(self.name, self.last_error))
            self.current = None
        self.runtime.log.error(
            "actor_failed",
            actor=self.name,
            phase=phase,
            error=self.last_error,
            recent_messages=self.last_messages,
            exc_info=error,
        )
        return CrashedError(error)

    def settle_instance(self, failure: str | None) -> None:
        """End what the instance began: its question, kept replies, work, timers, watches.

        With a `failure` askers get ActorFailed, otherwise ActorGone.
        """
        if self.current is not None:
            self.current.abandon(self._fault(failure))
            self.current = None
        holds, self.holds, self.side = self.holds or {}, None, None
        for hold in holds:
            hold.abandon(self._fault(failure))
        self.works = self.timers = 0
        self.actor = None

    def settle_mailbox(self) -> None:
        """Close the mailbox, and give up what is in it: dead letters, ActorGone for askers."""
        self.mailbox.close()
        while True:
            try:
                item = self.mailbox.take()
            except (trio.EndOfChannel, trio.WouldBlock):
                break
            self._discard(item, DeadLetterReason.STOPPED)
        for slot in self.inspections or ():
            slot.abandon(ActorGone(self.name))
        self.inspections = None

    def _fault(self, failure: str | None) -> ActorError:
        if failure is None:
            return ActorGone(self.name)
        return ActorFailed(self.name, failure)


MESSAGES_A_TURN: Final = 128


async def run_turn(cell: Cell, actor: Instance) -> bool:  # noqa: C901 - the hottest loop of all
    """Handle what is there, up to a turn's worth; return whether more may be there.

    After True the caller has to make a checkpoint, so that nobody starves.
    Raises CrashedError when a handler failed: the message is gone, its asker has ActorFailed.
    """
    # A message that was told costs no call but its handler's own, and nothing that may be left out.
    handlers, take, now = actor.handlers, cell.mailbox.take, cell.runtime.deadlines.now
    note = cell.recent.append
    slot: PendingReply[Any] | None = None
    before, untimed = now(), False
    try:
        for _ in range(MESSAGES_A_TURN):
            item: Any = _attend(cell, actor) if cell.alert else take()
            kind = type(item)
            if kind is PendingReply:
                slot, item = item, item.message
                if not slot.wanted:
                    cell.skipped += 1
                    slot = None
                    continue
                cell.current = slot
                kind = type(item)
            try:
                function, is_async = handlers[kind]
            except KeyError:
                _refuse(cell, item)
                slot = None
                continue
            note(kind)
            untimed = True
            try:
                result = function(actor, item)
                if is_async:
                    result = await result
                    after = now()
                    cell.handler_seconds += after - before
                    before, untimed = after, False
            except Exception as error:
                raise cell.note_failure("handler", error) from error
            if slot is not None:
                if cell.current is slot:  # else its reply was kept
                    cell.current = None
                    slot.answer(result)
                slot = None
            cell.handled += 1
    except (trio.WouldBlock, trio.EndOfChannel):
        return False
    finally:
        if untimed:  # plain handlers are timed together
            cell.handler_seconds += now() - before
        if len(cell.recent) > RECENT:
            del cell.recent[:-RECENT]
    return True


def _attend(cell: Cell, actor: Instance) -> Item | None:
    """Look beyond the mailbox; return the next message of all, None when it needs no handling.

    Raises what the mailbox's `take` raises when there is nothing to be handled now.
    """
    if cell.inspections:
        _answer_inspections(cell, actor)
    if cell.suspended:
        raise trio.WouldBlock
    cell.alert = bool(cell.side) or cell.trace is not None or cell.tamper is not None
    item = _take_turns(cell) if cell.side else _take(cell)
    if cell.trace is not None:
        _show(cell, cell.trace, item)
    return item


def _take(cell: Cell) -> Item | None:
    item = cell.mailbox.take()
    return item if cell.tamper is None else cell.tamper(cell, item)


def _take_turns(cell: Cell) -> Item | None:
    """Return the next from side lane or mailbox; None when there is nothing to handle in it."""
    assert cell.side
    if cell.side_was_last:
        cell.side_was_last = False
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            return _take(cell)
    cell.side_was_last = True
    try:
        return cell.side.popleft().take()
    except Exception as error:
        raise cell.note_failure("handler", error) from error


def _show(cell: Cell, onlooker: Callable[[Message], object], item: Item | None) -> None:
    if isinstance(item, PendingReply):
        item = item.message if item.wanted else None
    if item is None:
        return
    try:
        onlooker(item)
    except Exception as error:
        cell.trace = None  # an onlooker never harms the actor
        cell.runtime.log.warning(
            "trace_failed", actor=cell.name, error=cell.runtime.one_line(error)
        )


def _refuse(cell: Cell, message: Message | None) -> None:
    """Settle a message without a handler; None is a message that was called off on its way."""
    if message is None:
        return
    slot, cell.current = cell.current, None
    if slot is not None:
        slot.abandon(NotHandled(cell.name, type(message).__name__))
    cell.runtime.dead_letters.add(cell.name, message, DeadLetterReason.NOT_HANDLED)


def _answer_inspections(cell: Cell, actor: Instance) -> None:
    slots, cell.inspections = cell.inspections, None
    for slot in slots or ():
        result: Any
        try:
            result = inspection_of(cell, actor.describe())
        except Exception as error:
            slot.abandon(ActorFailed(cell.name, cell.runtime.one_line(error)))
        else:
            slot.answer(result)
