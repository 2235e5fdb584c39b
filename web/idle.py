"""Which connections wait for a request, and the end of those that wait too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from web.stream import ClientStream


class IdleConnections:
    """The connections without a request in hand, the longest idle one first.

    Hypercorn starts a task for each idle time of each connection, which is much of what a small
    request costs; here one task watches them all, since all wait equally long.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[ClientStream, float] = {}
        self._over = False

    def __len__(self) -> int:
        return len(self._since)

    def timer(self, stream: ClientStream) -> IdleTimer:
        """Return what Hypercorn starts and stops for one connection."""
        return IdleTimer(self, stream)

    def add(self, stream: ClientStream) -> None:
        """Take note that `stream` waits from now on."""
        if self._over:
            stream.cut()
            return
        self._since.pop(stream, None)
        self._since[stream] = trio.current_time()

    def discard(self, stream: ClientStream) -> None:
        """Take note that `stream` waits no longer."""
        self._since.pop(stream, None)

    async def watch(self) -> None:
        """Cut connections that have waited their time, until cancelled."""
        while True:
            # One that begins to wait later is due later: nothing is missed in the meantime.
            first = next(iter(self._since.values()), trio.current_time())
            await trio.sleep_until(first + self._seconds)
            now = trio.current_time()
            for stream in [s for s, since in self._since.items() if since + self._seconds <= now]:
                self.discard(stream)
                stream.cut()

    def end(self) -> None:
        """Cut all that wait, and from now on whichever would begin to."""
        self._over = True
        for stream in list(self._since):
            stream.cut()
        self._since.clear()


class IdleTimer:
    """Stands in for the single task that Hypercorn's TCPServer keeps for its idle time."""

    def __init__(self, idle: IdleConnections, stream: ClientStream) -> None:
        self._idle = idle
        self._stream = stream

    async def restart(self, task_group: Any, action: Callable[..., Any]) -> None:
        """Begin to wait; `action`, Hypercorn's own way to end it, is not needed."""
        self._idle.add(self._stream)

    async def stop(self) -> None:
        """Stop waiting: a request has come."""
        self._idle.discard(self._stream)
