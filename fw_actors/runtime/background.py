"""Work and timers of actors, and the worker tasks that run work and keyed actors.

Each of the first two is a pending operation of the instance that started it, and ends with a
message that the cell queues among its completions.

Worker tasks run two kinds of jobs: work, and keyed actors that have messages. A job is queued,
and a parked worker woken unless one is on its way already. A worker that starts a job while
others are queued wakes up to two more workers, since its own job may wait for something. So one
worker does all jobs that never wait, without a task switch, and a thousand jobs that do wait are
all running after a few rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from outcome import Error, Outcome, Value
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

from fw_actors.runtime.deadlock import CURRENT, HandlerTask, Waiter, WaitNode, path_between, without
from fw_actors.runtime.errors import ActorError, AskCycle
from fw_actors.runtime.events import EventKind
from fw_actors.runtime.messages import Message
from fw_actors.runtime.parking import WOKEN
from fw_actors.runtime.variables import CleanContext, carried_values, carrying
from fw_actors.runtime.watches import Watch

if TYPE_CHECKING:
    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.reply import PendingReply

MAX_PARKED_WORKERS: Final = 256
JOBS_PER_CHECKPOINT: Final = 16
JOBS_PER_LOOK: Final = 2  # at the clock
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
        place = HandlerTask()
        CURRENT.set(place)
        clean = CleanContext()

        def unpark(_: object) -> Abort:
            self._parked.remove(task)
            return Abort.SUCCEEDED

        try:
            with scope.scope:
                while not self._closed:
                    self._starting -= 1
                    # Without a job the worker that started this one took it itself.
                    usable = not self._queue or await self._run_jobs(scope, place, clean)
                    if not usable or len(self._parked) >= MAX_PARKED_WORKERS:
                        return
                    self._parked.append(task)
                    await wait_task_rescheduled(unpark)
        finally:
            place.close()
            del self._scopes[scope]
            if self._queue and not self._starting:
                self._start_one()

    async def _run_jobs(self, scope: WorkerScope, place: HandlerTask, clean: CleanContext) -> bool:
        """Run jobs until there is none; return False if this worker must not run another one."""
        queue, now = self._queue, self._now
        done, began = 0, inf
        while queue and not scope.cancelled:  # a job that is cancelled takes its worker with it
            job = queue.popleft()
            while self._starting < MAX_STARTING_WORKERS and self._starting < len(queue):
                self._start_one()
            job.scope, place.waiter = scope, job
            try:
                await job.run()
            finally:
                job.scope = place.waiter = None
            if clean.is_changed():
                return False
            done += 1
            if done % JOBS_PER_LOOK == 0:
                if done % JOBS_PER_CHECKPOINT == 0 or now() - began > SECONDS_PER_CHECKPOINT:
                    await trio.lowlevel.checkpoint()
                    began = inf
                began = min(began, now())
        return not scope.cancelled


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
        """`PendingOperations.begin_work` begins it."""
        self._cell, self._fn, self._args, self._then = cell, fn, args, then
        self._outcome: Outcome[Any] | None = None
        self._abandoned = self._begun = False
        self._own_waits = 0
        """Waits for the actor that began this work."""
        self.scope: WorkerScope | None = None
        self.serves = cell.kept_request
        """The request whose kept reply this work is for."""
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
                self._cell.complete(self)
            else:
                self._cell.end_work(self)
                if isinstance(result, Error):
                    self._log(result.error)

    def _log(self, error: BaseException) -> None:
        runtime = self._cell.runtime
        told = runtime.one_line(error)
        runtime.log.error("work_failed", actor=self._cell.name, error=told, exc_info=error)
        runtime.events.emit(EventKind.WORK_FAILED, self._cell.name, reason=told)

    @property
    def stuck(self) -> bool:
        """Whether the function waits for the actor that began it, or has to wait for its turn."""
        return self._own_waits > 0 or not self._begun

    def begin_wait(self, other: WaitNode) -> None:
        """Add an edge from the request that this work is for.

        Work blocks no actor, but the asker of that request waits for it, and an actor that is full
        of work waits for a piece of it. Raises AskCycle, as `ActorCell.begin_wait`.
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
                if isinstance(operation, Work | Question)
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
        self._cell.operations.remove_work(self)
        return self._then(self._outcome)

    def abandon(self, error: ActorError) -> None:
        """Cancel the function and drop its result."""
        self._abandoned = True
        if self.scope is not None:
            self.scope.cancel()


class Question:
    """A request whose answer comes as a message, from `context.ask`; no task waits for it."""

    stuck: Final = False  # never a request to the actor itself
    __slots__ = ("_cell", "_reply", "_then", "serves")

    def __init__(
        self,
        cell: ActorCell,
        reply: PendingReply[Any],
        then: Callable[[Outcome[Any]], Message],
        serves: PendingReply[Any] | None,
    ) -> None:
        """`serves` is the request whose kept reply waits for this one."""
        self._cell, self._reply, self._then, self.serves = cell, reply, then, serves
        if serves is not None:
            path = path_between(reply, serves)
            if path:
                raise AskCycle([cell.name, *path])
            serves.work_waits_for = (*serves.work_waits_for, reply)

    def settled(self) -> None:
        """Queue the completion: the answer has come, or will not come."""
        self._cell.complete(self)

    def take(self) -> Message:
        """End the operation and return its message."""
        self._end_wait()
        self._cell.operations.remove_work(self)
        return self._then(self._reply.outcome)

    def abandon(self, error: ActorError) -> None:
        """Withdraw the request because the instance has ended."""
        self.withdraw()

    def withdraw(self) -> None:
        """Stop waiting for the answer; no message will come."""
        self._end_wait()
        self._reply.withdraw()

    def _end_wait(self) -> None:
        if self.serves is not None:
            waits = without(self.serves.work_waits_for, self._reply)
            self.serves.work_waits_for = waits


class Timer:
    """A message for later, from `context.after`."""

    __slots__ = ("_cell", "_message", "_pending", "_seconds")
    serves: Final = None

    def __init__(self, cell: ActorCell, seconds: float, message: Message) -> None:
        """Raises MailboxFull and ActorGone, as `PendingOperations.add_timer`."""
        self._cell, self._seconds, self._message = cell, seconds, message
        self._pending = True
        cell.operations.add_timer(self)
        cell.runtime.deadlines.add(self, seconds)

    @property
    def pending(self) -> bool:
        """Whether the message is still to be handled."""
        return self._pending

    def cancel(self) -> None:
        """Drop the message; does nothing if it was handled or cancelled before."""
        if self._pending:
            self._pending = False
            self._cell.runtime.deadlines.withdraw(self, self._seconds)
            self._cell.operations.remove_timer(self)

    def expire(self) -> None:
        """Queue the completion."""
        self._cell.complete(self)

    def take(self) -> Message | None:
        """End the operation and return its message; None if it was cancelled after `expire`."""
        if not self._pending:
            return None
        self._pending = False
        self._cell.operations.remove_timer(self)
        return self._message

    def abandon(self, error: ActorError) -> None:
        """Drop the message because the instance has ended."""
        self._pending = False
        self._cell.runtime.deadlines.withdraw(self, self._seconds)


class Ticker(Timer):
    """A message again and again, from `context.every`."""

    __slots__ = ("_due", "_queued")

    def __init__(self, cell: ActorCell, seconds: float, message: Message, first: float) -> None:
        """Raises ValueError unless `seconds` is positive, and as `PendingOperations.add_timer`."""
        if seconds <= 0:
            raise ValueError(f"seconds must be positive, not {seconds!r}")
        self._cell, self._seconds, self._message = cell, seconds, message
        self._pending, self._queued = True, False
        self._due = cell.runtime.deadlines.now() + first
        cell.operations.add_timer(self)
        cell.runtime.deadlines.add_at(self, self._due)

    def expire(self) -> None:
        """Queue the completion unless the one before is still to be handled; set the next time."""
        deadlines = self._cell.runtime.deadlines
        now = deadlines.now()
        self._due += self._seconds * max(1, ceil((now - self._due) / self._seconds))
        if self._due <= now:
            self._due += self._seconds
        deadlines.add_at(self, self._due)
        if not self._queued:
            self._queued = True
            self._cell.complete(self)

    def take(self) -> Message | None:
        """Return the message; None if it was cancelled after `expire`."""
        self._queued = False
        return self._message if self._pending else None


def cancel_timers(cell: ActorCell) -> None:
    """Cancel the timers and watches of a cell: a stopping actor does not wait for them."""
    for operation in cell.pending:
        if isinstance(operation, Timer | Watch):
            operation.cancel()
