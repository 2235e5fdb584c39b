"""Answer heads that h11 refuses, written again so that h11 can read the body behind them.

A receiver that sent a status line and a whole head has answered, whatever its header lines say
(interface §7). h11 hands out no status where a header line is malformed or the body's length is
contradictory, so such a head is replaced by one of the same status that keeps only what matters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# RFC 9112 4; the reason phrase may be missing and may hold any byte.
_STATUS_LINE: Final = re.compile(rb"HTTP/[0-9]\.[0-9] ([1-9][0-9]{2})(?:[ \t\r][^\n]*)?")
_END_OF_HEAD: Final = re.compile(rb"\n\r?\n")
_SWITCHING_PROTOCOLS: Final = 101  # no upgrade was asked for: what follows is not HTTP
_FINAL: Final = 200

_LENGTH: Final = re.compile(rb"[0-9]{1,20}")  # more digits than h11 takes say nothing useful
_PRINTABLE: Final = re.compile(
    rb"[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?"
)
_KEPT: Final = (b"location", b"retry-after")


def rewritten(answer: bytes | bytearray) -> bytes | None:
    """Return the bytes of an answer with its head in a form that h11 accepts.

    The body's framing is taken from the head as far as it can be used: a last transfer coding of
    `chunked`, else the smallest Content-Length that is a number, else the body lasts until the
    connection ends. The new head says `connection: close`: where the next answer would begin is
    not known for certain.

    Args:
        answer: all bytes from the beginning of a head on.

    Returns: None when the head is not whole or has no valid status line; also for status 101.
    """
    data = bytes(answer)
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
    """Names in lower case, and values; folded lines are joined, lines without a colon left out."""
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
    # A coding that is not known may make the body longer or shorter than its Content-Length.
    known = all(coding.lower() == b"identity" for coding in codings)
    return [b"content-length: %d" % min(lengths)] if lengths and known else []


def _members(fields: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """The members of a field whose value is a list, over all its lines (RFC 9110 5.6.1)."""
    values = b",".join(value for each, value in fields if each == name)
    return [member.strip() for member in values.split(b",") if member.strip()]


def _kept(fields: list[tuple[bytes, bytes]]) -> list[bytes]:
    """The header lines of an answer that a delivery uses."""
    return [
        name + b": " + value
        for name, value in fields
        if name in _KEPT and _PRINTABLE.fullmatch(value)
    ]
