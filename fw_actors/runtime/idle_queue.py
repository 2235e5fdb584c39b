"""The queue of a pool's idle actors: which one is passivated next, and when."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fw_actors.runtime.timers import Deadlines

if TYPE_CHECKING:
    from fw_actors.runtime.keyed_cell import KeyedCell

PASSIVATIONS_PER_STEP: Final = 128
CLOCK_RESOLUTION: Final = 1e-6  # seconds: an alarm set for less might be rounded to the present


class IdleQueue:
    """The idle cells of a pool, the least recently used one first.

    While it is not empty, one alarm for the first cell is set among the runtime's deadlines.
    """

    def __init__(
        self,
        deadlines: Deadlines,
        idle_seconds: float,
        passivate: Callable[[KeyedCell], None],
    ) -> None:
        self._deadlines = deadlines
        self._idle_seconds = idle_seconds
        self._passivate = passivate
        self._idle_since: OrderedDict[KeyedCell, float] = OrderedDict()
        self._alarm: float | None = None

    def __len__(self) -> int:
        return len(self._idle_since)

    @property
    def alarm_set(self) -> bool:
        """Whether `expire` is going to be called."""
        return self._alarm is not None

    def __contains__(self, cell: KeyedCell) -> bool:
        return cell in self._idle_since

    def add(self, cell: KeyedCell) -> None:
        """Append a cell that has just become idle."""
        self._idle_since[cell] = self._deadlines.now()
        if self._alarm is None:
            self._set_alarm(self._idle_seconds)

    def discard(self, cell: KeyedCell) -> None:
        """Remove a cell; does nothing if it is not idle."""
        self._idle_since.pop(cell, None)

    def oldest(self) -> KeyedCell | None:
        """Return the least recently used cell."""
        return next(iter(self._idle_since), None)

    def expire(self) -> None:
        """Passivate cells that were idle long enough; called by the runtime's deadlines.

        Up to a number of cells at a time, so that other tasks can run.
        """
        self._alarm = None
        due = self._deadlines.now() - self._idle_seconds + CLOCK_RESOLUTION
        for _ in range(PASSIVATIONS_PER_STEP):
            oldest = self.oldest()
            if oldest is None:
                return
            idle_since = self._idle_since[oldest]
            if idle_since > due:
                self._set_alarm(max(CLOCK_RESOLUTION, idle_since - due))
                return
            self.discard(oldest)
            self._passivate(oldest)
        if self._idle_since:
            self._set_alarm(CLOCK_RESOLUTION)

    def passivate_some(self) -> bool:
        """Passivate up to a number of cells; return whether there are more.

        Sets no alarm until a cell is added again.
        """
        if self._alarm is not None:
            self._deadlines.withdraw(self, self._alarm)
            self._alarm = None
        for _ in range(PASSIVATIONS_PER_STEP):
            oldest = self.oldest()
            if oldest is None:
                return False
            self.discard(oldest)
            self._passivate(oldest)
        return True

    def _set_alarm(self, seconds: float) -> None:
        self._alarm = seconds
        self._deadlines.add(self, seconds)
