"""The members of topics: an actor or a task, its queue, and the policy for a full queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import trio
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

from fw_actors.runtime.errors import ActorError
from fw_actors.runtime.mailbox import DeadLetterReason, Item
from fw_actors.runtime.messages import Carried, Message
from fw_actors.runtime.reply import WOKEN, PendingReply

if TYPE_CHECKING:
    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.deadlock import WaitNode
    from fw_actors.runtime.topics import Topic

MessageT = TypeVar("MessageT", bound=Message)


class TopicOverflow(Enum):
    """The policies for a member whose queue is full."""

    WAIT = "the publisher waits until it has room"
    DROP_OLDEST = "the oldest publication in its queue is dropped"
    DROP_NEWEST = "it does not get the publication"
    UNSUBSCRIBE = "it is no longer a member"


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """One member of a topic."""

    name: str
    overflow: TopicOverflow
    depth: int
    """Publications in its queue."""
    capacity: int
    missed: int
    """Publications that it did not get because its queue was full."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The arguments of `Topic.subscribe`."""

    overflow: TopicOverflow
    capacity: int
    accept: Callable[[Any], bool] | None = None
    then: Message | None = None

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError("capacity must be at least 1")


class Receiving(Protocol):
    """An actor's cell, or a listener."""

    @property
    def name(self) -> str:
        """The name of the member."""

    scheduled: bool
    """Whether a task will read the queue, without a call of `schedule`."""

    def schedule(self) -> None:
        """Have a task read the queue."""


class Membership:
    """One member of a topic, and its queue. Made by `Topic.subscribe`."""

    __slots__ = (
        "_accept",
        "_cell",
        "_overflow",
        "_then",
        "_topic",
        "active",
        "blocked",
        "capacity",
        "limit",
        "missed",
        "queue",
        "receiving",
    )

    def __init__(
        self, topic: Topic[Any], receiving: Receiving, cell: ActorCell | None, terms: Terms
    ) -> None:
        self._topic = topic
        self.receiving = receiving
        """The cell or listener that takes from the queue."""
        self._cell = cell
        self.queue: deque[Item] = deque()
        self.active = True
        """Whether it still gets publications."""
        self.blocked = False
        """Whether `made_room` must be called: publishers may wait for room, or the last item is to
        be taken."""
        self.missed = 0
        """Publications that were dropped because the queue was full."""
        self.set_terms(terms)

    @property
    def name(self) -> str:
        """The name of the member."""
        return self.receiving.name

    @property
    def waits_for(self) -> tuple[WaitNode, ...]:
        """The node of the wait-for graph that takes from the queue; none for a listener."""
        return () if self._cell is None else (self._cell,)

    def set_terms(self, terms: Terms) -> None:
        """Set the arguments of `Topic.subscribe`."""
        self.capacity, self._overflow = terms.capacity, terms.overflow
        self._accept, self._then = terms.accept, terms.then
        self.limit = terms.capacity
        """Below this number of queued publications, `put` needs no further checks."""
        if terms.accept is not None:
            self.limit = 0
        elif terms.overflow is TopicOverflow.WAIT:
            self.limit -= 1  # the last one makes publishers wait
        self._check_room()

    def take_over(self, ended: Membership) -> None:
        """Continue the queue of the actor's last membership, which has ended.

        In a queue of its own, a publication could be handled before an earlier one.
        """
        self.queue.extend(ended.queue)
        ended.cancel()
        self._check_room()

    def _check_room(self) -> None:
        """Make publishers wait for this member, or no longer, as its queue requires."""
        if self.is_full:
            self.blocked = True
            self._topic.block(self)
        elif self.blocked:
            self.made_room()

    @property
    def topic(self) -> Topic[Any]:
        """The topic whose publications it gets."""
        return self._topic

    @property
    def is_full(self) -> bool:
        """Whether publishers must wait for this member."""
        return self._overflow is TopicOverflow.WAIT and len(self.queue) >= self.capacity

    def cancel(self) -> None:
        """End the membership and drop the queue; does nothing the second time."""
        self.queue.clear()
        if not self.active:  # closed before, with publications that would still be handled
            self.made_room()
        self.close()

    def close(self) -> None:
        """End the membership; queued publications will still be handled."""
        if not self.active:
            return
        self.active = False
        self._topic.forget(self._cell or self, self)
        if self.queue:
            self.blocked = True  # to be removed with the last item
        elif self._cell is not None:
            self._cell.mailbox.remove_feed(self)
        if self._cell is not None:
            self._cell.feed_closed(self)
        elif not self.receiving.scheduled:
            self.receiving.schedule()

    def abandon(self, error: ActorError) -> None:
        """End the membership of a keyed actor because its instance has ended."""
        self.close()

    def made_room(self) -> None:
        """React to an item that was taken."""
        if self.active:
            if not self.is_full:
                self.blocked = False
                self._topic.unblock(self)
        elif not self.queue and self._cell is not None:
            self._cell.mailbox.remove_feed(self)

    def carrying(self, message: Message, carried: Carried) -> Item:
        """Return the queue's item for a message with context variables."""
        if self._cell is None:
            return message
        reply: PendingReply[Any] = PendingReply(self._cell, message, carried=carried, sent=True)
        tracing = self._cell.runtime.tracing
        if tracing is not None:
            reply, trace = tracing.envelope(self._cell, reply)
            tracing.enqueued(trace)
        return reply

    def put(self, item: Item) -> bool:
        """Put an item into the queue according to the policy; return whether it was put."""
        if self._accept is not None and not self._accepts(item):
            return False
        while len(self.queue) >= self.capacity:  # by more than one after new terms
            self.missed += 1
            if self._overflow is TopicOverflow.UNSUBSCRIBE:
                self._unsubscribe()
                return False
            if self._overflow is TopicOverflow.DROP_NEWEST:
                self._topic.drop(self, item, DeadLetterReason.FULL)
                return False
            self._topic.drop(self, self.queue.popleft(), DeadLetterReason.DROPPED)
        self.queue.append(item)
        if self.is_full:
            self.blocked = True
            self._topic.block(self)
        return True

    def snapshot(self) -> MemberSnapshot:
        """Return the member as a frozen value."""
        return MemberSnapshot(
            self.name, self._overflow, len(self.queue), self.capacity, self.missed
        )

    def _accepts(self, item: Item) -> bool:
        message = item.message if isinstance(item, PendingReply) else item
        try:
            return bool(self._accept is None or self._accept(message))
        except Exception as error:
            self._topic.log_removal(self, error)
            self.close()
            return False

    def _unsubscribe(self) -> None:
        self._topic.log_removal(self, None)
        if self._then is not None:
            self.queue.append(self._then)
        self.close()


class Listener(Generic[MessageT]):
    """The publications for one task: `async for message in listener`. See `Topic.listening`.

    The iteration ends if the member is too slow and its policy is UNSUBSCRIBE.
    """

    def __init__(self, name: str) -> None:
        self.name = f"a listener of {name}"
        self.scheduled = True
        self._task: trio.lowlevel.Task | None = None
        self._member: Membership

    def join(self, member: Membership) -> None:
        """Take from the queue of that membership."""
        self._member = member

    @property
    def missed(self) -> int:
        """The number of publications that were dropped because the queue was full."""
        return self._member.missed

    def take_all(self) -> list[MessageT]:
        """Return all queued publications without waiting."""
        messages: list[MessageT] = []
        while self._member.queue:
            messages.append(self._take())
        return messages

    def schedule(self) -> None:
        """Wake the task that waits in the iteration."""
        if self._task is not None:
            reschedule(self._task, WOKEN)
            self._task = None
        self.scheduled = True

    def __aiter__(self) -> Listener[MessageT]:
        return self

    async def __anext__(self) -> MessageT:
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._member.queue and self._member.active:
            if self._task is not None:
                raise RuntimeError(f"{self.name} serves one task at a time")
            self._task = current_task()
            self.scheduled = False
            await wait_task_rescheduled(self._unpark)
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
        if not self._member.queue:
            raise StopAsyncIteration
        return self._take()

    def _take(self) -> MessageT:
        item: Any = self._member.queue.popleft()
        if self._member.blocked:
            self._member.made_room()
        message: MessageT = item
        return message

    def _unpark(self, _: object) -> Abort:
        self._task = None
        self.scheduled = True
        return Abort.SUCCEEDED
