"""Bounded mailboxes over trio memory channels, and the dead letters of undelivered messages.

Messages pass by `send_nowait` and `receive_nowait` (0.35 microseconds a message, against 7.6 for
an awaited pair). Only a sender that waits for room awaits the channel. An actor with nothing to
do does not await `receive`: docs/runtime.md says what that would cost.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from fw_actors.runtime.clock import Clock
from fw_actors.runtime.messages import Message
from fw_actors.runtime.reply import PendingReply

if TYPE_CHECKING:
    from fw_actors.runtime.ref import Ref
    from fw_actors.runtime.system import Log

Item: TypeAlias = Message | PendingReply[Any]


class Overflow(Enum):
    """The policies for a message that arrives at a full mailbox."""

    WAIT = "the sender waits for room; tell is refused"
    REFUSE = "the message is refused"
    DROP_OLDEST = "the oldest message is dropped"


@dataclass(frozen=True, slots=True)
class MailboxPolicy:
    """The limits of one actor: messages in its mailbox, concurrent work, timers and watches."""

    capacity: int = 128
    overflow: Overflow = Overflow.WAIT
    max_work: int = 16
    max_timers: int = 64

    def __post_init__(self) -> None:
        if self.capacity < 1 or self.max_work < 0 or self.max_timers < 0:
            raise ValueError("capacity must be at least 1, and no limit may be negative")


class Mailbox:
    """Both ends of a memory channel. `put` and `take` never wait.

    `put(item)` raises trio.WouldBlock (no room) and trio.ClosedResourceError.
    `take()` raises trio.WouldBlock (empty) and trio.EndOfChannel (empty and closed).
    """

    __slots__ = ("_receive", "_send", "capacity", "put", "take")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._send, self._receive = trio.open_memory_channel[Item](capacity)
        self.put = self._send.send_nowait
        self.take = self._receive.receive_nowait

    async def put_when_room(self, item: Item) -> None:
        """Wait for room, in order of arrival, and put the item. A cancelled call puts nothing.

        Raises trio.ClosedResourceError if the mailbox closes meanwhile.
        """
        await self._send.send(item)

    def close(self) -> None:
        """Refuse new messages and waiting senders; messages inside can still be taken."""
        self._send.close()

    @property
    def depth(self) -> int:
        """The number of messages inside."""
        return self._receive.statistics().current_buffer_used

    @property
    def waiting(self) -> int:
        """The number of senders that wait for room."""
        return self._receive.statistics().tasks_waiting_send


MAX_FROM_THREADS: Final = 10_000


class MessagesFromThreads:
    """The messages that other threads have sent and trio's thread has not yet told.

    `tell` may be called in any thread; the rest, and the constructor, belong to trio's.
    """

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._waiting: deque[tuple[Ref, Message]] = deque()
        self._closed = False

    def tell(self, ref: Ref, message: Message) -> bool:
        """Have trio's thread tell the message soon; return False if it cannot."""
        if self._closed or len(self._waiting) >= MAX_FROM_THREADS:
            return False
        self._waiting.append((ref, message))  # first: an idempotent call may be under way already
        try:
            self._token.run_sync_soon(self._tell_all, idempotent=True)
        except trio.RunFinishedError:
            return False
        return True

    def close(self) -> None:
        """Tell what has arrived, and refuse the rest."""
        self._closed = True
        self._tell_all()

    def _tell_all(self) -> None:
        for _ in range(len(self._waiting)):
            ref, message = self._waiting.popleft()
            ref.tell(message)


REMEMBERED: Final = 64


class DeadLetterReason(Enum):
    """The reasons why a message was not handled."""

    FULL = "the mailbox was full"
    GONE = "no such actor was running"
    DROPPED = "a newer message took its place"
    STOPPED = "the actor stopped before its turn came"
    NOT_HANDLED = "the actor has no handler for it"
    FAILED = "no actor could be made for it"
    POOL_FULL = "the pool was at capacity, and none of it idle"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was not handled: its type, never its contents. `at` is in Unix ms."""

    recipient: str
    message: str
    reason: DeadLetterReason
    at: int


class DeadLetters:
    """Counts dead letters by reason, and keeps the last 64."""

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock = clock
        self._log = log
        self._counts: Counter[DeadLetterReason] = Counter()
        self._last: deque[DeadLetter] = deque(maxlen=REMEMBERED)

    def add(self, recipient: str, message: object, reason: DeadLetterReason) -> None:
        """Count and keep one. The 1st, 2nd, 4th, 8th… of each reason are logged."""
        letter = DeadLetter(recipient, type(message).__name__, reason, self._clock.now())
        self._last.append(letter)
        self._counts[reason] += 1
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
