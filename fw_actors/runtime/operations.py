"""The pending operations of an actor's instance.

They are kept replies, work, asks of `Context.ask`, timers, watches, the stash, and the topic
memberships of a keyed actor. The instance begins them, and they end with the instance at the
latest. `MailboxPolicy` bounds their number, so that their completions, the messages by which work,
asks, timers and watches end, are never refused.

The module has more than 500 lines because all kinds of operations share one lifecycle, the limits
of `MailboxPolicy`, and the table of pending operations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutine
from math import ceil, inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

import msgspec
from outcome import Error, Outcome, Value

from fw_actors.runtime.deadlock import WaitNode, path_between, without
from fw_actors.runtime.errors import ActorError, ActorGone, AskCycle, MailboxFull
from fw_actors.runtime.mailbox import Stash
from fw_actors.runtime.messages import Message, carried_values, carrying
from fw_actors.runtime.reply import PendingReply
from fw_actors.runtime.topics import EventKind

if TYPE_CHECKING:
    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.mailbox import Item, MailboxPolicy
    from fw_actors.runtime.messages import Request
    from fw_actors.runtime.ref import Ref
    from fw_actors.runtime.supervision import NotifiedEnds
    from fw_actors.runtime.workers import WorkerScope

R = TypeVar("R")


class PendingOperation(Protocol):
    """One entry of `PendingOperations.pending`: an operation that has not ended yet."""

    def abandon(self, error: ActorError) -> None:
        """End the operation because the instance has ended. Must not raise."""


class Completion(PendingOperation, Protocol):
    """A pending operation that ends with a message to its own actor."""

    @property
    def serves(self) -> PendingReply[Any] | None:
        """The request for which the operation was begun, if it is known."""

    def take(self) -> Message | PendingReply[Any] | None:
        """End the operation and return its message; None if it was cancelled meanwhile."""


class PendingOperations:
    """The operations of one instance. The cell has this object only while there are operations."""

    __slots__ = (
        "_cell",
        "_limits",
        "_stash",
        "_waiting_work",
        "completions",
        "notified_ends",
        "pending",
        "timers",
        "works",
    )

    def __init__(self, cell: ActorCell, limits: MailboxPolicy) -> None:
        self._cell = cell
        self._limits = limits
        self.pending: dict[PendingOperation, None] = {}
        self.completions: deque[Completion] | None = None  # 600 bytes, so created on demand
        """Operations that have ended, and whose message was not handled yet."""
        self.works = 0
        """Pieces of work that were begun and whose completion was not taken yet."""
        self.timers = 0
        """Pending timers and watches."""
        self._waiting_work: deque[Work] | None = None
        """Work beyond `max_work`, in order."""
        self.notified_ends: NotifiedEnds | None = None
        """The ends of other actors of which this instance was notified by its watches."""
        self._stash: Stash | None = None

    def add(self, operation: PendingOperation) -> None:
        """Record an operation; an idle keyed actor has none."""
        self.pending[operation] = None

    def remove(self, operation: PendingOperation) -> None:
        """Record the end of an operation; does nothing for one that was abandoned."""
        pending = self.pending
        if operation in pending:
            del pending[operation]
            if not pending:
                self._ended()

    def abandon_all(self, error: Callable[[], ActorError]) -> None:
        """End all operations because the instance has ended, each with its own error."""
        pending, self.pending = self.pending, {}
        self.completions = self._waiting_work = None
        for operation in pending:
            operation.abandon(error())

    def complete(self, completion: Completion) -> None:
        """Queue the completion of a pending operation."""
        if self.completions is None:
            self.completions = deque()
        self.completions.append(completion)
        cell = self._cell
        cell.control_due = True
        if not cell.scheduled:
            cell.schedule()

    def _ended(self) -> None:
        """React to the end of the last pending operation."""
        cell = self._cell
        if not self.completions and self.notified_ends is None:
            cell.operations = None
        if not cell.scheduled:
            cell.became_quiet()

    # Work.

    @property
    def room_for_work(self) -> int:
        """The number of pieces of work that would begin at once."""
        return max(0, self._limits.max_work - self.works)

    def begin_work(self, work: Work, *, wait: bool) -> None:
        """Begin a piece of work, or queue it until another one ends.

        While work beyond `max_work` is queued, the actor takes nothing from its mailbox. As much
        work may be queued as the mailbox has capacity. Raises MailboxFull beyond that, or without
        `wait` if this piece would be queued.
        """
        limits = self._limits
        max_works = limits.max_work + (limits.capacity if wait and limits.max_work else 0)
        if self.works >= max_works:
            raise MailboxFull(self._cell.name, max_works, "pieces of work")
        self.works += 1
        self.pending[work] = None
        if self.works <= limits.max_work:
            self._cell.runtime.workers.submit(work)
        else:
            if self._waiting_work is None:
                self._waiting_work = deque()
            self._waiting_work.append(work)
            # Checked before the next message.
            self._cell.full_of_work = self._cell.control_due = True

    def begin_ask(
        self,
        ref: Ref,
        request: Request[R],
        then: Callable[[Outcome[R]], Message],
        deadline: float | None,
        *,
        capped: bool,
    ) -> None:
        """Send a request for `Context.ask`: without a task if the request finds room at once.

        It is one function because each delivery uses it, and a call costs as much as several of its
        lines.
        """
        pending_ask: PendingAsk | None = None
        if self.works < self._limits.max_work and (deadline is None or deadline > 0):
            asker = self._cell
            serves = None if asker.serves is None else kept_request(asker)
            try:
                cell = ref.target()
                # An actor that asks itself needs a task: full of work, it would not take its own
                # request.
                if cell is not asker:
                    reply: PendingReply[R] = PendingReply(cell, request)
                    if cell.runtime.carry:
                        reply.carried = carried_values(cell.runtime.carry)
                    seconds, due = deadline, None
                    if serves is not None:
                        if capped:
                            seconds, due = reply.capped(serves, deadline)
                        begin_wait_for(serves, reply, asker)
                    pending_ask = PendingAsk(self, reply, then, serves)
                    reply.pending_ask = pending_ask
                    if seconds is not None:
                        reply.set_deadline(seconds, due)
                    if cell.offer(reply):
                        self.works += 1
                        self.pending[pending_ask] = None
                        return
            except ActorError:
                pass  # the piece of work below meets it again, as its outcome
            if pending_ask is not None:
                pending_ask.withdraw()
        # There was no room, or an error: a piece of work asks, and waits if necessary.
        ask = partial(ref.ask, request, deadline, capped=capped)
        self.begin_work(Work(self._cell, ask, (), then), wait=True)

    def end_work(self, work: Work) -> None:
        """Record the end of a piece of work without a completion; wake an actor that waited for it:
        one that was full of work, whose mailbox was held, or that is to stop."""
        cell = self._cell
        if not cell.scheduled and (cell.full_of_work or cell.mailbox_held or cell.stop_requested):
            cell.schedule()
        self.remove_work(work)

    def remove_work(self, work: Work | PendingAsk) -> None:
        """Record the end of a piece of work, and begin the next queued one."""
        self.works -= 1
        if self._waiting_work:
            self._cell.runtime.workers.submit(self._waiting_work.popleft())
            self._cell.full_of_work = bool(self._waiting_work)
        if work in self.pending:
            del self.pending[work]
            if not self.pending:
                self._ended()

    # Messages set aside.

    @property
    def stashed(self) -> int:
        """The number of stashed messages."""
        return 0 if self._stash is None else len(self._stash)

    def stash(self, item: Item) -> bool:
        """Stash an item; return False at `max_stash`."""
        if self._stash is None:
            self._stash = Stash(self._cell, self._limits.max_stash)
        if not self._stash.add(item):
            return False
        self.add(self._stash)
        return True

    def unstash(self) -> None:
        """Put the stashed messages in front of the mailbox."""
        if self._stash is not None:
            stash, self._stash = self._stash, None
            stash.give_back()
            self.remove(stash)

    # Timers and watches.

    def add_timer(self, timer: PendingOperation) -> None:
        """Record a timer or watch. Raises MailboxFull at `max_timers`."""
        if self.timers >= self._limits.max_timers:
            raise MailboxFull(self._cell.name, self._limits.max_timers, "timers and watches")
        self.timers += 1
        self.add(timer)

    def remove_timer(self, timer: PendingOperation) -> None:
        """Record the end of a timer or watch."""
        self.timers -= 1
        self.remove(timer)

    @property
    def max_timers(self) -> int:
        """The limit of timers and watches."""
        return self._limits.max_timers


def operations_of(cell: ActorCell) -> PendingOperations:
    """Return the pending operations of the current instance. Raises ActorGone without one."""
    operations = cell.operations
    if operations is None:
        if cell.actor is None:
            raise ActorGone(cell.name)
        operations = cell.operations = PendingOperations(cell, cell.policy)
    return operations


def kept_request(cell: ActorCell) -> PendingReply[Any] | None:
    """Return the request whose reply the cell keeps; operations that begin now are for this
    request."""
    served = cell.serves
    return served if served is not None and served.detached and not served.answered else None


def begin_wait_for(served: PendingReply[Any], reply: PendingReply[Any], asker: ActorCell) -> None:
    """Make the request that `asker` serves wait for another one. Raises AskCycle."""
    path = path_between(reply, served)
    if path:
        raise AskCycle([asker.name, *path])
    served.work_waits_for = (*served.work_waits_for, reply)


def made_message(message: Message) -> Message:
    """Return the result of the function `then`. Raises TypeError if it is not a message."""
    if not isinstance(message, Message):
        raise TypeError(f"then must return the message for the actor, not {message!r}")
    return message


def check_function(fn: object) -> None:
    """Raise TypeError unless `fn` can be called; a coroutine in its place is closed."""
    if callable(fn):
        return
    if iscoroutine(fn):
        fn.close()  # else Python warns of it, later and elsewhere
    raise TypeError(
        f"work takes an async function and its arguments, as in work(fn, 1), not {fn!r}"
    )


class Work:
    """One async function that an actor runs concurrently, from `context.work`; a `Job`."""

    needs_deadline = False
    __slots__ = (
        "_abandoned",
        "_args",
        "_begun",
        "_cell",
        "_fn",
        "_outcome",
        "_own_waits",
        "_then",
        "carried",
        "scope",
        "serves",
    )

    def __init__(
        self,
        cell: ActorCell,
        fn: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        then: Callable[[Outcome[Any]], Message] | None,
    ) -> None:
        """`PendingOperations.begin_work` begins it. Raises TypeError unless `fn` can be called."""
        check_function(fn)
        self._cell, self._fn, self._args, self._then = cell, fn, args, then
        self._outcome: Outcome[Any] | None = None
        self._abandoned = self._begun = False
        self._own_waits = 0
        """The number of waits for the actor that began this work."""
        self.scope: WorkerScope | None = None
        self.serves = kept_request(cell)
        """The request with a kept reply for which this work runs."""
        variables = cell.runtime.carry
        self.carried = carried_values(variables) if variables else None

    async def run(self) -> None:
        """Run the function, and queue the completion unless the instance has ended."""
        if self._abandoned:
            return
        self._begun = True
        try:
            if self.carried:
                with carrying(self.carried):
                    result: Outcome[Any] = Value(await self._fn(*self._args))
            else:
                result = Value(await self._fn(*self._args))
        except Exception as error:
            result = Error(error)
        if not self._abandoned:
            self._outcome = result
            if self._then is not None:
                operations_of(self._cell).complete(self)
            else:
                operations_of(self._cell).end_work(self)
                if isinstance(result, Error):
                    self._log(result.error)

    def _log(self, error: BaseException) -> None:
        runtime = self._cell.runtime
        reason = runtime.one_line(error)
        runtime.log.error("work_failed", actor=self._cell.name, error=reason, exc_info=error)
        runtime.events.emit(EventKind.WORK_FAILED, self._cell.name, reason=reason)

    @property
    def stuck(self) -> bool:
        """Whether the function waits for the actor that began it, or is still queued."""
        return self._own_waits > 0 or not self._begun

    def begin_wait(self, other: WaitNode) -> None:
        """Add an edge from the request for which this work runs.

        Work blocks no actor, but the asker of that request waits for it, and an actor that is full
        of work waits until some work ends. Raises AskCycle, as `ActorCell.begin_wait`.
        """
        name = self._cell.name
        if self.serves is not None:
            path = path_between(other, self.serves)
            if path:
                raise AskCycle([name, *path])
            self.serves.work_waits_for = (*self.serves.work_waits_for, other)
        if other.cell is self._cell:
            self._own_waits += 1
            if self._cell.full_of_work and all(
                operation.stuck
                for operation in self._cell.pending
                if isinstance(operation, Work | PendingAsk)
            ):
                self.end_wait(other)
                raise AskCycle([name, name])

    def end_wait(self, other: WaitNode) -> None:
        """Remove one edge: the wait is over."""
        if self.serves is not None:
            self.serves.work_waits_for = without(self.serves.work_waits_for, other)
        if other.cell is self._cell:
            self._own_waits -= 1

    def take(self) -> Message:
        """End the operation and return its message."""
        assert self._outcome is not None
        assert self._then is not None
        operations_of(self._cell).remove_work(self)
        return made_message(self._then(self._outcome))

    def abandon(self, error: ActorError) -> None:
        """Cancel the function and drop its result."""
        self._abandoned = True
        if self.scope is not None:
            self.scope.cancel()


class PendingAsk(msgspec.Struct, eq=False):
    """A request whose answer comes as a message, from `context.ask`; no task waits for it.

    `operations` are those of the asking instance; `serves` is the request whose kept reply waits
    for this one.
    """

    operations: PendingOperations
    reply: PendingReply[Any]
    then: Callable[[Outcome[Any]], Message]
    serves: PendingReply[Any] | None
    stuck: ClassVar[bool] = False  # never a request to the actor itself

    def take(self) -> Message:
        """End the operation and return its message."""
        if self.serves is not None:
            self._end_wait(self.serves)
        self.operations.remove_work(self)
        return made_message(self.then(self.reply.outcome))

    def abandon(self, error: ActorError) -> None:
        """Withdraw the request because the instance has ended."""
        self.withdraw()

    def withdraw(self) -> None:
        """Stop waiting for the answer; no message will come."""
        if self.serves is not None:
            self._end_wait(self.serves)
        self.reply.withdraw()

    def _end_wait(self, served: PendingReply[Any]) -> None:
        served.work_waits_for = without(served.work_waits_for, self.reply)


def check_seconds(seconds: float) -> None:
    """Raise ValueError for NaN, at which a timer would never end, and TypeError for no number."""
    if not seconds > -inf:
        raise ValueError(f"seconds must be a number, not {seconds!r}")


def check_period(seconds: float, first: float) -> None:
    """Raise ValueError unless `seconds` is positive, and for a `first` as `check_seconds`."""
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, not {seconds!r}")
    check_seconds(first)


class Timer:
    """A message that is sent later, from `context.after`."""

    __slots__ = ("_cell", "_message", "_pending", "_seconds")
    serves: Final = None

    def __init__(self, cell: ActorCell, seconds: float, message: Message) -> None:
        """Raises as `PendingOperations.add_timer`. `seconds` is checked (`check_seconds`)."""
        self._cell, self._seconds, self._message = cell, seconds, message
        self._pending = True
        operations_of(cell).add_timer(self)
        cell.runtime.deadlines.add(self, seconds)

    @property
    def pending(self) -> bool:
        """Whether the message was not handled yet."""
        return self._pending

    def cancel(self) -> None:
        """Drop the message; does nothing if it was handled or cancelled before."""
        if self._pending:
            self._pending = False
            self._cell.runtime.deadlines.withdraw(self, self._seconds)
            operations_of(self._cell).remove_timer(self)

    def expire(self) -> None:
        """Queue the completion."""
        operations_of(self._cell).complete(self)

    def take(self) -> Message | None:
        """End the operation and return its message; None if it was cancelled after `expire`."""
        if not self._pending:
            return None
        self._pending = False
        operations_of(self._cell).remove_timer(self)
        return self._message

    def abandon(self, error: ActorError) -> None:
        """Drop the message because the instance has ended."""
        self._pending = False
        self._cell.runtime.deadlines.withdraw(self, self._seconds)


class Ticker(Timer):
    """A message that is sent periodically, from `context.every`."""

    __slots__ = ("_due", "_queued")

    def __init__(self, cell: ActorCell, seconds: float, message: Message, first: float) -> None:
        """Raises as `PendingOperations.add_timer`. The times are checked (`check_period`)."""
        self._cell, self._seconds, self._message = cell, seconds, message
        self._pending, self._queued = True, False
        self._due = cell.runtime.deadlines.now() + first
        operations_of(cell).add_timer(self)
        cell.runtime.deadlines.add_at(self, self._due)

    def expire(self) -> None:
        """Queue the completion unless the previous one was not handled yet; set the next time."""
        deadlines = self._cell.runtime.deadlines
        now = deadlines.now()
        self._due += self._seconds * max(1, ceil((now - self._due) / self._seconds))
        if self._due <= now:
            self._due += self._seconds
        deadlines.add_at(self, self._due)
        if not self._queued:
            self._queued = True
            operations_of(self._cell).complete(self)

    def take(self) -> Message | None:
        """Return the message; None if it was cancelled after `expire`."""
        self._queued = False
        return self._message if self._pending else None
