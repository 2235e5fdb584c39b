"""Work, timers and watches that an actor starts, and the worker tasks that run them.

Each is a hold on the instance that began it, and arrives in the side lane as a message.

A job is queued, and a parked worker is roused unless one is on its way already. A worker that
begins a job while others wait rouses up to two more, since its own job may wait for something:
jobs that never wait are done by one worker without a switch of tasks, and a thousand that do
wait are all under way after a few rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from outcome import Error, Outcome, Value
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

from fw_actors.runtime.cell import Down
from fw_actors.runtime.deadlock import CURRENT
from fw_actors.runtime.errors import ActorError
from fw_actors.runtime.messages import Message

if TYPE_CHECKING:
    from fw_actors.runtime.cell import Cell

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


class Work:
    """One async function, run by a worker; a job for `Workers.submit`."""

    __slots__ = ("_args", "_cell", "_fn", "_outcome", "_then", "_unwanted", "scope")

    def __init__(
        self,
        cell: Cell,
        fn: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        then: Callable[[Outcome[Any]], Message],
    ) -> None:
        self._cell, self._fn, self._args, self._then = cell, fn, args, then
        self._outcome: Outcome[Any] | None = None
        self._unwanted = False
        self.scope: Lifeline | None = None
        cell.works += 1
        cell.hold(self)

    async def run(self) -> None:
        """Run the function to its end; the actor hears of it unless it has gone."""
        if self._unwanted:
            return
        CURRENT.set(None)  # it does not hold the actor up
        try:
            result: Outcome[Any] = Value(await self._fn(*self._args))
        except Exception as error:
            result = Error(error)
        if not self._unwanted:
            self._outcome = result
            self._cell.arrive(self)

    def take(self) -> Message:
        """Give the message that tells of the end."""
        assert self._outcome is not None
        self._cell.works -= 1
        self._cell.release(self)
        return self._then(self._outcome)

    def abandon(self, fault: ActorError) -> None:
        """Cancel the function; nobody hears of it."""
        self._unwanted = True
        if self.scope is not None:
            self.scope.cancel()


class Timer:
    """A message to come later, from `context.after`."""

    __slots__ = ("_cell", "_message", "_pending", "_seconds")

    def __init__(self, cell: Cell, seconds: float, message: Message) -> None:
        self._cell, self._seconds, self._message = cell, seconds, message
        self._pending = True
        cell.timers += 1
        cell.hold(self)
        cell.runtime.deadlines.add(self, seconds)

    @property
    def pending(self) -> bool:
        """Whether the message is still to be handled."""
        return self._pending

    def cancel(self) -> None:
        """Forget the message; no difference when it was handled or cancelled before."""
        if self._pending:
            self._pending = False
            self._cell.runtime.deadlines.withdraw(self, self._seconds)
            self._cell.timers -= 1
            self._cell.release(self)

    def expire(self) -> None:
        """Send the message on its way."""
        self._cell.arrive(self)

    def take(self) -> Message | None:
        """Give the message, unless it was cancelled on the way."""
        if not self._pending:
            return None
        self._pending = False
        self._cell.timers -= 1
        self._cell.release(self)
        return self._message

    def abandon(self, fault: ActorError) -> None:
        """Forget the message, since the instance has gone."""
        self._pending = False
        self._cell.runtime.deadlines.withdraw(self, self._seconds)


class Watch:
    """Waits for the end of another actor's instance, from `context.watch`."""

    __slots__ = ("_cell", "_down", "_pending", "_then", "_watched")

    def __init__(self, cell: Cell, watched: Cell, then: Callable[[Down], Message]) -> None:
        self._cell, self._watched, self._then = cell, watched, then
        self._down: Down | None = None
        self._pending = True
        cell.timers += 1
        cell.hold(self)
        if watched.actor is None:
            self.fire(Down(watched.name, watched.last_error))
        else:
            watched.watch(self)

    def fire(self, down: Down) -> None:
        """Send word on its way: the instance has gone."""
        self._down = down
        self._cell.arrive(self)

    def cancel(self) -> None:
        """Watch no longer; no difference when word was taken or it was cancelled before."""
        if self._pending:
            self._pending = False
            self._watched.unwatch(self)
            self._cell.timers -= 1
            self._cell.release(self)

    def take(self) -> Message | None:
        """Give the message that tells of the end."""
        if not self._pending or self._down is None:
            return None
        self._pending = False
        self._cell.timers -= 1
        self._cell.release(self)
        return self._then(self._down)

    def abandon(self, fault: ActorError) -> None:
        """Watch no longer, since the watcher's instance has gone."""
        self._pending = False
        self._watched.unwatch(self)


def cancel_timers(cell: Cell) -> None:
    """Forget what is to come to a cell later, since there is no later."""
    for hold in list(cell.holds or ()):
        if isinstance(hold, Timer | Watch):
            hold.cancel()
