"""HTTP/1.1 on one connection: Hypercorn and h11 read it, requests and answers are ours.

Hypercorn runs an ASGI application behind a channel, with a task that waits for the client to go
away and an event for each part of an answer: more than half of what a small request costs. Here a
request is one task. Its body and its client's departure are told to it directly, and its answer
leaves in one piece.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

import h11
import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.events import Body, EndBody, StreamClosed
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import suppress_body

from fw_actors.errors import FwError
from web.app import FrontEnd, FrontRequest
from web.reply import Reply
from web.stream import ClientStream

MOST_RECEIVED: Final = 64 * 1024


class FrontStream:
    """One request and its answer, in place of Hypercorn's HTTPStream."""

    def __init__(self, protocol: FrontProtocol, front: FrontEnd, request: FrontRequest) -> None:
        self._protocol, self._front, self._request = protocol, front, request
        self._answered = False
        self._scope = trio.CancelScope()

    async def handle(self, event: object) -> None:
        """Take what arrives: a part of the body, its end, or the client's departure."""
        if isinstance(event, Body):
            self._request.body.append(bytes(event.data))
        elif isinstance(event, EndBody):
            self._request.body.set_complete()
        elif isinstance(event, StreamClosed) and not self._answered:
            self._scope.cancel()

    async def serve(self) -> None:
        """Answer the request, unless its client goes away."""
        try:
            with self._scope, self._front.place() as has_place:
                front, request = self._front, self._request
                reply = await front.reply_to(request) if has_place else front.turned_away(request)
                await self._send(reply)
        except h11.LocalProtocolError:
            # What came after the request was no HTTP: the connection takes no answer any more.
            structlog.get_logger("web").debug("web.client_broke_protocol")
            await self._protocol.send(Closed())

    async def _send(self, reply: Reply) -> None:
        protocol = self._protocol
        if suppress_body(self._request.method, reply.status):
            self._answered = True
            await protocol.send_whole(reply, b"")
        elif reply.stream is None:
            self._answered = True
            await protocol.send_whole(reply, reply.body)
        else:
            await protocol.send_part(protocol.head_of(reply))
            with suppress(FwError):  # the session has ended since; asking again, the client is told
                await reply.stream(lambda part: protocol.send_part(h11.Data(data=part)))
            self._answered = True
            await protocol.send_part(h11.EndOfMessage())
        await protocol.end_of_answer()


class FrontProtocol(H11Protocol):
    """Hypercorn's side of a connection, held to HTTP/1.1.

    Left alone it changes to HTTP/2 in clear text whenever a client says so, which no browser does
    and no proxy needs, and which would bring a second reader of requests with its own faults.
    """

    front: FrontEnd

    async def _check_protocol(self, event: h11.Request) -> None:
        """Change to no other protocol; RFC 9110 §7.8 lets a server ignore Upgrade."""

    async def _create_stream(self, request: h11.Request) -> None:
        """Take the request, also one that offers a WebSocket: it is answered as any other."""
        stream = FrontStream(self, self.front, self.front.request_of(self._scope(request)))
        self.stream = stream  # type: ignore[assignment] # of a stream it calls `handle` alone
        self.keep_alive_requests += 1
        self.task_group.spawn(stream.serve)

    def _scope(self, request: h11.Request) -> dict[str, Any]:
        """Return the request as ASGI has it, as far as Quart reads it."""
        path, _, query = request.target.partition(b"?")
        return {
            "type": "http",
            "http_version": request.http_version.decode(),
            "method": request.method.decode("ascii").upper(),
            "scheme": "https" if self.ssl else "http",
            "path": unquote(path.decode("ascii")),
            "query_string": query,
            "headers": list(request.headers),
            "client": self.client,
            "server": self.server,
        }

    def head_of(self, reply: Reply) -> h11.Response:
        """Return the head of an answer."""
        headers = [*reply.headers, *self.config.response_headers("h11")]
        if self.keep_alive_requests >= self.config.keep_alive_max_requests:
            headers.append((b"connection", b"close"))
        return h11.Response(headers=headers, status_code=reply.status)

    async def send_whole(self, reply: Reply, body: bytes) -> None:
        """Send a whole answer in one piece. Raises: LocalProtocolError."""
        parts = [self._bytes_of(self.head_of(reply))]
        if body:
            parts.append(self._bytes_of(h11.Data(data=body)))
        parts.append(self._bytes_of(h11.EndOfMessage()))
        await self.send(RawData(b"".join(parts)))

    async def send_part(self, event: Any) -> None:
        """Send a part of an answer at once. Raises: LocalProtocolError."""
        await self.send(RawData(self._bytes_of(event)))
        await trio.lowlevel.cancel_shielded_checkpoint()  # a send need not wait: others are next

    def _bytes_of(self, event: Any) -> bytes:
        return self.connection.send(event) or b""

    async def end_of_answer(self) -> None:
        """Go on to the next request of the connection, or close it."""
        await self._maybe_recycle()


class Http11Connection(TCPServer):
    """Hypercorn's connection, with a protocol of ours."""

    def __init__(
        self,
        front: FrontEnd,
        app: ASGIWrapper,
        config: Config,
        context: WorkerContext,
        state: ConnectionState,
        stream: ClientStream,
    ) -> None:
        # It asks of a stream no more than a ClientStream has.
        super().__init__(app, config, context, state, stream)  # type: ignore[arg-type]
        self._front = front

    @property
    def protocol(self) -> ProtocolWrapper:
        return self._protocol

    @protocol.setter
    def protocol(self, wrapper: ProtocolWrapper) -> None:
        """Take what Hypercorn has made, and have its protocol for HTTP/1.1 be ours."""
        made = wrapper.protocol
        made.__class__ = FrontProtocol
        assert isinstance(made, FrontProtocol)
        made.front = self._front
        self._protocol = wrapper

    async def protocol_send(self, event: Event) -> None:
        """Do what the protocol says: send, close, or begin to be idle."""
        if not isinstance(event, RawData):
            await super().protocol_send(event)
        elif event.data:
            await self._send(event.data)

    async def _send(self, data: bytes) -> None:
        try:
            self.send_lock.acquire_nowait()
        except trio.WouldBlock:
            await self.send_lock.acquire()
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self.protocol.handle(Closed())
        finally:
            self.send_lock.release()

    async def _read_data(self) -> None:
        """Read until the client or the protocol ends it; idle time is watched by another task."""
        while True:
            try:
                data = await self.stream.receive_some(MOST_RECEIVED)
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                break
            await self.protocol.handle(RawData(bytes(data)))
            if not data:
                break
        await self.protocol.handle(Closed())
