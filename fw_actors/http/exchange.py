"""A connection to a receiver, and one exchange on it: the request out, the response in.

A request is written from validated parts (B-121, RFC 9112 3).

Errors of the kernel and of OpenSSL are translated here. A connection that breaks while sending
raises no error: the receiver may have responded before, so the response is read, and only reading
raises.
"""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Final, Protocol

import msgspec
import trio

from fw_actors.http.response import MAX_RESPONSE_BYTES, ResponseReader, Times, TlsError
from fw_actors.http.url import Endpoint, Origin
from fw_actors.runtime.clock import MS_PER_SECOND


class BrokenConnection(Exception):
    """Raised by `receive` when the connection broke; `tls`: TLS has failed."""

    def __init__(self, tls: bool = False) -> None:
        super().__init__("tls" if tls else "reset")
        self.tls = tls


class Connection(Protocol):
    """A connection to one origin, used for one exchange at a time.

    After a cancellation in `start`, `send` or `receive` it can only be closed. It may be closed
    while they wait, which raises BrokenConnection in them; a deadline ends an exchange this way.
    """

    origin: Origin
    address: str  # of the peer, with its port
    idle_since: float  # trio's time; set by the pool
    broken: bool  # a send failed

    async def start(self, data: bytes) -> int:
        """Send as much as possible without waiting for the receiver; return the number of bytes."""
        ...

    async def send(self, data: memoryview) -> None:
        """Send everything, waiting for the receiver if necessary."""
        ...

    async def receive(self, limit: int) -> bytes:
        """Wait for bytes, at most `limit`; empty when the receiver has closed its side.

        Raises: BrokenConnection.
        """
        ...

    async def receive_ready(self, limit: int) -> bytes:
        """Return the bytes that have arrived, without waiting; empty if there are none."""
        ...

    def is_reusable(self) -> bool:
        """Return whether the connection is open and nothing has arrived after the last response."""
        ...

    def close(self) -> None:
        """Close without a TLS close_notify; idempotent."""
        ...


class PlainConnection:
    """A TCP connection on a socket of its own.

    `trio.SocketStream` adds a checkpoint to each send, and locks against misuse; together they took
    a quarter of a POST's time when measured. Here the wait for the response is the only checkpoint.
    """

    __slots__ = ("_poll", "_socket", "address", "broken", "idle_since", "origin")

    def __init__(self, origin: Origin, sock: socket.socket, address: str = "") -> None:
        self.origin = origin
        self.address = address
        self.idle_since = 0.0
        self.broken = False
        self._socket = sock
        self._poll = select.poll()  # created once, used before each exchange
        self._poll.register(sock, select.POLLIN)

    async def start(self, data: bytes | bytearray | memoryview) -> int:
        return self._send_nowait(data)

    async def send(self, data: memoryview) -> None:
        while data and not self.broken:
            if self._socket.fileno() >= 0:  # else `_send_nowait` finds the socket closed
                with suppress(trio.ClosedResourceError):
                    await trio.lowlevel.wait_writable(self._socket)
            data = data[self._send_nowait(data) :]

    def _send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.broken = True
            return len(data)

    async def receive(self, limit: int) -> bytes:
        while self._socket.fileno() >= 0:
            try:
                await trio.lowlevel.wait_readable(self._socket)
                return self._socket.recv(limit)
            except BlockingIOError:
                continue  # epoll may be wrong, for example after a segment with a bad checksum
            except (OSError, trio.ClosedResourceError):
                break
        raise BrokenConnection

    async def receive_ready(self, limit: int) -> bytes:
        return self.receive_nowait(limit)

    def receive_nowait(self, limit: int) -> bytes:
        """Return as `receive_ready`, from a synchronous function."""
        try:
            return self._socket.recv(limit)
        except OSError:
            return b""

    def is_reusable(self) -> bool:
        return not self.broken and self._socket.fileno() >= 0 and not self._poll.poll(0)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


class ExchangeStep(Enum):
    """The steps of an exchange; each value is the error message of a timeout in that step."""

    WAIT = "No connection to {host} was free within {seconds:g} s."
    LOOK_UP = "The address of {host} was not resolved within {seconds:g} s."
    CONNECT = "{host} did not take the connection within {seconds:g} s."
    TUNNEL = "The proxy did not connect to {host} within {seconds:g} s."
    HANDSHAKE = "{host} did not finish the TLS handshake within {seconds:g} s."
    SEND = "{host} did not take the whole request within {seconds:g} s."
    RESPONSE = "{host} did not answer within {seconds:g} s."


class Progress(msgspec.Struct):
    """The current step of a POST, and the durations of the previous ones.

    `now` returns trio's time. `address` is the destination with its port; empty until it is known.
    """

    now: Callable[[], float] = trio.current_time
    step: ExchangeStep = ExchangeStep.LOOK_UP
    times: Times = msgspec.field(default_factory=Times)
    address: str = ""

    def enter(self, step: ExchangeStep) -> float:
        """Begin a step; return trio's time."""
        self.step = step
        return self.now()

    def overdue(self, host: str, seconds: float) -> str:
        """Return the error message for a deadline of `seconds` that passed in this step."""
        return self.step.value.format(host=host, seconds=seconds)


class StaleConnection(Exception):
    """Raised when a kept connection ended before the first byte of a response."""


async def run_exchange(
    connection: Connection,
    request: bytes,
    reader: ResponseReader,
    progress: Progress,
    *,
    kept: bool,
) -> bool:
    """Send a request, and read the response into `reader` until `ResponseReader.feed` returns True.

    A response that arrives before the whole request is sent is accepted, and ends the sending.

    Args:
        connection: used by nobody else; unusable after an exception or a cancellation.
        kept: whether the connection was used before, and so may be stale.

    Returns: whether the connection may be used again.

    Raises:
        StaleConnection: a kept connection broke or ended before one byte arrived.
        TlsError, ProtocolError: there was no response.
    """
    began = progress.enter(ExchangeStep.SEND)
    sent = await connection.start(request)
    if sent < len(request):
        rest = request[sent:]
        whole = await _read_while_sending(connection, rest, reader, progress, began, kept=kept)
        return whole and reader.reusable and not connection.broken
    progress.step = ExchangeStep.RESPONSE
    await _read(connection, reader, progress, began, kept=kept)
    return reader.reusable and not connection.broken


async def _read_while_sending(
    connection: Connection,
    rest: bytes,
    reader: ResponseReader,
    progress: Progress,
    began: float,
    *,
    kept: bool,
) -> bool:
    """Read as `_read` while a task sends the rest; return whether everything was sent."""
    whole = False
    fault: Exception | None = None

    async def send() -> None:
        nonlocal whole
        await connection.send(memoryview(rest))
        if not connection.broken:
            whole = True
            progress.step = ExchangeStep.RESPONSE

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        try:
            await _read(connection, reader, progress, began, kept=kept)
        except Exception as error:  # raised below, outside the nursery's exception group
            fault = error
        nursery.cancel_scope.cancel()
    if fault is not None:
        raise fault
    return whole


async def _read(
    connection: Connection,
    reader: ResponseReader,
    progress: Progress,
    began: float,
    *,
    kept: bool,
) -> None:
    satisfied = False
    while not satisfied:
        try:
            data = await connection.receive(reader.room)
        except BrokenConnection as broken:
            if kept and reader.room == MAX_RESPONSE_BYTES:
                raise StaleConnection from None
            if broken.tls and reader.status is None:
                raise TlsError("TLS failed before the receiver answered.") from None
            reader.break_off()
            return
        if kept and not data and reader.room == MAX_RESPONSE_BYTES:
            raise StaleConnection
        before = reader.status
        satisfied = reader.feed(data)
        if before is None and reader.status is not None:
            progress.times.answer = (progress.now() - began) * MS_PER_SECOND
    while not reader.ended and (data := await connection.receive_ready(reader.room)):
        reader.feed(data)


HEAD_CACHE_SIZE: Final = 16  # cached heads; other sets of header names are validated at each use

_BEGIN: Final = (
    b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
)

MakeHeaders = Callable[[], Sequence[tuple[bytes, bytes]]]

# RFC 9110 5.1 and 5.6.2: a field name is a token; ours are in lower case.
_NAME: Final = re.compile(rb"[a-z0-9!#$%&'*+.^_`|~-]+")
# RFC 9110 5.5, stricter: printable ASCII, no white space at either end, never empty. A space at the
# end of webhook-signature breaks the official verifier (B-124).
_VALUE: Final = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# Headers that RequestWriter adds, and those that change the framing or the recipient.
_RESERVED: Final = frozenset(
    {b"host", b"content-type", b"content-length", b"user-agent", b"accept"}
    | {b"transfer-encoding", b"connection", b"expect", b"te", b"trailer", b"upgrade"}
)


class RequestWriter:
    """Writes requests of one user agent.

    Args:
        version: the service's version, for `user-agent: fw-webhooks/<version>`.
    """

    def __init__(self, version: str) -> None:
        agent = f"fw-webhooks/{version}".encode("ascii")
        if not _VALUE.fullmatch(agent):
            raise ValueError(f"The version {version!r} must be printable ASCII.")
        self._fixed = b"user-agent: " + agent + b"\r\naccept: */*\r\n"
        self._heads: dict[tuple[bytes, ...], bytes] = {}

    @property
    def kept_heads(self) -> int:
        """The number of heads in the cache, each for one set of header names."""
        return len(self._heads)

    def write(
        self, endpoint: Endpoint, body: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> bytes:
        """Return the head and the body of one POST.

        Args:
            endpoint: from `parse_endpoint`, which validates its parts.
            body: JSON, sent as these bytes.
            headers: this attempt's own headers: names in lower case, none twice, none that the
                writer adds.

        Raises:
            ValueError: a header is malformed or reserved; a defect of the caller.
        """
        names, values = zip(*headers, strict=True) if headers else ((), ())
        head = self._heads.get(names) or self._head(names)
        if not all(map(_VALUE.fullmatch, values)):
            raise _unprintable(headers)
        path, authority = endpoint.path.encode("ascii"), endpoint.authority.encode("ascii")
        return head % (path, authority, len(body), *values) + body

    def _head(self, names: tuple[bytes, ...]) -> bytes:
        """Validate header names; return a head with placeholders for path, authority, length and
        values.

        Raises: ValueError.
        """
        for name in names:
            if not _NAME.fullmatch(name) or name in _RESERVED:
                raise ValueError(f"The header name {name!r} is malformed or reserved.")
        if len(set(names)) != len(names):
            raise ValueError("A header name must not occur twice.")
        lines = [name.replace(b"%", b"%%") + b": %b\r\n" for name in names]
        head = b"".join((_BEGIN, self._fixed.replace(b"%", b"%%"), *lines, b"\r\n"))
        if len(self._heads) < HEAD_CACHE_SIZE:
            self._heads[names] = head
        return head


def _unprintable(headers: Sequence[tuple[bytes, bytes]]) -> ValueError:
    """Return the error that names the header, but not its value, which may be a signature."""
    names = ", ".join(repr(name) for name, value in headers if not _VALUE.fullmatch(value))
    return ValueError(f"The value of the header {names} must be printable ASCII.")
