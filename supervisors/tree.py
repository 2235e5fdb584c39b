"""The supervision tree: opens the root supervisor, and nests others below it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Final, overload

import trio

from fw_actors.runtime import ActorGone, ActorRef, NodeSnapshot, RestartIntensity, Runtime
from fw_actors.runtime.cell import ActorCell
from fw_actors.runtime.system import unwrap_single_error
from supervisors.children import ActorSpec, ActorT, ChildSpec, StoppableChild, TaskStatus
from supervisors.strategies import Restart, Strategy
from supervisors.supervisor import Supervisor, SupervisorFailed

STOP_SECONDS: Final = 30.0
MAX_DYNAMIC_CHILDREN: Final = 1000


@asynccontextmanager
async def open_supervisor(
    runtime: Runtime,
    name: str,
    children: Sequence[ChildSpec],
    *,
    strategy: Strategy = Strategy.ONE_FOR_ONE,
    intensity: RestartIntensity | None = None,
    stop_seconds: float = STOP_SECONDS,
    limit: int = MAX_DYNAMIC_CHILDREN,
) -> AsyncIterator[Supervisor]:
    """Run a supervisor for the time of the block. See docs/runtime.md.

    Leaving the block, also by cancellation, stops the children in reverse order.

    Args:
        runtime: the runtime of the actors.
        name: the supervisor's name in the tree.
        children: the static children, in the order of their start.
        strategy: the siblings that are restarted with a child.
        intensity: the failures that are tolerated, and the backoff; None: the defaults.
        stop_seconds: the time in which all children together must stop.
        limit: the maximum number of children from `start_child` at a time.

    Raises: SupervisorFailed if a child failed to start, or failed too often; the block is
        cancelled.
    """
    async with open_nested(
        runtime, name, children, strategy, intensity, stop_seconds, limit
    ) as supervisor:
        runtime.add_node(supervisor)
        try:
            yield supervisor
        finally:
            runtime.remove_node(supervisor)


def supervisor_child(
    id: str,
    children: Sequence[ChildSpec],
    *,
    strategy: Strategy = Strategy.ONE_FOR_ONE,
    intensity: RestartIntensity | None = None,
    restart: Restart = Restart.PERMANENT,
    shutdown_seconds: float = STOP_SECONDS,
    significant: bool = False,
    start_seconds: float = inf,
) -> ChildSpec:
    """Return the spec of a nested supervisor; its escalation is a failure of this child.

    `start_seconds` and `shutdown_seconds` limit the start and the stop of all its children
    together, in addition to the limits of each. Others: `open_supervisor` and `ChildSpec`.
    """
    return ChildSpec(
        id,
        lambda runtime: SupervisorChild(
            runtime, id, children, strategy, intensity, shutdown_seconds
        ),
        restart,
        shutdown_seconds,
        significant,
        start_seconds,
    )


class DynamicSupervisor:
    """The address of a nested supervisor with dynamic children.

    Create one, put `dynamic_child(it)` into the tree, and pass it to the actors that start
    children. It is valid before the supervisor runs, and over its restarts, which end all its
    children.
    """

    def __init__(self, name: str, *, limit: int = MAX_DYNAMIC_CHILDREN) -> None:
        if limit < 1:
            raise ValueError(f"{name!r}: limit must be at least 1")
        self.name = name
        self.limit = limit
        self._running: Supervisor | None = None

    @property
    def children(self) -> tuple[NodeSnapshot, ...]:
        """The current children in the order of their start."""
        return () if self._running is None else self._running.children

    @overload
    async def start_child(self, spec: ActorSpec[ActorT]) -> ActorRef[ActorT]: ...

    @overload
    async def start_child(self, spec: ChildSpec) -> ActorRef | None: ...

    async def start_child(self, spec: ChildSpec) -> ActorRef | None:
        """Start a child; see `Supervisor.start_child`. Raises ActorGone if it does not run."""
        return await self._supervisor().start_child(spec)

    async def stop_child(self, id: str) -> bool:
        """Stop a child; see `Supervisor.stop_child`. Raises ActorGone if it does not run."""
        return await self._supervisor().stop_child(id)

    def attach(self, supervisor: Supervisor | None) -> None:
        """Set the supervisor behind the address; called by its child."""
        self._running = supervisor

    def _supervisor(self) -> Supervisor:
        if self._running is None:
            raise ActorGone(self.name)
        return self._running


def dynamic_child(
    supervisor: DynamicSupervisor,
    *,
    intensity: RestartIntensity | None = None,
    restart: Restart = Restart.PERMANENT,
    shutdown_seconds: float = STOP_SECONDS,
) -> ChildSpec:
    """Return the spec of the supervisor behind a `DynamicSupervisor`; its id is the name of the
    latter.

    The children are restarted one for one, within `intensity` for all together.
    """
    return ChildSpec(
        supervisor.name,
        lambda runtime: SupervisorChild(
            runtime,
            supervisor.name,
            (),
            Strategy.ONE_FOR_ONE,
            intensity,
            shutdown_seconds,
            supervisor,
        ),
        restart,
        shutdown_seconds,
    )


class SupervisorChild(StoppableChild):
    """A nested supervisor, created again for each run."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        children: Sequence[ChildSpec],
        strategy: Strategy,
        intensity: RestartIntensity | None,
        stop_seconds: float,
        address: DynamicSupervisor | None = None,
    ) -> None:
        super().__init__()
        self._runtime, self._name, self._children = runtime, name, children
        self._strategy, self._intensity = strategy, intensity
        self._stop_seconds = stop_seconds
        self._address = address or DynamicSupervisor(name)
        self._supervisor: Supervisor | None = None

    async def run(self, task_status: TaskStatus) -> None:
        """Run the supervisor until a stop is requested."""
        self._begin_run()
        async with open_nested(
            self._runtime,
            self._name,
            self._children,
            self._strategy,
            self._intensity,
            self._stop_seconds,
            self._address.limit,
        ) as self._supervisor:
            self._address.attach(self._supervisor)
            task_status.started()
            try:
                await self._stop_requested.wait()
                await self._supervisor.stop(self._deadline, for_restart=self._for_restart)
            finally:
                self._address.attach(None)

    def terminate(self) -> None:
        """Close the mailboxes that the last run has kept for the next one."""
        if self._supervisor is not None:
            self._supervisor.terminate()

    def cells(self) -> Iterable[ActorCell]:
        """Return the actors below the supervisor."""
        return self._supervisor.cells() if self._supervisor is not None else ()

    def snapshot(self) -> NodeSnapshot | None:
        """Return the supervisor's node, if it runs."""
        return self._supervisor.snapshot() if self._supervisor is not None else None


@asynccontextmanager
async def open_nested(
    runtime: Runtime,
    name: str,
    children: Sequence[ChildSpec],
    strategy: Strategy,
    intensity: RestartIntensity | None,
    stop_seconds: float,
    limit: int,
) -> AsyncIterator[Supervisor]:
    """Run a supervisor for the time of the block, outside of the runtime's list of nodes.

    Arguments and errors as in `open_supervisor`.
    """
    with unwrap_single_error(causes=(SupervisorFailed,)):
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor(
                runtime,
                name,
                children,
                strategy,
                intensity or RestartIntensity(),
                stop_seconds,
                limit,
                nursery,
            )
            try:
                await supervisor.start()
                yield supervisor
            finally:
                with trio.CancelScope(shield=True):  # wait for a stop in progress
                    await supervisor.stop(trio.current_time() + stop_seconds)
