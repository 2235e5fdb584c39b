"""Topics: one message to all members, each with a queue and a policy for a full queue.

A publication is put into the queues of all members in one step, so that all members get all
publications in the same order. Before that step it waits until every member whose policy is WAIT
has room. A member's queue is a feed of its mailbox (see `mailbox`), so it does not use the capacity
that other messages need.

The runtime's own events are a topic too: starts, ends, failures, refusals, lost messages. They cost
almost nothing while the topic has no member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import trio
from outcome import Error, Value
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

from fw_actors.runtime.deadlock import WaitNode, current_waiter
from fw_actors.runtime.errors import ActorError, AskCycle, MailboxFull
from fw_actors.runtime.mailbox import DeadLetterReason, Item
from fw_actors.runtime.membership import Listener, Membership, MemberSnapshot, Terms, TopicOverflow
from fw_actors.runtime.messages import Carried, Message, carried_values
from fw_actors.runtime.reply import PendingReply

if TYPE_CHECKING:
    from fw_actors.runtime.deadlock import Waiter
    from fw_actors.runtime.ref import Ref
    from fw_actors.runtime.system import Runtime


MessageT = TypeVar("MessageT", bound=Message)

CAPACITY: Final = 64
MAX_MEMBERS: Final = 10_000


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """The state of a topic."""

    name: str
    published: int
    """Publications so far."""
    waiting: int
    """Publishers that wait for room."""
    members: tuple[MemberSnapshot, ...]


class WaitingPublisher:
    """A task that waits in `publish`, and its publication."""

    __slots__ = ("carried", "message", "task", "waiter")

    def __init__(self, message: Any, carried: Carried | None) -> None:
        self.task = current_task()
        self.waiter: Waiter | None = current_waiter()
        self.message = message
        self.carried = carried


class Topic(Generic[MessageT]):
    """Passes each message to all its members. For trio's thread only, except `tell_from_thread`.

    Create it with its runtime and a name, and pass it to publishers and subscribers. It has no
    task, and need not be closed.
    """

    def __init__(self, runtime: Runtime, name: str, *, max_members: int = MAX_MEMBERS) -> None:
        if max_members < 1:
            raise ValueError(f"{name!r}: max_members must be at least 1")
        self.name = name
        self._runtime = runtime
        self._max_members = max_members
        self._members: dict[object, Membership] = {}
        self._order: tuple[Membership, ...] | None = ()
        """The members, for `_deliver`; None after a change."""
        self._blocked: dict[Membership, None] = {}
        """Members for which publishers must wait."""
        self._waiting: dict[WaitingPublisher, None] = {}
        self._published = 0
        self.has_members = False
        """Whether there are members."""

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._members)

    def subscribe(
        self,
        ref: Ref,
        *,
        overflow: TopicOverflow = TopicOverflow.WAIT,
        capacity: int = CAPACITY,
        accept: Callable[[MessageT], bool] | None = None,
        then: Message | None = None,
    ) -> Membership:
        """Send every publication also to the actor behind `ref`, through its own queue.

        The queue holds `capacity` publications, in addition to the mailbox; `overflow` is the
        policy for a full queue. `accept` filters publications; if it raises an error, the member is
        removed. With `TopicOverflow.UNSUBSCRIBE` a member that was too slow gets `then`, if given,
        after the publications in its queue. A member that subscribes again gets new terms and keeps
        its queue, also after it was removed.

        A single actor is a member over its restarts, until it stops. A keyed actor is created if
        necessary, is not passivated while it is a member, and leaves when its instance ends. Raises
        ActorGone if the actor has stopped, and MailboxFull if the topic has its maximum number of
        members, or if the actor's pool is full.
        """
        terms = Terms(overflow, capacity, accept, then)
        cell = ref.target()
        member = self._members.get(cell)
        if member is not None:
            member.set_terms(terms)
            return member
        self._check_room()
        member = Membership(self, cell, cell, terms)
        cell.add_feed(member)
        for feed in cell.mailbox.feeds:
            if isinstance(feed, Membership) and feed.topic is self and feed is not member:
                member.take_over(feed)
        self._add(cell, member)
        return member

    def listening(
        self,
        *,
        overflow: TopicOverflow = TopicOverflow.WAIT,
        capacity: int = CAPACITY,
        accept: Callable[[MessageT], bool] | None = None,
    ) -> AbstractContextManager[Listener[MessageT]]:
        """Make a task that is not an actor a member while the block runs; arguments as for
        `subscribe`."""
        return self._listening(Terms(overflow, capacity, accept))

    @contextmanager
    def _listening(self, terms: Terms) -> Iterator[Listener[MessageT]]:
        self._check_room()
        listener: Listener[MessageT] = Listener(self.name)
        member = Membership(self, listener, None, terms)
        listener.join(member)
        self._add(member, member)
        try:
            yield listener
        finally:
            member.cancel()

    async def publish(self, message: MessageT) -> int:
        """Pass a message to all members; return how many get it.

        First waits until each member whose policy is WAIT has room. Publishers proceed in the order
        of their calls. A call that is cancelled while it waits has published nothing. Raises
        AskCycle in a handler if one of these members waits for it.
        """
        carry = self._runtime.carry
        carried = carried_values(carry) if carry else None
        if self._blocked:
            return await self._publish_in_turn(WaitingPublisher(message, carried))
        delivered = self._deliver(message, carried)
        # Shielded: a message that was published must not look unpublished.
        await trio.lowlevel.cancel_shielded_checkpoint()
        return delivered

    def tell(self, message: MessageT, /) -> bool:
        """Publish without waiting; never raises.

        Returns False, and records a dead letter, if a member whose policy is WAIT has no room; then
        no member gets the message.
        """
        if self._blocked:
            self._runtime.dead_letters.add(self.name, message, DeadLetterReason.FULL)
            return False
        self._deliver(message, None if self._runtime.tracing is None else ())
        return True

    def tell_from_thread(self, message: MessageT) -> bool:
        """Publish from any thread, as `tell` does; see `Ref.tell_from_thread`."""
        return self._runtime.from_threads.tell(self, message)

    def snapshot(self) -> TopicSnapshot:
        """Return the state of the topic as a frozen value."""
        members = tuple(member.snapshot() for member in self._members.values())
        return TopicSnapshot(self.name, self._published, len(self._waiting), members)

    # For the members.

    def forget(self, key: object, member: Membership) -> None:
        """Remove a member."""
        if self._members.get(key) is member:
            del self._members[key]
            self._order = None
            self.has_members = bool(self._members)
        self.unblock(member)

    def block(self, member: Membership) -> None:
        """Make publishers wait for a member."""
        self._blocked[member] = None

    def unblock(self, member: Membership) -> None:
        """Stop making publishers wait for a member."""
        if member in self._blocked:
            del self._blocked[member]
            if self._waiting:
                self._deliver_waiting()

    def drop(self, member: Membership, item: Item, reason: DeadLetterReason) -> None:
        """Record a publication that a member does not get."""
        message = item.message if isinstance(item, PendingReply) else item
        self._runtime.dead_letters.add(f"{self.name} for {member.name}", message, reason)

    def log_removal(self, member: Membership, error: Exception | None) -> None:
        """Log that a member was too slow, or that its `accept` has raised an error."""
        reason = "too slow" if error is None else self._runtime.one_line(error)
        self._runtime.log.warning(
            "member_unsubscribed", topic=self.name, member=member.name, reason=reason
        )
        self._runtime.events.publish_removal(member.name, f"{self.name}: {reason}")

    # The wait-for graph.

    @property
    def cell(self) -> Topic[MessageT]:
        """The topic, as a node of the graph."""
        return self

    @property
    def waits_for(self) -> tuple[WaitNode, ...]:
        """The members for which publishers wait."""
        return tuple(node for member in self._blocked for node in member.waits_for)

    @property
    def any_of(self) -> tuple[WaitNode, ...]:
        """Empty: publishers need all of `waits_for`."""
        return ()

    # Steps.

    def _check_room(self) -> None:
        if len(self._members) >= self._max_members:
            raise MailboxFull(self.name, self._max_members, "members")

    def _add(self, key: object, member: Membership) -> None:
        self._members[key] = member
        self._order = None
        self.has_members = True

    def _deliver(self, message: MessageT, carried: Carried | None) -> int:
        if get_ident() != self._runtime.thread:
            self._runtime.check_thread(self.name)
        members = self._order
        if members is None:
            members = self._order = tuple(self._members.values())
        self._published += 1
        missed = 0
        item: Item = message
        for member in members:
            if carried is not None:
                item = member.carrying(message, carried)
            queue = member.queue
            if len(queue) < member.limit:
                queue.append(item)
            elif not member.put(item):
                missed += 1
                continue
            receiving = member.receiving
            if not receiving.scheduled:
                receiving.schedule()
        return len(members) - missed

    async def _publish_in_turn(self, publisher: WaitingPublisher) -> int:
        waiter = publisher.waiter
        if waiter is not None:
            waiter.begin_wait(self)
        self._waiting[publisher] = None

        def withdraw(_: object) -> Abort:
            del self._waiting[publisher]
            return Abort.SUCCEEDED

        try:
            delivered: int = await wait_task_rescheduled(withdraw)
            return delivered
        finally:
            if publisher.waiter is not None:
                publisher.waiter.end_wait(self)

    def _deliver_waiting(self) -> None:
        """Publish for waiting publishers, in order, as long as there is room."""
        while self._waiting and not self._blocked:
            publisher = next(iter(self._waiting))
            del self._waiting[publisher]
            delivered = self._deliver(publisher.message, publisher.carried)
            reschedule(publisher.task, Value(delivered))
        if self._waiting and any(node.waits_for for node in self.waits_for):
            self._end_deadlocks()

    def _end_deadlocks(self) -> None:
        """End the waits of publishers that have become cycles, because a full member waits for the
        publisher."""
        for publisher in tuple(self._waiting):
            waiter = publisher.waiter
            if waiter is None:
                continue
            waiter.end_wait(self)
            publisher.waiter = None
            try:
                waiter.begin_wait(self)
                publisher.waiter = waiter
            except AskCycle as cycle:
                del self._waiting[publisher]
                reschedule(publisher.task, Error(cycle))


EVENTS_KEPT: Final = 256


class EventKind(Enum):
    """The kinds of events. Those that are also logged have the name of the log's event."""

    STARTED = "actor_started"
    STOPPED = "actor_stopped"
    PASSIVATED = "actor_passivated"
    FAILED = "actor_failed"
    RESTARTED = "child_restarted"
    CHILD_FAILED = "child_failed"
    GAVE_UP = "supervisor_gave_up"
    REFUSED = "message_refused"
    DEAD_LETTER = "dead_letter"
    PASSED_ON = "passed_on"
    WORK_FAILED = "work_failed"
    SLOW = "slow_handler"
    STOP_OVERDUE = "stop_overdue"
    STOP_FORCED = "actor_stop_forced"
    POOL_STOP_FORCED = "pool_stop_forced"
    UNSUBSCRIBED = "member_unsubscribed"


class RuntimeEvent(Message, frozen=True):
    """One event. It has types and names, never the contents of a message."""

    kind: EventKind
    name: str
    """The actor, pool, child, supervisor or member concerned."""
    at: int
    """Unix time in ms."""
    reason: str = ""
    """An error as one line without secrets, or the reason of a dead letter; may be empty."""
    message_type: str = ""
    """The type of the message concerned, if any."""
    incarnation: int = 0
    """The number of the instance that started or ended; see `Down`."""


class EventTopic(Topic[RuntimeEvent]):
    """The topic `runtime.events`. No member can make the runtime wait."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime, "runtime.events")

    def subscribe(
        self,
        ref: Ref,
        *,
        overflow: TopicOverflow = TopicOverflow.DROP_OLDEST,
        capacity: int = EVENTS_KEPT,
        accept: Callable[[RuntimeEvent], bool] | None = None,
        then: Message | None = None,
    ) -> Membership:
        """Subscribe as `Topic.subscribe` does. Raises ValueError for `TopicOverflow.WAIT`."""
        check_overflow(overflow)
        return super().subscribe(
            ref, overflow=overflow, capacity=capacity, accept=accept, then=then
        )

    def listening(
        self,
        *,
        overflow: TopicOverflow = TopicOverflow.DROP_OLDEST,
        capacity: int = EVENTS_KEPT,
        accept: Callable[[RuntimeEvent], bool] | None = None,
    ) -> AbstractContextManager[Listener[RuntimeEvent]]:
        """Listen as `Topic.listening` does. Raises ValueError for `TopicOverflow.WAIT`."""
        check_overflow(overflow)
        return super().listening(overflow=overflow, capacity=capacity, accept=accept)

    def emit(self, kind: EventKind, name: str, **details: Any) -> None:
        """Publish an event, unless there is no member; for the runtime.

        Callers of frequent events check `has_members` first.
        """
        if self.has_members:
            self.tell(RuntimeEvent(kind, name, self._runtime.clock.now(), **details))

    def emit_refusal(self, name: str, error: ActorError, message: Message) -> None:
        """Publish that a message was refused, by the error that its sender gets."""
        if self.has_members:
            self.emit(
                EventKind.REFUSED, name, reason=str(error), message_type=type(message).__name__
            )

    def emit_dead_letter(self, name: str, message: object, reason: DeadLetterReason) -> None:
        """Publish that a message was lost, unless it was an event itself."""
        if self.has_members and not isinstance(message, RuntimeEvent):
            self.emit(
                EventKind.DEAD_LETTER,
                name,
                reason=reason.value,
                message_type=type(message).__name__,
            )

    def publish_removal(self, name: str, reason: str) -> None:
        """Publish that a topic has unsubscribed a member."""
        self.emit(EventKind.UNSUBSCRIBED, name, reason=reason)

    def drop(self, member: Membership, item: Item, reason: DeadLetterReason) -> None:
        """Do nothing: a lost event is counted by its member, and is not an event itself."""


def check_overflow(overflow: TopicOverflow) -> None:
    """Raise ValueError for the policy WAIT, with which the runtime would wait."""
    if overflow is TopicOverflow.WAIT:
        raise ValueError(
            "TopicOverflow.WAIT is not allowed here: the runtime never waits for a member"
        )
