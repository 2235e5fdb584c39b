"""Answers as bytes, however they are cut: whole, byte by byte, and with more behind them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fw_actors.http import Answer, ProtocolError, Times
from fw_actors.http.reader import MAX_ANSWER, AnswerReader

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


def read(pieces: Iterable[bytes], *, short_way: bool = True) -> tuple[AnswerReader, Answer]:
    reader = AnswerReader(short_way=short_way)
    for piece in pieces:
        if reader.ended:
            break
        reader.feed(piece)
    return reader, reader.answer(Times())


@pytest.mark.parametrize("cut", ["whole", "by h11", "byte by byte"])
@pytest.mark.parametrize(("data", "ends", "status", "body", "reusable"), CASES)
def test_an_answer_reads_the_same_however_it_is_cut(
    cut: str, data: bytes, ends: bool, status: int, body: bytes, reusable: bool
) -> None:
    pieces = [bytes([byte]) for byte in data] if cut == "byte by byte" else [data]
    reader, answer = read([*pieces, END] if ends else pieces, short_way=cut != "by h11")
    assert (answer.status, answer.body) == (status, body)
    assert (reader.ended, reader.reusable) == (True, reusable)


@pytest.mark.parametrize(
    ("data", "status", "body"), [(d, s, b) for d, ends, s, b, _ in CASES if not ends]
)
def test_bytes_behind_an_answer_spoil_its_connection(data: bytes, status: int, body: bytes) -> None:
    """They would be taken for the next answer."""
    reader, answer = read([data + b"H"])
    assert (answer.status, answer.body, reader.reusable) == (status, body, False)


WRONG = [
    [b"nonsense\r\n\r\n"],
    [b"HTTP/2 200 OK\r\n\r\n"],
    [b"HTTP/1.1 099 Low\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\nx : y\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\nx: \x00\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n"],
    [b"HTTP/1.1 101 Switching Protocols\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\n", END],
    [END],
    [b"HTTP/1.1 100 C\r\n\r\n" * 21],
    [b"HTTP/1.1 200 OK\r\nx: " + b"a" * (MAX_ANSWER - 20)],
]


@pytest.mark.parametrize("pieces", WRONG, ids=lambda pieces: repr(pieces[0][:40]))
def test_what_breaks_before_the_head_is_whole_is_an_error(pieces: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        read(pieces)


def test_a_head_must_end_within_64_kib_with_the_interim_answers_before_it() -> None:
    """At most 64 KiB of an answer are read (interface §7)."""
    interim = b"HTTP/1.1 103 E\r\nlink: " + b"a" * 10_000 + b"\r\n\r\n"
    reader = AnswerReader()
    for _ in range(MAX_ANSWER // len(interim)):
        reader.feed(interim)
    with pytest.raises(ProtocolError, match="64 KiB"):
        reader.feed(interim[: reader.room])


def test_a_body_is_taken_up_to_64_kib_with_its_head() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"
    reader = AnswerReader()
    assert not reader.feed(head)
    assert reader.feed(b"a" * 512), "what a delivery keeps is there"
    assert not reader.ended
    reader.feed(b"a" * reader.room)
    assert (reader.ended, reader.reusable, reader.room) == (True, False, 0)


def test_a_connection_that_breaks_leaves_what_came_after_the_head() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
    reader.break_off()
    assert reader.answer(Times()).body == b"half"
    with pytest.raises(ProtocolError):
        AnswerReader().break_off()


LOCATIONS = [
    (b"/elsewhere?a=b#c", "/elsewhere"),
    (b"https://user:word@h:8443/x?y", "https://h:8443/x"),
    (b"//user@h/x", "//h/x"),
    (b"/a@b", "/a@b"),
    (b"https://h/?next=https://u:p@h", "https://h/"),
    (b"x" * 5000, "x" * 2048),
]


@pytest.mark.parametrize(("sent", "kept"), LOCATIONS)
def test_a_location_is_kept_without_what_may_be_secret(sent: bytes, kept: str) -> None:
    """`error` names the Location without its query (interface §7)."""
    data = b"HTTP/1.1 302 Found\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n" % sent
    assert read([data])[1].location == kept


def test_an_answer_is_asked_for_after_its_head_only() -> None:
    with pytest.raises(ValueError, match="before its head"):
        AnswerReader().answer(Times())
