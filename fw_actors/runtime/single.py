"""A single actor: a name, a task for each of its lives, and a mailbox that outlives them.

A life goes from construction to its end. After an end in order the actor is retired: mailbox
closed, whoever waits settled. After a failure its supervisor decides: another `live`, or `retire`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import current_task, reschedule, wait_task_rescheduled

from fw_actors.runtime.actor import Context
from fw_actors.runtime.background import cancel_timers
from fw_actors.runtime.cell import Cell, CrashedError, Down, State, run_turn
from fw_actors.runtime.deadlock import CURRENT
from fw_actors.runtime.errors import ActorFailed, ActorGone
from fw_actors.runtime.mailbox import Mailbox
from fw_actors.runtime.ref import ActorRef
from fw_actors.runtime.snapshot import node_of

if TYPE_CHECKING:
    from fw_actors.runtime.actor import Actor
    from fw_actors.runtime.reply import PendingReply
    from fw_actors.runtime.snapshot import NodeSnapshot
    from fw_actors.runtime.system import Ground


class SingleContext(Context):
    """What a single actor has in its hands."""

    __slots__ = ()

    @property
    def ref(self) -> ActorRef:
        """This actor's own address."""
        return ActorRef(self._cell)


class SingleCell(Cell):
    """One named actor. `live` is its task, run by a supervisor; one at a time."""

    __slots__ = ("_retired", "_scope", "_state", "_task", "stop_requested")

    def __init__(self, runtime: Ground, name: str) -> None:
        closed = Mailbox(1)
        closed.close()
        super().__init__(runtime, name, closed)
        self.stop_requested = False
        self._retired = True
        self._scope: trio.CancelScope | None = None
        self._state = State.ABSENT
        self._task: trio.lowlevel.Task | None = None

    @property
    def state(self) -> State:
        """Where the actor is in its life."""
        if self._state is State.RUNNING and self.suspended:
            return State.SUSPENDED
        return self._state

    def snapshot(self) -> NodeSnapshot:
        """Return what can be seen of it."""
        return node_of(self)

    async def live(
        self,
        make: Callable[[], Actor],
        task_status: trio.TaskStatus[ActorRef] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Make an instance and run it to its end; says started when `Actor.started` is through.

        Returns after an end in order. Cancelled, it is retired.
        Raises ActorFailed when the instance failed anywhere; the mailbox stays open then.
        """
        self.check_free()
        failure: str | None = None
        self._scope = trio.CancelScope()
        self.stop_requested = False
        self._state = State.STARTING
        ended = False
        try:
            with self._scope:
                actor = await self._begin(make)
                self._state = State.RUNNING
                task_status.started(ActorRef(self))
                await self._serve(actor)
                await self._end(actor)
            ended = True
        except CrashedError as crash:
            failure = self.runtime.one_line(crash.error)
            raise ActorFailed(self.name, failure) from crash.error
        finally:
            self._finish(failure, retire=ended or failure is None or self.stop_requested)

    def check_free(self) -> None:
        """Raise ValueError when an actor of this name is running."""
        if self._scope is not None:
            raise ValueError(f"an actor named {self.name!r} is running already")

    def retire(self) -> None:
        """Give up for good, unless `live` is called again; for a cell that isn't running."""
        self._retired = True
        self._state = State.ABSENT
        self.suspended = False
        self.settle_mailbox()

    def stop(self, deadline: float) -> None:
        """Ask for an end in order before `deadline`; then it is cancelled. The earliest counts."""
        self.stop_requested = True
        self.suspended = False
        self.mailbox.close()
        cancel_timers(self)
        if self._scope is not None:
            self._scope.deadline = min(self._scope.deadline, deadline)
            self._state = State.STOPPING
        if not self.awake:
            self.wake()

    def inspect(self, slot: PendingReply[Any]) -> None:
        """See `Cell.inspect`. Raises ActorGone as well: nobody is there to look into it."""
        if self._retired:
            raise ActorGone(self.name)
        super().inspect(slot)

    def suspend(self) -> None:
        """Handle nothing after the message in hand; one that is to stop goes on to its end."""
        if not self.stop_requested:
            super().suspend()

    def wake(self) -> None:
        """Reschedule the parked task."""
        task, self._task = self._task, None
        self.awake = True
        if task is not None:
            reschedule(task)

    def freed(self) -> None:
        """A single actor stays whether it holds anything or not."""

    async def _begin(self, make: Callable[[], Actor]) -> Actor:
        CURRENT.set(self)
        phase = "construct"
        try:
            actor = make()
            actor.context = SingleContext(self)
            if self._retired:
                self._retired = False
                self.mailbox = Mailbox(actor.mailbox.capacity)
            self.overflow = actor.mailbox.overflow
            self.actor = actor
            phase = "start"
            await actor.started()
        except Exception as error:
            raise self.note_failure(phase, error) from error
        return actor

    async def _serve(self, actor: Actor) -> None:
        task = current_task()
        while True:
            if await run_turn(self, actor):
                await trio.lowlevel.checkpoint()
            elif self.stop_requested and not self.works:
                return
            else:
                self._task = task
                self.awake = False
                await wait_task_rescheduled(self._unpark)

    async def _end(self, actor: Actor) -> None:
        try:
            await actor.stopping()
        except Exception as error:
            raise self.note_failure("stop", error) from error

    def _unpark(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        self.awake = True
        return trio.lowlevel.Abort.SUCCEEDED

    def _finish(self, failure: str | None, *, retire: bool) -> None:
        if self._scope is not None and self._scope.cancelled_caught:
            self.runtime.log.warning("actor_stop_forced", actor=self.name, depth=self.mailbox.depth)
        self._scope = None
        self._state = State.FAILED
        self.settle_instance(failure)
        if retire:
            self.retire()
        watchers, self.watchers = self.watchers or {}, None
        for watcher in watchers:
            watcher.fire(Down(self.name, failure))
