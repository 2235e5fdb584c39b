"""The kinds of children: how one life of each is run, and asked to end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Protocol

import trio

from fw_actors.runtime import Actor, KeyedPool, NodeSnapshot, Runtime
from fw_actors.runtime.cell import ActorCell
from supervisors.strategies import ChildRules, Restart

SHUTDOWN_SECONDS: Final = 5.0

TaskStatus = trio.TaskStatus[Any]


class TaskFunction(Protocol):
    """A task: calls `task_status.started()` when it is up, then runs until it is cancelled."""

    def __call__(self, *, task_status: TaskStatus) -> Awaitable[object]: ...


class Child(Protocol):
    """One child over all its lives."""

    async def run(self, task_status: TaskStatus) -> None:
        """Run one life: say started when it is up; return at a normal end, raise at a failure."""

    def request_stop(self, deadline: float) -> bool:
        """Ask the life to end before `deadline`; False when it has to be cancelled instead."""

    def terminate(self) -> None:
        """Note that no life follows the last one."""

    def cells(self) -> Iterable[ActorCell]:
        """Return the actors whose ends are waited for at its stop."""

    def snapshot(self) -> NodeSnapshot | None:
        """Return what can be seen of it; None when the supervisor knows as much."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One child as data. Made by `actor_child`, `pool_child`, `task_child`, `supervisor_child`.

    `significant`: its normal end ends the supervisor (for transient and temporary ones).
    """

    id: str
    make: Callable[[Runtime], Child]
    restart: Restart = Restart.PERMANENT
    shutdown_seconds: float = SHUTDOWN_SECONDS
    significant: bool = False

    @property
    def rules(self) -> ChildRules:
        """What decisions are made from."""
        return ChildRules(self.id, self.restart, self.significant)


def actor_child(
    id: str,
    make: Callable[[], Actor],
    *,
    restart: Restart = Restart.PERMANENT,
    shutdown_seconds: float = SHUTDOWN_SECONDS,
    significant: bool = False,
) -> ChildSpec:
    """A single actor; its id is its address, `runtime.ref(id)`. `make` makes each instance."""
    return ChildSpec(
        id,
        lambda runtime: ActorChild(runtime, id, make),
        restart,
        shutdown_seconds,
        significant,
    )


def pool_child(
    id: str, pool: KeyedPool, *, shutdown_seconds: float = SHUTDOWN_SECONDS
) -> ChildSpec:
    """A keyed pool, which works already: the supervisor closes it in its turn."""
    return ChildSpec(id, lambda _: PoolChild(pool), Restart.PERMANENT, shutdown_seconds)


def task_child(
    id: str,
    run: TaskFunction,
    *,
    stop: Callable[[], object] | None = None,
    restart: Restart = Restart.PERMANENT,
    shutdown_seconds: float = SHUTDOWN_SECONDS,
    significant: bool = False,
) -> ChildSpec:
    """A task. `stop()` asks it to end in order; without it the task is cancelled."""
    return ChildSpec(id, lambda _: TaskChild(run, stop), restart, shutdown_seconds, significant)


class ActorChild:
    """A single actor, run in the cell behind its address."""

    def __init__(self, runtime: Runtime, name: str, make: Callable[[], Actor]) -> None:
        self._cell = runtime.cell(name)
        self._make = make
        self._lives = 0

    async def run(self, task_status: TaskStatus) -> None:
        """See `Child`."""
        if self._lives:
            self._cell.record_restart()
        self._lives += 1
        await self._cell.run(self._make, task_status)

    def request_stop(self, deadline: float) -> bool:
        """See `Child`."""
        self._cell.stop(deadline)
        return True

    def terminate(self) -> None:
        """See `Child`."""
        self._cell.terminate()

    def cells(self) -> Iterable[ActorCell]:
        """See `Child`."""
        return (self._cell,)

    def snapshot(self) -> NodeSnapshot:
        """See `Child`."""
        return self._cell.snapshot()


class PoolChild:
    """A keyed pool: it needs no task but to be closed."""

    def __init__(self, pool: KeyedPool) -> None:
        self._pool = pool
        self._deadline = inf
        self._asked = trio.Event()

    async def run(self, task_status: TaskStatus) -> None:
        """See `Child`."""
        self._pool.open()
        self._pool.runtime.remove_node(self._pool)  # it is seen below its supervisor
        self._asked = trio.Event()
        task_status.started()
        try:
            await self._asked.wait()
        finally:
            await self._pool.close(self._deadline)

    def request_stop(self, deadline: float) -> bool:
        """See `Child`."""
        self._deadline = deadline
        self._asked.set()
        return True

    def terminate(self) -> None:
        """Nothing is left of a closed pool."""

    def cells(self) -> Iterable[ActorCell]:
        """See `Child`."""
        return self._pool.cells()

    def snapshot(self) -> NodeSnapshot:
        """See `Child`."""
        return self._pool.snapshot()


class TaskChild:
    """An async function."""

    def __init__(self, run: TaskFunction, stop: Callable[[], object] | None) -> None:
        self._run = run
        self._stop = stop

    async def run(self, task_status: TaskStatus) -> None:
        """See `Child`."""
        await self._run(task_status=task_status)

    def request_stop(self, deadline: float) -> bool:
        """See `Child`."""
        if self._stop is None:
            return False
        self._stop()
        return True

    def terminate(self) -> None:
        """A task leaves nothing behind."""

    def cells(self) -> Iterable[ActorCell]:
        """See `Child`."""
        return ()

    def snapshot(self) -> None:
        """Nothing but what the supervisor knows."""
