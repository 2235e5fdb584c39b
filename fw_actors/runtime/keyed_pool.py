"""Actors by key, made when a message comes and gone when idle: the owner of that state machine.

A key's cell is in `_cells` from its first message until it has gone. It is awake (a worker runs
it or will), idle (in `_idle`, least recently used first), or held (kept replies, work or timers
keep it, though it has nothing to do). Only an idle one goes away; one whose class overrides
`stopping` is awake once more for that, still in `_cells`, so that a message which comes meanwhile
finds the same cell and is handled by the next instance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

import trio

from fw_actors.runtime.actor import Actor
from fw_actors.runtime.cell import Tamper
from fw_actors.runtime.faults import ActorFailed, ActorGone, MailboxFull, RuntimeFault
from fw_actors.runtime.ground import Ground
from fw_actors.runtime.idle_queue import IdleQueue
from fw_actors.runtime.inspection import NodeSnapshot
from fw_actors.runtime.keyed_cell import KeyedCell
from fw_actors.runtime.life import CrashedError
from fw_actors.runtime.mailbox import Mailbox
from fw_actors.runtime.messages import Message
from fw_actors.runtime.pool_totals import Totals, snapshot_of
from fw_actors.runtime.reference import REFUSALS, KeyedRef
from fw_actors.runtime.rings import waiting_for
from fw_actors.runtime.side import cancel_timers

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
        except RuntimeFault as fault:
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
