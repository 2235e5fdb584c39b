"""Runs what takes a core for long in a bounded number of threads, with two bounded queues.

As many run at once as there are places (the cores); a place is held until its thread ends, also
when the caller has gone. The queues get places in turn, so that a flood of sign-ins does not
starve recovery; each is shared fairly by the networks that ask. A thread that has ended one hash
begins the next one by itself: by way of trio's thread a core would stand idle for each wake-up.
Source: interface §2 "Passwords"; pitfalls, "Hashing".
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Final, TypeVar

import outcome
import trio

from fw_actors.errors import OverloadedError
from fw_actors.rules.fair_queue import FairQueue, QueueFull, Requester

T = TypeVar("T")

_THREAD_NAME: Final = "fw-hasher"
_NICE: Final = 10  # 19 would halve it again, and starve sign-ins beside another busy process


class Lane(Enum):
    """Who waits for a hash; the value is how many may wait before the next is refused."""

    SIGN_IN = 64
    RECOVERY = 16


KEPT_FOR_KNOWN: Final = {Lane.SIGN_IN: 16, Lane.RECOVERY: 0}
"""How many of a queue's places a flood from unknown addresses can't take."""
ANYBODY: Final = Requester("")
"""The requester of work that no request from a network asks for."""


class _Job:
    """A function, and the task that waits for what it returns."""

    __slots__ = ("requester", "task", "token", "work")

    def __init__(self, work: Callable[[], Any], requester: Requester) -> None:
        self.work, self.requester = work, requester
        self.task = trio.lowlevel.current_task()
        self.token = trio.lowlevel.current_trio_token()

    def answer(self, result: outcome.Outcome[Any]) -> None:
        """Wake the task, from any thread."""
        with suppress(trio.RunFinishedError):  # nobody is left to hear it
            self.token.run_sync_soon(trio.lowlevel.reschedule, self.task, result)


class Places:
    """The places and who waits for them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()  # over all that follows
        self._running = 0
        self._begun = 0
        self._waiting: dict[Lane, FairQueue[_Job]] = {
            lane: FairQueue(lane.value, KEPT_FOR_KNOWN[lane]) for lane in Lane
        }
        self._turn = Lane.SIGN_IN

    @property
    def running(self) -> int:
        """How many places are taken."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many wait, in both queues."""
        return sum(map(len, self._waiting.values()))

    @property
    def begun(self) -> int:
        """How many functions were begun since the start."""
        return self._begun

    async def run(self, lane: Lane, work: Callable[[], T], requester: Requester = ANYBODY) -> T:
        """Run `work` in a thread once there is a place, and return its result.

        Cancelled while it waits, it is never begun; once begun it is waited for.

        Raises: OverloadedError when too many wait in this lane, also while it waits and `requester`
            has more than its share of it; what `work` raises.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        job, displaced = _Job(work, requester), None
        with self._lock:
            at_once = self._running < self._count
            if at_once:
                self._running += 1
                self._begun += 1
            else:
                try:
                    displaced = self._waiting[lane].put(job, requester)
                except QueueFull:
                    raise _too_many() from None
        if at_once:
            self._start(job)
        if displaced is not None:
            displaced.answer(outcome.Error(_too_many()))

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            withdrawn = self._withdraw(lane, job)
            return trio.lowlevel.Abort.SUCCEEDED if withdrawn else trio.lowlevel.Abort.FAILED

        result: T = await trio.lowlevel.wait_task_rescheduled(abort)
        return result

    def run_here(self, work: Callable[[], T]) -> T:
        """Run `work` at once on the caller's own thread, which is its own place."""
        with self._lock:
            self._begun += 1
        return work()

    def _start(self, first: _Job) -> None:
        # Not one of trio's own threads: they are lent to others, and a priority can't be raised.
        thread = threading.Thread(target=self._serve, args=(first,), name=_THREAD_NAME, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._running -= 1
                self._begun -= 1
            raise OverloadedError("The system gives no further thread.") from None

    def _serve(self, first: _Job) -> None:
        """The thread: one job after the other, until none waits."""
        _give_way()
        job: _Job | None = first
        while job is not None:
            result = outcome.capture(job.work)
            following = self._next()  # first: whoever is answered finds the place given back
            job.answer(result)
            job = following

    def _next(self) -> _Job | None:
        """Take the other queue's head first, else the same one's, else give the place back."""
        with self._lock:
            other = Lane.RECOVERY if self._turn is Lane.SIGN_IN else Lane.SIGN_IN
            for lane in (other, self._turn):
                job = self._waiting[lane].pop()
                if job is not None:
                    self._turn = lane
                    self._begun += 1
                    return job
            self._running -= 1
            return None

    def _withdraw(self, lane: Lane, job: _Job) -> bool:
        with self._lock:  # False: it was begun or displaced in the same moment
            return self._waiting[lane].remove(job, job.requester)


def _too_many() -> OverloadedError:
    return OverloadedError("Too many sign-ins at once. Try again in a moment.")


def _give_way() -> None:
    """Have this thread leave its core to whatever else in the process wants it, soon.

    Measured: with sign-ins on all cores the p99 of a small request halves.
    """
    with suppress(OSError):  # a container may forbid it, and it is no more than a courtesy
        thread = threading.get_native_id()
        own = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(own, _NICE))
