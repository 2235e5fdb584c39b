"""Bounded mailboxes over trio memory channels, stashes, and dead letters.

Messages pass by `send_nowait` and `receive_nowait` (0.35 microseconds a message, against 7.6 for an
awaited pair). Only a sender that waits for room awaits the channel. An actor with nothing to do
does not await `receive`; docs/runtime.md states the cost of doing so.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import trio

from fw_actors.runtime.clock import Clock
from fw_actors.runtime.errors import ActorError
from fw_actors.runtime.messages import Message
from fw_actors.runtime.reply import PendingReply

if TYPE_CHECKING:
    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.system import Log
    from fw_actors.runtime.topics import EventTopic

Item: TypeAlias = Message | PendingReply[Any]


class Overflow(Enum):
    """The policies for a message that arrives at a full mailbox."""

    WAIT = "the sender waits for room; tell is refused"
    REFUSE = "the message is refused"
    DROP_OLDEST = "the oldest message is dropped"


@dataclass(frozen=True, slots=True)
class MailboxPolicy:
    """The limits of one actor: messages in its mailbox, work, timers and watches, stashed
    messages."""

    capacity: int = 128
    overflow: Overflow = Overflow.WAIT
    max_work: int = 16
    max_timers: int = 64
    max_stash: int = 64

    def __post_init__(self) -> None:
        if self.capacity < 1 or min(self.max_work, self.max_timers, self.max_stash) < 0:
            raise ValueError("capacity must be at least 1, and no limit may be negative")


DEFAULT_POLICY: Final = MailboxPolicy()
FED_IN_A_ROW: Final = 8


class Feed(Protocol):
    """An additional source of messages for one mailbox: a subscription to a topic."""

    queue: deque[Item]
    """The items to be handled, oldest first."""
    blocked: bool
    """Whether a task waits until an item is taken."""

    def made_room(self) -> None:
        """React to an item that was taken; called only while `blocked`."""

    def close(self) -> None:
        """Put no further items into the queue; items in it will still be taken."""

    def abandon(self, error: ActorError) -> None:
        """Close the feed because a keyed actor's instance has ended."""


class Mailbox:
    """Both ends of a memory channel, and the feeds. `put` and `take` never wait.

    `put(item)` raises trio.WouldBlock (no room) and trio.ClosedResourceError.
    `take()` raises trio.WouldBlock (empty) and trio.EndOfChannel (empty and closed). It takes what
    was put back first, then up to eight items in a row from the feeds before one from the channel.
    """

    __slots__ = (
        "_fed",
        "_feeds",
        "_maybe_inside",
        "_receive",
        "_returned",
        "_send",
        "capacity",
        "is_closed",
        "is_fed",
        "put",
        "returned",
        "take",
    )

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.is_closed = False
        self._send, self._receive = trio.open_memory_channel[Item](capacity)
        self._feeds: tuple[Feed, ...] = ()
        self.is_fed = False
        """Whether there are feeds."""
        self._fed = 0
        """The number of items taken from feeds since the last one from the channel."""
        self._maybe_inside = True
        """Whether the channel may have an item; maintained only if there are feeds."""
        self._returned: deque[Item] | None = None
        self.returned = 0
        """The number of items that were put back and not taken yet."""
        # Replaced by `_put_noting` and `_take_in_turns` if there are feeds, so that feeds cost
        # nothing otherwise.
        self.put: Callable[[Item], None] = self._send.send_nowait
        self.take: Callable[[], Item] = self._receive.receive_nowait

    async def put_when_room(self, item: Item) -> None:
        """Wait for room, in order of arrival, and put the item. A cancelled call puts nothing.

        Raises trio.ClosedResourceError if the mailbox closes meanwhile.
        """
        self._maybe_inside = True
        await self._send.send(item)

    def take_oldest(self) -> Item:
        """Take from the channel only, to make room there."""
        return self._receive.receive_nowait()

    def put_back(self, items: Sequence[Item]) -> None:
        """Put items in front of all others, in their order; the capacity does not count."""
        if items:
            if self._returned is None:
                self._returned = deque()
            self._returned.extendleft(reversed(items))
            self.returned += len(items)
            self.take = self._take_returned

    def close(self) -> None:
        """Refuse new messages and waiting senders; messages inside can still be taken."""
        self.is_closed = self._maybe_inside = True  # so that `take` raises the channel's error
        self._send.close()
        self.close_feeds()

    def add_feed(self, feed: Feed) -> None:
        """Take the items of a feed, too."""
        self._feeds = (*self._feeds, feed)
        self.is_fed = True
        self._maybe_inside = True
        self.put = self._put_noting
        if self._returned is None:
            self.take = self._take_in_turns

    def remove_feed(self, feed: Feed) -> None:
        """Remove a feed and the items in its queue; does nothing for an unknown feed."""
        self._feeds = tuple(other for other in self._feeds if other is not feed)
        self.is_fed = bool(self._feeds)
        if not self.is_fed:
            self.put = self._send.send_nowait
            if self._returned is None:
                self.take = self._receive.receive_nowait

    @property
    def feeds(self) -> Sequence[Feed]:
        """The feeds, also closed ones that still have items."""
        return self._feeds

    def close_feeds(self) -> None:
        """End the subscriptions; delivered items can still be taken."""
        for feed in self._feeds:
            feed.close()

    @property
    def depth(self) -> int:
        """The number of messages inside."""
        fed = sum(len(feed.queue) for feed in self._feeds) if self._feeds else 0
        return self._receive.statistics().current_buffer_used + fed + self.returned

    @property
    def waiting(self) -> int:
        """The number of senders that wait for room."""
        return self._receive.statistics().tasks_waiting_send

    def _take_returned(self) -> Item:
        if self._returned:
            self.returned -= 1
            return self._returned.popleft()
        self._returned = None
        self.take = self._usual_take()
        return self.take()

    def _usual_take(self) -> Callable[[], Item]:
        return self._take_in_turns if self._feeds else self._receive.receive_nowait

    def _put_noting(self, item: Item) -> None:
        self._maybe_inside = True
        self._send.send_nowait(item)

    def _take_in_turns(self) -> Item:
        """Take up to eight items in a row from the feeds, which take turns, then one from the
        channel."""
        fed = self._fed
        if fed < FED_IN_A_ROW:
            for feed in self._feeds:
                if feed.queue:
                    self._fed = fed + 1
                    if self._feeds[-1] is not feed:  # the others have their turns before
                        self._feeds = (*(other for other in self._feeds if other is not feed), feed)
                    item = feed.queue.popleft()
                    if feed.blocked:
                        feed.made_room()
                    return item
            self._fed = 0
            if not self._maybe_inside:  # letting the channel raise costs more
                raise trio.WouldBlock
            return self._take_from_channel()
        self._fed = 0
        try:
            return self._take_from_channel()
        except (trio.WouldBlock, trio.EndOfChannel):
            return self._take_in_turns()

    def _take_from_channel(self) -> Item:
        try:
            return self._receive.receive_nowait()
        except trio.WouldBlock:
            self._maybe_inside = False
            raise


class Stash:
    """The stashed messages in order, at most `limit`.

    Messages that have returned to the mailbox and were not handled yet count too. The stash is a
    pending operation while it is not empty; when the instance ends, its messages return to the
    mailbox for the next one.
    """

    __slots__ = ("_cell", "_items", "_limit")

    def __init__(self, cell: ActorCell, limit: int) -> None:
        self._cell = cell
        self._limit = limit
        self._items: list[Item] = []

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> bool:
        """Stash an item; return False at the limit."""
        if self._is_full:
            # Withdrawn requests do not count.
            self._items = [kept for kept in self._items if _is_wanted(kept)]
        if self._is_full:
            return False
        self._items.append(item)
        return True

    def give_back(self) -> None:
        """Put all messages in front of the mailbox."""
        items, self._items = self._items, []
        self._cell.put_back(items)

    def abandon(self, error: ActorError) -> None:
        """Return the messages to the mailbox, where the next instance handles them or the end
        settles them."""
        self.give_back()

    @property
    def _is_full(self) -> bool:
        return len(self._items) + self._cell.mailbox.returned >= self._limit


def _is_wanted(item: Item) -> bool:
    return not isinstance(item, PendingReply) or item.awaited


MAX_FROM_THREADS: Final = 10_000


class Recipient(Protocol):
    """A ref or a topic."""

    def tell(self, message: Any, /) -> bool:
        """Send without waiting."""


class MessagesFromThreads:
    """The messages that other threads have sent and trio's thread has not told yet.

    `tell` may be called in any thread; the constructor and all other methods only in trio's.
    """

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._waiting: deque[tuple[Recipient, Any]] = deque()
        self._closed = False

    def tell(self, ref: Recipient, message: Message) -> bool:
        """Have trio's thread tell the message soon; return False if it cannot."""
        if self._closed or len(self._waiting) >= MAX_FROM_THREADS:
            return False
        self._waiting.append((ref, message))  # first: a call may be pending already
        try:
            self._token.run_sync_soon(self._tell_all, idempotent=True)
        except trio.RunFinishedError:
            return False
        return True

    def close(self) -> None:
        """Send the messages that have arrived, and refuse further ones."""
        self._closed = True
        self._tell_all()

    def _tell_all(self) -> None:
        for _ in range(len(self._waiting)):
            ref, message = self._waiting.popleft()
            ref.tell(message)


KEPT_DEAD_LETTERS: Final = 64


class DeadLetterReason(Enum):
    """The reasons why a message was not handled."""

    FULL = "the mailbox was full"
    GONE = "no such actor was running"
    DROPPED = "a newer message took its place"
    STOPPED = "the actor stopped before its turn came"
    NOT_HANDLED = "the actor has no handler for it"
    FAILED = "its actor could not be created"
    FAILED_TOO_OFTEN = "its actor has failed too often lately"
    POOL_FULL = "the pool was full and had no idle actor"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was not handled: its type, never its contents. `at` is in Unix ms."""

    recipient: str
    message: str
    reason: DeadLetterReason
    at: int


class DeadLetters:
    """Counts dead letters by reason, and keeps the last 64."""

    def __init__(self, clock: Clock, log: Log, events: EventTopic) -> None:
        self._clock = clock
        self._events = events
        self._log = log
        self._counts: Counter[DeadLetterReason] = Counter()
        self._last: deque[DeadLetter] = deque(maxlen=KEPT_DEAD_LETTERS)

    def add(self, recipient: str, message: object, reason: DeadLetterReason) -> None:
        """Count and keep a dead letter. The 1st, 2nd, 4th, 8th… of each reason are logged."""
        letter = DeadLetter(recipient, type(message).__name__, reason, self._clock.now())
        self._last.append(letter)
        self._counts[reason] += 1
        self._events.emit_dead_letter(recipient, message, reason)
        count = self._counts[reason]
        if count & (count - 1) == 0:
            self._log.warning(
                "dead_letter",
                recipient=recipient,
                message_type=letter.message,
                reason=reason.value,
                count=count,
            )

    def counts(self) -> dict[DeadLetterReason, int]:
        """Return the count of each reason."""
        return {reason: self._counts[reason] for reason in DeadLetterReason}

    def last(self) -> tuple[DeadLetter, ...]:
        """Return the last ones, oldest first."""
        return tuple(self._last)
