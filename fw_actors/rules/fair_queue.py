"""A bounded queue that is shared fairly by who asks: pure.

Items of one requester stand in a line; lines are served in turn, one item each. While the queue is
full, a newcomer whose requester has less than its share takes the place of the newest item of the
longest line. So a requester that fills the queue holds up itself, and others by one item at most.
Some places are kept for known requesters: they displace unknown ones until so many of them wait.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Requester:
    """Who has a share of a queue, such as a network, and whether it is known."""

    name: str
    known: bool = False


class QueueFull(Exception):
    """Raised when an item finds no place, and its requester has its share already."""


class FairQueue(Generic[T]):
    """See the module. At most `capacity` items; `kept` of the places are for known requesters."""

    def __init__(self, capacity: int, kept: int = 0) -> None:
        self._capacity, self._kept = capacity, kept
        self._lines: OrderedDict[Requester, deque[T]] = OrderedDict()  # the next to be served first
        self._length = self._known = 0

    def __len__(self) -> int:
        return self._length

    def put(self, item: T, requester: Requester) -> T | None:
        """Queue an item. Returns: the item that had to make room for it, or None.

        Raises: QueueFull; nothing has changed then.
        """
        displaced: T | None = None
        if self._length >= self._capacity:
            longest = self._line_to_shorten(requester)
            if longest is None:
                raise QueueFull
            displaced = self._lines[longest].pop()
            self._shortened(longest)
        self._lines.setdefault(requester, deque()).append(item)
        self._length += 1
        self._known += requester.known
        return displaced

    def pop(self) -> T | None:
        """Take the next item: the oldest of the line whose turn it is; None when none waits."""
        if not self._lines:
            return None
        requester = next(iter(self._lines))
        item = self._lines[requester].popleft()
        self._lines.move_to_end(requester)
        self._shortened(requester)
        return item

    def remove(self, item: T, requester: Requester) -> bool:
        """Take an item out before its turn. False when it does not wait any more."""
        line = self._lines.get(requester)
        if line is None or item not in line:
            return False
        line.remove(item)
        self._shortened(requester)
        return True

    def _line_to_shorten(self, newcomer: Requester) -> Requester | None:
        """Return the line that gives a place up for a newcomer, or None."""
        spares_known = not newcomer.known and self._known <= self._kept
        claims = newcomer.known and self._known < self._kept  # a place that is kept for it
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
        self._length -= 1
        self._known -= requester.known
        if not self._lines[requester]:
            del self._lines[requester]
