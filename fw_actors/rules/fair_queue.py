"""A bounded queue that is shared fairly by its requesters.

In a full `FairQueue`, a newcomer whose requester has less than its share replaces the newest item
of the longest line. So a requester that fills the queue delays itself, and others by one item at
most. Some entries are kept for known requesters, which displace unknown ones until then.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Generic, TypeVar

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
