"""The fast path for plain responses, read without a state machine (B-130).

An answer goes the short way when all of it is there at once: HTTP/1.1, a body of the length that
content-length says or status 204, and nothing in its head that could change how it is framed, how
the connection goes on, or what a delivery keeps of it. Everything else is h11's; a property test
holds that where this module answers, h11 says the same.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

# RFC 9112 4 and 5, stricter: printable ASCII alone, no folded line, no white space before a colon.
_HEAD: Final = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9][0-9]) [\x20-\x7e]*\r\n"
    rb"((?:[A-Za-z0-9!#$%&'*+.^_`|~-]+:[\x20-\x7e]*\r\n)*)\r\n"
)
_LENGTH: Final = re.compile(rb"\ncontent-length: ?([0-9]{1,5})\r")
# Framing, headers that a delivery keeps, and connection upgrades are left to h11.
_UNUSUAL: Final = re.compile(rb"\n(?:transfer-encoding|location|retry-after|upgrade):")
_KEPT_ALIVE: Final = b"\nconnection: keep-alive\r\n"
_NO_CONTENT: Final = 204
# Within a second receivers give many answers that are the same byte by byte, their date included.
_REMEMBERED: Final = 256
_REMEMBERED_BYTES: Final = 2048
_NOT_MODIFIED: Final = 304  # its content-length speaks of a body that isn't there


class PlainResponse(NamedTuple):
    """A complete response whose connection is reusable."""

    status: int
    body: bytes


def read_plain(data: bytes) -> PlainResponse | None:
    """Read a complete plain response; return None for any other bytes.

    Args:
        data: all that came since the request was sent.
    """
    return _remembered(data) if len(data) <= _REMEMBERED_BYTES else _read(data)


def _read(data: bytes) -> PlainResponse | None:
    match = _HEAD.match(data)
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
    """Whether the response ends exactly where its head says (RFC 9112 6.3)."""
    lengths = fields.count(b"\ncontent-length:")
    if status == _NO_CONTENT and (size or not lengths):
        return not size
    length = _LENGTH.search(fields)
    return lengths == 1 and length is not None and int(length[1]) == size


_remembered: Final = lru_cache(_REMEMBERED)(_read)
