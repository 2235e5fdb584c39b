"""The cell of one key of a pool: an actor without its own task.

It is a job for a worker while it has messages, and has a mailbox only then. `KeyedPool` keeps its
cells and decides when one is passivated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

import trio

from fw_actors.runtime.actor import Actor, KeyedContext, check_made, construct_error
from fw_actors.runtime.cell import ActorCell, ActorState, CrashedError, run_started
from fw_actors.runtime.clock import TimeLimit
from fw_actors.runtime.errors import ActorFailed
from fw_actors.runtime.mailbox import DeadLetterReason, Feed, Item
from fw_actors.runtime.operations import operations_of
from fw_actors.runtime.ref import KeyedRef
from fw_actors.runtime.snapshot import place_of
from fw_actors.runtime.supervision import cancel_timers
from fw_actors.runtime.topics import EventKind
from fw_actors.runtime.workers import WorkerScope, run_apart

if TYPE_CHECKING:
    from fw_actors.runtime.keyed_pool import KeyedPool
    from fw_actors.runtime.supervision import FailedKey, Watch


class KeyedCell(ActorCell):
    """The cell of one key, a job for a worker. It has its own mailbox only while active."""

    __slots__ = (
        "_parked",
        "_passivated",
        "_start_due",
        "_stopping",
        "counted",
        "key",
        "pool",
        "scope",
    )

    def __init__(self, pool: KeyedPool, key: str) -> None:
        super().__init__(pool.runtime, f"{pool.name}/{key}", pool.no_mailbox, pool.watches)
        self.pool = pool
        self.key = key
        self.scheduled = False
        self.scope: WorkerScope | None = None
        self.counted = False
        """Whether the pool's totals include the counters of this cell."""
        self._parked = False
        """Whether the cell waits, without an instance, until `unpark` lets the next one start."""
        self._passivated = False
        """Whether the instance is ending because it was idle."""
        self._start_due = False
        """Whether the instance's `started` has not run yet."""
        self._stopping = False
        """Whether to end the instance before the next message."""
        if pool.fault_injector is not None:
            self.inject_faults(pool.fault_injector)

    @property
    def ref(self) -> KeyedRef:
        """The address of this cell."""
        return KeyedRef(self.pool, self.key)

    @property
    def state(self) -> ActorState:
        """The actor's state in its lifecycle."""
        if self._stopping:
            return ActorState.STOPPING
        return ActorState.RUNNING if self.actor is not None else ActorState.ABSENT

    @property
    def watches(self) -> Collection[Watch]:
        """The watches of other actors on this one; the pool keeps them, also without a cell."""
        return self.pool.watches.get(self.key, ())

    @property
    def is_active(self) -> bool:
        """Whether a worker runs the cell, or will do so, possibly after the work for which it
        waits."""
        return self.scheduled or self.full_of_work or self.mailbox_held

    @property
    def is_parked(self) -> bool:
        """Whether the cell waits for the time at which its next instance may start."""
        return self._parked

    def schedule(self) -> None:
        """Have a worker run the cell."""
        self.scheduled = True
        self.pool.activated(self)
        self.runtime.workers.submit(self)

    def stop(self, deadline: float) -> None:
        """End the instance as soon as it is idle; the pool enforces deadlines."""
        self.stop_requested = True
        if self.mailbox.is_fed:
            self.mailbox.close_feeds()

    def add_feed(self, feed: Feed) -> None:
        """Also take messages from a feed, until the instance ends. Raises ActorGone."""
        operations = operations_of(self)
        super().add_feed(feed)
        operations.add(feed)
        if not self.scheduled:
            self.schedule()  # it is no longer idle

    def feed_closed(self, feed: Feed) -> None:
        """React to the end of a feed: without another operation the actor is idle."""
        if self.operations is not None:
            self.operations.remove(feed)

    def put_back(self, items: Sequence[Item]) -> None:
        """Put items in front of the mailbox; a cell that runs completions gets a mailbox first."""
        if items and self.mailbox is self.pool.no_mailbox:
            self.pool.give_mailbox(self)
        super().put_back(items)

    def passivate(self) -> bool:
        """End the idle instance; return False if a worker has to run its `stopping` first."""
        actor = self.actor
        self._passivated = not (self.stop_requested or self.pool.is_closed)
        if actor is None or self._start_due or type(actor).stopping is Actor.stopping:
            self.settle_instance(None)
            return True
        self._stopping = True
        self.schedule()
        return False

    def end_instance(self) -> None:
        """End the instance after the current message and the work; keep the mailbox."""
        self.mailbox_held = self.control_due = True
        cancel_timers(self)  # may have been the last operation: then the instance has ended here
        if not self.scheduled and self.actor is not None:
            self.schedule()

    def park(self) -> None:
        """Wait without an instance, until `unpark`; messages wait in the mailbox."""
        self.policy = self.pool.mailbox_policy
        if self._stopping:  # cancelled before its `stopping` ran
            self._stopping = False
            self.pool.stopped()
        self._start_due = self.mailbox_held = self._passivated = False
        self._parked = self.scheduled = True
        self.settle_instance(None)
        self._refuse_inspections()
        self.pool.parked(self)

    def unpark(self) -> None:
        """Have a worker run the cell again; the cell may find that it must still wait."""
        self.runtime.deadlines.withdraw(self, inf)
        self.expire()

    def expire(self) -> None:
        """Run again, since the delay before the next instance is over; called by the deadlines."""
        self._parked = False
        self.pool.unparked(self)
        self.runtime.workers.submit(self)

    def terminate(self) -> None:
        """Settle the messages of a parked cell, which no instance will handle."""
        self.runtime.deadlines.withdraw(self, inf)
        self._parked = self.scheduled = False
        self.settle_mailbox()
        self.pool.unparked(self)

    def delay(self, failed: FailedKey) -> bool:
        """Park the cell until the next instance may start; return False if it may start now."""
        if failed.start_at <= self.runtime.deadlines.now():
            return False
        self.park()
        self.runtime.deadlines.add_at(self, failed.start_at)
        return True

    def construct(self) -> None:
        """Create the instance; `run` calls its `started`. Raises CrashedError."""
        try:
            actor = run_apart(self.pool.make, self.key)
            check_made(actor)
            actor.context = KeyedContext(self, self.key)
            policy = self.pool.policy_of(actor)
            self._adopt(actor, policy)
            self._passivated = False
        except Exception as error:
            raise self.record_failure("construct", construct_error(error)) from error
        self._start_due = type(actor).started is not Actor.started
        if not self._start_due and (self._watch_table or self.runtime.events.has_members):
            self._notify_up()

    async def run(self) -> None:  # noqa: C901 - one loop, since a call costs each job as much
        """Handle messages until there are none; a failure ends the instance, not the run.

        Each round starts or ends an instance if that is due, then handles a batch of messages, and
        then lets other tasks run. The run ends if nothing is left to do, or no instance may start.
        """
        try:
            while True:
                checkpoints = 1
                try:
                    if (
                        self._stopping or self._start_due or self.actor is None
                    ) and not await self._change_instance():
                        return
                    mailbox = self.mailbox
                    if self.actor is not None:
                        checkpoints = await self._run_batch(self.actor)
                    if not checkpoints:
                        if self.mailbox_held and not self.works:
                            self._begin_end()
                        elif self.mailbox is mailbox:
                            return  # no message is left
                        checkpoints = (
                            1  # else a message has come to a new mailbox, or the end is due
                        )
                except CrashedError as crash:
                    checkpoints = self._end_failed(crash.reason)
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
        except BaseException:  # cancelled, because the stop of the pool took too long
            self._end_cancelled()
            raise
        finally:
            if not self._parked:
                self.scheduled = False
                if not (self.full_of_work or self.mailbox_held):  # messages wait for work to end
                    self.pool.deactivated(self)

    @property
    def _end_kind(self) -> EventKind:
        """The event of an end without a failure."""
        return EventKind.PASSIVATED if self._passivated else EventKind.STOPPED

    def became_quiet(self) -> None:
        """React to the end of the last pending operation: without messages the cell is idle."""
        if self.actor is not None:
            self.pool.became_quiet(self)

    async def _change_instance(self) -> bool:
        """End the instance or prepare a new one, as needed; return False if no instance is
        needed."""
        if self._stopping:
            await self._stop()
        if self.actor is None or self._start_due:
            if not self._may_start():
                return False
            await self._start()
        return True

    def _begin_end(self) -> None:
        """Have the instance run its `stopping` next and then end."""
        self._stopping = True
        self.pool.leaves()

    def _end_cancelled(self) -> None:
        if self.pool.is_held:
            self.park()
        else:
            self.mailbox_held = False
            self.settle_instance(None)
            self.settle_mailbox()

    def _end_failed(self, error: str) -> int:
        """End the failed instance; return the checkpoints to pass before the next one."""
        self.settle_instance(error)
        self.stop_requested = False  # it concerned the failed instance
        if self.pool.failed_keys.add(self.key, error).refused:
            return 0  # no sender may find a cell that accepts messages and then drops them
        self.record_restart()
        return 1

    def _may_start(self) -> bool:
        """Return whether an instance may start now; otherwise the cell is parked, or ends.

        It ends if there are no messages to handle, or if they are refused. A new member of a topic
        starts without a message.
        """
        failed = self.pool.failed_keys.get(self.key)
        if failed is not None and failed.refused:
            self._discard_all(
                DeadLetterReason.FAILED_TOO_OFTEN, lambda: self.pool.too_often(self.key, failed)
            )
        if not self.mailbox.depth and (self.operations is None or not self.operations.pending):
            self.mailbox_held = False  # also if siblings are restarted since the last failure
            self.settle_instance(None)
            self._refuse_inspections()
            return False
        if self.pool.is_held:
            self.park()
            return False
        return failed is None or self.pool.is_closed or not self.delay(failed)

    async def _start(self) -> None:
        """Run the instance's `started`; if that fails, the first message fails too."""
        try:
            if self.actor is None:
                self.construct()
            if self._start_due and self.actor is not None:
                await self._run_started(self.actor)
        except CrashedError as crash:
            error = ActorFailed(self.name, crash.reason, crash.error)
            with suppress(trio.WouldBlock, trio.EndOfChannel):  # a membership was cancelled
                self._discard(self.mailbox.take(), DeadLetterReason.FAILED, error)
            raise

    async def _run_started(self, actor: Actor) -> None:
        self._start_due = False
        try:
            await run_started(self, actor, self.pool.start_seconds)
        except Exception as error:
            raise self.record_failure("start", error) from error
        self._notify_up()

    async def _stop(self) -> None:
        actor = self.actor
        limit = TimeLimit(self.runtime.deadlines, self.pool.shutdown_seconds, place_of)
        try:
            if actor is not None and not self._start_due:
                with limit:
                    await actor.stopping()
        except Exception as error:
            self.record_failure("stop", error)
        finally:
            self._stopping = self.stop_requested = self.mailbox_held = False
            self.pool.stopped()
        if limit.exceeded:
            self.runtime.report_overdue(self.name, limit.place)
        self.settle_instance(None)
