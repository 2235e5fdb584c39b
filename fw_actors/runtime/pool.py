"""Keyed actors: created on their first message, passivated when idle.

A key's cell is in `_cells` from its first message until it has gone. It is awake (a worker runs
it or will), idle (in `_idle`, least recently used first), or held (kept replies, work or timers
keep it, though it has nothing to do). Only an idle one goes away; one whose class overrides
`stopping` is awake once more for that, still in `_cells`, so that a message which comes meanwhile
finds the same cell and is handled by the next instance.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

import trio

from fw_actors.runtime.actor import Actor, Context
from fw_actors.runtime.background import Lifeline, cancel_timers
from fw_actors.runtime.cell import Cell, CrashedError, State, Tamper, run_turn
from fw_actors.runtime.deadlock import CURRENT, waiting_for
from fw_actors.runtime.errors import ActorError, ActorFailed, ActorGone, MailboxFull
from fw_actors.runtime.mailbox import Mailbox
from fw_actors.runtime.messages import Message
from fw_actors.runtime.ref import REFUSALS, KeyedRef, Keyring
from fw_actors.runtime.reply import PendingReply
from fw_actors.runtime.snapshot import NodeSnapshot
from fw_actors.runtime.timers import Deadlines

if TYPE_CHECKING:
    from fw_actors.runtime.cell import Instance
    from fw_actors.runtime.system import Ground


class Home(Keyring, Protocol):
    """The pool, as far as its cells have to know it; see `KeyedPool`."""

    make: Callable[[str], Actor]
    no_mailbox: Mailbox
    tamper: Tamper | None

    def awoken(self, cell: KeyedCell) -> None: ...

    def slept(self, cell: KeyedCell) -> None: ...

    def rested(self, cell: KeyedCell) -> None: ...


class KeyedContext(Context):
    """What an actor of a pool has in its hands."""

    __slots__ = ("_keyed",)

    def __init__(self, cell: KeyedCell) -> None:
        super().__init__(cell, cell.key)
        self._keyed = cell

    @property
    def ref(self) -> KeyedRef:
        """This actor's own address."""
        return KeyedRef(self._keyed.pool, self._keyed.key)


class KeyedCell(Cell):
    """A job for a worker. The pool gives it a mailbox while it is awake, and takes it back."""

    __slots__ = ("dismissed", "fresh", "idle_since", "key", "leaving", "pool", "scope")

    def __init__(self, pool: Home, key: str) -> None:
        super().__init__(pool.runtime, f"{pool.name}/{key}", pool.no_mailbox)
        self.pool = pool
        self.key = key
        self.awake = False
        self.leaving = False
        """Whether the instance is to go away before anything else is handled."""
        self.dismissed = False
        """Whether it is to go away when it is idle next."""
        self.fresh = False
        """Whether the instance's `started` is still to be run."""
        self.idle_since = 0.0
        self.scope: Lifeline | None = None
        if pool.tamper is not None:
            self.set_tamper(pool.tamper)

    @property
    def state(self) -> State:
        """Where the actor is in its life."""
        if self.leaving:
            return State.STOPPING
        return State.RUNNING if self.actor is not None else State.ABSENT

    def wake(self) -> None:
        """Have a worker run it."""
        self.awake = True
        self.pool.awoken(self)
        self.runtime.workers.submit(self)

    def freed(self) -> None:
        """Become idle, if it only waited for this hold to end."""
        if not self.awake and self.actor is not None:
            self.pool.rested(self)

    def stop(self, deadline: float) -> None:
        """Go away when it is idle next; the deadline is kept by the pool."""
        self.dismissed = True

    @property
    def leaves_at_once(self) -> bool:
        """Whether the instance has nothing to run at its end."""
        actor = self.actor
        return actor is None or self.fresh or type(actor).stopping is Actor.stopping

    def construct(self) -> None:
        """Make the instance; `started` is called when it runs. Raises CrashedError."""
        try:
            self.actor = actor = self.pool.make(self.key)
            actor.context = KeyedContext(self)
            self.overflow = actor.mailbox.overflow
        except Exception as error:
            raise self.note_failure("construct", error) from error
        self.fresh = type(actor).started is not Actor.started

    async def run(self) -> None:
        """Handle messages until there are none; a failure ends the instance, not the run."""
        CURRENT.set(self)
        try:
            await self._run()
        except BaseException:  # cancelled: the pool has come to its end
            self.settle_instance(None)
            self.settle_mailbox()
            raise
        finally:
            self.awake = False
            self.pool.slept(self)

    async def _run(self) -> None:
        while True:
            try:
                if self.leaving:
                    await self._leave()
                if self.actor is None or self.fresh:
                    if not self.mailbox.depth:
                        return self._rest_unmade()
                    await self._begin()
                if self.actor is not None and not await run_turn(self, self.actor):
                    return None
            except CrashedError as crash:
                self.settle_instance(self.runtime.one_line(crash.error))
                self.restarts += 1
            await trio.lowlevel.checkpoint()

    async def _begin(self) -> None:
        """Make the instance ready; when that fails, the first message fails with it."""
        try:
            if self.actor is None:
                self.construct()
            if self.fresh and self.actor is not None:
                await self._start(self.actor)
        except CrashedError as crash:
            first = self.mailbox.take()
            if isinstance(first, PendingReply):
                first.abandon(ActorFailed(self.name, self.runtime.one_line(crash.error)))
            raise

    async def _start(self, actor: Instance) -> None:
        self.fresh = False
        try:
            await actor.started()
        except Exception as error:
            raise self.note_failure("start", error) from error

    async def _leave(self) -> None:
        actor = self.actor
        try:
            if actor is not None and not self.fresh:
                await actor.stopping()
        except Exception as error:
            self.note_failure("stop", error)
        self.leaving = self.dismissed = False
        self.settle_instance(None)

    def _rest_unmade(self) -> None:
        """Rest without an instance; the pool forgets this cell."""
        self.settle_instance(None)
        for slot in self.inspections or ():
            slot.abandon(ActorGone(self.name))
        self.inspections = None


CLOCK_GRAIN: Final = 1e-6  # seconds; so that rounding never sets an alarm for now


class IdleQueue:
    """One alarm, for the oldest, is set among the runtime's deadlines while any are idle."""

    def __init__(
        self,
        deadlines: Deadlines,
        idle_seconds: float,
        send_away: Callable[[KeyedCell], None],
    ) -> None:
        self._deadlines = deadlines
        self._idle_seconds = idle_seconds
        self._send_away = send_away
        self._cells: OrderedDict[KeyedCell, None] = OrderedDict()
        self._alarm: float | None = None

    def __len__(self) -> int:
        return len(self._cells)

    def add(self, cell: KeyedCell) -> None:
        """Put a cell at the end: it was used just now."""
        cell.idle_since = self._deadlines.now()
        self._cells[cell] = None
        if self._alarm is None:
            self._set_alarm(self._idle_seconds)

    def discard(self, cell: KeyedCell) -> None:
        """Take a cell out; one that is not idle is ignored."""
        self._cells.pop(cell, None)

    def oldest(self) -> KeyedCell | None:
        """Return the least recently used one."""
        return next(iter(self._cells), None)

    def expire(self) -> None:
        """Send away those that were idle long enough; called by the runtime's deadlines."""
        self._alarm = None
        due = self._deadlines.now() - self._idle_seconds + CLOCK_GRAIN
        while (oldest := self.oldest()) is not None:
            if oldest.idle_since > due:
                self._set_alarm(max(CLOCK_GRAIN, oldest.idle_since - due))
                return
            self.discard(oldest)
            self._send_away(oldest)

    def close(self) -> None:
        """Send all away, and set no alarm until one is added again."""
        while (oldest := self.oldest()) is not None:
            self.discard(oldest)
            self._send_away(oldest)
        if self._alarm is not None:
            self._deadlines.withdraw(self, self._alarm)
            self._alarm = None

    def _set_alarm(self, seconds: float) -> None:
        self._alarm = seconds
        self._deadlines.add(self, seconds)


class Totals:
    """Sums of the counters of cells; a cell can be added and taken out, other totals added."""

    __slots__ = ("failed", "handled", "handler_seconds", "last_error", "restarts", "skipped")

    def __init__(self) -> None:
        self.handled = self.failed = self.skipped = self.restarts = 0
        self.handler_seconds = 0.0
        self.last_error: str | None = None

    def add(self, other: KeyedCell | Totals) -> None:
        """Add another's counters; the last error is the other's, if it has one."""
        self.handled += other.handled
        self.failed += other.failed
        self.skipped += other.skipped
        self.restarts += other.restarts
        self.handler_seconds += other.handler_seconds
        self.last_error = other.last_error or self.last_error

    def take_out(self, cell: KeyedCell) -> None:
        """Undo an `add` of this cell, whose counters are as they were then."""
        self.handled -= cell.handled
        self.failed -= cell.failed
        self.skipped -= cell.skipped
        self.restarts -= cell.restarts
        self.handler_seconds -= cell.handler_seconds


def snapshot_of(
    name: str, state: str, capacity: int, alive: int, awake: Collection[KeyedCell], resting: Totals
) -> NodeSnapshot:
    """Return a pool as one node, from its awake cells and the totals of all others."""
    totals = Totals()
    totals.add(resting)
    depth = waiting = 0
    for cell in awake:
        totals.add(cell)
        depth += cell.mailbox.depth
        waiting += cell.mailbox.waiting
    return NodeSnapshot(
        name=name,
        kind="pool",
        state=state,
        depth=depth,
        capacity=capacity,
        waiting=waiting,
        alive=alive,
        running=len(awake),
        handled=totals.handled,
        failed=totals.failed,
        skipped=totals.skipped,
        restarts=totals.restarts,
        last_error=totals.last_error,
        handler_seconds=totals.handler_seconds,
    )


SPARE_MAILBOXES: Final = 256


class KeyedPool:
    """`pool[key]` is the address of the key's actor. See docs/runtime.md.

    `make(key)` makes an instance. At most `capacity` actors exist at once. An idle one goes away
    after `idle_seconds`. All instances are of one class, or at least of one mailbox capacity.
    """

    def __init__(
        self,
        runtime: Ground,
        name: str,
        make: Callable[[str], Actor],
        *,
        capacity: int = 10_000,
        idle_seconds: float = 60.0,
    ) -> None:
        self.runtime = runtime
        self.name = name
        self.make = make
        self.capacity = capacity
        self.no_mailbox = Mailbox(1)
        """Stands in for the mailbox of a cell that is not awake."""
        self._cells: dict[str, KeyedCell] = {}
        self._idle = IdleQueue(runtime.deadlines, idle_seconds, self._send_away)
        self._spare: list[Mailbox] = []
        self._awake: dict[KeyedCell, None] = {}
        self._closed = False
        self._cut = False
        """Whether its end has taken too long: nobody comes to an end of its own any more."""
        self._emptied = trio.Event()
        self._resting = Totals()
        """Of all actors there ever were but the awake ones, so that a look walks only these."""
        self.tamper: Tamper | None = None
        runtime.add_node(self)

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, key: str) -> KeyedRef:
        return KeyedRef(self, key)

    def cells(self) -> Sequence[KeyedCell]:
        """Return all that there are at this moment."""
        return tuple(self._cells.values())

    def tell(self, key: str, message: Message) -> bool:
        """Do what `pool[key].tell(message)` does; see `Ref.tell`."""
        try:
            cell = self._cells.get(key)
            if cell is None:
                self._begin(self._made(key), message)
                return True
            cell = self.cell(key)
        except ActorError as fault:
            reason = REFUSALS[type(fault)]
            self.runtime.dead_letters.add(f"{self.name}/{key}", message, reason)
            return False
        return cell.tell(message)

    def cell(self, key: str) -> KeyedCell:
        """Return the key's cell with a mailbox to put a message into; made if need be.

        Raises MailboxFull at capacity with none idle, ActorGone when the pool is closed, and
        ActorFailed when `make` failed.
        """
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = self._made(key)
            self.rested(cell)  # idle until a message is in; if none comes, it goes as idle ones do
        elif self._closed:
            raise ActorGone(cell.name)
        if cell.mailbox is self.no_mailbox:
            self._give_mailbox(cell)
        return cell

    def present(self, key: str) -> KeyedCell:
        """Return the key's cell if it has an instance. Raises ActorGone otherwise."""
        cell = self._cells.get(key)
        if cell is None or cell.actor is None:
            raise ActorGone(f"{self.name}/{key}")
        return cell

    def set_tamper(self, tamper: Tamper | None) -> None:
        """Have the items of all its actors pass through `tamper`; for tests."""
        self.tamper = tamper
        for cell in self._cells.values():
            cell.set_tamper(tamper)

    # What the cells tell of themselves.

    def awoken(self, cell: KeyedCell) -> None:
        """Note that a cell has something to do."""
        self._awake[cell] = None
        self._resting.take_out(cell)
        self._idle.discard(cell)
        if cell.mailbox is self.no_mailbox:
            self._give_mailbox(cell)

    def slept(self, cell: KeyedCell) -> None:
        """Note that a cell has nothing to do any more; its mailbox is empty."""
        del self._awake[cell]
        self._resting.add(cell)
        self._take_mailbox(cell)
        if not cell.holds:
            self.rested(cell)

    def rested(self, cell: KeyedCell) -> None:
        """Make idle, or send away, a cell that is neither awake nor held."""
        if cell.actor is None:
            self._remove(cell)
        elif self._cut:
            cell.settle_instance(None)
            self._remove(cell)
        elif cell.dismissed or self._closed:
            self._send_away(cell)
        else:
            self._idle.add(cell)

    # The end.

    def open(self) -> None:
        """Take messages again after `close`; a pool is open from the beginning."""
        if self._closed:
            self._closed = self._cut = False
            self._emptied = trio.Event()
            self.no_mailbox = Mailbox(1)
            self.runtime.add_node(self)

    async def close(self, deadline: float = inf) -> None:
        """Refuse new messages, let every actor come to its end, wait until none is left.

        Those that take longer than `deadline` (on trio's clock) are cancelled, and so are all
        when this call is cancelled; their askers get ActorGone. May be called more than once.
        Raises AskCycle (in a handler) when one of them waits for the caller, or is the caller.
        """
        with waiting_for(self.cells()):
            await self._close(deadline)

    async def _close(self, deadline: float) -> None:
        self._closed = True
        for cell in list(self._cells.values()):
            cell.mailbox.close()
            cancel_timers(cell)
        self._idle.close()
        try:
            if self._cells:
                with trio.move_on_at(deadline):
                    await self._emptied.wait()
        finally:
            await self._cut_off()
            self._spare.clear()
            self.runtime.remove_node(self)

    async def _cut_off(self) -> None:
        if not self._cells:
            return
        self._cut = True
        self.runtime.log.warning("pool_stop_forced", pool=self.name, actors=len(self._cells))
        for cell in list(self._cells.values()):
            if cell.scope is not None:
                cell.scope.cancel()
            else:
                cell.settle_instance(None)
                cell.settle_mailbox()
                if not cell.awake:
                    self._remove(cell)
        if self._cells:
            with trio.CancelScope(shield=True):  # cancelled workers take a moment to unwind
                await self._emptied.wait()

    # What can be seen.

    def snapshot(self) -> NodeSnapshot:
        """Return the pool as one node, with the sums over all actors it ever had.

        The cost is that of the awake ones, however many there are.
        """
        return snapshot_of(
            self.name,
            "stopping" if self._closed else "running",
            self.capacity,
            len(self._cells),
            self._awake,
            self._resting,
        )

    # One step each.

    def _made(self, key: str) -> KeyedCell:
        """Return a new cell; raises as `cell` does."""
        if self._closed:
            raise ActorGone(f"{self.name}/{key}")
        if len(self._cells) >= self.capacity:
            oldest = self._idle.oldest()
            if oldest is not None:
                self._send_away(oldest)
            if len(self._cells) >= self.capacity:
                raise MailboxFull(self.name, self.capacity, "actors")
        cell = KeyedCell(self, key)
        try:
            cell.construct()
        except CrashedError as crash:
            self._resting.add(cell)
            raise ActorFailed(cell.name, cell.runtime.one_line(crash.error)) from crash.error
        return cell

    def _begin(self, cell: KeyedCell, message: Message) -> None:
        """Have a new cell begin with a message: what `cell` and `awoken` do, in one step.

        For deliveries, which are that short, it is half of what the pool costs them.
        """
        self._give_mailbox(cell)
        cell.mailbox.put(message)
        self._cells[cell.key] = cell
        self._awake[cell] = None
        cell.awake = True
        self.runtime.workers.submit(cell)

    def _give_mailbox(self, cell: KeyedCell) -> None:
        if self._spare:
            cell.mailbox = self._spare.pop()
        elif cell.actor is not None:
            cell.mailbox = Mailbox(cell.actor.mailbox.capacity)

    def _take_mailbox(self, cell: KeyedCell) -> None:
        mailbox, cell.mailbox = cell.mailbox, self.no_mailbox
        if len(self._spare) < SPARE_MAILBOXES and not self._closed:
            self._spare.append(mailbox)

    def _send_away(self, cell: KeyedCell) -> None:
        """End an idle cell's instance: at once, or by a worker when it has a last thing to do."""
        if cell.leaves_at_once:
            cell.settle_instance(None)
            self._remove(cell)
        else:
            cell.leaving = True
            cell.wake()

    def _remove(self, cell: KeyedCell) -> None:
        self._idle.discard(cell)
        del self._cells[cell.key]
        if self._closed and not self._cells:
            self._emptied.set()
