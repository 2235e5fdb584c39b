"""The reply slot: the envelope of one question, and the way its answer goes back.

It has two sides. The asker's side is open until an answer, the deadline, a cancellation or the
actor's end closes it; whichever comes first does so in one step without an await, so that either
the answer arrives or the cancellation, never both. The holder's side takes one answer, and does
not fail because the asker's side is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio
from outcome import Error, Outcome, Value

from fw_actors.runtime.faults import AlreadyAnswered, AskTimeout

if TYPE_CHECKING:
    from fw_actors.runtime.cell import Cell
    from fw_actors.runtime.faults import RuntimeFault
    from fw_actors.runtime.messages import Message

R = TypeVar("R")
RaiseCancel = Callable[[], Any]


class Reply(Generic[R]):
    """One question on its way. Handlers get it from `context.keep_reply()`."""

    __slots__ = ("_asker", "_cell", "_early", "_given", "_seconds", "kept", "message", "wanted")

    def __init__(self, cell: Cell, message: Message, wanted: bool = True) -> None:
        self._cell = cell
        self._asker: trio.lowlevel.Task | None = None
        self._early: Outcome[Any] | None = None
        self._seconds: float | None = None
        self._given = False
        self.message = message
        self.kept = False
        self.wanted = wanted
        """Whether somebody still waits for the answer."""

    def answer(self, value: R) -> None:
        """Give the answer; once. A caller that is gone makes no difference.

        Raises AlreadyAnswered when this reply was answered or failed before.
        """
        self._give(Value(value))

    def fail(self, error: Exception) -> None:
        """Raise `error` in the caller instead of an answer; once. Give each caller its own.

        Raises AlreadyAnswered when this reply was answered or failed before.
        """
        self._give(Error(error))

    def abandon(self, fault: RuntimeFault) -> None:
        """Close the asker's side because the actor can't answer any more."""
        if self.wanted:
            self._close(Error(fault))

    def expire(self) -> None:
        """Close the asker's side because its deadline has come."""
        if self.wanted:
            seconds = self._seconds or 0.0
            self._seconds = None
            self._close(Error(AskTimeout(self._cell.name, seconds)))

    def withdraw(self) -> None:
        """Close the asker's side because the asker has gone."""
        self.wanted = False
        self._stop_clock()

    async def wait(self, seconds: float | None) -> R:
        """Wait for the answer, at most `seconds`. Cancelled, the question is withdrawn."""
        if self._early is not None:
            await trio.lowlevel.cancel_shielded_checkpoint()  # an answer that came is not lost
            value: R = self._early.unwrap()
            return value
        self._asker = trio.lowlevel.current_task()
        if seconds is not None:
            self._seconds = seconds
            self._cell.runtime.deadlines.add(self, seconds)
        answer: R = await trio.lowlevel.wait_task_rescheduled(self._cancelled)
        return answer

    def _cancelled(self, _: RaiseCancel) -> trio.lowlevel.Abort:
        self.withdraw()
        return trio.lowlevel.Abort.SUCCEEDED

    def _give(self, result: Outcome[R]) -> None:
        if self._given:
            raise AlreadyAnswered(self._cell.name, type(self.message).__name__)
        self._given = True
        if self.kept:
            self._cell.release(self)
        if self.wanted:
            self._close(result)
        else:
            self._cell.runtime.late_replies += 1

    def _close(self, result: Outcome[Any]) -> None:
        self.wanted = False
        self._stop_clock()
        if self._asker is None:
            self._early = result
        else:
            trio.lowlevel.reschedule(self._asker, result)

    def _stop_clock(self) -> None:
        if self._seconds is not None:
            self._cell.runtime.deadlines.withdraw(self, self._seconds)
            self._seconds = None
