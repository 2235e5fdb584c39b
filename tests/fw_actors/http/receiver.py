"""A receiver that follows a script of the test, byte by byte."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from fw_actors.http import Endpoint, parse_endpoint

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass
class SocketReceiver:
    """A listening receiver: `requests` holds heads and bodies, `connections` is a count."""

    port: int
    scheme: str = "http"
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    def target(self, host: str = "127.0.0.1", path: str = "/hook") -> Endpoint:
        return parse_endpoint(f"{self.scheme}://{host}:{self.port}{path}")


class ScriptedConnection:
    """One connection that a script holds; `number` counts them from 1."""

    def __init__(self, receiver: SocketReceiver, stream: Stream, number: int) -> None:
        self.stream = stream
        self.number = number
        self._receiver = receiver

    async def request(self) -> bytes:
        """Read one whole request; empty when the sender has closed the connection."""
        data = await self.until(b"\r\n\r\n")
        if not data:
            return b""
        length = int(re.search(rb"content-length: (\d+)", data)[1])  # type: ignore[index]
        head = data.index(b"\r\n\r\n") + 4
        while len(data) < head + length:
            data += await self.stream.receive_some(65536)
        self._receiver.requests.append(data)
        return data

    async def until(self, end: bytes) -> bytes:
        data = b""
        while end not in data:
            more = await self.stream.receive_some(65536)
            if not more:
                return b""
            data += more
        return data

    async def answer(self, data: bytes = OK) -> None:
        await self.stream.send_all(data)

    async def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock = getattr(self.stream, "transport_stream", self.stream).socket
        sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()

    async def gone(self) -> None:
        """Wait until the sender has closed the connection."""
        while await self.stream.receive_some(65536):
            pass


Script = Callable[[ScriptedConnection], Awaitable[None]]


@asynccontextmanager
async def receiving(
    script: Script,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[SocketReceiver]:
    """Run `script` once a connection; the connection is closed when it returns."""
    listener = (await trio.open_tcp_listeners(port, host=host))[0]
    receiver = SocketReceiver(listener.socket.getsockname()[1], "https" if context else "http")

    async def serve(transport: trio.SocketStream) -> None:
        receiver.connections += 1
        stream: Stream = transport
        if context is not None:
            stream = trio.SSLStream(transport, context, server_side=True, https_compatible=True)
        try:
            await script(ScriptedConnection(receiver, stream, receiver.connections))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the sender may close the connection at any time
        finally:
            await trio.aclose_forcefully(transport)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield receiver
        nursery.cancel_scope.cancel()


def always(answer: bytes) -> Script:
    """Answer every request on every connection with the same bytes."""

    async def script(connection: ScriptedConnection) -> None:
        while await connection.request():
            await connection.answer(answer)

    return script


def once(answer: bytes) -> Script:
    """Answer one request a connection, then close it."""

    async def script(connection: ScriptedConnection) -> None:
        if await connection.request():
            await connection.answer(answer)

    return script


async def silent(connection: ScriptedConnection) -> None:
    """Read a request and never answer."""
    await connection.request()
    await connection.gone()


def headers() -> Sequence[tuple[bytes, bytes]]:
    """Return the headers as a signer does."""
    return [
        (b"webhook-id", b"msg_1"),
        (b"webhook-timestamp", b"1"),
        (b"webhook-signature", b"v1,AA=="),
    ]
