"""Tasks that wait to run something: keyed actors with messages, and work beside a mailbox.

A job is queued, and a parked worker is roused unless one is on its way already. A worker that
begins a job while others wait rouses up to two more, since its own job may wait for something:
jobs that never wait are done by one worker without a switch of tasks, and a thousand that do
wait are all under way after a few rounds.
"""

from __future__ import annotations

from collections import deque
from contextvars import copy_context
from typing import Final, Protocol

import trio
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

SPARE_WORKERS: Final = 256
JOBS_A_TURN: Final = 16
ROUSED_AT_ONCE: Final = 2


class Lifeline:
    """Cancels a worker and what it runs.

    It knows by itself whether it was cut: a cancel scope reads the clock to say so, which took
    three hundredths of a delivery.
    """

    __slots__ = ("cut", "scope")

    def __init__(self) -> None:
        self.scope = trio.CancelScope(shield=True)
        self.cut = False

    def cancel(self) -> None:
        """Cancel; a second time does nothing."""
        self.cut = True
        self.scope.cancel()


class Job(Protocol):
    """Something to run. While it runs, `scope` is the worker's: cancelling it ends the job."""

    scope: Lifeline | None

    async def run(self) -> None:
        """Run to the end; must raise nothing but what cancellation raises."""


class Workers:
    """The workers of one runtime, in its nursery; at most 256 stay when there is nothing to do.

    Their number is bounded by what submits jobs: pools by their capacity, actors by `max_work`.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._context = copy_context()  # a worker must not inherit what its first job's caller set
        self._ready: deque[Job] = deque()
        self._parked: list[trio.lowlevel.Task] = []
        self._lifelines: dict[Lifeline, None] = {}
        self._on_their_way = 0
        self._closed = False

    @property
    def alive(self) -> int:
        """How many workers there are."""
        return len(self._lifelines)

    @property
    def parked(self) -> int:
        """How many of them have nothing to do."""
        return len(self._parked)

    def submit(self, job: Job) -> None:
        """Have a worker run the job soon, in the order of submission."""
        self._ready.append(job)
        if not self._on_their_way:
            self._rouse()

    def close(self) -> None:
        """Cancel whatever runs; jobs that have not begun never do."""
        self._closed = True
        self._ready.clear()
        for lifeline in list(self._lifelines):
            lifeline.cancel()

    def _rouse(self) -> None:
        if self._closed:
            return
        self._on_their_way += 1
        if self._parked:
            reschedule(self._parked.pop())
        else:
            self._context.run(self._nursery.start_soon, self._worker)

    async def _worker(self) -> None:
        lifeline = Lifeline()
        self._lifelines[lifeline] = None
        task = current_task()

        def leave(_: object) -> Abort:
            self._parked.remove(task)
            return Abort.SUCCEEDED

        try:
            with lifeline.scope:
                while not self._closed:
                    self._on_their_way -= 1
                    await self._run_jobs(lifeline)
                    if lifeline.cut or len(self._parked) >= SPARE_WORKERS:
                        return
                    self._parked.append(task)
                    await wait_task_rescheduled(leave)
        finally:
            del self._lifelines[lifeline]
            if self._ready and not self._on_their_way:
                self._rouse()

    async def _run_jobs(self, lifeline: Lifeline) -> None:
        ready = self._ready
        done = 0
        while ready and not lifeline.cut:  # a cancelled job takes its worker with it
            job = ready.popleft()
            while self._on_their_way < ROUSED_AT_ONCE and self._on_their_way < len(ready):
                self._rouse()
            job.scope = lifeline
            try:
                await job.run()
            finally:
                job.scope = None
            done += 1
            if done % JOBS_A_TURN == 0:
                await trio.lowlevel.checkpoint()
