"""The cell of an actor: arrival of messages, control, the run of handlers, failure and end.

A cell outlives its instances: a ref points to the cell, and a restart puts a new `Actor` into it.
It takes messages from three queues:

- control: inspections, suspension, tracing, and the stop of a single actor. Checked before each
  message, so that a full mailbox cannot delay it.
- completions: messages made from finished work, timers and watches. The actor itself started
  these operations and their number is bounded, so that a completion is never refused.
- the mailbox: everything else. It alternates with the completions, so that neither starves.

`SingleCell` runs the handlers in its own task; `KeyedCell` uses a worker while it has messages.
Fields with a leading underscore are for this class and these two.

The module has more than 500 lines because the cell is one state: the loop that runs the handlers
reads and writes most of the fields that arrivals, control, failure and end change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import trio

from fw_actors.runtime.clock import TimeLimit
from fw_actors.runtime.deadlock import path_between, without
from fw_actors.runtime.errors import (
    ActorError,
    ActorFailed,
    ActorGone,
    AskCycle,
    AskTimeout,
    MailboxFull,
    NotHandled,
    StartOverdueError,
    passed_on,
)
from fw_actors.runtime.mailbox import DEFAULT_POLICY, DeadLetterReason, Item, Overflow
from fw_actors.runtime.messages import PLAIN_RESULTS, Message, carrying_handler, check_result
from fw_actors.runtime.operations import PendingOperations, operations_of
from fw_actors.runtime.reply import PendingReply
from fw_actors.runtime.snapshot import inspection_of, place_of
from fw_actors.runtime.supervision import Down, Up
from fw_actors.runtime.topics import EventKind

if TYPE_CHECKING:
    from fw_actors.runtime.actor import Actor
    from fw_actors.runtime.deadlock import WaitNode
    from fw_actors.runtime.mailbox import Feed, Mailbox, MailboxPolicy
    from fw_actors.runtime.operations import Completion, PendingOperation
    from fw_actors.runtime.ref import Ref
    from fw_actors.runtime.supervision import Watch
    from fw_actors.runtime.system import Runtime


class ActorState(Enum):
    """The states of an actor's lifecycle."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    FAILED = "failed"


class CrashedError(Exception):
    """Carries a failure to the loop that runs the cell; it does not leave the cell."""

    def __init__(self, error: Exception, reason: str) -> None:
        """`reason` is the error as one line, without secrets."""
        super().__init__(type(error).__name__)
        self.error, self.reason = error, reason


MAX_INSPECTIONS: Final = 16
RECENT_TYPES: Final = 16
RECENT_TYPES_KEPT: Final = 64  # cut after a batch: cutting after each message costs more
SECONDS_PER_BATCH: Final = 0.002
CHECKPOINTS_AFTER_LONG_BATCH: Final = 3
"""trio runs all ready tasks in random order, and an ask takes two such rounds: to the actor, and
back to the asker. With three rounds for other tasks, a busy actor delays an ask by at most one
batch."""
COARSE: Final = (range(8), range(24), range(32), range(32), range(32))
"""A batch of 128 messages; the clock is read after each of these ranges."""
FINE: Final = (range(1),) * 128
"""The same for an actor whose last handlers were slow."""

FaultInjector = Callable[["ActorCell", Item], Item | None]
"""Called with each item that leaves the mailbox; returns the item, or None to drop it. See
`testing`."""


async def run_started(cell: ActorCell, actor: Actor, seconds: float) -> None:
    """Run the `started` of an instance. Raises StartOverdueError if it takes too long."""
    if seconds == inf:
        await actor.started()
        return
    limit = TimeLimit(cell.runtime.deadlines, seconds, place_of)
    with limit:
        await actor.started()
    if limit.exceeded:
        raise StartOverdueError(cell.name, seconds, limit.place)


class ActorCell(ABC):
    """The runtime's state of one actor, over all its instances."""

    needs_deadline = True
    any_of: Sequence[WaitNode] = ()  # it needs all of `waits_for`

    __slots__ = (
        "__weakref__",
        "_cause",
        "_completion_was_last",
        "_current",
        "_fault_injector",
        "_inspections",
        "_recent",
        "_slow",
        "_suspended",
        "_tracer",
        "_wanted_scope",
        "_watch_table",
        "actor",
        "cancelled",
        "control_due",
        "failed",
        "full_of_work",
        "handled",
        "handler_seconds",
        "incarnation",
        "last_error",
        "mailbox",
        "mailbox_held",
        "name",
        "operations",
        "passed_on",
        "policy",
        "restarts",
        "runtime",
        "scheduled",
        "serves",
        "stop_requested",
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
        """The current instance."""
        self.incarnation = 0
        """The incarnation: the number of the current instance, or else of the last one; 0 before
        the first."""
        self.scheduled = True
        """Whether a task runs this cell, or will do so without a call of `schedule`."""
        self.waits_for: tuple[WaitNode, ...] = ()
        """Edges of the wait-for graph; see `deadlock`."""
        self.handled = self.failed = self.cancelled = self.restarts = self.passed_on = 0
        self.handler_seconds = 0.0
        self.last_error: str | None = None
        self.policy = DEFAULT_POLICY
        """The limits of the current instance, or else of the last one."""
        self.control_due = False
        """Whether the next message comes from `_next_item` instead of straight from the mailbox."""
        self._cause: Exception | None = None
        """The failure of the current instance, until all its askers are settled."""
        self._current: PendingReply[Any] | None = None
        """The request that the running handler must answer."""
        self.serves: PendingReply[Any] | None = None
        """The request that is being handled: the current message, or the request for which the
        finished work was begun.

        Its reply may be kept, or may be answered already."""
        self.operations: PendingOperations | None = None
        """The pending operations of the current instance, if there are any; see `operations_of`."""
        self.full_of_work = False
        """Whether the mailbox must wait until a piece of work ends."""
        self._completion_was_last = False
        self.stop_requested = False
        """Whether the actor ends once it has nothing to do."""
        self.mailbox_held = False
        """Whether the messages in the mailbox are kept for the next instance."""
        self._inspections: deque[PendingReply[Any]] | None = None
        self._slow = False
        """Whether the last handlers were so slow that the clock is read after each."""
        self._suspended = False
        self._tracer: Callable[[Message], object] | None = None
        self._fault_injector: FaultInjector | None = None
        self._wanted_scope: trio.CancelScope | None = None
        """Cancels the running handler, if it is marked `give_up`."""
        self._watch_table = watch_table
        self._recent: list[type[Message]] = []
        """Types of the last messages, oldest first; cut to `RECENT_TYPES` from time to time."""

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
        """Request an orderly end before `deadline` (trio's clock)."""

    def became_quiet(self) -> None:  # noqa: B027 - a single actor does not
        """React to the end of the last pending operation of a cell that is not `scheduled`."""

    # Incoming messages.

    def tell(self, message: Message) -> bool:
        """Put a message into the mailbox; return False, and record a dead letter, if refused."""
        if not self.scheduled and get_ident() != self.runtime.thread:
            self.runtime.check_thread(self.name)
        try:
            self.mailbox.put(message)
        except trio.WouldBlock:
            if self.policy.overflow is not Overflow.DROP_OLDEST:
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
            if self.policy.overflow is Overflow.WAIT:
                return False
            if self.policy.overflow is Overflow.REFUSE:
                raise self._refused(MailboxFull(self.name, self.mailbox.capacity), item) from None
            self._replace_oldest(item)
        except trio.ClosedResourceError:
            raise self._refused(ActorGone(self.name), item) from None
        if not self.scheduled:
            self.schedule()
        return True

    async def offer_when_room(self, item: Item) -> None:
        """Wait for room and put an item. Raises ActorGone if the actor stops meanwhile.

        The cell need not be scheduled: a full mailbox means that it is scheduled already, and only
        its own run makes room.
        """
        try:
            await self.mailbox.put_when_room(item)
        except trio.ClosedResourceError:
            raise self._refused(ActorGone(self.name), item) from None

    def inspect(self, reply: PendingReply[Any]) -> None:
        """Queue a request for an inspection. Raises MailboxFull."""
        if self._inspections is None:
            self._inspections = deque()
        if len(self._inspections) >= MAX_INSPECTIONS:  # remove those that timed out
            self._inspections = deque(waiting for waiting in self._inspections if waiting.awaited)
        if len(self._inspections) >= MAX_INSPECTIONS:
            raise MailboxFull(self.name, MAX_INSPECTIONS, "inspections")
        self._inspections.append(reply)
        self.control_due = True
        if not self.scheduled:
            self.schedule()

    def add_feed(self, feed: Feed) -> None:
        """Also take messages from a feed. Raises ActorGone if the actor has stopped or is
        stopping."""
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
        """Handle nothing after the current message until `resume`."""
        self._suspended = True
        self.control_due = True

    def resume(self) -> None:
        """Continue after `suspend`."""
        self._suspended = False
        if not self.scheduled:
            self.schedule()

    def trace(self, tracer: Callable[[Message], object] | None) -> None:
        """Pass each message to `tracer` before it is handled; None ends the trace."""
        self._tracer = tracer
        self.control_due = True

    def inject_faults(self, injector: FaultInjector | None) -> None:
        """Pass each item that leaves the mailbox through `injector`; for tests."""
        self._fault_injector = injector
        self.control_due = True

    @property
    def last_messages(self) -> tuple[str, ...]:
        """Names of the types of the last 16 messages, oldest first; never their contents."""
        return tuple(kind.__name__ for kind in self._recent[-RECENT_TYPES:])

    # The wait-for graph.

    @property
    def cell(self) -> ActorCell:
        """Return this cell, as a node of the graph."""
        return self

    def begin_wait(self, other: WaitNode) -> None:
        """Add an edge to `other`, to be removed by `end_wait`.

        Raises AskCycle, and adds nothing, if the edge would close a cycle.
        """
        target = other.cell
        waits_for_nobody = not (target.waits_for or target.any_of or target is self)
        if not waits_for_nobody or type(other) is not PendingReply or other.work_waits_for:
            path = path_between(other, self)
            if path:
                raise AskCycle([self.name, *path])
        self.waits_for = (*self.waits_for, other) if self.waits_for else (other,)

    def end_wait(self, other: WaitNode) -> None:
        """Remove one edge to `other`: the wait is over."""
        self.waits_for = () if len(self.waits_for) == 1 else without(self.waits_for, other)

    # Pending operations.

    @property
    def pending(self) -> tuple[PendingOperation, ...]:
        """The kept replies, work, timers and watches of the current instance."""
        return tuple(self.operations.pending) if self.operations is not None else ()

    @property
    def works(self) -> int:
        """Pieces of work that were begun and whose completion was not taken yet."""
        return self.operations.works if self.operations is not None else 0

    @property
    def timers(self) -> int:
        """Pending timers and watches."""
        return self.operations.timers if self.operations is not None else 0

    @property
    def stashed(self) -> int:
        """Messages that the current instance has stashed."""
        return self.operations.stashed if self.operations is not None else 0

    def keep_reply(self) -> PendingReply[Any]:
        """Detach the reply to the current message from the handler's return value."""
        reply, self._current = self._current, None
        if reply is None or reply.sent:  # the message was told, or its reply is kept already
            return PendingReply(self, Message(), awaited=False)
        reply.detached = True
        (self.operations or operations_of(self)).pending[reply] = None
        return reply

    def stash(self, message: Message) -> PendingReply[Any]:
        """Stash the current message until `unstash`; at the limit it is refused."""
        reply, self._current = self._current, None
        item: Item = message if reply is None else reply
        if not operations_of(self).stash(item):
            full = MailboxFull(self.name, self.policy.max_stash, "stashed messages")
            self._discard(item, DeadLetterReason.FULL, full)
        return PendingReply(self, Message(), awaited=False) if reply is None else reply

    def unstash(self) -> None:
        """Handle the stashed messages before all others in the mailbox."""
        if self.operations is not None:
            self.operations.unstash()

    def put_back(self, items: Sequence[Item]) -> None:
        """Put items in front of the mailbox."""
        self.mailbox.put_back(items)
        self.control_due = True  # a running batch has the mailbox's former `take`

    def _adopt(self, actor: Actor, policy: MailboxPolicy) -> None:
        """Make an instance the current one, with the limits `policy`."""
        self.policy = policy
        self.actor = actor
        self.incarnation = self.runtime.next_incarnation()
        if actor.phases:
            actor.context.begin_phases(actor)
        if self.runtime.tracing is not None:
            self.runtime.tracing.instrument(actor, self)

    # Running the handlers.

    async def _run_batch(self, actor: Actor) -> int:
        """Handle messages, limited by number and time.

        Returns the number of checkpoints that the caller must pass before the next batch, so that
        other tasks can run; 0 if nothing is waiting.
        Raises CrashedError if a handler failed: its message is lost, its asker has ActorFailed.
        """
        now = self.runtime.deadlines.now
        began = before = now()
        for stretch in FINE if self._slow else COARSE:
            if not await self._run_handlers(actor, stretch, before):
                return 0
            after = now()
            self._slow = after - before > SECONDS_PER_BATCH / 8
            if after - began > SECONDS_PER_BATCH:
                return CHECKPOINTS_AFTER_LONG_BATCH
            before = after
        return 1

    async def _run_handlers(  # noqa: C901, PLR0912, PLR0915
        self, actor: Actor, stretch: range, before: float
    ) -> bool:
        """Handle one message for each number of `stretch`; return False if there are no more.

        `before` is the current time. These lines run for every message, so they are not split into
        functions: a told message costs the call of its handler and the calls of the channel.

        `reply` is the request that is being handled, or None for a message without an asker.
        `untimed`: a handler has run since the clock was read.
        """
        handlers, take, now = actor.handlers, self.mailbox.take, self.runtime.deadlines.now
        slow = actor.slow_seconds
        remember = self._recent.append
        reply: PendingReply[Any] | None = None
        untimed = False
        try:
            for _ in stretch:
                item: Any = self._next_item(actor) if self.control_due else take()
                kind = type(item)
                if kind is PendingReply:  # an asked message, or one with context variables
                    if not item.awaited or (item.parent is not None and item.abandon_orphan()):
                        self.cancelled += 1
                        continue
                    self._current = self.serves = reply = item
                    item = reply.message
                    kind = type(item)
                try:
                    function, is_async = handlers[kind]
                except KeyError:
                    self._reject(item)
                    reply = self.serves = None
                    continue
                remember(kind)
                untimed = True  # until an async handler ends, or the stretch
                if reply is not None and reply.carried:
                    function = carrying_handler(reply.carried, function, is_async=is_async)
                    is_async = True
                try:
                    result = function(actor, item)
                    if is_async:
                        result = await result
                        after = now()
                        seconds = after - before
                        self.handler_seconds += seconds
                        if seconds >= slow:
                            self._report_slow(actor, 1, seconds)
                        before, untimed = after, False
                    elif result is not None and type(result) not in PLAIN_RESULTS:
                        check_result(function, result)
                except Exception as error:
                    self._pass_on(actor, kind, error)
                    reply = None
                    continue
                self.handled += 1
                if reply is not None:
                    if self._current is reply:  # else the handler kept it
                        self._current = None
                        reply.answer(result)
                    reply = self.serves = None
        except (trio.WouldBlock, trio.EndOfChannel):
            return take is not self.mailbox.take  # then it has become a member of a topic
        finally:
            if untimed:  # one reading of the clock for several plain handlers
                seconds = now() - before
                self.handler_seconds += seconds
                if seconds >= slow:
                    self._report_slow(actor, len(stretch), seconds)
            if len(self._recent) > RECENT_TYPES_KEPT:
                del self._recent[:-RECENT_TYPES]
        return True

    @contextmanager
    def while_wanted(self) -> Iterator[None]:
        """Cancel the block once the asker of the current request stops waiting."""
        request = self.serves
        with trio.CancelScope() as scope:
            self._wanted_scope = scope
            try:
                yield
            finally:
                self._wanted_scope = None
        if scope.cancelled_caught:
            self._current = None  # there is no asker any more
            if request is not None and request.awaited:
                request.abandon(AskTimeout(self.name, 0.0))

    def asker_gone(self, request: PendingReply[Any]) -> None:
        """React to a request whose asker stopped waiting, and to the requests that were sent for
        it."""
        if self.serves is request and self._wanted_scope is not None:
            self._wanted_scope.cancel()
        for node in (*self.waits_for, *request.work_waits_for):
            if isinstance(node, PendingReply) and node.parent is request:
                node.cell.asker_gone(node)

    def _report_slow(self, actor: Actor, handlers: int, seconds: float) -> None:
        """Log that up to `handlers` handlers were slow."""
        kinds = {kind.__name__: None for kind in self._recent[-handlers:]}
        self.runtime.report_slow(self.name, type(actor), tuple(kinds), seconds)

    def _pass_on(self, actor: Actor, kind: type[Message], error: Exception) -> None:
        """Settle the current message with its handler's error, or fail the instance.

        Raises CrashedError.
        """
        fault = passed_on(error, actor.faults, actor.refusals)
        if fault is None:
            raise self.record_failure("handler", error) from error
        self.handled += 1
        self._current = None
        served, self.serves = self.serves, None
        if served is not None and served.settle(fault):
            return
        self.passed_on += 1
        self.runtime.events.emit(
            EventKind.PASSED_ON,
            self.name,
            reason=self.runtime.one_line(fault),
            message_type=kind.__name__,
        )
        if self.passed_on & (self.passed_on - 1) == 0:  # the 1st, 2nd, 4th, 8th...
            self.runtime.log.warning(
                "passed_on",
                actor=self.name,
                message_type=kind.__name__,
                error=self.runtime.one_line(fault),
                count=self.passed_on,
            )

    def _next_item(self, actor: Actor) -> Item | None:
        """Process control and completions first; return the next item, None for a cancelled one.

        Raises the errors of the mailbox's `take` if there is nothing to handle.
        """
        self.serves = None
        if self._inspections:
            self._answer_inspections(actor)
        if self._suspended:
            raise trio.WouldBlock
        operations = self.operations
        completions = operations.completions if operations is not None else None
        self.control_due = (
            bool(completions)
            or self.mailbox_held
            or self.full_of_work
            or self.mailbox.returned > 0
            or self._tracer is not None
            or self._fault_injector is not None
        )
        item = self._alternate(completions) if completions else self._from_mailbox()
        if self._tracer is not None:
            self._show(self._tracer, item)
        return item

    def _from_mailbox(self) -> Item | None:
        if self.mailbox_held or self.full_of_work:
            raise trio.WouldBlock
        item = self.mailbox.take()
        return item if self._fault_injector is None else self._fault_injector(self, item)

    def _alternate(self, completions: deque[Completion]) -> Item | None:
        """Return the next item from the mailbox or the completions, alternating while both have
        one."""
        if self._completion_was_last:
            self._completion_was_last = False
            with suppress(trio.WouldBlock, trio.EndOfChannel):
                return self._from_mailbox()
        self._completion_was_last = True
        try:
            completion = completions.popleft()
            self.serves = completion.serves
            return completion.take()
        except Exception as error:  # `then` of work or watch could not make the message
            raise self.record_failure("handler", error) from error

    def _show(self, tracer: Callable[[Message], object], item: Item | None) -> None:
        if isinstance(item, PendingReply):
            item = item.message if item.awaited else None
        if item is None:
            return
        try:
            tracer(item)
        except Exception as error:
            self._tracer = None  # a tracer that fails must not fail the actor
            self.runtime.log.warning(
                "trace_failed", actor=self.name, error=self.runtime.one_line(error)
            )

    def _reject(self, message: Message | None) -> None:
        """Settle a message without a handler; None stands for a cancelled completion."""
        if message is None:
            return
        reply, self._current = self._current, None
        if reply is not None:
            reply.abandon(NotHandled(self.name, type(message).__name__))
        self.runtime.dead_letters.add(self.name, message, DeadLetterReason.NOT_HANDLED)

    def _answer_inspections(self, actor: Actor) -> None:
        replies, self._inspections = self._inspections, None
        for reply in replies or ():
            result: Any
            try:
                result = inspection_of(self, actor.describe())
            except Exception as error:
                reply.abandon(ActorFailed(self.name, self.runtime.one_line(error)))
            else:
                reply.answer(result)

    # Failure and end: all askers are settled here and nowhere else.

    def record_failure(self, phase: str, error: Exception) -> CrashedError:
        """Count and log a failure of the instance; return the error to raise.

        `phase` is construct, start, handler or stop. The asker of the current message gets
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
            EventKind.FAILED,
            self.name,
            reason=self.last_error,
            message_type=of,
            incarnation=self.incarnation,
        )
        return CrashedError(error, self.last_error)

    def record_injected_failure(self, item: Item, error: Exception) -> CrashedError:
        """Record a failure as if the handler of `item` had raised `error`."""
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
        self.serves = None
        operations, self.operations = self.operations, None
        if operations is not None:
            operations.abandon_all(lambda: self._end_error(failure))
        self._cause = None
        self.full_of_work = False
        if self.actor is not None:
            self.actor = None
            if self._watch_table:
                for watch in tuple(self.watches):
                    watch.down(Down(self.name, failure, self.incarnation))
            if failure is None and self.runtime.events.has_members:
                self.runtime.events.emit(self._end_kind, self.name, incarnation=self.incarnation)

    def settle_mailbox(self) -> None:
        """Close the mailbox; its messages become dead letters, their askers get ActorGone."""
        self.mailbox.close()
        self._discard_all(DeadLetterReason.STOPPED, lambda: ActorGone(self.name))
        self._refuse_inspections()

    def _discard_all(self, reason: DeadLetterReason, error: Callable[[], ActorError]) -> None:
        """Empty the mailbox, and refuse the senders that wait for room."""
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
            self.runtime.events.emit(EventKind.STARTED, self.name, incarnation=self.incarnation)
        if self._watch_table:
            for watch in tuple(self.watches):
                watch.up(Up(self.name, self.incarnation))

    def _end_error(self, failure: str | None) -> ActorError:
        """Return a new error for each asker, because tasks that share one would mix their
        tracebacks."""
        if failure is None:
            return ActorGone(self.name)
        return ActorFailed(self.name, failure, self._cause)
