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
    """

    __slots__ = ("_ticket", "answer", "begun", "callbacks", "durable", "fn", "made", "now", "task")

    def __init__(self, fn: Callable[[Tx], Any], now: int, *, durable: bool = True) -> None:
        self.fn = fn
        self.now = now
        self.made = time.monotonic()
        self.durable = durable
        self.task: trio.lowlevel.Task | None = None
        self.answer: outcome.Outcome[Any] | None = None
        self.begun = False
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

    async def wait(self) -> Any:
        """Wait for `settle`. Cancelled before the function began, withdraw it."""
        self.task = trio.lowlevel.current_task()

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            return (
                trio.lowlevel.Abort.SUCCEEDED if self._take_ticket() else trio.lowlevel.Abort.FAILED
            )

        return await trio.lowlevel.wait_task_rescheduled(abort)

    def settle(self) -> None:
        """Run the callbacks and wake the caller, on trio's thread."""
        if self.answer is None:
            return
        self.run_callbacks()
        if self.task is not None:
            trio.lowlevel.reschedule(self.task, self.answer)

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
