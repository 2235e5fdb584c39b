"""The result of an attempt: a receiver's response, or a network error. No I/O happens here.

Once the head is complete, its status decides. A malformed header line or body only shortens the
body, and ends the use of the connection (B-141, B-142). h11 reports no status if a header line is
malformed or the body's length is contradictory. Therefore such a head is replaced by one with the
same status and the usable header lines.

A plain response is read without a state machine (B-130): it has arrived completely, is HTTP/1.1,
has the length of its content-length or the status 204, and its head changes neither its framing,
nor the use of the connection, nor the fields that a delivery keeps. h11 reads all others; a
property test verifies that h11 reads a plain response in the same way.

Each network `kind` of B-168 has one class of errors. The message names the receiver by host and
port at most, never a path, query, header or body, so that it may be stored on a delivery and
written to a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

import h11
import msgspec


class Times(msgspec.Struct):
    """The durations of the steps of a POST in milliseconds; 0 for a step that was not needed.

    `answer` is the time from the first sent byte to the complete head of the response.
    """

    dns: float = 0.0
    connect: float = 0.0
    tls: float = 0.0
    answer: float = 0.0


class ReceiverResponse(msgspec.Struct, frozen=True):
    """A receiver's response to one POST; its status is 200 to 999.

    Args:
        status: the status in the head (B-141).
        body: the first bytes of the body, at most 512, undecoded; fewer if the receiver stalled or
            broke the connection.
        location: the target of a redirect without user info, query and fragment; None without one.
        retry_after: the header as sent, for the caller to evaluate; None without one.
        times: the durations of the steps.
        address: the destination of the request, with its port.
    """

    status: int
    body: bytes = b""
    location: str | None = None
    retry_after: str | None = None
    times: Times = msgspec.field(default_factory=Times)
    address: str = ""


class NetworkError(Exception):
    """Raised when an attempt ends without the head of a response; it is abstract.

    `kind` is the word before the colon in a delivery's `error`, `sentence` the text after it.
    """

    kind: ClassVar[str]

    times: Times | None = None
    """The durations of the steps before the error; set by the sender."""
    address: str = ""
    """The destination of the request, sent or not, as address and port; empty if unknown."""

    def __init__(self, sentence: str) -> None:
        if type(self) is NetworkError:
            raise TypeError("NetworkError is abstract; raise one of its subclasses")
        super().__init__(sentence)
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{self.kind}: {self.sentence}"


class DnsError(NetworkError):
    """Raised when the receiver's name could not be resolved to an address."""

    kind = "dns"


class ConnectError(NetworkError):
    """Raised when no address of the receiver accepts a connection."""

    kind = "connect"


class ForbiddenAddress(ConnectError):
    """Raised when the site's policy refuses every address of the receiver; not to be retried."""


class TlsError(NetworkError):
    """Raised when the TLS handshake fails, or the receiver's certificate cannot be trusted."""

    kind = "tls"


class ResponseTimeout(NetworkError):
    """Raised when the deadline passes before the head of a response is complete."""

    kind = "timeout"


class ProtocolError(NetworkError):
    """Raised when a receiver breaks the connection, or its response is not HTTP/1 or too long."""

    kind = "protocol"


# RFC 9112 4; the reason phrase may be missing and may hold any byte.
_STATUS_LINE: Final = re.compile(rb"HTTP/[0-9]\.[0-9] ([1-9][0-9]{2})(?:[ \t\r][^\n]*)?")
_END_OF_HEAD: Final = re.compile(rb"\n\r?\n")
_SWITCHING_PROTOCOLS: Final = 101  # no upgrade was requested: the following bytes are not HTTP
_FINAL: Final = 200

_LENGTH: Final = re.compile(rb"[0-9]{1,20}")  # more digits than h11 takes say nothing useful
_PRINTABLE: Final = re.compile(
    rb"[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?"
)
_READ_HEADERS: Final = (b"location", b"retry-after")


def rewritten(received: bytes | bytearray) -> bytes | None:
    """Return the bytes of a response with its head rewritten in a form that h11 accepts.

    The body's framing is that of the head: a last transfer coding of `chunked`, otherwise the
    smallest Content-Length that is a number, otherwise the body ends with the connection. The new
    head has `connection: close`, because it is not certain where a next response begins.

    Args:
        received: all bytes from the beginning of a head on.

    Returns: None if the head is incomplete or has no valid status line; also for status 101.
    """
    data = bytes(received)
    end = _END_OF_HEAD.search(data)
    if end is None:
        return None
    lines = data[: end.start()].split(b"\n")
    match = _STATUS_LINE.fullmatch(lines[0])
    if match is None or int(match[1]) == _SWITCHING_PROTOCOLS:
        return None
    head = [b"HTTP/1.1 " + match[1]]
    if int(match[1]) >= _FINAL:
        fields = list(_fields(lines[1:]))
        head += [*_framing(fields), *_kept(fields), b"connection: close"]
    return b"\r\n".join(head) + b"\r\n\r\n" + data[end.end() :]


def _fields(lines: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield names in lower case and values; join folded lines, and skip lines without a colon."""
    unfolded: list[bytes] = []
    for line in lines:
        if line[:1] in (b" ", b"\t") and unfolded:
            unfolded[-1] += b" " + line.strip()
        else:
            unfolded.append(line.strip())
    for line in unfolded:
        name, colon, value = line.partition(b":")
        if colon:
            yield name.strip().lower(), value.strip()


def _framing(fields: list[tuple[bytes, bytes]]) -> list[bytes]:
    codings = _members(fields, b"transfer-encoding")
    if codings and codings[-1].lower() == b"chunked":
        return [b"transfer-encoding: chunked"]
    lengths = [int(each) for each in _members(fields, b"content-length") if _LENGTH.fullmatch(each)]
    # An unknown coding may make the body longer or shorter than its Content-Length.
    only_identity = all(coding.lower() == b"identity" for coding in codings)
    return [b"content-length: %d" % min(lengths)] if lengths and only_identity else []


def _members(fields: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return the members of a list-valued field, over all its lines (RFC 9110 5.6.1)."""
    values = b",".join(value for each, value in fields if each == name)
    return [member.strip() for member in values.split(b",") if member.strip()]


def _kept(fields: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the header lines of a response that a delivery uses."""
    return [
        name + b": " + value
        for name, value in fields
        if name in _READ_HEADERS and _PRINTABLE.fullmatch(value)
    ]


MAX_RESPONSE_BYTES: Final = 64 * 1024  # bytes read of a response, with heads and interim responses
MAX_BODY_BYTES: Final = 512  # bytes kept of its body
MAX_INFORMATIONAL: Final = 20
MAX_HEADER_CHARACTERS: Final = 2048  # characters kept of a header's value

_USER_INFO: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:)?//[^/]*@")


_NO_BYTES: Final = bytearray()  # never written to: replaced when h11 is needed
_CUT_OFF: Final = "The receiver closed the connection before the head of its response was complete."
_BROKEN: Final = "The receiver broke the connection before it responded."
_NOT_HTTP: Final = "The receiver's response is not valid HTTP/1.1."
_TOO_LONG: Final = "The head of the receiver's response does not end within 64 KiB."
_TOO_MANY: Final = "The receiver sent more than 20 interim responses and no final one."


class ResponseReader(msgspec.Struct, eq=False):
    """Reads the response to one POST from pieces of any size.

    Args:
        status: None until the head of the final response is complete.
        room: the number of bytes that may still be read.
        ended: whether no more bytes are read.
        reusable: whether the next byte of the connection begins the next response (RFC 9112 9.3).
        fast_path: read plain responses without h11; False in the test that compares both.
    """

    status: int | None = None
    room: int = MAX_RESPONSE_BYTES
    ended: bool = False
    reusable: bool = False
    fast_path: bool = True
    _body: bytes = b""
    _headers: Sequence[tuple[bytes, bytes]] = ()
    _informational: int = 0
    _h11: h11.Connection | None = None
    _head: bytearray = _NO_BYTES  # the head in h11's buffer, while there is no status

    def __repr__(self) -> str:
        """Show nothing of the response, which may be secret."""
        return f"<ResponseReader status={self.status} room={self.room} ended={self.ended}>"

    def feed(self, data: bytes) -> bool:
        """Read the next bytes of the connection, at most `room`; none if it has ended.

        Returns: whether the caller need not wait for more bytes.

        Raises: ProtocolError if the head is incomplete and cannot become complete.
        """
        self.room -= len(data)
        if self._h11 is None:
            if self.fast_path and (plain := read_plain(data)) is not None:
                self.status, self._body = plain
                self.ended = self.reusable = True
                return True
            self._h11, self._head = _client_state(), bytearray()
        self._parse(self._h11, data)
        if self.room <= 0 and not self.ended:
            self._stop(_TOO_LONG)
        return self.ended or len(self._body) >= MAX_BODY_BYTES

    def break_off(self) -> None:
        """Finish after the connection broke: the bytes read so far are the response.

        Raises: ProtocolError if the head is incomplete.
        """
        self._stop(_BROKEN)

    def response(self, times: Times, address: str = "") -> ReceiverResponse:
        """Return the response that was read so far.

        Args:
            times: the durations of the steps.
            address: the destination of the request, with its port.

        Raises: ValueError while `status` is None.
        """
        if self.status is None:
            raise ValueError("The head of the response is incomplete.")
        return make_response(
            self.status, self._body[:MAX_BODY_BYTES], self._headers, times, address
        )

    def _stop(self, otherwise: str) -> None:
        if self.status is None:
            raise ProtocolError(otherwise) from None
        self.ended = True

    def _parse(self, connection: h11.Connection, data: bytes) -> None:
        if self.status is None:
            self._head += data
        try:
            connection.receive_data(data)
            self._advance(connection)
        except h11.RemoteProtocolError:
            again = rewritten(self._head) if self.status is None else None
            if again is None:
                self._stop(_CUT_OFF if not data else _NOT_HTTP)
                return
            self._h11, self._head = _client_state(), bytearray()
            self._parse(self._h11, again)

    def _advance(self, connection: h11.Connection) -> None:
        while not self.ended:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                return
            if isinstance(event, h11.InformationalResponse):
                self._informational += 1
                self._head = bytearray(connection.trailing_data[0])
                if self._informational > MAX_INFORMATIONAL:
                    self._stop(_TOO_MANY)
            elif isinstance(event, h11.Response):
                self.status, self._headers = event.status_code, event.headers
            elif isinstance(event, h11.Data):
                if len(self._body) < MAX_BODY_BYTES:
                    self._body += event.data
            else:  # EndOfMessage
                self.ended = True
                self.reusable = (
                    connection.their_state is h11.DONE
                    and connection.our_state is h11.DONE
                    and connection.trailing_data == (b"", False)
                )


def make_response(
    status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]], times: Times, address: str
) -> ReceiverResponse:
    """Return a response with the fields of `headers` that a delivery keeps.

    Args:
        headers: names in lower case, and values.
    """
    location = retry_after = None
    for name, value in headers:
        if name == b"location" and location is None:
            location = _without_secrets(value.decode("latin-1"))
        elif name == b"retry-after" and retry_after is None:
            retry_after = value.decode("latin-1")[:MAX_HEADER_CHARACTERS]
    return ReceiverResponse(status, body, location, retry_after, times, address)


def _without_secrets(location: str) -> str:
    """Remove user info, query and fragment from a Location, because they may hold secrets."""
    path = re.split("[?#]", location, maxsplit=1)[0]
    return _USER_INFO.sub(r"\1//", path)[:MAX_HEADER_CHARACTERS]


def _client_state() -> h11.Connection:
    """Return an h11 client that has sent a POST; RequestWriter writes the request's bytes."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_RESPONSE_BYTES)
    connection.send(_POST)
    connection.send(_END)
    return connection


_POST: Final = h11.Request(
    method="POST", target="/", headers=[("host", "-"), ("content-length", "0")]
)
_END: Final = h11.EndOfMessage()


# RFC 9112 4 and 5, stricter: printable ASCII alone, no folded line, no white space before a colon.
_PLAIN_HEAD: Final = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9][0-9]) [\x20-\x7e]*\r\n"
    rb"((?:[A-Za-z0-9!#$%&'*+.^_`|~-]+:[\x20-\x7e]*\r\n)*)\r\n"
)
_PLAIN_LENGTH: Final = re.compile(rb"\ncontent-length: ?([0-9]{1,5})\r")
# Framing, headers that a delivery keeps, and connection upgrades are left to h11.
_UNUSUAL: Final = re.compile(rb"\n(?:transfer-encoding|location|retry-after|upgrade):")
_KEPT_ALIVE: Final = b"\nconnection: keep-alive\r\n"
_NO_CONTENT: Final = 204
# Within a second, receivers send many identical responses, with the same date.
_RESPONSE_CACHE_SIZE: Final = 256
_MAX_CACHED_BYTES: Final = 2048
_NOT_MODIFIED: Final = 304  # its content-length is that of a body that is not sent


class PlainResponse(NamedTuple):
    """A complete response whose connection is reusable."""

    status: int
    body: bytes


def read_plain(data: bytes) -> PlainResponse | None:
    """Read a complete plain response; return None for any other bytes.

    Args:
        data: all bytes that have arrived since the request was sent.
    """
    return _remembered(data) if len(data) <= _MAX_CACHED_BYTES else _read_plain(data)


def _read_plain(data: bytes) -> PlainResponse | None:
    match = _PLAIN_HEAD.match(data)
    if match is None:
        return None
    status = int(match[1])
    body = data[match.end() :]
    fields = b"\n" + match[2].lower()
    if status == _NOT_MODIFIED or _UNUSUAL.search(fields) is not None:
        return None
    if fields.count(b"\nconnection:") != fields.count(_KEPT_ALIVE):
        return None
    if not _is_complete(status, fields, len(body)):
        return None
    return PlainResponse(status, body)


def _is_complete(status: int, fields: bytes, size: int) -> bool:
    """Return whether the body has the length that the head announces (RFC 9112 6.3)."""
    lengths = fields.count(b"\ncontent-length:")
    if status == _NO_CONTENT and (size or not lengths):
        return not size
    length = _PLAIN_LENGTH.search(fields)
    return lengths == 1 and length is not None and int(length[1]) == size


_remembered: Final = lru_cache(_RESPONSE_CACHE_SIZE)(_read_plain)
