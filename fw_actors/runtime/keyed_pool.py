"""Keyed actors: created by their first message, passivated when idle.

A key's cell is an actor without its own task: a job for a worker while it has messages, and with a
mailbox only then. The pool keeps it in `_cells` from the key's first message until the actor has
ended. It is in one of three states:

- active: a worker runs it, or will do so;
- idle: it has no message and no pending operation. Idle cells are in an `IdleQueue`, the least
  recently used one first, and only they are passivated;
- waiting: it has no message, but work, timers or kept replies are pending.

Active and waiting cells are in `_busy`. The counters of idle and ended cells are in one sum, so
that a snapshot does not iterate over them.

A passivated actor whose class overrides `stopping` becomes active once more to run it. It stays in
`_cells` meanwhile, so that a message that arrives then finds the same cell and is handled by the
next instance. It no longer counts towards `capacity`: up to `capacity` more actors may be ending.

The module has more than 500 lines because cell and pool are one state machine: each change of a
cell's state also changes the tables, the idle queue and the sums of its pool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from threading import get_ident
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import trio

from fw_actors.runtime.actor import Actor, KeyedContext, check_made, construct_error
from fw_actors.runtime.cell import (
    ActorCell,
    ActorState,
    CrashedError,
    FaultInjector,
    run_started,
)
from fw_actors.runtime.clock import START_SECONDS, Deadlines, TimeLimit
from fw_actors.runtime.deadlock import waiting_for
from fw_actors.runtime.errors import (
    ActorError,
    ActorFailed,
    ActorGone,
    FailedTooOften,
    MailboxFull,
)
from fw_actors.runtime.mailbox import (
    DEFAULT_POLICY,
    DeadLetterReason,
    Feed,
    Item,
    Mailbox,
    MailboxPolicy,
)
from fw_actors.runtime.messages import Message
from fw_actors.runtime.operations import operations_of
from fw_actors.runtime.ref import KeyedRef
from fw_actors.runtime.snapshot import NodeSnapshot, counters_of, place_of
from fw_actors.runtime.supervision import (
    FailedKey,
    FailedKeys,
    Presence,
    RestartIntensity,
    cancel_timers,
)
from fw_actors.runtime.topics import EventKind
from fw_actors.runtime.workers import WorkerScope, run_apart

if TYPE_CHECKING:
    from fw_actors.runtime.supervision import Watch
    from fw_actors.runtime.system import Runtime


@dataclass(frozen=True, slots=True)
class KeyedPoolStatistics:
    """Sizes of the tables of a pool, for tests."""

    cells: int
    active: int
    idle: int
    alarm_set: bool
    """Whether a deadline for idle cells is set."""
    watched: int = 0
    """Keys with watches."""
    parked: int = 0
    """Parked cells, whose messages wait until an instance may start."""
    failed: int = 0
    """Keys with recent failures."""


SPARE_MAILBOXES: Final = 256
STOPPING_SECONDS: Final = 60.0  # for the `stopping` of a passivated actor
PASSIVATIONS_PER_STEP: Final = 128
CLOCK_RESOLUTION: Final = 1e-6  # seconds: a shorter alarm might be rounded to the current time
DEFAULT_INTENSITY: Final = RestartIntensity()

REFUSALS: Final[Mapping[type[ActorError], DeadLetterReason]] = MappingProxyType(
    {
        MailboxFull: DeadLetterReason.POOL_FULL,
        ActorGone: DeadLetterReason.GONE,
        ActorFailed: DeadLetterReason.FAILED,
        FailedTooOften: DeadLetterReason.FAILED_TOO_OFTEN,
    }
)
"""The reason of a dead letter, by the error that `KeyedPool.cell` raised."""


class IdleQueue:
    """The idle cells of a pool, the least recently used one first.

    While it is not empty, one alarm for the first cell is set among the runtime's deadlines.
    """

    def __init__(
        self,
        deadlines: Deadlines,
        idle_seconds: float,
        passivate: Callable[[KeyedCell], None],
    ) -> None:
        self._deadlines = deadlines
        self._idle_seconds = idle_seconds
        self._passivate = passivate
        self.since: OrderedDict[KeyedCell, float] = OrderedDict()
        """The cells, each with trio's time since which it is idle; cells may be popped."""
        self._alarm: float | None = None

    @property
    def alarm_set(self) -> bool:
        """Whether a call of `expire` is scheduled."""
        return self._alarm is not None

    def add(self, cell: KeyedCell) -> None:
        """Append a cell that has just become idle."""
        self.since[cell] = self._deadlines.now()
        if self._alarm is None:
            self._set_alarm(self._idle_seconds)

    def oldest(self) -> KeyedCell | None:
        """Return the least recently used cell."""
        return next(iter(self.since), None)

    def expire(self) -> None:
        """Passivate cells that were idle long enough; called by the runtime's deadlines.

        A limited number of cells at a time, so that other tasks can run.
        """
        self._alarm = None
        due = self._deadlines.now() - self._idle_seconds + CLOCK_RESOLUTION
        for _ in range(PASSIVATIONS_PER_STEP):
            oldest = self.oldest()
            if oldest is None:
                return
            idle_since = self.since[oldest]
            if idle_since > due:
                self._set_alarm(max(CLOCK_RESOLUTION, idle_since - due))
                return
            del self.since[oldest]
            self._passivate(oldest)
        if self.since:
            self._set_alarm(CLOCK_RESOLUTION)

    def passivate_some(self) -> bool:
        """Passivate a limited number of cells; return whether there are more.

        Sets no alarm; the next added cell does.
        """
        if self._alarm is not None:
            self._deadlines.withdraw(self, self._alarm)
            self._alarm = None
        for _ in range(PASSIVATIONS_PER_STEP):
            oldest = self.oldest()
            if oldest is None:
                return False
            del self.since[oldest]
            self._passivate(oldest)
        return True

    def _set_alarm(self, seconds: float) -> None:
        self._alarm = seconds
        self._deadlines.add(self, seconds)


class CounterTotals:
    """Sums of the counters of cells. Cells can be added and subtracted, other totals added."""

    __slots__ = (
        "cancelled",
        "failed",
        "handled",
        "handler_seconds",
        "last_error",
        "passed_on",
        "restarts",
    )

    def __init__(self) -> None:
        self.handled = self.failed = self.cancelled = self.restarts = self.passed_on = 0
        self.handler_seconds = 0.0
        self.last_error: str | None = None

    def add(self, other: KeyedCell | CounterTotals) -> None:
        """Add counters; take over the last error, if there is one."""
        self.handled += other.handled
        self.failed += other.failed
        self.cancelled += other.cancelled
        self.restarts += other.restarts
        self.passed_on += other.passed_on
        self.handler_seconds += other.handler_seconds
        self.last_error = other.last_error or self.last_error

    def subtract(self, cell: KeyedCell) -> None:
        """Undo an `add` of this cell, whose counters must not have changed since."""
        self.handled -= cell.handled
        self.failed -= cell.failed
        self.cancelled -= cell.cancelled
        self.restarts -= cell.restarts
        self.passed_on -= cell.passed_on
        self.handler_seconds -= cell.handler_seconds


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
                        # Otherwise a message has come to a new mailbox, or the end is due.
                        checkpoints = 1
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


class KeyedPool:
    """Actors by key: `pool[key]` is the address of the key's actor. See docs/runtime.md.

    `make(key)` creates an instance. At most `capacity` actors exist at once, not counting those
    that run their `stopping`. An idle one is passivated after `idle_seconds`. All instances must be
    of one class, or at least have the same mailbox capacity, since mailboxes are reused. `mailbox`
    replaces the policy of their class; the limits apply to each actor.

    `intensity` applies to each key: an actor that fails repeatedly is restarted after growing
    delays, during which its messages wait, and its key is refused for a time if it fails too often.

    A `started` that takes longer than `start_seconds` is a failure; a `stopping` that takes longer
    than `shutdown_seconds` is cancelled.
    """

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        make: Callable[[str], Actor],
        *,
        capacity: int = 10_000,
        idle_seconds: float = 60.0,
        intensity: RestartIntensity = DEFAULT_INTENSITY,
        mailbox: MailboxPolicy | None = None,
        start_seconds: float = START_SECONDS,
        shutdown_seconds: float = STOPPING_SECONDS,
    ) -> None:
        """Raises ValueError for an invalid limit, RuntimeError if the runtime has ended."""
        if capacity < 1 or not idle_seconds >= 0:
            raise ValueError(f"{name!r}: capacity must be at least 1, idle_seconds 0 or more")
        if not min(start_seconds, shutdown_seconds) > 0:
            raise ValueError(f"{name!r}: start_seconds and shutdown_seconds must be above 0")
        runtime.check_open()
        self.runtime = runtime
        self.name = name
        self.make = make
        self.capacity = capacity
        self.start_seconds, self.shutdown_seconds = start_seconds, shutdown_seconds
        self.no_mailbox = Mailbox(1)
        """The placeholder for the mailbox of a cell that is not active."""
        self._given_policy = mailbox
        self.mailbox_policy = mailbox or DEFAULT_POLICY
        """The given policy, or that of the last created instance; the default before the first."""
        self.failed_keys = FailedKeys(runtime.deadlines, intensity, runtime.entropy, capacity)
        self.fault_injector: FaultInjector | None = None
        self._cells: dict[str, KeyedCell] = {}
        self._busy: dict[KeyedCell, None] = {}
        """Cells that are active or waiting."""
        self._leaving = 0
        """The number of passivated actors whose `stopping` has not ended; at most `capacity`."""
        self._idle = IdleQueue(runtime.deadlines, idle_seconds, self._passivate)
        self._inactive_totals = CounterTotals()
        """The sums over all actors so far except the busy ones; a snapshot iterates only over the
        latter."""
        self.watches: dict[str, dict[Watch, None]] = {}
        self._spare_mailboxes: list[Mailbox] = []
        self._parked: dict[KeyedCell, None] = {}
        """Cells without an instance, whose messages wait until the next one may start."""
        self._closed = False
        self._held = False
        """Whether no instance may start until `open`."""
        self._cancelled = False
        """Whether the end took too long, so that no further instance runs its `stopping`."""
        self._ended = trio.Event()
        """Set when no instance is left, after `close` or `end_instances`."""
        runtime.add_node(self)

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, key: str) -> KeyedRef:
        return KeyedRef(self, key)

    def cells(self) -> Sequence[KeyedCell]:
        """Return all present cells."""
        return tuple(self._cells.values())

    def tell(self, key: str, message: Message) -> bool:
        """Send like `pool[key].tell(message)`; see `Ref.tell`."""
        try:
            cell = self._cells.get(key)
            if cell is None:  # created for this message, without becoming idle first
                cell = self._create(key)
                if cell.mailbox is self.no_mailbox:  # else `make` has sent it a message
                    self.give_mailbox(cell)
            elif self._closed or cell.mailbox is self.no_mailbox:
                cell = self.cell(key)
        except ActorError as error:
            reason = REFUSALS[type(error)]
            self.runtime.dead_letters.add(f"{self.name}/{key}", message, reason)
            return False
        return cell.tell(message)

    def cell(self, key: str) -> KeyedCell:
        """Return the key's cell with a mailbox for a message; created if necessary.

        Raises MailboxFull at capacity if no actor is idle, ActorGone if the pool is closed,
        ActorFailed if `make` failed, and FailedTooOften if the key is refused.
        """
        cell = self._cells.get(key)
        if cell is None:
            cell = self._create(key)
            if not cell.scheduled:  # else it is parked, or `make` has sent it a message
                # It is idle until a message is put: if the sender gives up, it is passivated after
                # the idle time.
                self.became_idle(cell)
        elif self._closed:
            raise ActorGone(cell.name)
        if cell.mailbox is self.no_mailbox:
            self.give_mailbox(cell)
        return cell

    def existing_cell(self, key: str) -> KeyedCell:
        """Return the key's cell if it has an instance. Raises ActorGone otherwise."""
        cell = self._cells.get(key)
        if cell is None or cell.actor is None:
            raise ActorGone(f"{self.name}/{key}")
        return cell

    def presence(self, key: str) -> Presence:
        """Return whether the key has an instance."""
        cell = self._cells.get(key)
        if cell is None or cell.actor is None:
            return Presence(False, None, None)
        return Presence(True, cell.incarnation, cell.last_error)

    def add_watch(self, key: str, watch: Watch) -> None:
        """Notify `watch` when an instance of the key ends or starts."""
        self.watches.setdefault(key, {})[watch] = None

    def remove_watch(self, key: str, watch: Watch) -> None:
        """Undo `add_watch`; does nothing for an unknown watch."""
        watches = self.watches.get(key)
        if watches is not None:
            watches.pop(watch, None)
            if not watches:
                del self.watches[key]

    def inject_faults(self, injector: FaultInjector | None) -> None:
        """Pass the items of all actors through `injector`; for tests."""
        self.fault_injector = injector
        for cell in self._cells.values():
            cell.inject_faults(injector)

    # Called by the cells.

    def activated(self, cell: KeyedCell) -> None:
        """Record that a cell has something to do."""
        if cell not in self._busy:
            self._busy[cell] = None
            self._idle.since.pop(cell, None)
            if cell.counted:
                cell.counted = False
                self._inactive_totals.subtract(cell)

    def deactivated(self, cell: KeyedCell) -> None:
        """Record that a cell has nothing to do; its mailbox is empty."""
        if cell.mailbox is not self.no_mailbox:  # otherwise it ran completions, or its `stopping`
            self._take_mailbox(cell)
        if cell.operations is None or not cell.operations.pending:
            self.became_idle(cell)

    def became_quiet(self, cell: KeyedCell) -> None:
        """Record the end of the last pending operation of a cell that has nothing to do."""
        if cell.mailbox is not self.no_mailbox:
            self._take_mailbox(cell)
        self.became_idle(cell)

    def parked(self, cell: KeyedCell) -> None:
        """Record that a cell waits without an instance."""
        self._parked[cell] = None
        self.activated(cell)
        self._check_ended()

    def unparked(self, cell: KeyedCell) -> None:
        """Record that a cell runs again, or is no longer needed."""
        del self._parked[cell]

    def policy_of(self, actor: Actor) -> MailboxPolicy:
        """Return the limits of a new instance."""
        self.mailbox_policy = policy = self._given_policy or actor.mailbox
        return policy

    def give_mailbox(self, cell: KeyedCell) -> None:
        """Give a cell that has none a mailbox for its messages."""
        capacity = self.mailbox_policy.capacity
        if self.runtime.tracing is not None:
            cell.mailbox = self.runtime.mailbox_of(cell, capacity)
        elif self._spare_mailboxes:
            cell.mailbox = self._spare_mailboxes.pop()
        else:
            cell.mailbox = Mailbox(capacity)

    def too_often(self, key: str, failed: FailedKey) -> FailedTooOften:
        """Return the error for a message to a key that is refused."""
        seconds = failed.start_at - self.runtime.deadlines.now()
        return FailedTooOften(f"{self.name}/{key}", failed.error, failed.failures, seconds)

    def leaves(self) -> None:
        """Record that an actor will run its `stopping`."""
        self._leaving += 1

    def stopped(self) -> None:
        """Record that an actor has run its `stopping`, or will not run it."""
        self._leaving -= 1

    def became_idle(self, cell: KeyedCell) -> None:
        """Queue a cell that is neither active nor waiting, or end it if that is due."""
        if cell.actor is None:
            self._remove(cell)
        elif self._cancelled:
            cell.settle_instance(None)
            self._remove(cell)
        elif cell.stop_requested or self._closed or self._held:
            self._passivate(cell)
        else:
            if cell in self._busy:
                self._count(cell)
            self._idle.add(cell)

    # Opening and closing.

    @property
    def is_closed(self) -> bool:
        """Whether the pool is closed, or is closing."""
        return self._closed

    @property
    def is_held(self) -> bool:
        """Whether messages wait for `open`, after `end_instances`."""
        return self._held

    def open(self) -> None:
        """Accept messages again after `close`, or handle those that waited since `end_instances`.

        A new pool is open. Raises RuntimeError during a `close` or `end_instances`, and if the
        runtime has ended.
        """
        self.runtime.check_open()
        if (self._closed and self._cells) or (self._held and not self._ended.is_set()):
            raise RuntimeError(f"{self.name!r} is still closing")
        if self._closed:
            self.no_mailbox = Mailbox(1)
            self._leaving = 0
            self.runtime.add_node(self)
        if self._closed or self._held:
            self._closed = self._held = self._cancelled = False
            self._ended = trio.Event()
            for cell in tuple(self._parked):
                cell.unpark()

    async def close(self, deadline: float = inf) -> None:
        """Refuse new messages, let every actor end, and wait until none is left.

        Actors that take longer than `deadline` (trio's clock) are cancelled, and so are all if
        this call is cancelled; their askers get ActorGone. May be called more than once.
        Raises AskCycle in a handler if one of the actors is, or waits for, the caller.
        """
        with waiting_for(self.cells()):
            await self._close(deadline)

    async def end_instances(self, deadline: float = inf) -> None:
        """End each instance after its current message and its work, and wait until none is left.

        Mailboxes stay open, and their messages wait for the next `open` or `terminate`. Otherwise
        as `close`.
        """
        with waiting_for(self.cells()):
            self._held = not self._closed
            for cell in self.cells():
                if cell not in self._idle.since and not cell.is_parked:
                    cell.end_instance()
            await self._wait_until_ended(deadline)

    def terminate(self) -> None:
        """Close the pool after `end_instances`: messages that waited for `open` become dead
        letters."""
        if not self._held:
            return
        self._held, self._closed = False, True
        self.no_mailbox.close()
        for cell in tuple(self._parked):
            cell.terminate()
            self._remove(cell)
        self._release()

    async def _close(self, deadline: float) -> None:
        self.terminate()
        self._closed = True
        self.no_mailbox.close()
        for cell in self.cells():
            if cell not in self._idle.since:
                cell.mailbox.close()
                cancel_timers(cell)
            if cell.is_parked:
                cell.unpark()
        ended = self._ended
        try:
            await self._wait_until_ended(deadline)
        finally:
            if ended is self._ended:  # otherwise another waiting call has opened it again
                self._release()

    def _release(self) -> None:
        self.failed_keys.clear()
        self._spare_mailboxes.clear()
        self.runtime.remove_node(self)

    async def _wait_until_ended(self, deadline: float) -> None:
        while self._idle.passivate_some():
            await trio.lowlevel.cancel_shielded_checkpoint()
        self._check_ended()
        ended = self._ended  # `open` replaces the event
        if ended.is_set():
            return
        try:
            with trio.move_on_at(deadline):
                await ended.wait()
        finally:
            if not ended.is_set():
                self._cancel_remaining()
                with trio.CancelScope(shield=True):  # cancelled workers need time to unwind
                    await ended.wait()

    def _cancel_remaining(self) -> None:
        self._cancelled = True
        cells = [cell for cell in self.cells() if not cell.is_parked]
        self.runtime.log.warning("pool_stop_forced", pool=self.name, actors=len(cells))
        self.runtime.events.emit(EventKind.POOL_STOP_FORCED, self.name)
        for cell in cells:
            if cell.scope is not None:
                cell.scope.cancel()
                continue
            cell.settle_instance(None)
            if self._held:
                if not cell.scheduled:
                    cell.schedule()  # its run finds no instance, and parks it
                continue
            cell.settle_mailbox()
            if not cell.scheduled:
                self._remove(cell)
        self._check_ended()

    def _check_ended(self) -> None:
        if len(self._cells) == len(self._parked) and (self._held or not self._cells):
            self._ended.set()

    # Introspection.

    def snapshot(self) -> NodeSnapshot:
        """Return the pool as one node, with the sums over all actors that it ever had.

        The time is proportional to the number of actors that are not idle.
        """
        totals = CounterTotals()
        totals.add(self._inactive_totals)
        depth = waiting = running = 0
        for cell in self._busy:
            totals.add(cell)
            depth += cell.mailbox.depth
            running += cell.is_active and cell.actor is not None
            waiting += cell.mailbox.waiting
        return NodeSnapshot(
            name=self.name,
            kind="pool",
            state="stopping" if self._closed or self._held else "running",
            depth=depth,
            capacity=self.capacity,
            waiting=waiting,
            alive=len(self._cells) - len(self._parked),
            running=running,
            **counters_of(totals),
        )

    def statistics(self) -> KeyedPoolStatistics:
        """Return the sizes of the pool's tables."""
        return KeyedPoolStatistics(
            len(self._cells),
            sum(cell.is_active for cell in self._busy),
            len(self._idle.since),
            self._idle.alarm_set,
            len(self.watches),
            len(self._parked),
            len(self.failed_keys),
        )

    # Steps.

    def _create(self, key: str) -> KeyedCell:
        """Return a new cell with an instance; raises as `cell` does."""
        if get_ident() != self.runtime.thread:
            self.runtime.check_thread(f"{self.name}/{key}")
        if self._closed:
            raise ActorGone(f"{self.name}/{key}")
        failed = self.failed_keys.get(key) if self.failed_keys.keys else None
        if failed is not None and failed.refused:
            raise self.too_often(key, failed)
        # At most `capacity`: those that a message calls back while they leave count again.
        while len(self._cells) - min(self._leaving, self.capacity) >= self.capacity:
            oldest = self._idle.oldest()
            if oldest is None or self._leaving >= self.capacity:
                raise MailboxFull(self.name, self.capacity, "actors")
            del self._idle.since[oldest]
            self._passivate(oldest)
        cell = self._cells[key] = KeyedCell(self, key)
        if self._held:
            cell.park()
        elif failed is None or not cell.delay(failed):
            try:
                cell.construct()
            except CrashedError as crash:
                self.failed_keys.add(key, crash.reason)
                if not cell.scheduled:  # else `make` has sent it a message before it failed
                    self._busy[cell] = None
                    self._remove(cell)
                raise ActorFailed(cell.name, crash.reason) from crash.error
        return cell

    def _count(self, cell: KeyedCell) -> None:
        """Add the counters of a cell that is no longer busy."""
        del self._busy[cell]
        cell.counted = True
        self._inactive_totals.add(cell)

    def _take_mailbox(self, cell: KeyedCell) -> None:
        mailbox = cell.mailbox
        if mailbox.is_fed:
            return
        cell.mailbox = self.no_mailbox
        if len(self._spare_mailboxes) < SPARE_MAILBOXES and not self._closed:
            self._spare_mailboxes.append(mailbox)

    def _passivate(self, cell: KeyedCell) -> None:
        if cell.passivate():
            self._remove(cell)
        else:
            self._leaving += 1

    def _remove(self, cell: KeyedCell) -> None:
        if cell in self._busy:
            self._count(cell)
        else:
            self._idle.since.pop(cell, None)
        del self._cells[cell.key]
        if self._closed or self._held:
            self._check_ended()
