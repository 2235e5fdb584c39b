"""The wall clock of the simulated machine: it follows trio's, and can be set either way."""

from __future__ import annotations

from typing import Final

import trio

START_MS: Final = 1_800_000_000_000


class WallClock:
    """A `Clock` for all processes of a site."""

    def __init__(self) -> None:
        self.jumped_at = float("-inf")
        """When it was last set, in trio's time."""
        self.jumps = 0
        self._began = trio.current_time()
        self._offset_ms = 0

    def now(self) -> int:
        """See `Clock.now`."""
        return START_MS + round((trio.current_time() - self._began) * 1000) + self._offset_ms

    def jump(self, seconds: float) -> None:
        """Set it forward, or back."""
        self._offset_ms += round(seconds * 1000)
        self.jumped_at = trio.current_time()
        self.jumps += 1
