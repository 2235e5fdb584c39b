"""Addresses of actors, valid over restarts and passivation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from fw_actors.runtime.deadlock import CURRENT, current_waiter
from fw_actors.runtime.errors import ActorError, AskTimeout
from fw_actors.runtime.messages import Message, Request, carried_values
from fw_actors.runtime.reply import PendingReply
from fw_actors.runtime.snapshot import Inspection
from fw_actors.runtime.supervision import Presence

if TYPE_CHECKING:
    from fw_actors.runtime.actor import Actor
    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.keyed_pool import KeyedPool
    from fw_actors.runtime.mailbox import Item
    from fw_actors.runtime.single import SingleCell
    from fw_actors.runtime.supervision import Watch

R = TypeVar("R")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    ActorT_co = TypeVarWithDefault("ActorT_co", bound=Actor, covariant=True, default=Actor)
else:
    ActorT_co = TypeVar("ActorT_co", covariant=True)


class Ref(ABC):
    """An address. All its methods except `tell_from_thread` are for trio's thread only."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The actor's name, as in the tree."""

    @abstractmethod
    def tell(self, message: Message, /) -> bool:
        """Send without waiting; never raises.

        Returns False, and records a dead letter, if there is no room or no actor.
        """

    @abstractmethod
    def tell_from_thread(self, message: Message) -> bool:
        """Send like `tell`, but from any thread, and soon; messages of one thread keep their order.

        Returns False, and sends nothing, if the runtime has ended, or if 10,000 messages from
        threads wait for trio's thread.
        """

    @abstractmethod
    def presence(self) -> Presence:
        """Return whether the actor has an instance; for `Watch`."""

    @abstractmethod
    def add_watch(self, watch: Watch) -> None:
        """Notify `watch` of ends and starts; for `Watch`."""

    @abstractmethod
    def remove_watch(self, watch: Watch) -> None:
        """Undo `add_watch`; for `Watch`."""

    @abstractmethod
    def target(self, message: Message | None = None) -> ActorCell:
        """Return the cell to send `message` to; for the runtime.

        Raises ActorGone and MailboxFull (of a pool).
        """

    async def send(self, message: Message) -> None:
        """Send, and wait for room if the actor's overflow policy is WAIT.

        A call that is cancelled while it waits has sent nothing.
        Raises ActorGone, MailboxFull, and AskCycle (in a handler).
        """
        cell = self.target(message)
        item: Item = message
        if cell.runtime.carry:
            values = carried_values(cell.runtime.carry)
            item = PendingReply(cell, message, carried=values, sent=True)
        if cell.offer(item):
            # Shielded: a message that was sent must not look unsent.
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        sender = current_waiter()
        if sender is not None:
            sender.begin_wait(cell)
        try:
            await cell.offer_when_room(item)
        finally:
            if sender is not None:
                sender.end_wait(cell)

    async def ask(
        self, request: Request[R], deadline: float | None = None, *, capped: bool = True
    ) -> R:
        """Send a request and wait for its answer, for at most `deadline` seconds in all.

        With a deadline of 0 or less nothing is sent. A call that is cancelled or times out
        withdraws the request: it is skipped if no handler has begun it, and a late answer is only
        counted. An answer that came before the cancellation is returned.

        In a handler the deadline is capped by the time that remains to the asker of the current
        request, which is also the default. The request is withdrawn together with the current one,
        so that no work begins without an asker. Use `capped=False` for work that must be done even
        if no asker waits.

        Raises: AskTimeout; ActorGone; ActorFailed if the handler raised; MailboxFull; AskCycle (in
            a handler); NotHandled; Refused; the error that the actor gave to `PendingReply.fail`.
            TypeError in a handler if neither it nor its asker set a deadline, since it could block
            forever.
        """
        if deadline is not None and not deadline > 0:
            raise AskTimeout(self.name, deadline)
        cell = self.target(request)
        reply: PendingReply[R] = PendingReply(cell, request)
        if cell.runtime.carry:
            reply.carried = carried_values(cell.runtime.carry)
        due: float | None = None
        waiter = None if CURRENT.get() is None else current_waiter()
        if waiter is not None:
            served = waiter.serves if capped else None
            if served is not None or deadline == inf:
                deadline, due = reply.capped(served, deadline)
            if deadline is None and waiter.needs_deadline:
                raise TypeError(f"ask of {self.name!r} in a handler needs a deadline")
            waiter.begin_wait(reply)
        try:
            if cell.offer(reply):
                return await reply.wait(deadline, due)
            await self._wait_for_room(reply, deadline, due)
            return await reply.wait(None)
        finally:
            if waiter is not None:
                waiter.end_wait(reply)

    async def inspect(self, deadline: float = 1.0) -> Inspection:
        """Return the actor's state, read between two messages, ahead of its mailbox.

        Raises AskTimeout if the current handler takes longer than `deadline` seconds, and the
        errors of `ask`.
        """
        if not deadline > 0:
            raise AskTimeout(self.name, deadline)
        cell = self._existing()
        cell.runtime.check_thread(self.name, "A call for", "trio.from_thread.run")
        reply: PendingReply[Inspection] = PendingReply(cell, Message())
        cell.inspect(reply)
        return await reply.wait(deadline)

    def _existing(self) -> ActorCell:
        """Return the cell as `target` does, but create none."""
        return self.target()

    async def _wait_for_room(
        self, reply: PendingReply[Any], deadline: float | None, due: float | None
    ) -> None:
        """Offer a request once there is room, with its deadline already set.

        A handler may begin the request before this task continues, and needs the remaining time.
        """
        reply.set_deadline(deadline, due)
        try:
            with trio.move_on_at(reply.due) as scope:
                await reply.cell.offer_when_room(reply)
        except BaseException:
            reply.withdraw()
            raise
        if scope.cancelled_caught:
            reply.withdraw()
            raise AskTimeout(self.name, deadline or 0.0)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class ActorRef(Ref, Generic[ActorT_co]):
    """The address of a single actor, from `runtime.ref(name)`; refs of one actor are equal.

    For type checkers its parameter is the actor's class, as in `ActorRef[Doubler]`; the default is
    `Actor`.
    """

    __slots__ = ("cell", "tell")

    # An attribute, because a method that calls the cell's method made a tell 8 % slower.
    tell: Callable[[Message], bool]

    def __init__(self, cell: SingleCell) -> None:
        self.cell = cell
        """For the runtime and the supervisors."""
        self.tell = cell.tell

    @property
    def name(self) -> str:
        """The actor's name."""
        return self.cell.name

    def tell_from_thread(self, message: Message) -> bool:
        """Send from any thread; see `Ref.tell_from_thread`."""
        return self.cell.runtime.from_threads.tell(self, message)

    def stop(self, deadline: float) -> None:
        """Request an orderly end before `deadline` (trio's clock); a supervisor may restart the
        actor."""
        self._check_thread()
        self.cell.stop(deadline)

    def suspend(self) -> None:
        """Handle nothing after the current message until `resume`; messages collect in the
        mailbox."""
        self._check_thread()
        self.cell.suspend()

    def resume(self) -> None:
        """Continue after `suspend`."""
        self._check_thread()
        self.cell.resume()

    def trace(self, tracer: Callable[[Message], object] | None) -> None:
        """Pass each message to `tracer` before it is handled; None ends the trace."""
        self._check_thread()
        self.cell.trace(tracer)

    def _check_thread(self) -> None:
        self.cell.runtime.check_thread(self.name, "A call for", "trio.from_thread.run_sync")

    def presence(self) -> Presence:
        """Return whether the actor has an instance; for `Watch`."""
        return Presence(
            self.cell.actor is not None, self.cell.incarnation or None, self.cell.last_error
        )

    def add_watch(self, watch: Watch) -> None:
        """Notify `watch` of ends and starts; for `Watch`."""
        self.cell.add_watch(watch)

    def remove_watch(self, watch: Watch) -> None:
        """Undo `add_watch`; for `Watch`."""
        self.cell.remove_watch(watch)

    def target(self, message: Message | None = None) -> ActorCell:
        return self.cell

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorRef) and other.cell is self.cell

    def __hash__(self) -> int:
        return hash(self.cell.name)


class KeyedRef(Ref):
    """The address of one key in a pool, from `pool[key]`; the actor is created when it is used."""

    __slots__ = ("_pool", "key")

    def __init__(self, pool: KeyedPool, key: str) -> None:
        self._pool = pool
        self.key = key

    @property
    def name(self) -> str:
        """The pool's name and the key."""
        return f"{self._pool.name}/{self.key}"

    def tell(self, message: Message, /) -> bool:
        """Send without waiting; see `Ref.tell`."""
        return self._pool.tell(self.key, message)

    def tell_from_thread(self, message: Message) -> bool:
        """Send from any thread; see `Ref.tell_from_thread`."""
        return self._pool.runtime.from_threads.tell(self, message)

    def presence(self) -> Presence:
        """Return whether the actor has an instance; for `Watch`."""
        return self._pool.presence(self.key)

    def add_watch(self, watch: Watch) -> None:
        """Notify `watch` of ends and starts; for `Watch`."""
        self._pool.add_watch(self.key, watch)

    def remove_watch(self, watch: Watch) -> None:
        """Undo `add_watch`; for `Watch`."""
        self._pool.remove_watch(self.key, watch)

    def target(self, message: Message | None = None) -> ActorCell:
        try:
            return self._pool.cell(self.key)
        except ActorError as error:
            if message is not None:
                self._pool.runtime.events.emit_refusal(self.name, error, message)
            raise

    def _existing(self) -> ActorCell:
        return self._pool.existing_cell(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyedRef) and (other._pool, other.key) == (self._pool, self.key)

    def __hash__(self) -> int:
        return hash(self.key)
