"""HTTP/1.1 on one connection, over h11.

One task reads the requests of a connection, serves them and sends their responses, one after
another. A request is cancelled if its client disconnects (`ClientConnection.begin_request`). A
response is sent in one piece unless it is large.

h11 validates most of a head (RFC 9112). The checks here are for heads that h11 accepts and that
another parser, such as a proxy, may frame differently: if two parsers disagree about the end of a
request, one client can smuggle a request into another client's connection. Such requests get an
error status, and the connection is closed.
"""

from __future__ import annotations

import re
from contextlib import suppress
from email.utils import formatdate
from typing import Any, Final

import h11
import structlog
import trio

from fw_actors.errors import FwError
from web.app import FrontEnd
from web.connections import PART_BYTES, ClientConnection, WaitState
from web.request import (
    MIB,
    NONE_READ,
    ChunkLines,
    FrontRequest,
    LimitedBody,
    PeerAddress,
    body_deadline,
    front_request,
)
from web.response import HeaderLine, WireResponse

MAX_HEAD_BYTES: Final = 16 * 1024
HEAD_END: Final = b"\r\n\r\n"
FIRST_PRINTABLE: Final = 0x21
VERSIONS: Final = (b"1.1", b"1.0")

# The host and port of a URI (RFC 3986 3.2.2); the host may be empty (RFC 9112 3.2).
HOST: Final = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]+\]|[0-9A-Za-z._~%!$&'()*+,;=-]*)(?::[0-9]*)?")

# One field line with digits only: no sign, no list of lengths (RFC 9110 8.6).
CONTENT_LENGTH: Final = re.compile(rb"\r\ncontent-length:([^\r]*)", re.IGNORECASE)
LENGTH: Final = re.compile(rb"[ \t]*([0-9]{1,19})[ \t]*")

BAD_REQUEST: Final = 400
HEAD_TOO_LARGE: Final = 431
VERSION_NOT_SUPPORTED: Final = 505


def unfinished_head_fault(received: bytes) -> int | None:
    """Return the status for bytes that can no longer become a valid head, or None."""
    if len(received) >= MAX_HEAD_BYTES:
        return HEAD_TOO_LARGE
    if received and received[0] < FIRST_PRINTABLE:
        return BAD_REQUEST  # an empty line, TLS, or another protocol
    return BAD_REQUEST if received.count(b"\n") != received.count(b"\r\n") else None


def head_fault(head: bytes) -> int | None:
    """Return the status for a head that is invalid by its bytes, or None.

    `head` reaches from the request line to the empty line. A line ends with CR LF only (RFC 9112
    2.2 lets a server accept a lone LF too), and no line continues the one before (5.2: obs-fold).
    """
    if len(head) > MAX_HEAD_BYTES:
        return HEAD_TOO_LARGE
    ends = head.count(b"\r\n")
    if head.count(b"\n") != ends or head.count(b"\r") != ends:
        return BAD_REQUEST
    return BAD_REQUEST if b"\n " in head or b"\n\t" in head else None


def request_fault(request: h11.Request, head: bytes) -> int | None:
    """Return the status for a request that h11 has parsed and this server rejects, or None."""
    if request.http_version not in VERSIONS:
        return VERSION_NOT_SUPPORTED
    lengths = chunked = 0
    for name, value in request.headers:
        if name == b"content-length":
            lengths = 1
        elif name == b"transfer-encoding":
            chunked = 1
        elif name == b"host" and HOST.fullmatch(value) is None:
            return BAD_REQUEST  # RFC 9112 3.2
    if chunked and (lengths or request.http_version != b"1.1"):
        return BAD_REQUEST  # RFC 9112 6.1
    return BAD_REQUEST if lengths and declared_length(head) is None else None


def declared_length(head: bytes) -> int | None:
    """Return the Content-Length in `head`, or None unless there is exactly one valid value."""
    lengths = CONTENT_LENGTH.findall(head)
    if len(lengths) != 1:
        return None
    digits = LENGTH.fullmatch(lengths[0])
    return None if digits is None else int(digits[1])


def is_exact_method(method: bytes) -> bool:
    """Return whether a method has no lower-case letter: methods are case-sensitive (RFC 9110
    9.1)."""
    return method == method.upper()


DATE: Final = b"date"


class DateLine:
    """The Date header, generated once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._line = (DATE, b"")

    def line(self) -> tuple[bytes, bytes]:
        """Return the header's name and value."""
        second = int(trio.current_time())
        if second != self._second:
            self._second = second
            self._line = (DATE, formatdate(usegmt=True).encode())
        return self._line


MAX_RECEIVED_BYTES: Final = 64 * 1024
CHUNKED_PART: Final = 2 * 1024
"""The bytes of a chunked body that are parsed before other tasks run. A chunk of one byte takes as
long as kilobytes of content."""
REQUESTS_PER_CONNECTION: Final = 10_000
LINGER_SECONDS: Final = 1.0
DISCARD_SECONDS: Final = 2.0
MAX_DISCARDED_BYTES: Final = 8 * MIB
CLOSE: Final = (b"connection", b"close")
WITHOUT_BODY: Final = frozenset({204, 304})


class _RejectedRequest(Exception):
    """Raised for requests that get only a `status` as their response."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Http11Connection:
    """Serves one client's connection."""

    def __init__(
        self, front: FrontEnd, client: ClientConnection, date: DateLine, peer: PeerAddress | None
    ) -> None:
        self._front = front
        self._client = client
        self._stream = client.stream
        self._date = date
        self._peer = peer
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._received = b""  # not yet passed to h11
        self._rest = 0  # bytes of a body of known length not yet passed to h11
        self._chunk_lines: ChunkLines | None = None  # of a chunked body
        self._served = 0
        self._must_close = False
        self._closing = False

    async def serve(self) -> None:
        """Serve requests until one side ends the connection. Defects are raised."""
        with suppress(trio.ClosedResourceError):  # closed by the client, or by this server
            try:
                await self._serve_requests()
            except h11.RemoteProtocolError as error:
                await self._send_status(error.error_status_hint)
            except _RejectedRequest as rejected:
                await self._send_status(rejected.status)
            with trio.move_on_after(LINGER_SECONDS):
                while self._closing and await self._receive():
                    pass  # TCP resets a connection that is closed with unread bytes

    async def _serve_requests(self) -> None:
        """Raises: RemoteProtocolError, _RejectedRequest, ClosedResourceError."""
        while (request := await self._read_head()) is not None:
            await self._read_body(request)
            if not await self._serve_request(request):
                await self._close()
                return
            if self._received:  # requests that were sent at once do not hold up other clients
                await trio.lowlevel.checkpoint()

    async def _receive(self) -> bytes:
        """Return received bytes, none at the client's end. Raises: ClosedResourceError."""
        return bytes(await self._stream.receive_some(MAX_RECEIVED_BYTES))

    # Reading

    async def _read_head(self) -> FrontRequest | None:
        """Return the next request without its body, or None if the client has disconnected.

        Raises: _RejectedRequest, RemoteProtocolError, ClosedResourceError.
        """
        while (end := self._received.find(HEAD_END)) < 0:
            fault = unfinished_head_fault(self._received)
            if fault is not None:
                raise _RejectedRequest(fault)
            data = await self._receive()
            if not data:
                return None
            self._received += data
        end += len(HEAD_END)
        head, self._received = self._received[:end], self._received[end:]
        fault = head_fault(head)
        if fault is not None:
            raise _RejectedRequest(fault)
        self._h11.receive_data(head)
        event = self._h11.next_event()
        if not isinstance(event, h11.Request):
            raise _RejectedRequest(BAD_REQUEST)
        fault = request_fault(event, head)
        if fault is not None:
            raise _RejectedRequest(fault)
        return self._begin(event, head)

    def _begin(self, request: h11.Request, head: bytes) -> FrontRequest:
        if self._front.successor is not None:
            self._front = self._front.successor
        headers = list(request.headers)
        chunked = any(name == b"transfer-encoding" for name, _ in headers)
        self._chunk_lines = ChunkLines() if chunked else None
        self._rest = declared_length(head) or 0
        self._served += 1
        self._must_close = self._served >= REQUESTS_PER_CONNECTION
        if not is_exact_method(request.method):
            self._must_close = True
        return front_request(
            request.method.decode("ascii"),
            request.target,
            headers,
            request.http_version.decode("ascii"),
            self._peer,
        )

    async def _read_body(self, request: FrontRequest) -> None:
        """Read the body until it is complete, too large for its operation, or too slow.

        Raises: RemoteProtocolError, _RejectedRequest; ClosedResourceError when the client
            disconnects.
        """
        body = request.body
        if await self._take(body):  # in most cases it came with the head
            return
        limit = self._front.body_limit(request)
        if limit == NONE_READ or self._rest + body.received > limit:
            return
        body.keep_at_most(limit)
        if self._h11.they_are_waiting_for_100_continue:
            await self._write(
                self._bytes_of(h11.InformationalResponse(status_code=100, headers=[]))
            )
        self._client.wait_for(WaitState.BODY)
        began = trio.current_time()
        while body.received <= limit:
            self._client.hold(body.kept)
            with trio.move_on_at(body_deadline(began, body.received)) as scope:
                self._received = await self._receive()
            if scope.cancelled_caught:
                body.set_timed_out()
                return
            if not self._received:
                raise trio.ClosedResourceError
            if await self._take(body):
                return

    async def _take(self, body: LimitedBody) -> bool:
        """Take the received bytes of the body; return whether it is complete.

        Raises: RemoteProtocolError, _RejectedRequest.
        """
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Data):
                body.append(event.data)
            elif isinstance(event, h11.EndOfMessage):
                if self._chunk_lines is not None:  # h11 has bytes beyond the last chunk
                    self._received = self._h11.trailing_data[0] + self._received
                body.set_complete()
                return True
            elif not self._feed():
                return False
            elif self._chunk_lines is not None:
                await trio.lowlevel.checkpoint()

    def _feed(self) -> bool:
        """Pass more of the body to h11; return whether there was any. Raises: _RejectedRequest."""
        if not self._received:
            return False
        if self._chunk_lines is not None:
            part = self._received[:CHUNKED_PART]
            self._received = self._received[CHUNKED_PART:]
            if self._chunk_lines.has_fault(part):
                self._must_close = True
                raise _RejectedRequest(BAD_REQUEST)
        else:
            part, self._received = self._received[: self._rest], self._received[self._rest :]
            self._rest -= len(part)
        self._h11.receive_data(part)
        return bool(part)

    async def _discard(self, body: LimitedBody) -> None:
        """Read the rest of a body for up to `DISCARD_SECONDS`, and discard it.

        TCP resets a connection that is closed with unread bytes: a client that still sends may
        lose the response. Raises: ClosedResourceError when the client disconnects.
        """
        if body.ended or body.timed_out or self._h11.they_are_waiting_for_100_continue:
            return
        self._client.wait_for(WaitState.BODY)
        with (
            trio.move_on_after(DISCARD_SECONDS),
            suppress(h11.RemoteProtocolError, _RejectedRequest),  # the connection ends anyhow
        ):
            while body.received <= MAX_DISCARDED_BYTES and not await self._take(body):
                self._received = await self._receive()
                if not self._received:
                    raise trio.ClosedResourceError
        self._client.end_wait()

    # Responding

    async def _serve_request(self, request: FrontRequest) -> bool:
        """Serve a request; return whether the connection may serve another one.

        Raises: ClosedResourceError when the client disconnects.
        """
        is_sent = False
        try:
            with trio.CancelScope() as scope:
                await self._respond(request, scope)
                is_sent = True
        except h11.LocalProtocolError:
            # The bytes of the body were not HTTP, so h11 sends nothing further.
            structlog.get_logger("web").debug("web.client_broke_protocol")
        if not is_sent:
            return False
        self._client.wait_for(WaitState.REQUEST)
        return self._may_continue()

    async def _respond(self, request: FrontRequest, scope: trio.CancelScope) -> None:
        self._client.begin_request(scope)
        front, body = self._front, request.body
        with front.slot(request) as has_slot:
            response = (
                await front.respond(request) if has_slot else front.overload_response(request)
            )
            body.drop()  # neither an unread response nor an idle connection keeps it
            if response.stream is not None and request.method != "HEAD":
                await self._discard(body)
                await self._send_parts(response, body)
                return
        await self._discard(body)
        await self._send_whole(response, request)

    async def _send_whole(self, response: WireResponse, request: FrontRequest) -> None:
        parts = [self._bytes_of(self._head_of(response, request.body))]
        if response.body and request.method != "HEAD" and response.status not in WITHOUT_BODY:
            parts.append(self._bytes_of(h11.Data(data=response.body)))
        parts.append(self._bytes_of(h11.EndOfMessage()))
        if len(response.body) <= PART_BYTES:
            parts = [b"".join(parts)]
        for part in parts:  # a large body is not copied: it may have to wait for its client
            await self._write(part)

    async def _send_parts(self, response: WireResponse, body: LimitedBody) -> None:
        assert response.stream is not None

        async def send(part: bytes) -> None:
            await self._write(self._bytes_of(h11.Data(data=part)))
            # Lets other tasks run, since a send may not wait.
            await trio.lowlevel.cancel_shielded_checkpoint()

        await self._write(self._bytes_of(self._head_of(response, body)))
        with suppress(FwError):  # the session has ended; the client learns it by its next request
            await response.stream(send)
        await self._write(self._bytes_of(h11.EndOfMessage()))

    def _head_of(self, response: WireResponse, body: LimitedBody) -> h11.Response:
        headers: list[HeaderLine] = [*response.headers, self._date.line()]
        if self._must_close or self._client.opened.ending or not body.ended:
            headers.append(CLOSE)
        return h11.Response(headers=headers, status_code=response.status)

    def _bytes_of(self, event: Any) -> bytes:
        return self._h11.send(event) or b""

    async def _write(self, data: bytes) -> None:
        """Send; if the client does not read, its request is cancelled."""
        try:
            sent = self._stream.send_now(data)
            if sent < len(data):
                self._client.wait_for(WaitState.READING)
                self._client.hold(len(data))
                await self._stream.send_rest(data, sent)
                self._client.end_wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._must_close = True
            self._client.cancel_request()

    async def _send_status(self, status: int) -> None:
        """Send only a status, as the last response of the connection."""
        if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = self._front.rejection(status, "" if self._peer is None else self._peer[0])
            headers = [*response.headers, CLOSE, self._date.line()]
            head = h11.Response(status_code=status, headers=headers)
            await self._write(self._bytes_of(head) + self._bytes_of(h11.EndOfMessage()))
        await self._close()

    def _may_continue(self) -> bool:
        """Prepare for a next request; return whether the connection allows one."""
        if self._must_close or self._client.opened.ending:
            return False
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        if self._chunk_lines is not None:  # bytes of the next request were taken back from h11
            self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        else:
            self._h11.start_next_cycle()
        return True

    async def _close(self) -> None:
        """Half-close; the client's remaining input is read for a short time, and discarded."""
        self._closing = True
        self._client.wait_for(WaitState.READING)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.send_eof()
