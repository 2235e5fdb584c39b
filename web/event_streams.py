"""Answers without an end: server-sent events, of which there are few, and none while stopping."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from fw_actors.errors import OverloadedError
from web.envelope import Answer

MOST: Final = 16
KIND: Final = "text/event-stream; charset=utf-8"
RETRY: Final = b"retry: 2000\n\n"

SendPart = Callable[[bytes], Awaitable[None]]
"""Sends a part of the answer's body; waits while the client does not read."""


class EventStreams:
    """The open streams of an application.

    An open one would hold a stop for its whole grace time: `end` ends them first.
    """

    def __init__(self) -> None:
        self._open: dict[trio.CancelScope, None] = {}
        self._over = False

    def __len__(self) -> int:
        return len(self._open)

    def answer(self, events: Callable[[SendPart], Awaitable[None]]) -> Answer:
        """Return an answer whose body is what `events` sends, until it returns or is ended.

        Raises: OverloadedError when there are 16 already, or the service is stopping.
        """
        if self._over or len(self._open) >= MOST:
            raise OverloadedError("Too many consoles are open. Close one and try again.")

        async def run(send: SendPart) -> None:
            with trio.CancelScope() as scope:
                self._open[scope] = None
                try:
                    if not self._over:
                        await send(RETRY)
                        await events(send)
                finally:
                    del self._open[scope]

        return Answer(b"", content_type=KIND, stream=run)

    def end(self) -> None:
        """End all, and open no more."""
        self._over = True
        for scope in self._open:
            scope.cancel()


def event(data: bytes) -> bytes:
    """Return one event; `data` is JSON on one line."""
    return b"data: " + data + b"\n\n"
