"""The stash of an instance: messages that it has set aside until it is ready for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fw_actors.runtime.errors import ActorError
from fw_actors.runtime.reply import PendingReply

if TYPE_CHECKING:
    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.mailbox import Item


class Stash:
    """Messages in the order in which they were set aside, at most `limit`.

    Those that have come back to the mailbox and were not handled yet count, too. A pending
    operation while it is not empty; when the instance ends, its messages come back for the next.
    """

    __slots__ = ("_cell", "_items", "_limit")

    def __init__(self, cell: ActorCell, limit: int) -> None:
        self._cell = cell
        self._limit = limit
        self._items: list[Item] = []

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> bool:
        """Set an item aside; return False at the limit."""
        if self._is_full:
            # Those that were withdrawn meanwhile need no room.
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
        """Leave the messages to the next instance, or to those who settle the mailbox."""
        self.give_back()

    @property
    def _is_full(self) -> bool:
        return len(self._items) + self._cell.mailbox.returned >= self._limit


def _is_wanted(item: Item) -> bool:
    return not isinstance(item, PendingReply) or item.wanted
