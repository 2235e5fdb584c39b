"""Keeps a pool's idle actors, least recently used first, and says when one was idle too long."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from fw_actors.runtime.deadlines import Deadlines
from fw_actors.runtime.keyed_cell import KeyedCell

CLOCK_GRAIN: Final = 1e-6  # seconds; so that rounding never sets an alarm for now


class IdleQueue:
    """One alarm, for the oldest, is set among the runtime's deadlines while any are idle."""

    def __init__(
        self,
        deadlines: Deadlines,
        idle_seconds: float,
        send_away: Callable[[KeyedCell], None],
    ) -> None:
        self._deadlines = deadlines
        self._idle_seconds = idle_seconds
        self._send_away = send_away
        self._cells: OrderedDict[KeyedCell, None] = OrderedDict()
        self._alarm: float | None = None

    def __len__(self) -> int:
        return len(self._cells)

    def add(self, cell: KeyedCell) -> None:
        """Put a cell at the end: it was used just now."""
        cell.idle_since = self._deadlines.now()
        self._cells[cell] = None
        if self._alarm is None:
            self._set_alarm(self._idle_seconds)

    def discard(self, cell: KeyedCell) -> None:
        """Take a cell out; one that is not idle is ignored."""
        self._cells.pop(cell, None)

    def oldest(self) -> KeyedCell | None:
        """Return the least recently used one."""
        return next(iter(self._cells), None)

    def expire(self) -> None:
        """Send away those that were idle long enough; called by the runtime's deadlines."""
        self._alarm = None
        due = self._deadlines.now() - self._idle_seconds + CLOCK_GRAIN
        while (oldest := self.oldest()) is not None:
            if oldest.idle_since > due:
                self._set_alarm(max(CLOCK_GRAIN, oldest.idle_since - due))
                return
            self.discard(oldest)
            self._send_away(oldest)

    def close(self) -> None:
        """Send all away, and set no alarm until one is added again."""
        while (oldest := self.oldest()) is not None:
            self.discard(oldest)
            self._send_away(oldest)
        if self._alarm is not None:
            self._deadlines.withdraw(self, self._alarm)
            self._alarm = None

    def _set_alarm(self, seconds: float) -> None:
        self._alarm = seconds
        self._deadlines.add(self, seconds)
