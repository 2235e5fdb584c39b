"""Answers as bytes, however they are cut: whole, byte by byte, and with more behind them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.http import ProtocolError, ReceiverResponse, Times
from fw_actors.http.response import MAX_RESPONSE_BYTES, ResponseReader

END = b""  # the receiver closed the connection

CASES = [  # bytes, whether the end follows, status, body, whether a next answer may follow
    (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", False, 200, b"ok", True),
    (b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok", False, 200, b"ok", True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", False, 204, b"", True),
    (b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", False, 204, b"", True),
    (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", False, 304, b"", True),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", False, 200, b"",
     True),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: Close\r\n\r\n", False, 200, b"", False),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: x, close\r\n\r\n", False, 200, b"",
     False),
    (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", False, 200, b"ok", False),
    (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nt: u\r\n\r\n",
     False, 200, b"abc", True),
    (b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 201 Made\r\ncontent-length: 1\r\n\r\nx", False, 201, b"x",
     True),
    (b"HTTP/1.1 200 OK\r\n\r\nall of it", True, 200, b"all of it", False),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut", True, 200, b"cut", False),
    (b"HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n", False, 999, b"", True),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 600\r\n\r\n" + b"a" * 600, False, 200, b"a" * 512, True),
]  # fmt: skip


def read(
    pieces: Iterable[bytes], *, fast_path: bool = True
) -> tuple[ResponseReader, ReceiverResponse]:
    reader = ResponseReader(fast_path=fast_path)
    for piece in pieces:
        if reader.ended:
            break
        reader.feed(piece)
    return reader, reader.response(Times())


@pytest.mark.parametrize("cut", ["whole", "by h11", "byte by byte"])
@pytest.mark.parametrize(("data", "ends", "status", "body", "reusable"), CASES)
def test_response_reader_reads_answer_in_any_pieces(
    cut: str, data: bytes, ends: bool, status: int, body: bytes, reusable: bool
) -> None:
    pieces = [bytes([byte]) for byte in data] if cut == "byte by byte" else [data]
    reader, answer = read([*pieces, END] if ends else pieces, fast_path=cut != "by h11")
    assert (answer.status, answer.body) == (status, body)
    assert (reader.ended, reader.reusable) == (True, reusable)


@pytest.mark.parametrize(
    ("data", "status", "body"), [(d, s, b) for d, ends, s, b, _ in CASES if not ends]
)
def test_response_reader_rejects_reuse_after_extra_bytes(
    data: bytes, status: int, body: bytes
) -> None:
    """Such bytes would be read as the next answer."""
    reader, answer = read([data + b"H"])
    assert (answer.status, answer.body, reader.reusable) == (status, body, False)


WRONG = [
    [b"nonsense\r\n\r\n"],
    [b"HTTP/2 200 OK\r\n\r\n"],
    [b"HTTP/1.1 099 Low\r\n\r\n"],
    [b"HTTP/1.1 2000 Long\r\n\r\n"],
    [b"HTTP/1.1 20x Odd\r\n\r\n"],
    [b"HTTP/1.1 200OK\r\n\r\n"],
    [b"\r\nHTTP/1.1 200 OK\r\n\r\n"],
    [b"HTTP/1.1 101 Switching Protocols\r\n\r\n"],
    [b"HTTP/1.1 101 Switching Protocols\r\nno colon\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\n", END],
    [b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n", END],
    [END],
    [b"HTTP/1.1 100 C\r\n\r\n" * 21],
    [b"HTTP/1.1 100 C\r\nno colon\r\n\r\n" * 21 + b"HTTP/1.1 200 OK\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\nx: " + b"a" * (MAX_RESPONSE_BYTES - 20)],
]


@pytest.mark.parametrize("pieces", WRONG, ids=lambda pieces: repr(pieces[0][:40]))
def test_response_reader_refuses_incomplete_or_invalid_head(pieces: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        read(pieces)


MISDESCRIBED = [  # the head's lines after its status line, the bytes behind the head, body
    (b"transfer-encoding: identity", b"ok", b"ok"),
    (b"transfer-encoding: identity\r\ncontent-length: 2", b"okk", b"ok"),
    (b"transfer-encoding: gzip", b"ok", b"ok"),
    (b"transfer-encoding: gzip\r\ncontent-length: 1", b"ok", b"ok"),
    (b"transfer-encoding: gzip, chunked", b"2\r\nok\r\n0\r\n\r\n", b"ok"),
    (b"transfer-encoding: chunked\r\ntransfer-encoding: chunked", b"2\r\nok\r\n0\r\n\r\n", b"ok"),
    (b"content-length: 4\r\ncontent-length: 2", b"okay", b"ok"),
    (b"content-length: 2, 4", b"okay", b"ok"),
    (b"content-length: abc", b"ok", b"ok"),
    (b"content-length: -1", b"ok", b"ok"),
    (b"content-length: " + b"9" * 26, b"ok", b"ok"),
    (b"content-length:", b"ok", b"ok"),
    (b"content length: 1\r\ncontent-length : 2", b"okay", b"ok"),
    (b"x y: z\r\ncontent-length: 2", b"okay", b"ok"),
    (b"no colon\r\ncontent-length: 2", b"okay", b"ok"),
    (b": no name\r\ncontent-length: 2", b"okay", b"ok"),
    (b" folded first\r\ncontent-length: 2", b"okay", b"ok"),
    (b"x: \x00\r\ncontent-length:\r\n 2", b"okay", b"ok"),
]


@pytest.mark.parametrize("cut", ["whole", "byte by byte"])
@pytest.mark.parametrize(
    "before", [b"", b"HTTP/1.1 103 E\r\n\r\n", b"HTTP/1.1 103 E\r\nx y\r\n\r\n"]
)
@pytest.mark.parametrize("status", [200, 302, 400, 503])
@pytest.mark.parametrize(("lines", "behind", "body"), MISDESCRIBED)
def test_response_reader_accepts_head_with_wrong_framing(
    lines: bytes, behind: bytes, body: bytes, status: int, before: bytes, cut: str
) -> None:
    """Once a whole answer head is in, its status decides (B-141)."""
    data = before + b"HTTP/1.1 %d Some reason\r\n%b\r\n\r\n%b" % (status, lines, behind)
    pieces = [bytes([byte]) for byte in data] if cut == "byte by byte" else [data]
    reader, answer = read([*pieces, END])
    assert (answer.status, answer.body) == (status, body)
    assert (reader.ended, reader.reusable) == (True, False)


@pytest.mark.parametrize(("lines", "behind", "body"), MISDESCRIBED)
def test_response_reader_gives_204_no_body(lines: bytes, behind: bytes, body: bytes) -> None:
    """RFC 9112 6.3, item 1: the body is not waited for either."""
    reader, answer = read([b"HTTP/1.1 204 No Content\r\n" + lines + b"\r\n\r\n"])
    assert (answer.status, answer.body, reader.ended, reader.reusable) == (204, b"", True, False)


def test_response_reader_keeps_location_of_misdescribed_answer() -> None:
    head = b"HTTP/1.1 503 Later\r\nContent-Length: -1\r\nRetry-After: 7\r\nLocation: /x?y\r\n\r\n"
    answer = read([head, END])[1]
    assert (answer.retry_after, answer.location) == ("7", "/x")


def test_response_reader_drops_unprintable_location() -> None:
    head = b"HTTP/1.1 302 Found\r\nContent-Length: -1\r\nLocation: /x\x1b[2J\r\n\r\n"
    assert read([head, END])[1].location is None


# Bytes that neither end a line nor are an empty one.
ANY_LINE = (
    st.binary(min_size=1, max_size=40)
    .map(lambda b: b.replace(b"\n", b""))
    .filter(lambda line: line not in (b"", b"\r"))
)
REAL_LINES = st.builds(
    lambda name, blank, value: name + blank + b":" + value,
    st.sampled_from([b"content-length", b"Transfer-Encoding", b"connection", b"upgrade", b"x"]),
    st.sampled_from([b"", b"", b" "]),
    st.sampled_from(
        [b" 2", b" 3", b" -1", b" abc", b" identity", b" chunked", b" close", b" 2, 3"]
    ),
)


@given(
    st.integers(200, 999),
    st.sampled_from([b"", b" ", b" OK", b" \xff\x01"]),
    st.lists(st.one_of(ANY_LINE, REAL_LINES), max_size=6),
    st.sampled_from([b"\r\n", b"\n"]),
    st.binary(max_size=40),
    st.booleans(),
    st.integers(1, 200),
)
def test_response_reader_takes_status_despite_any_header(
    status: int,
    reason: bytes,
    lines: list[bytes],
    end: bytes,
    behind: bytes,
    fast_path: bool,
    size: int,
) -> None:
    """The status decides, with any lines between a valid status line and the blank line (B-141)."""
    head = end.join([b"HTTP/1.1 %d%b" % (status, reason), *lines, b"", b""])
    data = head + behind
    reader = ResponseReader(fast_path=fast_path)
    for at in range(0, len(data), size):
        if not reader.ended:
            reader.feed(data[at : at + size])
        if at + size < len(head):
            assert reader.status is None, "the head is not whole yet"
    if not reader.ended:
        reader.feed(END)
    assert reader.ended
    assert reader.response(Times()).status == status


def test_response_reader_limits_head_to_64_kib() -> None:
    """At most 64 KiB of an answer are read (B-143)."""
    interim = b"HTTP/1.1 103 E\r\nlink: " + b"a" * 10_000 + b"\r\n\r\n"
    reader = ResponseReader()
    for _ in range(MAX_RESPONSE_BYTES // len(interim)):
        reader.feed(interim)
    with pytest.raises(ProtocolError, match="64 KiB"):
        reader.feed(interim[: reader.room])


def test_response_reader_limits_body_to_64_kib() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"
    reader = ResponseReader()
    assert not reader.feed(head)
    assert reader.feed(b"a" * 512), "what a delivery keeps is there"
    assert not reader.ended
    reader.feed(b"a" * reader.room)
    assert (reader.ended, reader.reusable, reader.room) == (True, False, 0)


def test_response_reader_keeps_body_of_broken_connection() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
    reader.break_off()
    assert reader.response(Times()).body == b"half"
    with pytest.raises(ProtocolError):
        ResponseReader().break_off()


LOCATIONS = [
    (b"/elsewhere?a=b#c", "/elsewhere"),
    (b"https://user:word@h:8443/x?y", "https://h:8443/x"),
    (b"//user@h/x", "//h/x"),
    (b"/a@b", "/a@b"),
    (b"https://h/?next=https://u:p@h", "https://h/"),
    (b"x" * 5000, "x" * 2048),
]


@pytest.mark.parametrize(("sent", "kept"), LOCATIONS)
def test_response_reader_strips_secrets_from_location(sent: bytes, kept: str) -> None:
    """`error` names the Location without its query (B-168)."""
    data = b"HTTP/1.1 302 Found\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n" % sent
    assert read([data])[1].location == kept


def test_response_reader_refuses_response_before_head() -> None:
    with pytest.raises(ValueError, match="incomplete"):
        ResponseReader().response(Times())
