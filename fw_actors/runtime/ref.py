"""Addresses of actors, valid whatever becomes of the instance behind them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import trio
from trio.lowlevel import wait_task_rescheduled

from fw_actors.runtime.deadlock import CURRENT, join, leave
from fw_actors.runtime.errors import ActorError, ActorFailed, ActorGone, AskTimeout, MailboxFull
from fw_actors.runtime.mailbox import DeadLetterReason
from fw_actors.runtime.messages import Message, Request
from fw_actors.runtime.reply import PendingReply
from fw_actors.runtime.snapshot import Inspection

if TYPE_CHECKING:
    from fw_actors.runtime.cell import Cell
    from fw_actors.runtime.system import Ground

R = TypeVar("R")

REFUSALS: Final[Mapping[type[ActorError], DeadLetterReason]] = MappingProxyType(
    {
        MailboxFull: DeadLetterReason.POOL_FULL,
        ActorGone: DeadLetterReason.GONE,
        ActorFailed: DeadLetterReason.FAILED,
    }
)
"""Why a pool's actor can't be told anything, by what `KeyedPool.cell` raises."""


class Ref(ABC):
    """An address. All of it is for trio's own thread."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The actor's name, as in the tree."""

    @abstractmethod
    def tell(self, message: Message) -> bool:
        """Send without waiting; never raises.

        Returns: False when it was refused (no room, nobody there); it is a dead letter then.
        """

    @abstractmethod
    def _cell(self) -> Cell:
        """Return what is behind the address. Raises ActorGone and MailboxFull (of a pool)."""

    async def send(self, message: Message) -> None:
        """Send, waiting for room where the actor's overflow is WAIT.

        Cancelled while it waits, the message was not sent; once it is sent, nothing is waited for.
        Raises ActorGone, MailboxFull, and AskCycle (in a handler).
        """
        cell = self._cell()
        if cell.offer(message):
            await trio.lowlevel.cancel_shielded_checkpoint()  # it is sent: not Cancelled any more
            return
        asker = CURRENT.get()
        if asker is not None:
            join(asker, cell)
        try:
            await cell.offer_when_room(message)
        finally:
            if asker is not None:
                leave(asker, cell)

    async def ask(self, request: Request[R], deadline: float | None = None) -> R:
        """Send a question and wait for its answer, at most `deadline` seconds in all.

        Cancelled or timed out, the question is withdrawn: it is skipped if no handler has begun
        it, and a late answer is only counted. An answer that came first is not lost to a
        cancellation.

        Raises: AskTimeout; ActorGone; ActorFailed when the handler raised; MailboxFull;
        AskCycle (in a handler); NotHandled; whatever the actor gave to `PendingReply.fail`.
        TypeError without a deadline inside a handler, which it could hold up for ever.
        """
        cell = self._cell()
        asker = CURRENT.get()
        if asker is not None:
            if deadline is None:
                raise TypeError(f"In a handler, ask {self.name!r} with a deadline.")
            join(asker, cell)
        try:
            slot: PendingReply[R] = PendingReply(cell, request)
            if not cell.offer(slot):
                deadline = await self._room_for(cell, slot, deadline)
            if not slot.wanted:  # it was answered while room was waited for
                return await slot.wait(deadline)
            slot.expect(deadline)  # `slot.wait`, without a coroutine more
            await wait_task_rescheduled(slot.call_off)
            return slot.result()
        finally:
            if asker is not None:
                leave(asker, cell)

    async def inspect(self, deadline: float = 1.0) -> Inspection:
        """Look into the actor between two messages, ahead of its mailbox.

        Raises AskTimeout when its handler takes longer than `deadline` seconds, and as `ask` does.
        """
        cell = self._inspected()
        slot: PendingReply[Inspection] = PendingReply(cell, Message())
        cell.inspect(slot)
        return await slot.wait(deadline)

    def _inspected(self) -> Cell:
        return self._cell()

    async def _room_for(
        self, cell: Cell, slot: PendingReply[Any], deadline: float | None
    ) -> float | None:
        """Wait for room; return what is left of the deadline."""
        if deadline is None:
            await cell.offer_when_room(slot)
            return None
        end = trio.current_time() + deadline
        with trio.move_on_at(end) as scope:
            await cell.offer_when_room(slot)
        if scope.cancelled_caught:
            raise AskTimeout(self.name, deadline)
        return max(0.0, end - trio.current_time())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class ActorRef(Ref):
    """The address of a single actor, from `runtime.ref(name)`; equal ones share the actor."""

    __slots__ = ("cell",)

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        """What is behind it; for supervisors."""

    @property
    def name(self) -> str:
        """The actor's name."""
        return self.cell.name

    def tell(self, message: Message) -> bool:
        """See `Ref.tell`."""
        cell = self.cell
        try:  # what `cell.tell` does, without a call
            cell.mailbox.put(message)
        except (trio.WouldBlock, trio.ClosedResourceError):
            return cell.tell(message)
        if not cell.awake:
            cell.wake()
        return True

    def suspend(self) -> None:
        """Have it handle nothing after the message in hand; its mailbox fills."""
        self.cell.suspend()

    def resume(self) -> None:
        """Have it go on."""
        self.cell.resume()

    def trace(self, onlooker: Callable[[Message], object] | None) -> None:
        """Show every message to `onlooker` before it is handled; None ends it."""
        self.cell.trace = onlooker
        self.cell.alert = True

    def _cell(self) -> Cell:
        return self.cell

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorRef) and other.cell is self.cell

    def __hash__(self) -> int:
        return hash(self.cell.name)


class Keyring(Protocol):
    """A pool, as far as the addresses of its actors have to know it; see `KeyedPool`."""

    name: str
    runtime: Ground

    def tell(self, key: str, message: Message) -> bool: ...

    def cell(self, key: str) -> Cell: ...

    def present(self, key: str) -> Cell: ...


class KeyedRef(Ref):
    """The address of one key in a pool, from `pool[key]`; the actor is made when it is used."""

    __slots__ = ("_pool", "key")

    def __init__(self, pool: Keyring, key: str) -> None:
        self._pool = pool
        self.key = key

    @property
    def name(self) -> str:
        """The pool's name and the key."""
        return f"{self._pool.name}/{self.key}"

    def tell(self, message: Message) -> bool:
        """See `Ref.tell`."""
        return self._pool.tell(self.key, message)

    def _cell(self) -> Cell:
        return self._pool.cell(self.key)

    def _inspected(self) -> Cell:
        return self._pool.present(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyedRef) and (other._pool, other.key) == (self._pool, self.key)

    def __hash__(self) -> int:
        return hash(self.key)
