"""Which requests are refused for their framing, before anything else is read of them. Pure.

h11 judges most of a head (RFC 9112). What stands here is what it lets pass and another reader, a
proxy in front say, may take otherwise: where the two disagree on where a request ends, one client
can put a request into another one's mouth. All of it is refused, and the connection is closed.
"""

from __future__ import annotations

import re
from typing import Final

import h11

MOST_HEAD_BYTES: Final = 16 * 1024
HEAD_END: Final = b"\r\n\r\n"
LAST_CHUNK_END: Final = HEAD_END
FIRST_PRINTABLE: Final = 0x21
VERSIONS: Final = (b"1.1", b"1.0")

# One field line, its digits alone: no sign, no list of lengths (RFC 9110 8.6).
CONTENT_LENGTH: Final = re.compile(rb"\r\ncontent-length:([^\r]*)", re.IGNORECASE)
LENGTH: Final = re.compile(rb"[ \t]*([0-9]{1,19})[ \t]*")

BAD_REQUEST: Final = 400
HEAD_TOO_LARGE: Final = 431
VERSION_NOT_SUPPORTED: Final = 505


def unfinished_head_fault(received: bytes) -> int | None:
    """Return the status for bytes that cannot become a head any more, or None."""
    if len(received) >= MOST_HEAD_BYTES:
        return HEAD_TOO_LARGE
    if received and received[0] < FIRST_PRINTABLE:
        return BAD_REQUEST  # an empty line, TLS, or anything else that is no HTTP
    return BAD_REQUEST if received.count(b"\n") != received.count(b"\r\n") else None


def head_fault(head: bytes) -> int | None:
    """Return the status for a head that is refused by its bytes alone, or None.

    `head`: from the request line to the empty line. A line end is CR LF and nothing else (RFC 9112
    2.2 lets a server also take a lone LF), and no line continues the one before (5.2: obs-fold).
    """
    if len(head) > MOST_HEAD_BYTES:
        return HEAD_TOO_LARGE
    ends = head.count(b"\r\n")
    if head.count(b"\n") != ends or head.count(b"\r") != ends:
        return BAD_REQUEST
    return BAD_REQUEST if b"\n " in head or b"\n\t" in head else None


def request_fault(request: h11.Request, head: bytes) -> int | None:
    """Return the status for a request that is refused by what h11 has read in `head`, or None."""
    if request.http_version not in VERSIONS:
        return VERSION_NOT_SUPPORTED
    lengths = chunked = 0
    for name, _ in request.headers:
        if name == b"content-length":
            lengths = 1
        elif name == b"transfer-encoding":
            chunked = 1
    if chunked and (lengths or request.http_version != b"1.1"):
        return BAD_REQUEST  # RFC 9112 6.1
    return BAD_REQUEST if lengths and declared_length(head) is None else None


def declared_length(head: bytes) -> int | None:
    """Return the one Content-Length that `head` has, or None where there is not exactly one."""
    found = CONTENT_LENGTH.findall(head)
    if len(found) != 1:
        return None
    digits = LENGTH.fullmatch(found[0])
    return None if digits is None else int(digits[1])


def is_exact_method(method: bytes) -> bool:
    """Say whether a method has no lower-case letter: methods are case-sensitive (RFC 9110 9.1)."""
    return method == method.upper()
