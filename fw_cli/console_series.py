"""The series of the console's graphs: the last hour, one point for ten seconds. Pure."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import Final

STEP_MS: Final = 10_000
MAX_POINTS: Final = 360


class Series:
    """The points of one graph; the newest point is overwritten until ten seconds have passed."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, float]] = deque(maxlen=MAX_POINTS)

    def keep(self, at: int, value: float) -> None:
        """Add the value at a time in ms."""
        points = self._points
        if points and points[-1][0] // STEP_MS == at // STEP_MS:
            points.pop()
        points.append((at, value))

    @property
    def values(self) -> list[float]:
        """The values, the oldest first."""
        return [value for _, value in self._points]

    @property
    def scale(self) -> str:
        """The highest value, and the age of the first point: `max 40, 12 min`."""
        if not self._points:
            return ""
        span = timedelta(milliseconds=self._points[-1][0] - self._points[0][0])
        minutes = round(span / timedelta(minutes=1))
        return f"max {max(self.values):g}, {minutes} min"
