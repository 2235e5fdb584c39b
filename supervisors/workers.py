"""The child that runs a worker pool: a nested supervisor whose children are the workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fw_actors.runtime import NodeSnapshot, RestartIntensity, Runtime, WorkerPool
from fw_actors.runtime.cell import ActorCell
from fw_actors.runtime.clock import SHUTDOWN_SECONDS, START_SECONDS
from supervisors.children import ActorChild, ChildSpec, StoppableChild, TaskStatus
from supervisors.strategies import Restart, Strategy
from supervisors.supervisor import Supervisor
from supervisors.tree import open_nested


def worker_pool_child(
    pool: WorkerPool[Any],
    *,
    intensity: RestartIntensity | None = None,
    restart: Restart = Restart.PERMANENT,
    shutdown_seconds: float = SHUTDOWN_SECONDS,
    start_seconds: float = START_SECONDS,
) -> ChildSpec:
    """Return the spec of a worker pool; its id is the pool's name.

    A failed worker is restarted alone, within `intensity` for all workers together; beyond it the
    pool fails as a child of its supervisor, and the messages in its mailbox wait for its restart.
    `start_seconds` limits the start of each worker, `shutdown_seconds` the stop of all, which are
    stopped together.
    """
    return ChildSpec(
        pool.name,
        lambda runtime: WorkerPoolChild(runtime, pool, intensity, shutdown_seconds, start_seconds),
        restart,
        shutdown_seconds,
    )


class WorkerPoolChild(StoppableChild):
    """A worker pool, over all its restarts."""

    def __init__(
        self,
        runtime: Runtime,
        pool: WorkerPool[Any],
        intensity: RestartIntensity | None,
        stop_seconds: float,
        start_seconds: float,
    ) -> None:
        super().__init__()
        self._runtime, self._pool = runtime, pool
        self._intensity, self._stop_seconds = intensity, stop_seconds
        self._specs = [
            ChildSpec(
                worker.name,
                lambda _, worker=worker: ActorChild(worker, pool.make),  # type: ignore[misc]
                Restart.PERMANENT,
                stop_seconds,
                start_seconds=start_seconds,
            )
            for worker in pool.workers
        ]
        self._supervisor: Supervisor | None = None

    async def run(self, task_status: TaskStatus) -> None:
        """Run the workers until a stop is requested."""
        self._begin_run()
        self._pool.open()
        async with open_nested(
            self._runtime,
            self._pool.name,
            (),
            Strategy.ONE_FOR_ONE,
            self._intensity,
            self._stop_seconds,
            self._pool.size,
        ) as self._supervisor:
            for spec in self._specs:  # dynamic children, since these are stopped together
                await self._supervisor.start_child(spec)
            task_status.started()
            await self._stop_requested.wait()
            await self._supervisor.stop(self._deadline)

    def request_stop(self, deadline: float, *, for_restart: bool = False) -> bool:
        """Have `run` stop the workers; without `for_restart` they handle the mailbox first."""
        if not for_restart:
            self._pool.close()
        return super().request_stop(deadline, for_restart=for_restart)

    def terminate(self) -> None:
        """Settle the messages that no worker has taken."""
        self._pool.settle()

    def cells(self) -> Iterable[ActorCell]:
        """Return the workers' cells."""
        return self._pool.workers

    def snapshot(self) -> NodeSnapshot | None:
        """Return the supervisor of the workers as a node, with the pool's mailbox."""
        if self._supervisor is None:
            return None
        return replace(
            self._supervisor.snapshot(),
            depth=self._pool.depth,
            capacity=self._pool.capacity,
            waiting=self._pool.waiting,
        )
