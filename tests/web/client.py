"""A client that asks an application over a socket pair, by the code that serves in production."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import h11
import trio

from fw_actors.config import ProxyTrustPolicy
from web.app import FrontEnd
from web.connections import ClientStream, ConnectionLimits, OpenConnections
from web.exchange import is_trusted
from web.http11 import DateLine, Http11Connection

Pair = tuple[str, str]
UNQUOTED = "/:@!$&'()*+,;=?%[]|^`{}\"<>\\~#"


@dataclass(frozen=True)
class ClientResponse:
    """A response as the client has read it."""

    status: int
    headers: list[Pair]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The content of the error envelope; fails for any other response."""
        assert set(self.json) == {"error"}
        found: dict[str, Any] = self.json["error"]
        assert set(found) <= {"type", "message", "extra"}
        assert found["message"].endswith((".", "?"))
        return found

    def header(self, name: str) -> str | None:
        """The value of the one header of that name; None without."""
        found = [value for key, value in self.headers if key == name.lower()]
        assert len(found) <= 1
        return found[0] if found else None


class AppClient:
    """Asks an application on a connection of its own for each request."""

    def __init__(self, app: FrontEnd, peer: str = "203.0.113.9") -> None:
        self.app = app
        self.peer = peer

    async def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        headers: Sequence[Pair] = (),
        csrf: bool = True,
        sid: str | None = None,
        kind: str | None = "application/json",
    ) -> ClientResponse:
        """Send one request whose body comes whole: bytes as they are, anything else as JSON."""
        raw = body if isinstance(body, bytes) else b"" if body is None else _dumped(body)
        lines = list(headers)
        if body is not None:
            lines.append(("Content-Length", str(len(raw))))
            if kind is not None:
                lines.append(("Content-Type", kind))
        if csrf and method not in ("GET", "HEAD", "OPTIONS"):
            lines.append(("X-FW-CSRF", "1"))
        if sid is not None:
            lines.append(("Cookie", f"sid={sid}"))
        return await self.send(method, target, lines, [raw])

    async def send(
        self,
        method: str,
        target: str,
        headers: Sequence[Pair],
        parts: Iterable[bytes],
        *,
        ends: bool = True,
    ) -> ClientResponse:
        """Send a request part by part; without `ends`, the last part is never followed."""
        names = {name.lower(): value for name, value in headers}
        if "host" not in names:
            # The metrics are read under a name of this machine (H-104).
            host = "localhost" if target == "/metrics" else "fw.example.test"
            headers = [("Host", host), *headers]
        lines = [f"{method} {quote(target, safe=UNQUOTED)} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        chunked = names.get("transfer-encoding") == "chunked"
        data = head + b"".join(_chunk(part) if chunked else part for part in parts)
        if chunked and ends:
            data += b"0\r\n\r\n"
        async with connected(self.app, self.peer) as stream:
            return await _exchange(stream, method, data)


@asynccontextmanager
async def connected(app: FrontEnd, peer: str = "203.0.113.9") -> AsyncIterator[trio.SocketStream]:
    """Give the client's end of a connection; when it is left, the server's end is over."""
    ours, theirs = trio.socket.socketpair()
    trust: ProxyTrustPolicy = app.trust
    connections = OpenConnections(ConnectionLimits(), lambda peer: is_trusted(peer, trust))
    stream, client = ClientStream(trio.SocketStream(ours)), trio.SocketStream(theirs)
    connection = connections.add(stream, peer)
    try:
        async with trio.open_nursery() as watching:
            watching.start_soon(connections.cancel_disconnected)
            async with trio.open_nursery() as nursery:
                served = Http11Connection(app, connection, DateLine(), (peer, 50000))
                nursery.start_soon(served.serve)
                try:
                    yield client
                finally:
                    await trio.aclose_forcefully(client)
            watching.cancel_scope.cancel()
    finally:
        connections.close(connection)


async def _exchange(stream: trio.SocketStream, method: str, data: bytes) -> ClientResponse:
    """Send `data`, a request in whole or in part, and read the response."""
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_send, stream, data)
        head, body = None, b""
        while not isinstance(event := reader.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                reader.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
        nursery.cancel_scope.cancel()
    assert head is not None
    lines = [(name.decode(), value.decode()) for name, value in head.headers]
    return ClientResponse(head.status_code, lines, body)


async def _send(stream: trio.SocketStream, data: bytes) -> None:
    with suppress(trio.BrokenResourceError):  # answered before it was complete
        await stream.send_all(data)


def _chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part) if part else b""


def _dumped(body: object) -> bytes:
    return json.dumps(body).encode()
