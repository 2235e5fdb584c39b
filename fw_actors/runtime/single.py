"""A single actor: a name, a task for each instance, and a mailbox that outlives the instances.

After an orderly end the actor is terminated: its mailbox is closed and every asker is settled.
After a failure, or the end of one instance, its supervisor calls either `run` again or `terminate`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import current_task, reschedule, wait_task_rescheduled

from fw_actors.runtime.actor import Context, KeyedActor, check_made, construct_error
from fw_actors.runtime.cell import ActorCell, ActorState, CrashedError, run_started
from fw_actors.runtime.deadlock import CURRENT, HandlerTask
from fw_actors.runtime.errors import ActorFailed, ActorGone
from fw_actors.runtime.mailbox import Mailbox, MailboxPolicy
from fw_actors.runtime.ref import ActorRef, Ref
from fw_actors.runtime.reply import WOKEN
from fw_actors.runtime.snapshot import node_of, place_of
from fw_actors.runtime.supervision import cancel_timers
from fw_actors.runtime.topics import EventKind
from fw_actors.runtime.tracing import CURRENT_MESSAGE
from fw_actors.runtime.workers import own_decimal_context

if TYPE_CHECKING:
    from fw_actors.runtime.actor import Actor
    from fw_actors.runtime.reply import PendingReply
    from fw_actors.runtime.snapshot import NodeSnapshot
    from fw_actors.runtime.supervision import Watch
    from fw_actors.runtime.system import Runtime


class SingleCell(ActorCell):
    """The cell of one named actor. A supervisor runs `run` as its task, one at a time."""

    __slots__ = (
        "_parked",
        "_scope",
        "_start_error",
        "_state",
        "_stop_deadline",
        "_stop_seconds",
        "_task",
        "_terminated",
        "_watches",
    )

    def __init__(self, runtime: Runtime, name: str) -> None:
        closed = Mailbox(1)
        closed.close()
        self._watches: dict[Watch, None] = {}
        super().__init__(runtime, name, closed, self._watches)
        self._parked: trio.lowlevel.Task | None = None
        """The cell's task while it has nothing to do."""
        self._scope: trio.CancelScope | None = None
        """Cancels the current `run`."""
        self._task: trio.lowlevel.Task | None = None
        """The task of the current `run`."""
        self._state = ActorState.ABSENT
        self._start_error: Exception | None = None
        """The reason why the current start fails although `started` has not raised."""
        self._stop_deadline = self._stop_seconds = inf
        """The time at which the current `run` is cancelled, and the seconds until then when it was
        set."""
        self._terminated = True

    @property
    def ref(self) -> Ref:
        """The address of this cell."""
        return ActorRef(self)

    @property
    def state(self) -> ActorState:
        """The actor's state in its lifecycle."""
        if self._state is ActorState.RUNNING and self._suspended:
            return ActorState.SUSPENDED
        return self._state

    @property
    def watches(self) -> Collection[Watch]:
        """The watches of other actors on this one."""
        return self._watches

    def add_watch(self, watch: Watch) -> None:
        """Notify `watch` when an instance ends or starts."""
        self._watches[watch] = None

    def remove_watch(self, watch: Watch) -> None:
        """Undo `add_watch`; does nothing for an unknown watch."""
        self._watches.pop(watch, None)

    def snapshot(self) -> NodeSnapshot:
        """Return the actor as a node of the tree."""
        return node_of(self)

    async def run(
        self,
        make: Callable[[], Actor],
        task_status: trio.TaskStatus[ActorRef[Any]] = trio.TASK_STATUS_IGNORED,
        *,
        mailbox: MailboxPolicy | None = None,
        start_seconds: float = inf,
    ) -> None:
        """Create an instance and run it to its end; reports started after `Actor.started`.

        `mailbox` replaces the policy of the actor's class. A `started` that takes longer than
        `start_seconds` is a failure. Returns after an orderly end. A cancellation terminates the
        actor. Raises ActorFailed if the instance failed anywhere; the mailbox stays open then.
        """
        self.check_not_running()
        failure: str | None = None
        self._scope = trio.CancelScope()
        self._task = current_task()
        self.stop_requested = self.mailbox_held = False
        self._start_error = None
        self._state = ActorState.STARTING
        try:
            with self._scope:
                actor = await self._start(make, mailbox, start_seconds)
                if self._state is ActorState.STARTING:  # else a stop was requested meanwhile
                    self._state = ActorState.RUNNING
                task_status.started(ActorRef(self))
                await self._handle_messages(actor)
                await self._end(actor)
            if self._start_error is not None:
                raise self.record_failure("start", self._start_error)
        except CrashedError as crash:
            failure = crash.reason
            raise ActorFailed(self.name, failure) from crash.error
        finally:
            keeps_mailbox = self.mailbox_held or failure is not None
            self._finish(failure, terminate=self.stop_requested or not keeps_mailbox)

    def check_not_running(self) -> None:
        """Raise ValueError if an actor of this name is running, RuntimeError if the runtime has
        ended."""
        self.runtime.check_open()
        if self._scope is not None:
            raise ValueError(f"an actor named {self.name!r} is already running")

    def terminate(self) -> None:
        """Close the mailbox until `run` is called again; the cell must not be running."""
        self._terminated = True
        self._state = ActorState.ABSENT
        self._suspended = False
        self.settle_mailbox()

    def stop(self, deadline: float) -> None:
        """Request an orderly end before `deadline`, then cancel. The earliest deadline counts.

        Without an instance it has no effect: the next one would have a closed mailbox.
        """
        if self._scope is None:
            return
        self.stop_requested = True
        self.mailbox_held = False
        self.mailbox.close()
        self._begin_end(deadline)

    def end_instance(self, deadline: float) -> None:
        """Request the end of the current instance after the current message and the work.

        The mailbox stays open, and the next `run` handles its messages. Otherwise as `stop`.
        """
        self.mailbox_held = self.control_due = not self.stop_requested
        self._begin_end(deadline)

    def fail_start(self, error: Exception) -> None:
        """Cancel a start that takes too long: `run` fails with `error`."""
        self._start_error = error
        if self._scope is not None:
            self._scope.cancel()

    def expire(self) -> None:
        """Cancel the current `run`, since the deadline of its stop has passed; this is logged.

        Called by the runtime's deadlines. A handler that is shielded or swallows the cancellation
        continues, and the log shows its position.
        """
        if self._scope is None or self._task is None:
            return
        self._stop_seconds = inf
        place = place_of(self._task)
        self.runtime.report_overdue(self.name, place, depth=self.mailbox.depth, works=self.works)
        self._scope.cancel()

    def _begin_end(self, deadline: float) -> None:
        self._suspended = False
        cancel_timers(self)
        if self._scope is not None:
            self._state = ActorState.STOPPING
            if deadline < self._stop_deadline:
                self._set_deadline(deadline)
        if not self.scheduled:
            self.schedule()

    def _set_deadline(self, deadline: float) -> None:
        if self._stop_seconds < inf:
            self.runtime.deadlines.withdraw(self, self._stop_seconds)
        self._stop_deadline, self._stop_seconds = deadline, inf
        if deadline < inf:
            self._stop_seconds = max(0.0, deadline - trio.current_time())
            self.runtime.deadlines.add(self, self._stop_seconds)

    def inspect(self, reply: PendingReply[Any]) -> None:
        """Queue a request for an inspection. Raises MailboxFull, and ActorGone if terminated."""
        if self._terminated:
            raise ActorGone(self.name)
        super().inspect(reply)

    def suspend(self) -> None:
        """Handle nothing after the current message; a requested stop still takes effect."""
        if not (self.stop_requested or self.mailbox_held):
            super().suspend()

    def schedule(self) -> None:
        """Wake the parked task."""
        if self._parked is not None:
            reschedule(self._parked, WOKEN)  # raises in another thread, and changes nothing
            self._parked = None
        self.scheduled = True

    async def _start(
        self, make: Callable[[], Actor], mailbox: MailboxPolicy | None, start_seconds: float
    ) -> Actor:
        CURRENT.set(HandlerTask(self))
        own_decimal_context()
        if self.runtime.tracing is not None:
            CURRENT_MESSAGE.set(None)  # the task may have been started by a handler
        phase = "construct"
        try:
            actor = make()
            check_made(actor)
            if isinstance(actor, KeyedActor):
                raise TypeError(
                    f"{type(actor).__name__} is a KeyedActor: it can only run in a KeyedPool"
                )
            actor.context = Context(self)
            policy = mailbox or actor.mailbox
            if self._terminated:
                self._terminated = False
                self.mailbox = self._new_mailbox(policy.capacity)
            self._adopt(actor, policy)
            phase = "start"
            await run_started(self, actor, start_seconds)
            if self._start_error is not None:
                raise self._start_error
        except Exception as error:
            cause = construct_error(error) if phase == "construct" else error
            raise self.record_failure(phase, cause) from error
        self._notify_up()
        return actor

    def _new_mailbox(self, capacity: int) -> Mailbox:
        return self.runtime.mailbox_of(self, capacity)

    async def _handle_messages(self, actor: Actor) -> None:
        while True:
            checkpoints = await self._run_batch(actor)
            if checkpoints:
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
            elif (self.stop_requested or self.mailbox_held) and not self.works:
                return
            else:
                # Parked explicitly, not by the channel's `receive`, which would take a message
                # before control is checked, and made `ask` 12 % slower.
                self._park()
                await wait_task_rescheduled(self._unpark)

    async def _end(self, actor: Actor) -> None:
        try:
            await actor.stopping()
        except Exception as error:
            raise self.record_failure("stop", error) from error

    def _park(self) -> None:
        """Record that the task has nothing to do."""
        self._parked = self._task
        self.scheduled = False

    def _unpark(self, _: object) -> trio.lowlevel.Abort:
        self._parked = None
        self.scheduled = True
        return trio.lowlevel.Abort.SUCCEEDED

    def _finish(self, failure: str | None, *, terminate: bool) -> None:
        if (handler_task := CURRENT.get()) is not None:
            handler_task.close()
        self._set_deadline(inf)
        cancelled = self._scope is not None and self._scope.cancelled_caught
        if cancelled and self._start_error is None:
            self.runtime.log.warning("actor_stop_forced", actor=self.name, depth=self.mailbox.depth)
            self.runtime.events.emit(EventKind.STOP_FORCED, self.name)
        self._scope = self._task = None
        self.mailbox_held = False
        self._state = ActorState.FAILED
        self.settle_instance(failure)
        if terminate:
            self.terminate()
