"""Replies to requests, and the pending work that keeps an actor instance alive.

It has two sides. The asker's side is open until an answer, the deadline, a cancellation or the
actor's end closes it; whichever comes first does so in one step without an await, so that either
the answer arrives or the cancellation, never both. The holder's side takes one answer, and does
not fail because the asker's side is closed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec
import trio
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

from fw_actors.runtime.errors import ActorError, AlreadyAnswered, AskTimeout
from fw_actors.runtime.messages import Message
from fw_actors.runtime.timers import Pending

if TYPE_CHECKING:
    from fw_actors.runtime.system import Ground


class Hold(Protocol):
    """A kept reply, a piece of work, a timer, a watch."""

    def abandon(self, fault: ActorError) -> None:
        """End it because the instance has gone. Must not raise."""


class Holder(ABC):
    """The part of a cell that a hold needs to know."""

    __slots__ = ("holds", "name", "runtime")

    def __init__(self, runtime: Ground, name: str) -> None:
        self.runtime = runtime
        self.name = name
        self.holds: dict[Hold, None] | None = None

    @abstractmethod
    def freed(self) -> None:
        """Note that the last hold has ended."""

    def hold(self, hold: Hold) -> None:
        """Note something that the instance is still to bring to an end."""
        if self.holds is None:
            self.holds = {}
        self.holds[hold] = None

    def release(self, hold: Hold) -> None:
        """Note that it came to its end; unknown ones are ignored."""
        if self.holds is None or hold not in self.holds:
            return
        del self.holds[hold]
        if not self.holds:
            self.holds = None
            self.freed()


R = TypeVar("R")
RaiseCancel = Callable[[], Any]


class PendingReply(msgspec.Struct, Generic[R], eq=False):
    """One question on its way. Handlers get it from `context.keep_reply()`.

    `wanted` says whether somebody still waits for the answer.
    """

    _cell: Holder
    message: Message
    wanted: bool = True
    kept: bool = False
    _given: bool = False
    _asker: trio.lowlevel.Task | None = None
    _seconds: float = 0.0
    _pending: Pending | None = None
    _value: Any = None
    _error: Exception | None = None

    def answer(self, value: R) -> None:
        """Give the answer; once. A caller that is gone makes no difference.

        Raises AlreadyAnswered when this reply was answered or failed before.
        """
        if self._given or self.kept:
            self._hand_over()
        self._given = True
        if not self.wanted:
            self._cell.runtime.late_replies += 1
            return
        self._value = value
        self.wanted = False  # as `_close` does, without a call
        if self._pending is not None:
            self._pending.pop(self, None)
            self._pending = None
        if self._asker is not None:
            reschedule(self._asker)

    def fail(self, error: Exception) -> None:
        """Raise `error` in the caller instead of an answer; once. Give each caller its own.

        Raises AlreadyAnswered when this reply was answered or failed before.
        """
        self._hand_over()
        self._given = True
        if self.wanted:
            self._error = error
            self._close()
        else:
            self._cell.runtime.late_replies += 1

    def abandon(self, fault: ActorError) -> None:
        """Close the asker's side because the actor can't answer any more."""
        if self.wanted:
            self._error = fault
            self._close()

    def expire(self) -> None:
        """Close the asker's side because its deadline has come."""
        if self.wanted:
            self._error = AskTimeout(self._cell.name, self._seconds)
            self._close()

    def withdraw(self) -> None:
        """Close the asker's side because the asker has gone."""
        self.wanted = False
        self._stop_clock()

    async def wait(self, seconds: float | None) -> R:
        """Wait for the answer, at most `seconds`. Cancelled, the question is withdrawn."""
        if self.wanted:
            self.expect(seconds)
            await wait_task_rescheduled(self.call_off)
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()  # an answer that came is not lost
        return self.result()

    def expect(self, seconds: float | None) -> None:
        """Have the present task be rescheduled when the asker's side is closed."""
        self._asker = current_task()
        if seconds is not None:
            self._seconds = seconds
            self._pending = self._cell.runtime.deadlines.add(self, seconds)

    def call_off(self, _: RaiseCancel) -> Abort:
        """Withdraw the question, since the task that waits is cancelled."""
        self.withdraw()
        return Abort.SUCCEEDED

    def result(self) -> R:
        """Return the answer, or raise what came instead; once the asker's side is closed."""
        if self._error is None:
            value: R = self._value
            return value
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: without this, a ring for the collector

    def _hand_over(self) -> None:
        """See that the holder's side is open, and that the actor holds it no longer."""
        if self._given:
            raise AlreadyAnswered(self._cell.name, type(self.message).__name__)
        if self.kept:
            self._cell.release(self)

    def _close(self) -> None:
        self.wanted = False
        self._stop_clock()
        if self._asker is not None:
            reschedule(self._asker)

    def _stop_clock(self) -> None:
        if self._pending is not None:
            self._pending.pop(self, None)
            self._pending = None
