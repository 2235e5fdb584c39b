"""The fast path and h11 read every answer alike."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fw_actors.http import Times
from fw_actors.http.response import ResponseReader, read_plain

LINES = st.sampled_from(
    [
        b"Date: Sat, 21 Nov 2026 11:10:06 GMT",
        b"server: x/1 (y)",
        b"content-length: 2",
        b"Content-Length:2",
        b"content-length: 02",
        b"content-length: 2, 2",
        b"content-length: 0",
        b"content-length : 2",
        b"x-content-length: 5",
        b"Connection: keep-alive",
        b"connection: close",
        b"connection: keep-alive, close",
        b"proxy-connection: close",
        b"Transfer-Encoding: chunked",
        b"transfer-encoding: identity",
        b"upgrade: h2c",
        b"location: /x",
        b"retry-after: 3",
        b"x:",
        b"x: \t y ",
        b"x: caf\xe9",
        b"x: a\x00b",
        b" folded",
        b"no colon",
        b": empty",
        b"",
    ]
)
STARTS = st.sampled_from(
    [
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 204 No Content",
        b"HTTP/1.1 503 ",
        b"HTTP/1.1 304 Not Modified",
        b"HTTP/1.1 200",
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 100 Continue",
        b"HTTP/1.1 600 Odd",
        b"http/1.1 200 OK",
    ]
)
ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
BODIES = st.sampled_from([b"", b"ok", b"ok", b"okk", b"2\r\nok\r\n0\r\n\r\n", b"x" * 600])


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    lines = [draw(STARTS), *draw(st.lists(LINES, max_size=4))]
    body = draw(BODIES)
    if draw(st.booleans()):
        lines.append(b"content-length: %d" % len(body))
    data = b"".join(line + draw(ENDS) for line in lines) + b"\r\n" + body
    if draw(st.integers(0, 3)) == 0:  # and one byte of it wrong
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw(st.binary(max_size=2)) + data[at + 1 :]
    return data


@given(st.one_of(answers(), st.binary()))
@example(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
@example(b"HTTP/1.1 204 No Content\r\nserver: x\r\n\r\n")
@example(b"HTTP/1.1 200 OK\r\nconnection: keep-alive\r\ncontent-length: 600\r\n\r\n" + b"x" * 600)
def test_read_plain_agrees_with_h11(data: bytes) -> None:
    """The short reader of plain answers agrees with h11 wherever it answers (B-130)."""
    plain = read_plain(data)
    if plain is None:
        return
    reader = ResponseReader(fast_path=False)
    reader.feed(data)
    answer = reader.response(Times())
    assert (answer.status, answer.body) == (plain.status, plain.body[:512])
    assert (answer.location, answer.retry_after) == (None, None)
    assert reader.reusable


PLAIN = [
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n",
    b"HTTP/1.1 500 Oh\r\nServer: x\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n",
]


@pytest.mark.parametrize("data", PLAIN)
def test_read_plain_reads_plainest_answers(data: bytes) -> None:
    assert read_plain(data) is not None


UNUSUAL = [
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokk",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\nx",
    b"HTTP/1.1 304 Not Modified\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n",
]


@pytest.mark.parametrize("data", UNUSUAL)
def test_read_plain_leaves_other_answers_to_h11(data: bytes) -> None:
    assert read_plain(data) is None
