"""The worker tasks of a runtime, which run the work of actors and keyed actors with messages.

A job is queued, and a parked worker woken unless one is on its way already. A worker that starts a
job while others are queued wakes up to two more workers, since its own job may wait for something.
So one worker does all jobs that never wait, without a task switch, and a thousand jobs that do wait
are all running after a few rounds.

A worker runs handlers of many actors in one task, so in one context, and no context variable may
leak from actor to actor. A variable cannot be unset again, so a worker whose job has left its
context changed ends, and a new one takes over. The settings of `decimal` are an object in such a
variable, and may be changed in place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from decimal import Context as DecimalContext
from decimal import getcontext, setcontext
from math import inf
from typing import Any, Final, Protocol, TypeVar

import trio
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

from fw_actors.runtime.deadlock import CURRENT, HandlerTask, Waiter
from fw_actors.runtime.reply import WOKEN

T = TypeVar("T")
R = TypeVar("R")

MAX_PARKED_WORKERS: Final = 256
JOBS_PER_CHECKPOINT: Final = 16
JOBS_PER_POLL: Final = 2  # at the clock
SECONDS_PER_CHECKPOINT: Final = 0.002
MAX_STARTING_WORKERS: Final = 2


class WorkerScope:
    """Cancels a worker and the job that it runs.

    It remembers by itself whether it was cancelled: `CancelScope.cancel_called` reads the clock,
    which took 3 % of the time of a delivery.
    """

    __slots__ = ("cancelled", "scope")

    def __init__(self) -> None:
        self.scope = trio.CancelScope(shield=True)
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the worker; does nothing the second time."""
        self.cancelled = True
        self.scope.cancel()


class Job(Waiter, Protocol):
    """A job for a worker. While it runs, `scope` is the worker's, and cancels the job."""

    scope: WorkerScope | None

    async def run(self) -> None:
        """Run to the end; must raise nothing but a cancellation."""


def _variable_of_decimal() -> ContextVar[Any]:
    """Return the variable that `decimal` keeps its settings in, which has no public name."""
    context = copy_context()
    context.run(getcontext)  # creates the settings
    matches = (variable for variable in context if variable.name == "decimal_context")
    return next(matches, ContextVar("absent"))


DECIMAL: Final = _variable_of_decimal()


def own_decimal_context() -> DecimalContext | None:
    """Give this task decimal settings of its own if it has inherited some; return them."""
    if DECIMAL not in copy_context():
        return None
    setcontext(getcontext().copy())
    return getcontext()


def run_apart(function: Callable[[T], R], argument: T) -> R:
    """Call `function` without leaving a trace in the variables of this task."""
    context = copy_context()
    if DECIMAL in context:
        context.run(own_decimal_context)
    return context.run(function, argument)


class CleanContext:
    """The context of a task as it is now, to find out later whether it was changed."""

    __slots__ = ("_context", "_decimal", "_settings")

    def __init__(self) -> None:
        self._decimal = own_decimal_context()
        self._settings = _settings(self._decimal)
        self._context: Context = copy_context()

    def is_changed(self) -> bool:
        """Return whether a variable was set, or a setting of `decimal` changed."""
        # Contexts that share all their variables are equal without a look at these.
        if copy_context() != self._context:
            return True
        return self._decimal is not None and _settings(self._decimal) != self._settings


def _settings(context: DecimalContext | None) -> object:
    """Return all but the flags, which any sum may set."""
    if context is None:
        return None
    context.clear_flags()
    return context.__reduce__()  # in one call of C: this is asked after each job


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """Numbers of the workers of one runtime, and of their jobs."""

    alive: int
    parked: int
    """Workers without a job."""
    starting: int
    """Workers that were started or woken, and have not run yet."""
    queued: int
    """Jobs that no worker has taken."""


class Workers:
    """The worker tasks of one runtime. Up to 256 stay parked when there is nothing to do.

    Their number is bounded by the jobs: those of pools by `capacity`, those of actors by
    `max_work`.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._now = trio.lowlevel.current_clock().current_time
        # A worker must not inherit the context variables of the caller that made it necessary.
        self._context = copy_context()
        self._context.run(own_decimal_context)
        self._queue: deque[Job] = deque()
        self._parked: list[trio.lowlevel.Task] = []
        self._scopes: dict[WorkerScope, None] = {}
        self._starting = 0
        self._closed = False

    def statistics(self) -> WorkerStatistics:
        """Return the numbers of workers and of queued jobs."""
        return WorkerStatistics(
            len(self._scopes), len(self._parked), self._starting, len(self._queue)
        )

    def submit(self, job: Job) -> None:
        """Queue a job; jobs start in the order of submission."""
        self._queue.append(job)
        if not self._starting:
            self._start_one()

    def close(self) -> None:
        """Cancel running jobs, and drop queued ones."""
        self._closed = True
        self._queue.clear()
        for scope in list(self._scopes):
            scope.cancel()

    def _start_one(self) -> None:
        """Wake a parked worker, or start a new one."""
        if self._closed:
            return
        self._starting += 1
        if self._parked:
            reschedule(self._parked.pop(), WOKEN)
        else:
            self._context.run(self._nursery.start_soon, self._worker)

    async def _worker(self) -> None:
        scope = WorkerScope()
        self._scopes[scope] = None
        task = current_task()
        handler_task = HandlerTask()
        CURRENT.set(handler_task)
        clean = CleanContext()

        def unpark(_: object) -> Abort:
            self._parked.remove(task)
            return Abort.SUCCEEDED

        try:
            with scope.scope:
                while not self._closed:
                    self._starting -= 1
                    # Without a job the worker that started this one took it itself.
                    usable = not self._queue or await self._run_jobs(scope, handler_task, clean)
                    if not usable or len(self._parked) >= MAX_PARKED_WORKERS:
                        return
                    self._parked.append(task)
                    await wait_task_rescheduled(unpark)
        finally:
            handler_task.close()
            del self._scopes[scope]
            if self._queue and not self._starting:
                self._start_one()

    async def _run_jobs(
        self, scope: WorkerScope, handler_task: HandlerTask, clean: CleanContext
    ) -> bool:
        """Run jobs until there is none; return False if this worker must not run another one."""
        queue, now = self._queue, self._now
        done, began = 0, inf
        while queue and not scope.cancelled:  # a job that is cancelled takes its worker with it
            job = queue.popleft()
            while self._starting < MAX_STARTING_WORKERS and self._starting < len(queue):
                self._start_one()
            job.scope, handler_task.waiter = scope, job
            try:
                await job.run()
            finally:
                job.scope = handler_task.waiter = None
            if clean.is_changed():
                return False
            done += 1
            if done % JOBS_PER_POLL == 0:
                if done % JOBS_PER_CHECKPOINT == 0 or now() - began > SECONDS_PER_CHECKPOINT:
                    await trio.lowlevel.checkpoint()
                    began = inf
                began = min(began, now())
        return not scope.cancelled
