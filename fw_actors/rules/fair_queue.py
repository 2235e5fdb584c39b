"""A bounded queue that is shared fairly by its requesters.

In a full `FairQueue`, an item of a requester with less than its share displaces the newest item of
the requester with the most. So a requester that fills the queue delays itself, and others by one
item at most. Some entries are reserved for known requesters, which displace items of unknown ones
until they have as many.
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
    """A queue of `capacity` items, shared by requesters; `reserved` are for known ones."""

    def __init__(self, capacity: int, reserved: int = 0) -> None:
        self._capacity, self._reserved = capacity, reserved
        self._items: OrderedDict[Requester, deque[T]] = OrderedDict()  # the next to be served first
        self.length = 0
        """The number of items."""
        self._known_length = 0
        """The number of items of known requesters."""

    def __len__(self) -> int:
        return self.length

    def put(self, item: T, requester: Requester) -> T | None:
        """Queue an item. Returns: the item that was displaced by it, or None.

        Raises: QueueFull; nothing has changed then.
        """
        displaced: T | None = None
        if self.length >= self._capacity:
            largest = self._requester_to_displace(requester)
            if largest is None:
                raise QueueFull
            displaced = self._items[largest].pop()
            self._count_removed(largest)
        self._items.setdefault(requester, deque()).append(item)
        self.length += 1
        if requester.known:
            self._known_length += 1
        return displaced

    def pop(self) -> T | None:
        """Take the oldest item of the requester that was served longest ago; None if empty."""
        if not self._items:
            return None
        requester = next(iter(self._items))
        item = self._items[requester].popleft()
        self._items.move_to_end(requester)
        self._count_removed(requester)
        return item

    def remove(self, item: T, requester: Requester) -> bool:
        """Remove a queued item; return False if it is no longer queued."""
        items = self._items.get(requester)
        if items is None or item not in items:
            return False
        items.remove(item)
        self._count_removed(requester)
        return True

    def _requester_to_displace(self, newcomer: Requester) -> Requester | None:
        """Return the requester whose newest item makes room for one of `newcomer`, or None."""
        has_reserved = newcomer.known and self._known_length < self._reserved
        protects_known = has_reserved or (
            not newcomer.known and self._known_length <= self._reserved
        )
        candidates = [each for each in self._items if not (each.known and protects_known)]
        largest = max(reversed(candidates), key=lambda each: len(self._items[each]), default=None)
        if largest is None or has_reserved:
            return largest
        newcomers = len(self._items.get(newcomer, ()))
        return largest if len(self._items[largest]) > newcomers + 1 else None

    def _count_removed(self, requester: Requester) -> None:
        self.length -= 1
        if requester.known:
            self._known_length -= 1
        if not self._items[requester]:
            del self._items[requester]
