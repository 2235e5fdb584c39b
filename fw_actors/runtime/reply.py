"""The reply to a request, and the four ways in which it ends: answer, deadline, cancellation, end
of the actor.

A reply has two sides. The asker's side is open until the first of the four closes it, in one step
without an await, so that either the answer or the cancellation arrives, never both. The actor's
side accepts one answer, and does not fail if the asker's side is closed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast

import msgspec
import trio
from outcome import Error, Outcome, Value
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

from fw_actors.runtime.clock import DeadlineQueue
from fw_actors.runtime.errors import ActorError, AlreadyAnswered, AskTimeout
from fw_actors.runtime.messages import Carried, Message

if TYPE_CHECKING:
    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.deadlock import WaitNode
    from fw_actors.runtime.operations import PendingAsk

R = TypeVar("R")
ResultT = TypeVar("ResultT")


class NoValue(Outcome[None]):
    """The outcome None, which may be unwrapped any number of times.

    Without it `reschedule` creates an `outcome.Value(None)` for each call. Creating and unwrapping
    it took 11 % of an ask, for an unused value.
    """

    __slots__ = ()

    # A C function, since each ask and each delivery calls it: calling the type of None returns
    # None.
    unwrap = staticmethod(cast("Callable[[], None]", type(None)))

    def send(self, gen: Generator[ResultT, None, object]) -> ResultT:
        """Send None into a generator."""
        return gen.send(None)

    async def asend(self, agen: AsyncGenerator[ResultT, None]) -> ResultT:
        """Send None into an async generator."""
        return await agen.asend(None)


WOKEN: Final = NoValue()
"""The second argument of `reschedule` for a parked task that only continues."""


class PendingReply(msgspec.Struct, Generic[R], eq=False):
    """A request in a mailbox, and its answer. See `Context.keep_reply`.

    `cell` is the actor to which it was sent. `awaited` tells whether the asker still waits,
    `detached` whether a handler will answer later, which makes it a pending operation of the actor.
    """

    cell: ActorCell
    message: Message
    awaited: bool = True
    parent: PendingReply[Any] | None = None
    """The request whose handler sent this one."""
    carried: Carried | None = None
    """Context variables of the asker, to be set in the handler."""
    sent: bool = False
    """Whether there is no asker: the message was sent, with `carried`."""
    work_waits_for: tuple[WaitNode, ...] = ()
    """Edges of the wait-for graph, from the waits of work for the kept reply."""
    any_of: ClassVar[Sequence[WaitNode]] = ()
    detached: bool = False
    answered: bool = False
    """Whether the actor has answered or failed it."""
    _asker: trio.lowlevel.Task | None = None
    pending_ask: PendingAsk | None = None
    """Set for a request by `Context.ask`, for which no task waits."""
    _seconds: float = 0.0
    _deadline: DeadlineQueue | None = None
    _value: Any = None
    _error: Exception | None = None

    @property
    def waits_for(self) -> Sequence[WaitNode]:
        """Edges of the wait-for graph; see `deadlock`."""
        return (self.cell, *self.work_waits_for)

    @property
    def due(self) -> float:
        """The time at which the asker stops waiting; infinity if it set no deadline."""
        return inf if self._deadline is None else self._deadline.get(self, inf)

    @property
    def orphaned(self) -> bool:
        """Whether the asker needs the answer only for a request whose own asker stopped waiting."""
        parent = self.parent
        while parent is not None and not parent.answered:
            if not parent.awaited:
                return True
            parent = parent.parent
        return False

    # The actor's side.

    def answer(self, value: R) -> None:
        """Answer the request, once. If the asker no longer waits, the answer is only counted.

        Raises AlreadyAnswered if this reply was answered or failed before.
        """
        self._answer(value, None)

    def fail(self, error: Exception) -> None:
        """Raise `error` in the asker instead of an answer, once. Use a new error for each asker.

        Raises AlreadyAnswered if this reply was answered or failed before.
        """
        self._answer(None, error)

    def settle(self, error: Exception) -> bool:
        """Fail the request if it was not answered yet; return whether it was failed."""
        if self.answered or self.sent:
            return False
        self.fail(error)
        return True

    def abandon(self, error: ActorError) -> None:
        """Raise `error` in the asker because the actor cannot answer any more."""
        if self.awaited:
            self._error = error
            self._close()

    def abandon_orphan(self) -> bool:
        """Time out if the request is orphaned; return whether it is."""
        if not self.orphaned:
            return False
        self.abandon(AskTimeout(self.cell.name, 0.0))
        return True

    def _answer(self, value: R | None, error: Exception | None) -> None:
        if self.answered:
            raise AlreadyAnswered(self.cell.name, type(self.message).__name__)
        if self.detached and get_ident() != self.cell.runtime.thread:
            self._check_thread()
        self.answered = True
        if self.awaited:
            self._value, self._error = value, error
            self._close()
        else:
            self.cell.runtime.count_late_reply()
        if self.detached and (operations := self.cell.operations) is not None:
            operations.remove(self)

    def _check_thread(self) -> None:
        """Raise RuntimeError in another thread, where the answer could be lost."""
        cell = self.cell
        cell.runtime.check_thread(cell.name, "An answer of", "trio.from_thread.run_sync")

    # The asker's side.

    async def wait(self, seconds: float | None, due: float | None = None) -> R:
        """Wait for the answer for at most `seconds`. A cancellation withdraws the request.

        `due` is the same deadline as a time, if it comes from another request.
        """
        if self.awaited:
            self.set_deadline(seconds, due)
            self._asker = current_task()
            await wait_task_rescheduled(self._withdraw)
        else:
            # Already answered. Shielded, since a cancellation would lose the answer.
            await trio.lowlevel.cancel_shielded_checkpoint()
        if self._error is None:
            value: R = self._value
            return value
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error  # else its traceback, which refers to this frame, makes a reference cycle

    def capped(
        self, served: PendingReply[Any] | None, seconds: float | None
    ) -> tuple[float | None, float | None]:
        """Make this request a part of `served`; return the capped deadline as arguments of `wait`.

        Raises AskTimeout if the asker of `served` no longer waits.
        """
        due: float | None = None
        if served is not None and not served.answered:
            self.parent = served
            left = served.due - self.cell.runtime.deadlines.now()
            if seconds is None or left < seconds:
                seconds, due = left, served.due
            if seconds <= 0 or not served.awaited or served.orphaned:
                raise AskTimeout(self.cell.name, 0.0)
        return (None, None) if seconds == inf else (seconds, due)

    @property
    def outcome(self) -> Outcome[R]:
        """The answer, or the error that the asker gets."""
        return Value(self._value) if self._error is None else Error(self._error)

    def withdraw(self) -> None:
        """Stop waiting for the answer."""
        self._asker = self.pending_ask = None
        self._close()
        self.cell.asker_gone(self)

    def set_deadline(self, seconds: float | None, due: float | None = None) -> None:
        """Make the asker stop waiting in `seconds`, or at the time `due`."""
        if due is not None:
            self._seconds = seconds or 0.0
            self._deadline = self.cell.runtime.deadlines.add_at(self, due)
        elif seconds is not None and seconds != inf:
            self._seconds = seconds
            self._deadline = self.cell.runtime.deadlines.add(self, seconds)

    def expire(self) -> None:
        """Raise AskTimeout in the asker because its deadline has passed."""
        if self.awaited:
            self._error = AskTimeout(self.cell.name, self._seconds)
            self._close()
            self.cell.asker_gone(self)

    def _withdraw(self, _: object) -> Abort:
        self.withdraw()  # trio itself reschedules a task whose wait is cancelled
        return Abort.SUCCEEDED

    def _close(self) -> None:
        self.awaited = False
        if self._deadline is not None:
            self._deadline.pop(self, None)
            self._deadline = None
        if self._asker is not None:
            reschedule(self._asker, WOKEN)
        elif self.pending_ask is not None:
            ask, self.pending_ask = self.pending_ask, None  # it refers to this reply
            ask.operations.complete(ask)
