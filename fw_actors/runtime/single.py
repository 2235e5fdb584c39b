"""A single actor: a name, a task for each instance, and a mailbox that outlives the instances.

After an ordered end the actor is terminated: its mailbox is closed and every asker settled. After
a failure its supervisor decides: another `run`, or `terminate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import current_task, reschedule, wait_task_rescheduled

from fw_actors.runtime.actor import Context
from fw_actors.runtime.background import cancel_timers
from fw_actors.runtime.cell import ActorCell, ActorState, CrashedError
from fw_actors.runtime.deadlock import CURRENT
from fw_actors.runtime.errors import ActorFailed, ActorGone
from fw_actors.runtime.mailbox import Mailbox
from fw_actors.runtime.ref import ActorRef
from fw_actors.runtime.snapshot import node_of

if TYPE_CHECKING:
    from fw_actors.runtime.actor import Actor
    from fw_actors.runtime.reply import PendingReply
    from fw_actors.runtime.snapshot import NodeSnapshot
    from fw_actors.runtime.system import Runtime


class SingleCell(ActorCell):
    """The cell of one named actor. A supervisor runs `run` as its task, one at a time."""

    __slots__ = ("_parked", "_scope", "_state", "_stop_requested", "_terminated")

    def __init__(self, runtime: Runtime, name: str) -> None:
        closed = Mailbox(1)
        closed.close()
        super().__init__(runtime, name, closed)
        self._parked: trio.lowlevel.Task | None = None
        """The cell's task while it has nothing to do."""
        self._scope: trio.CancelScope | None = None
        """Cancels the present `run`."""
        self._state = ActorState.ABSENT
        self._stop_requested = False
        self._terminated = True

    @property
    def ref(self) -> ActorRef:
        """The address of this cell."""
        return ActorRef(self)

    @property
    def state(self) -> ActorState:
        """The actor's state in its lifecycle."""
        if self._state is ActorState.RUNNING and self._suspended:
            return ActorState.SUSPENDED
        return self._state

    def snapshot(self) -> NodeSnapshot:
        """Return the actor as a node of the tree."""
        return node_of(self)

    async def run(
        self,
        make: Callable[[], Actor],
        task_status: trio.TaskStatus[ActorRef] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Create an instance and run it to its end; reports started after `Actor.started`.

        Returns after an ordered end. A cancellation terminates the actor.
        Raises ActorFailed if the instance failed anywhere; the mailbox stays open then.
        """
        self.check_not_running()
        failure: str | None = None
        self._scope = trio.CancelScope()
        self._stop_requested = False
        self._state = ActorState.STARTING
        ended = False
        try:
            with self._scope:
                actor = await self._start(make)
                self._state = ActorState.RUNNING
                task_status.started(self.ref)
                await self._handle_messages(actor)
                await self._end(actor)
            ended = True
        except CrashedError as crash:
            failure = self.runtime.one_line(crash.error)
            raise ActorFailed(self.name, failure) from crash.error
        finally:
            self._finish(failure, terminate=ended or failure is None or self._stop_requested)

    def check_not_running(self) -> None:
        """Raise ValueError if an actor of this name is running."""
        if self._scope is not None:
            raise ValueError(f"an actor named {self.name!r} is already running")

    def terminate(self) -> None:
        """Close the mailbox for good, unless `run` is called again; the cell must not run."""
        self._terminated = True
        self._state = ActorState.ABSENT
        self._suspended = False
        self.settle_mailbox()

    def stop(self, deadline: float) -> None:
        """Ask for an ordered end before `deadline`, then cancel. The earliest deadline counts."""
        self._stop_requested = True
        self._suspended = False
        self.mailbox.close()
        cancel_timers(self)
        if self._scope is not None:
            self._scope.deadline = min(self._scope.deadline, deadline)
            self._state = ActorState.STOPPING
        if not self.scheduled:
            self.schedule()

    def inspect(self, reply: PendingReply[Any]) -> None:
        """Queue a request for an inspection. Raises MailboxFull, and ActorGone if terminated."""
        if self._terminated:
            raise ActorGone(self.name)
        super().inspect(reply)

    def suspend(self) -> None:
        """Handle nothing after the present message; an actor that is to stop still does so."""
        if not self._stop_requested:
            super().suspend()

    def schedule(self) -> None:
        """Wake the parked task."""
        if self._parked is not None:
            reschedule(self._parked)  # in another thread this raises, before anything is changed
            self._parked = None
        self.scheduled = True

    def _became_quiet(self) -> None:
        """Do nothing: a single actor stays whether it has pending operations or not."""

    async def _start(self, make: Callable[[], Actor]) -> Actor:
        CURRENT.set(self)
        phase = "construct"
        try:
            actor = make()
            actor.context = Context(self)
            if self._terminated:
                self._terminated = False
                self.mailbox = Mailbox(actor.mailbox.capacity)
            self._overflow = actor.mailbox.overflow
            self.actor = actor
            phase = "start"
            await actor.started()
        except Exception as error:
            raise self.record_failure(phase, error) from error
        return actor

    async def _handle_messages(self, actor: Actor) -> None:
        task = current_task()
        while True:
            if await self._run_batch(actor):
                await trio.lowlevel.checkpoint()
            elif self._stop_requested and not self.works:
                return
            else:
                # Parked by hand, not by the channel's `receive`: that would take a message out
                # before control is looked at, and made `ask` an eighth slower.
                self._parked = task
                self.scheduled = False
                await wait_task_rescheduled(self._unpark)

    async def _end(self, actor: Actor) -> None:
        try:
            await actor.stopping()
        except Exception as error:
            raise self.record_failure("stop", error) from error

    def _unpark(self, _: object) -> trio.lowlevel.Abort:
        self._parked = None
        self.scheduled = True
        return trio.lowlevel.Abort.SUCCEEDED

    def _finish(self, failure: str | None, *, terminate: bool) -> None:
        if self._scope is not None and self._scope.cancelled_caught:
            self.runtime.log.warning("actor_stop_forced", actor=self.name, depth=self.mailbox.depth)
        self._scope = None
        self._state = ActorState.FAILED
        self.settle_instance(failure)
        if terminate:
            self.terminate()
        self._notify_watches(failure)
