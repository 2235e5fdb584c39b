"""One call of `write` or `read`: who waits, what runs, what came of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import outcome
import trio

from fw_actors.store.transaction import AfterCommit, Tx

_log: Final = logging.getLogger(__name__)


class Call:
    """A function on its way through an engine, and the trio task that waits for it.

    `answer` is None until an engine has run the function or refused it; a call that was
    cancelled before stays so. `made`: when, by time.monotonic(). `durable`: see `Store.write`.
    `abandoned`: its caller was cancelled while it ran, and gets no result.
    """

    __slots__ = (
        "_raise_cancelled",
        "_ticket",
        "abandoned",
        "answer",
        "begun",
        "callbacks",
        "durable",
        "fn",
        "made",
        "now",
        "task",
    )

    def __init__(self, fn: Callable[[Tx], Any], now: int, *, durable: bool = True) -> None:
        self.fn = fn
        self.now = now
        self.made = time.monotonic()
        self.durable = durable
        self.task: trio.lowlevel.Task | None = None
        self.answer: outcome.Outcome[Any] | None = None
        self.begun = False
        self.abandoned = False
        self._raise_cancelled: Callable[[], Any] | None = None
        self.callbacks: list[AfterCommit] = []
        self._ticket = [None]

    def begin(self) -> bool:
        """Take the call in hand, in an engine; False when it was cancelled while it waited."""
        self.begun = self._take_ticket()
        return self.begun

    @property
    def withdrawn(self) -> bool:
        """Whether the call was cancelled while it waited: nothing has to be prepared for it."""
        return not self.begun and not self._ticket

    def refuse(self, error: Exception) -> None:
        """Answer with `error`; nothing that the function did remains."""
        self.callbacks = []
        self.answer = outcome.Error(error)

    async def wait(
        self, withdrawn: Callable[[], None], abandoned: Callable[[], None] | None = None
    ) -> Any:
        """Wait for `settle`.

        Cancelled before the function began, the call is withdrawn, and `withdrawn` is called.
        Cancelled later it is waited for; where `abandoned` is given that is called, so that the
        function is interrupted, and if it fails the cancellation is what its caller gets.
        """
        self.task = trio.lowlevel.current_task()

        def abort(raise_cancelled: Callable[[], Any]) -> trio.lowlevel.Abort:
            if self._take_ticket():
                withdrawn()
                return trio.lowlevel.Abort.SUCCEEDED
            if abandoned is not None:
                self._raise_cancelled, self.abandoned = raise_cancelled, True
                abandoned()
            return trio.lowlevel.Abort.FAILED

        return await trio.lowlevel.wait_task_rescheduled(abort)

    def settle(self) -> None:
        """Run the callbacks and wake the caller, on trio's thread."""
        if self.answer is None:
            return
        self.run_callbacks()
        if self.task is not None:
            answer = self.answer
            if self._raise_cancelled is not None and isinstance(answer, outcome.Error):
                answer = outcome.capture(self._raise_cancelled)
            trio.lowlevel.reschedule(self.task, answer)

    def _take_ticket(self) -> bool:
        """Decide between an engine that begins and a caller that withdraws: one of them wins."""
        try:
            self._ticket.pop()  # atomic
        except IndexError:
            return False
        return True

    def run_callbacks(self) -> None:
        """Run what `Tx.after_commit` collected, in order."""
        for callback in self.callbacks:
            try:
                callback()
            except Exception:
                _log.exception("a callback after a commit failed")


@dataclass
class Counts:
    """What an engine has done (see `StoreStatistics`). Written by its thread, read by any."""

    commits: int = 0
    committed: int = 0
    rolled_back: int = 0
    refused: int = 0
    reads: int = 0
    largest_group: int = 0
    foreign_commits: int = 0


Pull = Callable[[], Call | None]
"""Gives the next waiting call without waiting, or None."""


class Engine(Protocol):
    """Runs calls on one connection, in one thread."""

    def run(self, pull: Pull) -> list[Call]:
        """Run waiting calls; return all that were pulled, each answered or withdrawn.

        What is pulled is durable in all of its calls or in none.
        """

    def look(self) -> bool:
        """Return whether another process has committed since the last look."""

    def close(self) -> None:
        """Close the connection."""


def run_alone(engine: Engine, fn: Callable[[Tx], object], now: int) -> None:
    """Run one call on an engine that no thread serves yet. Raises what `fn` raises."""
    calls = [call := Call(fn, now)]
    engine.run(lambda: calls.pop() if calls else None)
    assert call.answer is not None
    call.answer.unwrap()
