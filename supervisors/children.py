"""The kinds of children (actor, pool, task), and how each is run and stopped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, Protocol, TypeVar

import trio

from fw_actors.runtime import Actor, KeyedPool, MailboxPolicy, NodeSnapshot, Runtime
from fw_actors.runtime.cell import ActorCell
from fw_actors.runtime.clock import SHUTDOWN_SECONDS, START_SECONDS
from fw_actors.runtime.single import SingleCell
from supervisors.strategies import ChildRules, Restart

ActorT = TypeVar("ActorT", bound=Actor)
ActorT_co = TypeVar("ActorT_co", bound=Actor, covariant=True)

TaskStatus = trio.TaskStatus[Any]


class TaskFunction(Protocol):
    """An async function that calls `task_status.started()` when it is ready, and then continues to
    run."""

    def __call__(self, *, task_status: TaskStatus) -> Awaitable[object]: ...


class Child(Protocol):
    """One child over all its restarts."""

    logs_overdue: bool
    """Whether the child itself logs that the deadline of its stop has passed."""

    async def run(self, task_status: TaskStatus) -> None:
        """Run the child once: report started; return after a normal end, raise after a failure."""

    def request_stop(self, deadline: float, *, for_restart: bool = False) -> bool:
        """Ask the child to end before `deadline`; return False if it must be cancelled instead.

        `for_restart`: `run` is called again, so that actors keep their mailboxes.
        """

    def fail_start(self, error: Exception) -> bool:
        """End a start that takes too long; return False if it must be cancelled instead."""

    def terminate(self) -> None:
        """Release resources that outlive a run, because the child is not started again."""

    def cells(self) -> Iterable[ActorCell]:
        """Return the actors for which a stop of this child waits."""

    def snapshot(self) -> NodeSnapshot | None:
        """Return the child as a node of the tree; None if the supervisor should create it."""


class ExternalFailure(Exception):
    """Raised by the task of a child whose failure happened outside this process.

    It is logged without a traceback, which would show only where this process noticed the failure.
    """


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One child as data. Made by `actor_child`, `pool_child`, `task_child`, `supervisor_child`.

    Args:
        id: the child's name, unique within its supervisor.
        make: creates the child.
        restart: the ends after which it is restarted.
        shutdown_seconds: the time that an orderly stop may take; then the child is cancelled.
        significant: whether a normal end shuts the supervisor down, unless it is permanent.
        start_seconds: the time that a start may take; then it has failed.
    """

    id: str
    make: Callable[[Runtime], Child]
    restart: Restart = Restart.PERMANENT
    shutdown_seconds: float = SHUTDOWN_SECONDS
    significant: bool = False
    start_seconds: float = inf

    def __post_init__(self) -> None:
        if not self.start_seconds > 0:
            raise ValueError(f"{self.id!r}: start_seconds must be greater than 0")

    @property
    def rules(self) -> ChildRules:
        """The part that `strategies.decide` needs."""
        return ChildRules(self.id, self.restart, self.significant)


@dataclass(frozen=True)
class ActorSpec(ChildSpec, Generic[ActorT_co]):
    """The spec of a single actor, made by `actor_child`."""


def actor_child(
    id: str,
    make: Callable[[], ActorT],
    *,
    restart: Restart = Restart.PERMANENT,
    shutdown_seconds: float = SHUTDOWN_SECONDS,
    significant: bool = False,
    start_seconds: float = START_SECONDS,
    mailbox: MailboxPolicy | None = None,
) -> ActorSpec[ActorT]:
    """Return the spec of a single actor with the address `runtime.ref(id)`.

    `make` creates each instance. `mailbox` replaces the policy of its class. Others: `ChildSpec`.
    """
    return ActorSpec(
        id,
        lambda runtime: ActorChild(runtime.cell(id), make, mailbox),
        restart,
        shutdown_seconds,
        significant,
        start_seconds,
    )


def pool_child(
    id: str, pool: KeyedPool, *, shutdown_seconds: float = SHUTDOWN_SECONDS
) -> ChildSpec:
    """Return the spec of a keyed pool, which is open already; the supervisor closes it.

    The pool has `shutdown_seconds` for the messages of its actors.
    """
    return ChildSpec(id, lambda _: PoolChild(pool), Restart.PERMANENT, shutdown_seconds)


def task_child(
    id: str,
    run: TaskFunction,
    *,
    stop: Callable[[], object] | None = None,
    restart: Restart = Restart.PERMANENT,
    shutdown_seconds: float = SHUTDOWN_SECONDS,
    significant: bool = False,
    start_seconds: float = START_SECONDS,
) -> ChildSpec:
    """Return the spec of a task.

    `run` is called with `task_status`. `stop()` requests its end; without `stop` the task is
    cancelled. Others: `ChildSpec`.
    """
    return ChildSpec(
        id,
        lambda _: TaskChild(run, stop),
        restart,
        shutdown_seconds,
        significant,
        start_seconds,
    )


class ActorChild:
    """A single actor, or a worker of a pool, run in its cell."""

    logs_overdue = True

    def __init__(
        self, cell: SingleCell, make: Callable[[], Actor], mailbox: MailboxPolicy | None = None
    ) -> None:
        self._cell = cell
        self._mailbox = mailbox
        self._cell.check_not_running()
        self._make = make
        self._runs = 0

    async def run(self, task_status: TaskStatus) -> None:
        """Run an instance of the actor to its end."""
        if self._runs:
            self._cell.record_restart()
        self._runs += 1
        await self._cell.run(self._make, task_status, mailbox=self._mailbox)

    def request_stop(self, deadline: float, *, for_restart: bool = False) -> bool:
        """Request an orderly end of the actor, or the end of its instance."""
        if for_restart:
            self._cell.end_instance(deadline)
        else:
            self._cell.stop(deadline)
        return True

    def fail_start(self, error: Exception) -> bool:
        """Record the failure in the cell."""
        self._cell.fail_start(error)
        return True

    def terminate(self) -> None:
        """Close the mailbox, and settle its messages."""
        self._cell.terminate()

    def cells(self) -> Iterable[ActorCell]:
        """Return the actor's cell."""
        return (self._cell,)

    def snapshot(self) -> NodeSnapshot:
        """Return the actor's node."""
        return self._cell.snapshot()


class StoppableChild:
    """Base class of children whose `run` waits for `request_stop`, and then ends in order."""

    logs_overdue = True

    def __init__(self) -> None:
        self._deadline = inf
        """The time by which a requested stop must be over."""
        self._for_restart = False
        """Whether the requested stop is followed by another run."""
        self._stop_requested = trio.Event()

    def request_stop(self, deadline: float, *, for_restart: bool = False) -> bool:
        """Have `run` end in order before `deadline`."""
        self._deadline = deadline
        self._for_restart = for_restart
        self._stop_requested.set()
        return True

    def fail_start(self, error: Exception) -> bool:
        """Return False: the task is cancelled, which stops what it has started."""
        return False

    def _begin_run(self) -> None:
        """Forget the stop of an earlier run."""
        self._stop_requested = trio.Event()
        self._for_restart = False


class PoolChild(StoppableChild):
    """A keyed pool: its task only opens it, and waits to close it or to end its instances.

    A stop closes the pool, which handles the messages of all its actors first. For a restart it
    ends their instances, and their messages wait.
    """

    def __init__(self, pool: KeyedPool) -> None:
        super().__init__()
        self._pool = pool

    async def run(self, task_status: TaskStatus) -> None:
        """Keep the pool open until a stop is requested, then close it."""
        self._pool.open()
        self._pool.runtime.remove_node(self._pool)  # shown below its supervisor instead
        self._begin_run()
        task_status.started()
        try:
            await self._stop_requested.wait()
        finally:
            if self._for_restart:
                await self._pool.end_instances(self._deadline)
            else:
                await self._pool.close(self._deadline)

    def terminate(self) -> None:
        """Settle the messages that wait for the next run."""
        self._pool.terminate()

    def cells(self) -> Iterable[ActorCell]:
        """Return the cells of all current actors."""
        return self._pool.cells()

    def snapshot(self) -> NodeSnapshot:
        """Return the pool's node."""
        return self._pool.snapshot()


class TaskChild:
    """An async function."""

    logs_overdue = False

    def __init__(self, run: TaskFunction, stop: Callable[[], object] | None) -> None:
        self._run = run
        self._stop = stop

    async def run(self, task_status: TaskStatus) -> None:
        """Run the function."""
        await self._run(task_status=task_status)

    def request_stop(self, deadline: float, *, for_restart: bool = False) -> bool:
        """Call `stop`, if there is one."""
        if self._stop is None:
            return False
        self._stop()
        return True

    def fail_start(self, error: Exception) -> bool:
        """Return False: the task is cancelled."""
        return False

    def terminate(self) -> None:
        """Do nothing: a task leaves nothing behind."""

    def cells(self) -> Iterable[ActorCell]:
        """Return nothing: a task is not an actor."""
        return ()

    def snapshot(self) -> None:
        """Return None: the supervisor has all facts about a task."""
