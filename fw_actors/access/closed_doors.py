"""Which counters were found closed lately, so that a try at one of them is worth a read first.

A refusal that is found by a read costs no write, which a flood would make everybody wait for;
whoever has been refused by nobody is spared the read. A hint and no more: the row decides, so that
forgetting one costs a write, and remembering one too long a read.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MOST_REMEMBERED: Final = 10_000


class ClosedDoors:
    """The keys of counters that refused a try, the least recently refused forgotten first."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def remember(self, key: bytes) -> None:
        """A try at this counter was refused."""
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self._most:
            self._keys.popitem(last=False)

    def forget(self, key: bytes) -> None:
        """This counter was found open."""
        self._keys.pop(key, None)
