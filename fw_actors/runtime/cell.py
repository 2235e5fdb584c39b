"""The state of one actor: what comes in, control, pending operations, failure, end.

A cell outlives its instances: a ref points to the cell, and a restart puts a new `Actor` into it.
It takes messages from three queues:

- control: `inspections`, suspension, tracing, and the stop of a single actor. Looked at before
  each message, so that a full mailbox cannot delay it.
- completions: messages made from finished work, timers and watches. The actor itself started
  these operations and their number is bounded, so that a completion is never refused.
- the mailbox: everything else. It alternates with the completions, so that neither starves.

`HandlingCell` takes the messages and runs the handlers. `SingleCell` does so in a task of its own;
`KeyedCell` borrows a worker while it has messages. Fields with a leading underscore are for this
class and these three.

The module has more than 500 lines because it is one state: parts of it in modules of their own
would write each other's fields.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import trio

from fw_actors.runtime.deadlock import path_between, without
from fw_actors.runtime.errors import (
    ActorError,
    ActorFailed,
    ActorGone,
    AskCycle,
    MailboxFull,
)
from fw_actors.runtime.events import EventKind
from fw_actors.runtime.mailbox import DeadLetterReason, Item, Overflow
from fw_actors.runtime.messages import Message
from fw_actors.runtime.operations import PendingOperations
from fw_actors.runtime.reply import PendingReply
from fw_actors.runtime.watches import Down, Up

if TYPE_CHECKING:
    from fw_actors.runtime.actor import Actor
    from fw_actors.runtime.background import Work
    from fw_actors.runtime.deadlock import WaitNode
    from fw_actors.runtime.mailbox import Feed, Mailbox
    from fw_actors.runtime.operations import Completion, PendingOperation
    from fw_actors.runtime.ref import Ref
    from fw_actors.runtime.system import Runtime
    from fw_actors.runtime.watches import Watch


class ActorState(Enum):
    """The states of an actor's lifecycle."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    FAILED = "failed"


class CrashedError(Exception):
    """Carries a failure from where it happened to the loop that runs the cell, and no further."""

    def __init__(self, error: Exception, told: str) -> None:
        """`told` is the error as one line, without secrets."""
        super().__init__(type(error).__name__)
        self.error, self.told = error, told


MAX_INSPECTIONS: Final = 16
RECENT_TYPES: Final = 16

FaultInjector = Callable[["ActorCell", Item], Item | None]
"""Decides what becomes of an item that leaves the mailbox; see `testing`."""


class ActorCell(ABC):
    """One actor as the runtime sees it, over all its instances."""

    needs_deadline = True

    __slots__ = (
        "__weakref__",
        "_cause",
        "_completion_was_last",
        "_control_due",
        "_current",
        "_fault_injector",
        "_inspections",
        "_mailbox_held",
        "_operations",
        "_overflow",
        "_recent",
        "_serves",
        "_slow",
        "_suspended",
        "_tracer",
        "_watch_table",
        "actor",
        "cancelled",
        "failed",
        "full_of_work",
        "handled",
        "handler_seconds",
        "last_error",
        "life",
        "mailbox",
        "name",
        "passed_on",
        "restarts",
        "runtime",
        "scheduled",
        "waits_for",
    )

    def __init__(
        self, runtime: Runtime, name: str, mailbox: Mailbox, watch_table: Mapping[Any, object]
    ) -> None:
        """`watch_table` is empty as long as `watches` is."""
        self.runtime = runtime
        self.name = name
        self.mailbox = mailbox
        self.actor: Actor | None = None
        """The present instance."""
        self.life = 0
        """The number of the present instance, or else of the last one; 0 before the first."""
        self.scheduled = True
        """Whether a task runs this cell, or will without a call of `schedule`."""
        self.waits_for: tuple[WaitNode, ...] = ()
        """Edges of the wait-for graph; see `deadlock`."""
        self.handled = self.failed = self.cancelled = self.restarts = self.passed_on = 0
        self.handler_seconds = 0.0
        self.last_error: str | None = None
        self._overflow = Overflow.WAIT
        self._control_due = False
        """Whether the next message comes from `_next_item` instead of straight from the mailbox."""
        self._cause: Exception | None = None
        """The failure of the present instance, until all its askers are settled."""
        self._current: PendingReply[Any] | None = None
        """The request that the running handler has to answer."""
        self._serves: PendingReply[Any] | None = None
        """The request that the present message is, or that work was begun for whose result it is.

        Its reply may be kept, or answered already."""
        self._operations: PendingOperations | None = None
        self.full_of_work = False
        """Whether the mailbox has to wait until a piece of work ends."""
        self._completion_was_last = False
        self._mailbox_held = False
        """Whether the messages in the mailbox are left for the next instance."""
        self._inspections: deque[PendingReply[Any]] | None = None
        self._slow = False
        """Whether the last handlers took long enough to look at the clock after each."""
        self._suspended = False
        self._tracer: Callable[[Message], object] | None = None
        self._fault_injector: FaultInjector | None = None
        self._watch_table = watch_table
        self._recent: list[type[Message]] = []
        """Types of the last messages, oldest first; cut to `RECENT_TYPES` now and then."""

    # For the two kinds of cells to define.

    @property
    @abstractmethod
    def ref(self) -> Ref:
        """The address of this cell."""

    @property
    @abstractmethod
    def state(self) -> ActorState:
        """The actor's state in its lifecycle."""

    @property
    @abstractmethod
    def watches(self) -> Collection[Watch]:
        """The watches of other actors on this one."""

    @abstractmethod
    def schedule(self) -> None:
        """Have the cell run soon; called only while it is not `scheduled`."""

    @abstractmethod
    def stop(self, deadline: float) -> None:
        """Ask for an ordered end before `deadline` (trio's clock)."""

    def _became_quiet(self) -> None:  # noqa: B027 - a single actor does not
        """React to the end of the last pending operation."""

    # Incoming messages.

    def tell(self, message: Message) -> bool:
        """Put a message into the mailbox; return False, and record a dead letter, if refused."""
        if not self.scheduled and get_ident() != self.runtime.thread:
            self.runtime.check_thread(self.name)
        try:
            self.mailbox.put(message)
        except trio.WouldBlock:
            if self._overflow is not Overflow.DROP_OLDEST:
                self.runtime.dead_letters.add(self.name, message, DeadLetterReason.FULL)
                return False
            self._replace_oldest(message)
        except trio.ClosedResourceError:
            self.runtime.dead_letters.add(self.name, message, DeadLetterReason.GONE)
            return False
        if not self.scheduled:
            self.schedule()
        return True

    def offer(self, item: Item) -> bool:
        """Put an item into the mailbox; return False if the sender has to wait for room.

        Raises ActorGone and MailboxFull.
        """
        if get_ident() != self.runtime.thread:
            self.runtime.check_thread(self.name)
        try:
            self.mailbox.put(item)
        except trio.WouldBlock:
            if self._overflow is Overflow.WAIT:
                return False
            if self._overflow is Overflow.REFUSE:
                raise self._refused(MailboxFull(self.name, self.mailbox.capacity), item) from None
            self._replace_oldest(item)
        except trio.ClosedResourceError:
            raise self._refused(ActorGone(self.name), item) from None
        if not self.scheduled:
            self.schedule()
        return True

    async def offer_when_room(self, item: Item) -> None:
        """Wait for room and put an item. Raises ActorGone if the actor stops meanwhile.

        No need to schedule the cell: a full mailbox means that it is scheduled already, and only
        its own run makes room.
        """
        try:
            await self.mailbox.put_when_room(item)
        except trio.ClosedResourceError:
            raise self._refused(ActorGone(self.name), item) from None

    def complete(self, completion: Completion) -> None:
        """Queue the completion of a pending operation."""
        operations = self._operations or self.operations
        if operations.completions is None:
            operations.completions = deque()
        operations.completions.append(completion)
        self._control_due = True
        if not self.scheduled:
            self.schedule()

    def inspect(self, reply: PendingReply[Any]) -> None:
        """Queue a request for an inspection. Raises MailboxFull."""
        if self._inspections is None:
            self._inspections = deque()
        if len(self._inspections) >= MAX_INSPECTIONS:  # do not count those that timed out
            self._inspections = deque(waiting for waiting in self._inspections if waiting.wanted)
        if len(self._inspections) >= MAX_INSPECTIONS:
            raise MailboxFull(self.name, MAX_INSPECTIONS, "inspections")
        self._inspections.append(reply)
        self._control_due = True
        if not self.scheduled:
            self.schedule()

    def add_feed(self, feed: Feed) -> None:
        """Take messages of a feed, too. Raises ActorGone if the actor has stopped, or stops."""
        if self.mailbox.is_closed:
            raise ActorGone(self.name)
        self.mailbox.add_feed(feed)

    def feed_closed(self, feed: Feed) -> None:  # noqa: B027 - a single actor does not
        """React to the end of a feed."""

    def _replace_oldest(self, item: Item) -> None:
        full = MailboxFull(self.name, self.mailbox.capacity)
        self._discard(self.mailbox.take_oldest(), DeadLetterReason.DROPPED, full)
        self.mailbox.put(item)

    def _refused(self, error: ActorError, item: Item) -> ActorError:
        message = item.message if isinstance(item, PendingReply) else item
        self.runtime.events.emit_refusal(self.name, error, message)
        return error

    def _discard(self, item: Item, reason: DeadLetterReason, error: ActorError) -> None:
        """Settle an item: its asker gets the error, anything else becomes a dead letter."""
        if isinstance(item, PendingReply) and not item.sent:
            item.abandon(error)
        else:
            message = item.message if isinstance(item, PendingReply) else item
            self.runtime.dead_letters.add(self.name, message, reason)

    # Control.

    def suspend(self) -> None:
        """Handle nothing after the present message until `resume`."""
        self._suspended = True
        self._control_due = True

    def resume(self) -> None:
        """Continue after `suspend`."""
        self._suspended = False
        if not self.scheduled:
            self.schedule()

    def trace(self, tracer: Callable[[Message], object] | None) -> None:
        """Pass each message to `tracer` before it is handled; None ends the trace."""
        self._tracer = tracer
        self._control_due = True

    def inject_faults(self, injector: FaultInjector | None) -> None:
        """Pass each item that leaves the mailbox through `injector`; for tests."""
        self._fault_injector = injector
        self._control_due = True

    @property
    def last_messages(self) -> tuple[str, ...]:
        """Names of the types of the last 16 messages, oldest first; never their contents."""
        return tuple(kind.__name__ for kind in self._recent[-RECENT_TYPES:])

    # The wait-for graph.

    @property
    def cell(self) -> ActorCell:
        """This cell, as a node of the graph."""
        return self

    @property
    def any_of(self) -> Sequence[WaitNode]:
        """Nothing: it waits for all of `waits_for`."""
        return ()

    def begin_wait(self, other: WaitNode) -> None:
        """Add an edge to `other`, to be removed by `end_wait`.

        Raises AskCycle, and adds nothing, if the edge would close a cycle.
        """
        path = path_between(other, self)
        if path:
            raise AskCycle([self.name, *path])
        self.waits_for = (*self.waits_for, other)

    def end_wait(self, other: WaitNode) -> None:
        """Remove one edge to `other`: the wait is over."""
        self.waits_for = without(self.waits_for, other)

    # Pending operations.

    @property
    def operations(self) -> PendingOperations:
        """The pending operations of the present instance. Raises ActorGone without one."""
        if self._operations is None:
            if self.actor is None:
                raise ActorGone(self.name)
            self._operations = PendingOperations(self, self.actor.mailbox)
        return self._operations

    @property
    def pending(self) -> tuple[PendingOperation, ...]:
        """The kept replies, work, timers and watches of the present instance."""
        return tuple(self._operations.pending) if self._operations is not None else ()

    @property
    def works(self) -> int:
        """Pieces of work that were begun and whose completion was not taken yet."""
        return self._operations.works if self._operations is not None else 0

    @property
    def timers(self) -> int:
        """Pending timers and watches."""
        return self._operations.timers if self._operations is not None else 0

    @property
    def stashed(self) -> int:
        """Messages that the present instance has set aside."""
        return self._operations.stashed if self._operations is not None else 0

    @property
    def serves(self) -> PendingReply[Any] | None:
        """The request that the present message is, or is the result of work for."""
        return self._serves

    def keep_reply(self) -> PendingReply[Any]:
        """Detach the reply to the present message from its handler's return value."""
        reply, self._current = self._current, None
        if reply is None or reply.sent:  # the message was told, or its reply is kept already
            return PendingReply(self, Message(), wanted=False)
        reply.detached = True
        self.operations.add(reply)
        return reply

    def stash(self, message: Message) -> PendingReply[Any]:
        """Set the present message aside until `unstash`; at the limit it is refused."""
        reply, self._current = self._current, None
        item: Item = message if reply is None else reply
        if not self.operations.stash(item):
            most = self.actor.mailbox.max_stash if self.actor is not None else 0
            full = MailboxFull(self.name, most, "stashed messages")
            self._discard(item, DeadLetterReason.FULL, full)
        return PendingReply(self, Message(), wanted=False) if reply is None else reply

    def unstash(self) -> None:
        """Handle what was set aside before anything else in the mailbox."""
        if self._operations is not None:
            self._operations.unstash()

    def put_back(self, items: Sequence[Item]) -> None:
        """Put items in front of the mailbox."""
        self.mailbox.put_back(items)
        self._control_due = True  # a batch under way has the mailbox's former `take`

    def end_reply(self, reply: PendingReply[Any]) -> None:
        """Record the answer to a kept reply; does nothing for one that was abandoned."""
        if self._operations is not None:
            self._operations.remove(reply)

    @property
    def kept_request(self) -> PendingReply[Any] | None:
        """The same if its reply is kept and still due: what is begun now is begun for it."""
        served = self.serves
        return served if served is not None and served.detached and not served.answered else None

    def end_work(self, work: Work) -> None:
        """Record the end of a piece of work that sends no message, which would wake the actor."""
        if not self.scheduled and (self.full_of_work or self._mailbox_held):
            self.schedule()
        self.operations.remove_work(work)

    def operations_ended(self) -> None:
        """React to the end of the last pending operation."""
        if self._operations is not None and not self._operations.is_needed:
            self._operations = None
        self._became_quiet()

    def became_full_of_work(self) -> None:
        """React to work that has to wait: look at it before the next message."""
        self.full_of_work = self._control_due = True

    def _adopt(self, actor: Actor) -> None:
        """Make an instance the present one."""
        self._overflow = actor.mailbox.overflow
        self.actor = actor
        self.life = self.runtime.next_life()
        if actor.phases:
            actor.context.begin_phases(actor)

    # Failure and end: all askers are settled here and nowhere else.

    def record_failure(self, phase: str, error: Exception) -> CrashedError:
        """Count and log a failure of the instance; return the error to raise.

        `phase` is construct, start, handler or stop. The asker of the present message gets
        ActorFailed.
        """
        self.failed += 1
        self.last_error = self.runtime.one_line(error)
        if self._current is not None:
            self._current.abandon(ActorFailed(self.name, self.last_error, error))
            self._current = None
        self._cause = error
        self.runtime.log.error(
            "actor_failed",
            actor=self.name,
            phase=phase,
            error=self.last_error,
            recent_messages=self.last_messages,
            exc_info=error,
        )
        of = self._recent[-1].__name__ if phase == "handler" and self._recent else ""
        self.runtime.events.emit(
            EventKind.FAILED, self.name, reason=self.last_error, message_type=of, life=self.life
        )
        return CrashedError(error, self.last_error)

    def record_injected_failure(self, item: Item, error: Exception) -> CrashedError:
        """Do what `record_failure` does if the handler of `item` raises `error`."""
        message = item.message if isinstance(item, PendingReply) else item
        self._recent.append(type(message))
        if isinstance(item, PendingReply):
            self._current = item
        return self.record_failure("handler", error)

    def record_restart(self) -> None:
        """Count a new instance that replaces a failed or stopped one."""
        self.restarts += 1

    def settle_instance(self, failure: str | None) -> None:
        """End the instance and all its pending operations.

        Askers get ActorFailed if `failure` says why it failed, ActorGone otherwise.
        """
        if self._current is not None:
            self._current.abandon(self._end_error(failure))
            self._current = None
        self._serves = None
        operations, self._operations = self._operations, None
        if operations is not None:
            operations.abandon_all(lambda: self._end_error(failure))
        self._cause = None
        self.full_of_work = False
        if self.actor is not None:
            self.actor = None
            if self._watch_table:
                for watch in tuple(self.watches):
                    watch.down(Down(self.name, failure, self.life))
            if failure is None and self.runtime.events.has_members:
                self.runtime.events.emit(self._end_kind, self.name, life=self.life)

    def settle_mailbox(self) -> None:
        """Close the mailbox; its messages become dead letters, their askers get ActorGone."""
        self.mailbox.close()
        self._discard_all(DeadLetterReason.STOPPED, lambda: ActorGone(self.name))
        self._refuse_inspections()

    def _discard_all(self, reason: DeadLetterReason, error: Callable[[], ActorError]) -> None:
        """Empty the mailbox, also of what waits for room."""
        with suppress(trio.EndOfChannel, trio.WouldBlock):
            while True:
                self._discard(self.mailbox.take(), reason, error())

    def _refuse_inspections(self) -> None:
        for reply in self._inspections or ():
            reply.abandon(ActorGone(self.name))
        self._inspections = None

    @property
    def _end_kind(self) -> EventKind:
        """The event of an end without a failure."""
        return EventKind.STOPPED

    def _notify_up(self) -> None:
        if self.runtime.events.has_members:
            self.runtime.events.emit(EventKind.STARTED, self.name, life=self.life)
        if self._watch_table:
            for watch in tuple(self.watches):
                watch.up(Up(self.name, self.life))

    def _end_error(self, failure: str | None) -> ActorError:
        """Return a new error for each asker: one shared by tasks would mix their tracebacks."""
        if failure is None:
            return ActorGone(self.name)
        return ActorFailed(self.name, failure, self._cause)
