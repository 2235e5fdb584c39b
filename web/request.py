"""Requests as they arrive: headers, and a body that is read within limits of size and time."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

from quart_trio.wrappers import TrioRequest
from quart_trio.wrappers.request import TrioBody
from werkzeug.datastructures import Headers

from fw_actors.errors import PayloadTooLargeError, RequestTimeoutError

KIB: Final = 1024
MIB: Final = 1024 * KIB
MAX_KEPT_BYTES: Final = MIB
INITIAL_BODY_SECONDS: Final = 10.0
MIN_BYTES_PER_SECOND: Final = 500
MAX_BODY_SECONDS: Final = 30.0
NONE_READ: Final = -1


def body_deadline(began: float, received: int) -> float:
    """Return the time by which more of an incomplete body must arrive, given `received` bytes since
    `began`.

    10 s, one second more for each 500 bytes, and at most 30 s: a minimum rate as in Apache's
    mod_reqtimeout.
    """
    return began + min(INITIAL_BODY_SECONDS + received / MIN_BYTES_PER_SECOND, MAX_BODY_SECONDS)


class LimitedBody(TrioBody):
    """A body with bounded memory, instead of Quart's, which keeps every byte.

    The connection appends the parts as they arrive. Bytes beyond the limit are counted and
    discarded.
    """

    def __init__(
        self, expected_content_length: int | None = None, max_content_length: int | None = None
    ) -> None:
        self.received = 0
        """The number of bytes received."""
        self.ended = False
        """Whether the body is complete."""
        self.timed_out = False
        """Whether it arrived too slowly, and is no longer read."""
        self._kept = bytearray()
        self._limit = MAX_KEPT_BYTES
        self._keeping = True

    @property
    def kept(self) -> int:
        """The number of bytes in memory."""
        return len(self._kept)

    @property
    def content(self) -> bytes:
        """The bytes that have arrived and are kept; nothing of a body over its limit."""
        return bytes(self._kept)

    def keep_at_most(self, limit: int) -> None:
        """Keep up to `limit` bytes, instead of 1 MiB."""
        self._limit = limit

    def append(self, data: bytes) -> None:
        """Add a part that has arrived."""
        self.received += len(data)
        if self._keeping and self.received <= self._limit:
            self._kept += data
        else:
            self._kept.clear()

    def set_complete(self) -> None:
        """Note that the body is complete."""
        self.ended = True

    def set_timed_out(self) -> None:
        """Note that it arrived too slowly, and is no longer read."""
        self.timed_out = True

    def read(self, limit: int) -> bytes:
        """Return the body.

        Raises: PayloadTooLargeError when it has more than `limit` bytes, or more than were kept;
            RequestTimeoutError when it is incomplete.
        """
        lower_limit = min(limit, self._limit)
        if self.received > lower_limit:
            self._kept.clear()
            raise PayloadTooLargeError(lower_limit)
        if not self.ended:
            raise RequestTimeoutError
        return bytes(self._kept)

    def drop(self) -> None:
        """Keep neither the bytes that have arrived nor later ones."""
        self._kept.clear()
        self._keeping = False


CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,20})(?:;|[ \t]*\Z)")
CRLF: Final = b"\r\n"
FOLDS: Final = (b" ", b"\t")
"""The beginnings of a line that continues the one before (RFC 9112 5.2)."""


class ChunkLines:
    """Follows the lines of a chunked body (RFC 9112 7.1): heads of chunks and the trailer section.

    h11 accepts a lone CR in the extension of a chunk, and lone LFs and folded lines in the trailer
    section. A proxy that ends a line elsewhere would see another request than this server.
    """

    def __init__(self) -> None:
        self._line = b""
        self._to_skip = 0  # bytes of a chunk's content, with the CR LF after it
        self._in_trailers = False
        self._ended = False

    def has_fault(self, data: bytes) -> bool:
        """Follow more bytes of the body; return whether a line among them is ambiguous."""
        at = 0
        while at < len(data) and not self._ended:
            if self._to_skip:
                step = min(self._to_skip, len(data) - at)
                self._to_skip -= step
                at += step
                continue
            end = data.find(CRLF[1], at) + 1 or len(data)
            self._line += data[at:end]
            at = end
            if self._line[-1:] == CRLF[1:]:
                if self._line[-2:] != CRLF or CRLF[:1] in self._line[:-2]:
                    return True
                if self._in_trailers and self._line[:1] in FOLDS:
                    return True
                self._end_line()
        return False

    def _end_line(self) -> None:
        if self._in_trailers:
            self._ended = self._line == CRLF
        else:
            size = CHUNK_SIZE.match(self._line[: -len(CRLF)])
            length = 0 if size is None else int(size[1], 16)  # None: h11 refuses it
            self._in_trailers = not length
            self._to_skip = length + len(CRLF) if length else 0
        self._line = b""


ABSOLUTE: Final = re.compile(rb"https?://[A-Za-z0-9.:\[\]_~%-]+(?=[/?]|\Z)", re.IGNORECASE)
"""The beginning of an absolute-form target, which a client sends to a proxy (RFC 9112 3.2.2)."""
NO_PATH: Final = "*"
PeerAddress = tuple[str, int]


class FrontRequest(TrioRequest):
    """A request of quart-trio's whose body is kept only up to a limit."""

    body_class = LimitedBody
    body: LimitedBody


def front_request(
    method: str,
    target: bytes,
    headers: list[tuple[bytes, bytes]],
    http_version: str,
    client: PeerAddress | None,
) -> FrontRequest:
    """Return a request; `client` is the peer's address and port.

    The scheme and host of an absolute-form target are ignored (H-137). Quart fails on an empty path
    (`GET ?x`) and treats two leading slashes as one: both become a path without a route. So does a
    path that is not UTF-8 (H-138), because with replacement characters it would name something
    else.
    """
    absolute = ABSOLUTE.match(target)
    if absolute is not None:
        target = target[absolute.end() :]
        target = target if target[:1] == b"/" else b"/" + target
    raw_path, _, query = target.partition(b"?")
    try:
        path = unquote(raw_path.decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        path = NO_PATH
    if path[:1] != "/" or path[:2] == "//":
        path = NO_PATH
    scope: Any = {"type": "http", "client": client, "raw_path": raw_path}
    request = FrontRequest(
        method,
        "http",
        path,
        query,
        Headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]),
        "",
        http_version,
        scope,
        send_push_promise=_push,
    )
    request.method = method  # Werkzeug makes it upper-case
    return request


async def _push(*_: object) -> None:
    """Do nothing: HTTP/1.1 has no push."""
