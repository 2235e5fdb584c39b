"""One child of a supervisor: its task, how it is started and stopped, and its state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum
from math import inf
from typing import TYPE_CHECKING

import trio

from fw_actors.runtime import NodeSnapshot, Runtime
from fw_actors.runtime.errors import StartOverdueError
from fw_actors.runtime.snapshot import place_of

if TYPE_CHECKING:
    from supervisors.children import Child, ChildSpec


class Phase(Enum):
    """The phases of a child's lifecycle."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class SupervisedChild:
    """A child and its task. `ended` is called at each unrequested end."""

    def __init__(
        self,
        runtime: Runtime,
        spec: ChildSpec,
        ended: Callable[[SupervisedChild, Exception | None], None],
    ) -> None:
        self._runtime = runtime
        self.spec = spec
        self.child: Child = spec.make(runtime)
        self.phase = Phase.WAITING
        self.leaving = False
        """Whether `stop_child` ends it: it is not restarted."""
        self.restarts = -1
        self.failed = 0
        self.last_error: str | None = None
        self._ended = ended
        self._scope = trio.CancelScope(shield=True)
        self._settled = trio.Event()
        self._over = trio.Event()
        self._task: trio.lowlevel.Task | None = None
        self._start_overdue: Exception | None = None
        self._start_failure: Exception | None = None
        self._stop_failure: Exception | None = None

    async def start(
        self, start_soon: Callable[[Callable[[], Awaitable[object]], str], None]
    ) -> Exception | None:
        """Start the child in its own task, and wait until it has reported started.

        Returns None, or the failure of the start.

        It is also a failure if the child ends before it has reported started, or takes longer than
        its `start_seconds`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self.phase = Phase.STARTING
        self.restarts += 1
        # Shielded: a cancellation around the supervisor must still stop its children in order.
        self._scope = trio.CancelScope(shield=True)
        self._settled, self._over = trio.Event(), trio.Event()
        self._start_overdue = self._start_failure = self._stop_failure = None
        start_soon(self._run, self.spec.id)
        with trio.move_on_after(self.spec.start_seconds):
            await self._settled.wait()
        if not self._settled.is_set():
            await self._cut_start()
        return self._start_failure

    def started(self, value: object = None) -> None:
        """Record that the child is ready: the member is the `task_status` of its child."""
        if self._start_overdue is not None:
            return
        if self.phase is Phase.STARTING:
            self.phase = Phase.RUNNING
        self._settled.set()

    async def stop(
        self, tree_deadline: float = inf, *, for_restart: bool = False
    ) -> Exception | None:
        """Request a stop, wait within the child's time and the tree's, then cancel.

        `for_restart`: `start` follows, so that the child keeps its mailboxes until then.
        Returns the error that the child raised instead of ending normally.
        """
        if self.phase not in (Phase.WAITING, Phase.ENDED):
            self.phase = Phase.STOPPING
            deadline = min(trio.current_time() + self.spec.shutdown_seconds, tree_deadline)
            if not self.child.request_stop(deadline, for_restart=for_restart):
                self._scope.cancel()
            await self._wait_until_over(deadline, logged=self.child.logs_overdue)
        if not for_restart:
            self.terminate()
        failure, self._stop_failure = self._stop_failure, None  # once: `stop` may be called again
        return failure

    def terminate(self) -> None:
        """Record that the child is not started again."""
        self.phase = Phase.ENDED
        self.child.terminate()

    def snapshot(self) -> NodeSnapshot:
        """Return the child as a node of the tree."""
        node = self.child.snapshot()
        if node is None:
            return NodeSnapshot(
                name=self.spec.id,
                kind="task",
                state=self.phase.value,
                alive=int(self.phase in (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)),
                failed=self.failed,
                restarts=max(0, self.restarts),
                last_error=self.last_error,
            )
        state = Phase.WAITING.value if self.phase is Phase.WAITING else node.state
        return replace(node, name=self.spec.id, state=state)

    async def _cut_start(self) -> None:
        """End a start that has taken too long; the failure has its position."""
        self._start_overdue = StartOverdueError(self.spec.id, self.spec.start_seconds, self._place)
        if not self.child.fail_start(self._start_overdue):
            self._scope.cancel()
        await self._wait_until_over(trio.current_time() + self.spec.shutdown_seconds)

    async def _wait_until_over(self, deadline: float, *, logged: bool = False) -> None:
        """Wait for the end of the run; at the deadline cancel it, and log its position."""
        with trio.move_on_at(deadline):
            await self._over.wait()
        if not self._over.is_set():
            if not logged:
                self._runtime.report_overdue(self.spec.id, self._place)
            self._scope.cancel()
            await self._over.wait()

    @property
    def _place(self) -> str:
        """Return the place where the child's task waits, as file:line."""
        return "unknown" if self._task is None else place_of(self._task)

    async def _run(self) -> None:
        failure: Exception | None = None
        self._task = trio.lowlevel.current_task()
        try:
            with self._scope:
                if self.phase is Phase.STOPPING:
                    return  # stopped before its task ran
                await self.child.run(self)
                if not self._settled.is_set():
                    raise self._start_overdue or EndedTooSoonError(self.spec.id)
            if self._start_overdue is not None:
                raise self._start_overdue
        except Exception as error:
            failure = error
            self.failed += 1
            self.last_error = self._runtime.one_line(error)
        finally:
            requested = self.phase is Phase.STOPPING
            self.phase = Phase.WAITING
            self._task = None
            self._over.set()
            if not self._settled.is_set():
                self._start_failure = failure  # `start` returns it
                self._settled.set()
            elif requested:
                self._stop_failure = failure
            else:
                self._ended(self, failure)


class EndedTooSoonError(Exception):
    """Raised for a child that ended before it called `task_status.started()`."""

    def __init__(self, child: str) -> None:
        super().__init__(f"{child!r} ended before it reported that it had started.")
