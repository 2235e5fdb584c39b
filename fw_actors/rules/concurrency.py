"""Concurrency limits: slots of a receiver, and a queue that is shared fairly by its requesters.

A receiver (B-230, B-231, B-232, B-233) starts with one slot and doubles with each response up to
the limit. One that takes over a second to the head of its response, or times out, falls back to
one slot. Slow receivers may not take the last quarter of all slots, so that a healthy receiver
always finds one.

In a full `FairQueue`, a newcomer whose requester has less than its share replaces the newest item
of the longest line. So a requester that fills the queue delays itself, and others by one item at
most. Some entries are kept for known requesters, which displace unknown ones until then.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

SLOW_SECONDS: Final = 1.0
FAILURES: Final = 3  # so many failed attempts in a row make a receiver a failing one
RESERVE: Final = 4  # one slot in four is closed to slow receivers


@dataclass(slots=True)
class ReceiverSlots:
    """The window of one receiver and its attempts in flight."""

    limit: int
    window: int = 1
    slow: bool = False
    in_flight: int = 0
    yields: bool = False
    """Whether the last quarter of all slots is closed to it, as to a slow receiver."""
    paused: bool = False
    """Whether an operator has paused the receiver: no attempt starts."""
    failures: int = 0
    """The number of attempts that have failed since the last success."""
    failing_since: int | None = None
    """When the first of these failures was (ms)."""
    last_error: str = ""
    """The error of the last of them."""

    @property
    def free(self) -> int:
        """The free slots of this receiver, without regard to others."""
        return 0 if self.paused else max(0, self.window - self.in_flight)

    @property
    def health(self) -> str:
        """The state of the receiver: paused, failing, slow or healthy."""
        if self.paused:
            return "paused"
        if self.failures >= FAILURES:
            return "failing"
        return "slow" if self.slow else "healthy"

    def take(self, slots: int) -> None:
        """Begin `slots` attempts."""
        self.in_flight += slots

    def answered(self, seconds: float) -> None:
        """End an attempt whose response head came after `seconds`."""
        self.in_flight -= 1
        if seconds > SLOW_SECONDS:
            self._slow_down()
        else:
            self.slow = False
            self.window = min(self.limit, self.window * 2)

    def timed_out(self) -> None:
        """End an attempt that timed out without a response."""
        self.in_flight -= 1
        self._slow_down()

    def ended(self) -> None:
        """End an attempt that tells nothing about the receiver's speed."""
        self.in_flight -= 1

    def failed(self, error: str, now: int) -> None:
        """Count a failed attempt at `now` (ms); another method frees its slot."""
        if not self.failures:
            self.failing_since = now
        self.failures += 1
        self.last_error = error

    def succeeded(self) -> None:
        """Reset the failures after a successful attempt."""
        self.failures, self.failing_since, self.last_error = 0, None, ""

    def _slow_down(self) -> None:
        self.window = 1
        self.slow = True


def startable(receiver: ReceiverSlots, free_slots: int, all_slots: int) -> int:
    """Return the number of attempts that may start at a receiver.

    `free_slots` of `all_slots`, the slots of all receivers, are free.
    """
    if receiver.slow or receiver.yields:
        free_slots -= all_slots // RESERVE
    return max(0, min(receiver.free, free_slots))


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Requester:
    """The owner of a share of a queue, such as a network; `known` ones have reserved entries."""

    name: str
    known: bool = False


class QueueFull(Exception):
    """Raised when the queue is full and the requester already has its share."""


class FairQueue(Generic[T]):
    """A queue of `capacity` items, shared by requesters; `kept` are reserved for known ones."""

    def __init__(self, capacity: int, kept: int = 0) -> None:
        self._capacity, self._kept = capacity, kept
        self._lines: OrderedDict[Requester, deque[T]] = OrderedDict()  # the next to be served first
        self.length = 0
        """The number of items."""
        self._known = 0

    def __len__(self) -> int:
        return self.length

    def put(self, item: T, requester: Requester) -> T | None:
        """Queue an item. Returns: the item that had to make room for it, or None.

        Raises: QueueFull; nothing has changed then.
        """
        displaced: T | None = None
        if self.length >= self._capacity:
            longest = self._line_to_shorten(requester)
            if longest is None:
                raise QueueFull
            displaced = self._lines[longest].pop()
            self._shortened(longest)
        self._lines.setdefault(requester, deque()).append(item)
        self.length += 1
        self._known += requester.known
        return displaced

    def pop(self) -> T | None:
        """Take the oldest item of the requester that was served longest ago; None if empty."""
        if not self._lines:
            return None
        requester = next(iter(self._lines))
        item = self._lines[requester].popleft()
        self._lines.move_to_end(requester)
        self._shortened(requester)
        return item

    def remove(self, item: T, requester: Requester) -> bool:
        """Remove a waiting item; return False if it no longer waits."""
        line = self._lines.get(requester)
        if line is None or item not in line:
            return False
        line.remove(item)
        self._shortened(requester)
        return True

    def _line_to_shorten(self, newcomer: Requester) -> Requester | None:
        """Return the line that must give up an entry for a newcomer, or None."""
        spares_known = not newcomer.known and self._known <= self._kept
        claims = newcomer.known and self._known < self._kept  # an entry is reserved for it
        open_to_it = [
            requester
            for requester in self._lines
            if not (requester.known and (spares_known or claims))
        ]
        longest = max(reversed(open_to_it), key=lambda each: len(self._lines[each]), default=None)
        if longest is None or claims:
            return longest
        own = len(self._lines.get(newcomer, ()))
        return longest if len(self._lines[longest]) > own + 1 else None

    def _shortened(self, requester: Requester) -> None:
        self.length -= 1
        self._known -= requester.known
        if not self._lines[requester]:
            del self._lines[requester]
