"""One exchange on a connection: writes the request and reads the response (B-121, RFC 9112 3).

The bytes of a request are made from parts that were checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import trio

from fw_actors.http.connection import BrokenConnection, Connection, ExchangeStep, Progress
from fw_actors.http.errors import TlsError
from fw_actors.http.response import MAX_RESPONSE, ResponseReader
from fw_actors.http.url import Endpoint
from fw_actors.runtime.clock import MS_PER_SECOND


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
    """Send a request and read its response into `reader`, as far as it must be waited for.

    An answer that comes before the request is sent whole counts, and ends the sending.

    Args:
        connection: used by nobody else; of no use after an exception or a cancellation.
        kept: whether it answered before, and so may be stale.

    Returns: whether the connection may be used again.

    Raises:
        Stale: a kept connection broke or ended before one byte came.
        TlsError, ProtocolError: there was no answer.
    """
    progress.step = ExchangeStep.SEND
    sent = await connection.start(request)
    if sent == len(request):
        progress.step = ExchangeStep.ANSWER
        await _read(connection, reader, progress, kept)
        return reader.reusable and not connection.broken
    whole = await _read_while_sending(connection, request[sent:], reader, progress, kept)
    return whole and reader.reusable and not connection.broken


async def _read_while_sending(
    connection: Connection, rest: bytes, reader: ResponseReader, progress: Progress, kept: bool
) -> bool:
    """Read like `_read` while a task sends the rest; return whether everything was sent."""
    whole = False
    fault: Exception | None = None

    async def send() -> None:
        nonlocal whole
        await connection.send(memoryview(rest))
        if not connection.broken:
            whole = True
            progress.step = ExchangeStep.ANSWER

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        try:
            await _read(connection, reader, progress, kept)
        except Exception as error:  # raised below, without the nursery's group around it
            fault = error
        nursery.cancel_scope.cancel()
    if fault is not None:
        raise fault
    return whole


async def _read(
    connection: Connection, reader: ResponseReader, progress: Progress, kept: bool
) -> None:
    began = progress.now()
    satisfied = False
    while not satisfied:
        try:
            data = await connection.receive(reader.room)
        except BrokenConnection as broken:
            if kept and reader.room == MAX_RESPONSE:
                raise StaleConnection from None
            if broken.tls and reader.status is None:
                raise TlsError("TLS failed before the receiver answered.") from None
            reader.break_off()
            return
        if kept and not data and reader.room == MAX_RESPONSE:
            raise StaleConnection
        before = reader.status
        satisfied = reader.feed(data)
        if before is None and reader.status is not None:
            progress.times.answer = (progress.now() - began) * MS_PER_SECOND
    while not reader.ended and (data := await connection.receive_ready(reader.room)):
        reader.feed(data)


MAX_KEPT: Final = 16  # sets of header names kept as valid; others are validated at each use

_BEGIN: Final = (
    b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
)

MakeHeaders = Callable[[], Sequence[tuple[bytes, bytes]]]

# RFC 9110 5.1 and 5.6.2: a field name is a token; we send lower case alone.
_NAME: Final = re.compile(rb"[a-z0-9!#$%&'*+.^_`|~-]+")
# RFC 9110 5.5, stricter: printable ASCII, no white space at either end, never empty. A space at the
# end of webhook-signature breaks the official verifier (B-124).
_VALUE: Final = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# Headers that we write ourselves, and those that change the framing or the recipient.
_RESERVED: Final = frozenset(
    {b"host", b"content-type", b"content-length", b"user-agent", b"accept"}
    | {b"transfer-encoding", b"connection", b"expect", b"te", b"trailer", b"upgrade"}
)


class RequestWriter:
    """Writes requests of one user agent.

    Args:
        version: of the service, for `user-agent: fw-webhooks/<version>`.
    """

    def __init__(self, version: str) -> None:
        agent = f"fw-webhooks/{version}".encode("ascii")
        if not _VALUE.fullmatch(agent):
            raise ValueError(f"The version {version!r} can't stand in a header.")
        self._fixed = b"user-agent: " + agent + b"\r\naccept: */*\r\n"
        self._heads: dict[tuple[bytes, ...], bytes] = {}

    @property
    def kept_heads(self) -> int:
        """The number of heads in the cache, each for one set of header names."""
        return len(self._heads)

    def write(
        self, endpoint: Endpoint, body: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> bytes:
        """Return head and body of one POST.

        Args:
            endpoint: made by `parse_endpoint`, which checked its parts.
            body: JSON, sent as it is.
            headers: this attempt's own, lower-case names first; no name twice, none of ours.

        Raises:
            ValueError: when a header can't be sent so; a defect of the caller.
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
        if len(self._heads) < MAX_KEPT:
            self._heads[names] = head
        return head


def _unprintable(headers: Sequence[tuple[bytes, bytes]]) -> ValueError:
    """Tell which header it is; its value may be a signature, and is not shown."""
    names = ", ".join(repr(name) for name, value in headers if not _VALUE.fullmatch(value))
    return ValueError(f"The value of the header {names} isn't printable ASCII.")
