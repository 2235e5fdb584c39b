"""The server of the front end on real sockets, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from web.app import FrontEnd
from web.connections import ConnectionLimits
from web.listening import Bound, bind
from web.server import connections_for, serve

BOOT = b"GET /api/boot HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = b'{"usr": "ann", "pwd": "correct horse"}'
SIGN_IN_HEAD = (
    b"POST /api/login HTTP/1.1\r\nHost: x\r\nX-FW-CSRF: 1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)
SIGN_IN = SIGN_IN_HEAD % len(BODY) + BODY


class RunningServer:
    """A server that runs, and connections to it."""

    def __init__(self, bound: Bound, stop: trio.Event) -> None:
        self.url = bound.url
        self.port = bound.socket.getsockname()[1]
        self.stop = stop

    async def connect(self) -> trio.SocketStream:
        """Open a connection."""
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def exchange(self, data: bytes) -> bytes:
        """Send on a connection of its own and read to its end."""
        async with await self.connect() as stream:
            await stream.send_all(data)
            return await rest(stream)


async def rest(stream: trio.SocketStream) -> bytes:
    """Read until the server's end."""
    return b"".join([bytes(part) async for part in stream])


async def answer(stream: trio.SocketStream) -> bytes:
    """Read one response whose body is a JSON object."""
    got = b""
    while not got.endswith(b"}"):
        part = await stream.receive_some()
        assert part, got
        got += part
    return got


@asynccontextmanager
async def served(
    app: FrontEnd, drain_seconds: float = 5, limits: ConnectionLimits | None = None
) -> AsyncIterator[RunningServer]:
    """Serve `app` on a port of 127.0.0.1, as in production."""
    bound, stop = bind("127.0.0.1", 0), trio.Event()
    async with trio.open_nursery() as nursery:
        run: Any = lambda task_status: serve(  # noqa: E731
            app,
            bound,
            stop=stop,
            drain_seconds=drain_seconds,
            connections=connections_for(app, limits),
            task_status=task_status,
        )
        assert await nursery.start(run) == bound.url
        with trio.fail_after(20):
            yield RunningServer(bound, stop)
        stop.set()
    with pytest.raises(OSError, match="attempts to connect"):
        await trio.open_tcp_stream("127.0.0.1", int(bound.url.rpartition(":")[2]))
