"""Requests whose framing readers could take in different ways are refused, and end the connection.

Cases: RFC 9112, llhttp's strict mode, and what proxies and servers were found to disagree on.
"""

from __future__ import annotations

import pytest
import trio

from tests.web.fakes import FakeGateway, app_of
from tests.web.serving import answer, rest, served

SMUGGLED = b"GET /api/boot HTTP/1.1\r\nHost: x\r\nX-Request-Id: smuggled\r\n\r\n"
GET = b"GET /api/boot HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /api/login HTTP/1.1\r\nHost: x\r\nX-FW-CSRF: 1\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"

REFUSED: dict[str, tuple[bytes, int]] = {
    # Where the body ends: RFC 9112 6.1, 6.3, and RFC 9110 8.6.
    "length and chunks": (CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n", 400),
    "chunks and length": (
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "two lengths": (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    "one length twice": (POST + b"Content-Length: 2\r\ncontent-length: 2\r\n\r\n{}", 400),
    "a list of lengths": (POST + b"Content-Length: 2, 2\r\n\r\n{}", 400),
    "a length with a sign": (POST + b"Content-Length: +2\r\n\r\n{}", 400),
    "a negative length": (POST + b"Content-Length: -2\r\n\r\n{}", 400),
    "a hexadecimal length": (POST + b"Content-Length: 0x2\r\n\r\n{}", 400),
    "a length with an underscore": (POST + b"Content-Length: 1_0\r\n\r\n{}", 400),
    "an empty length": (POST + b"Content-Length:\r\n\r\n", 400),
    "a length beyond any": (POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
    "chunks in HTTP/1.0": (CHUNKED.replace(b"1.1", b"1.0") + b"\r\n0\r\n\r\n", 400),
    "another coding": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "chunks twice": (CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
    "a coding with a parameter": (POST + b"Transfer-Encoding: chunked;x=y\r\n\r\n0\r\n\r\n", 501),
    "an unknown coding": (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
    "a coding behind a control": (POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    # How chunks are told apart: RFC 9112 7.1.
    "a chunk of another size": (CHUNKED + b"\r\n3\r\n{}\r\n0\r\n\r\n", 400),
    "a chunk without its end": (CHUNKED + b"\r\n2\r\n{}0\r\n\r\n", 400),
    "a chunk size with a sign": (CHUNKED + b"\r\n+2\r\n{}\r\n0\r\n\r\n", 400),
    "a chunk size in 0x": (CHUNKED + b"\r\n0x2\r\n{}\r\n0\r\n\r\n", 400),
    "a chunk size with a lone LF": (CHUNKED + b"\r\n2\n{}\r\n0\r\n\r\n", 400),
    "a chunk extension with a lone LF": (CHUNKED + b"\r\n2;\n{}\r\n0\r\n\r\n", 400),
    "a chunk that spills": (CHUNKED + b"\r\n2\r\n{}XX0\r\n\r\n", 400),
    "a last chunk with a lone LF": (CHUNKED + b"\r\n2\r\n{}\r\n0\r\n\n", 400),
    "a trailer section with lone LFs": (CHUNKED + b"\r\n2\r\n{}\r\n0\r\nA: b\n\n", 400),
    # What ends and what begins a line: RFC 9112 2.2, 5.1, 5.2.
    "lone LFs": (GET.replace(b"\r\n", b"\n") + b"\n", 400),
    "a lone LF among others": (GET + b"A: b\nC: d\r\n\r\n", 400),
    "a lone CR": (GET + b"A: b\rC: d\r\n\r\n", 400),
    "a line that goes on": (GET + b"A: b\r\n c\r\n\r\n", 400),
    "a line that goes on after a tab": (GET + b"A: b\r\n\tc\r\n\r\n", 400),
    "a length that goes on": (POST + b"Content-Length: 1\r\n 0\r\n\r\n{}", 400),
    "a blank before the colon": (POST + b"Content-Length : 2\r\n\r\n{}", 400),
    "a blank before the name": (b"GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400),
    "no name": (GET + b": b\r\n\r\n", 400),
    "no colon": (GET + b"A b\r\n\r\n", 400),
    "a NUL": (GET + b"A: b\0c\r\n\r\n", 400),
    "an empty line first": (b"\r\n" + GET + b"\r\n", 400),
    # The request line: RFC 9112 3.
    "no version": (b"GET /api/boot\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /api/boot HTTP/0.9\r\nHost: x\r\n\r\n", 505),
    "HTTP/1.2": (b"GET /api/boot HTTP/1.2\r\nHost: x\r\n\r\n", 505),
    "HTTP/2.0": (b"GET /api/boot HTTP/2.0\r\nHost: x\r\n\r\n", 505),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/9.9": (b"GET /api/boot HTTP/9.9\r\nHost: x\r\n\r\n", 505),
    "HTTP/1.10": (b"GET /api/boot HTTP/1.10\r\nHost: x\r\n\r\n", 400),
    "another protocol": (b"GET /api/boot RTSP/1.0\r\nHost: x\r\n\r\n", 400),
    "http in lower case": (b"GET /api/boot http/1.1\r\nHost: x\r\n\r\n", 400),
    "two blanks": (b"GET  /api/boot HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a tab for a blank": (b"GET\t/api/boot HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a blank in the target": (b"GET /api/boot x HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a target that is not ASCII": (b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "no host": (b"GET /api/boot HTTP/1.1\r\n\r\n", 400),
    "two hosts": (GET + b"Host: y\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    # Sizes
    "a head of 17 KiB": (GET + b"A: " + b"b" * 17 * 1024 + b"\r\n\r\n", 431),
    "a head that does not end": (GET + b"A: " + b"b" * 17 * 1024, 431),
    "a request line of 17 KiB": (
        b"GET /" + b"b" * 17 * 1024 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        431,
    ),
}


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("step", [None, 1])
async def test_a_request_with_ambiguous_framing_is_refused_and_nothing_after_it_is_answered(
    gateway: FakeGateway, data: bytes, status: int, step: int | None
) -> None:
    """Input that is no HTTP request is answered bare (H-130, H-129). At once, and byte by byte."""
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        sent = data + SMUGGLED
        if step is None:
            await stream.send_all(sent)
        else:
            await send_in_steps(stream, sent)
        got = await rest(stream)
    assert got.startswith(b"HTTP/1.1 %d " % status), got
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"content-length: 0\r\n" in got
    assert b"connection: close\r\n" in got.lower()
    assert got.endswith(b"\r\n\r\n")
    assert b"smuggled" not in got
    assert not gateway.attempts


async def send_in_steps(stream: trio.SocketStream, data: bytes) -> None:
    """Send the first bytes one by one, as far as the server takes them, and then the rest."""
    for start in range(min(len(data), 400)):
        await stream.send_all(data[start : start + 1])
        await trio.lowlevel.checkpoint()
    await stream.send_all(data[400:])


@pytest.mark.parametrize("method", [b"get", b"Get", b"gET", b"oPTIONS"])
async def test_a_method_in_other_letters_is_another_method(
    gateway: FakeGateway, method: bytes
) -> None:
    """RFC 9110 9.1: a proxy's rule for GET does not see it. It is 405 (H-131)."""
    async with served(app_of(gateway)) as site:
        got = await site.exchange(GET.replace(b"GET", method) + b"\r\n" + SMUGGLED)
    assert got.startswith(b"HTTP/1.1 405 ")
    assert b'"MethodNotAllowedError"' in got
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"smuggled" not in got


async def test_a_post_in_other_letters_does_nothing(gateway: FakeGateway) -> None:
    """Nor is it one that needs no X-FW-CSRF."""
    body = b'{"usr": "ann", "pwd": "correct horse"}'
    async with served(app_of(gateway)) as site:
        head = POST.replace(b"POST", b"pOsT") + b"Content-Length: %d\r\n\r\n" % len(body)
        assert (await site.exchange(head + body)).startswith(b"HTTP/1.1 405 ")
    assert not gateway.attempts


async def test_head_in_other_letters_is_not_head(gateway: FakeGateway) -> None:
    """Its refusal has a body, and nothing is out of step."""
    async with served(app_of(gateway)) as site:
        got = await site.exchange(GET.replace(b"GET", b"head") + b"\r\n")
    assert got.startswith(b"HTTP/1.1 405 ")
    assert got.endswith(b"}")


TAKEN: dict[str, tuple[bytes, int]] = {
    "blanks around a length": (POST + b"Content-Length: \t 2 \t\r\n\r\n{}", 400),
    "chunks in capitals": (
        POST + b"Transfer-Encoding: CHUNKED\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        400,
    ),
    "a chunk extension": (CHUNKED + b"\r\n2;a=b\r\n{}\r\n0\r\n\r\n", 400),
    "leading zeros": (CHUNKED + b"\r\n0002\r\n{}\r\n000\r\n\r\n", 400),
    "a trailer": (CHUNKED + b"\r\n2\r\n{}\r\n0\r\nA: b\r\n\r\n", 400),
    "a length of nothing": (GET + b"Content-Length: 0\r\n\r\n", 200),
    "a body that nobody reads": (GET + b"Content-Length: 2\r\n\r\n{}", 200),
    "a head of 15 KiB": (GET + b"A: " + b"b" * 15 * 1024 + b"\r\n\r\n", 200),
    "the target of a proxy": (b"GET http://x/api/boot HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    "the target of a tunnel": (b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    "no target": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404),
}


@pytest.mark.parametrize(("data", "status"), TAKEN.values(), ids=TAKEN.keys())
async def test_what_is_plain_is_taken_in_the_envelope_and_the_connection_stays_in_step(
    gateway: FakeGateway, data: bytes, status: int
) -> None:
    """400 here is the envelope's: `{}` lacks a key."""
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        await stream.send_all(data)
        got = await answer(stream)
        assert got.startswith(b"HTTP/1.1 %d " % status), got
        assert b"\r\nx-request-id: " in got
        await stream.send_all(GET + b"X-Request-Id: next\r\n\r\n")
        got = await answer(stream)
        assert got.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nx-request-id: next\r\n" in got


async def test_http_1_0_is_spoken_and_its_connection_ends(gateway: FakeGateway) -> None:
    async with served(app_of(gateway)) as site:
        got = await site.exchange(b"GET /api/health HTTP/1.0\r\n\r\n" + SMUGGLED)
    assert got.startswith(b"HTTP/1.1 200 ")
    assert got.count(b"HTTP/1.1 ") == 1
    assert got.endswith(b'{"ok":true}')


@pytest.mark.parametrize("status", [b"400", b"413"])
async def test_a_body_in_chunks_leaves_the_next_request_as_it_was_sent(
    gateway: FakeGateway, status: bytes
) -> None:
    """Also where the next one came in the same piece, and is refused for its framing."""
    body = b"{}" if status == b"400" else b" " * 70_000
    chunks = b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with served(app_of(gateway)) as site:
        got = await site.exchange(CHUNKED + chunks + GET + b"\r\n" + GET + b"A: b\nC: d\r\n\r\n")
    found = [part[:3] for part in got.split(b"HTTP/1.1 ")[1:]]
    assert found == [status, b"200", b"400"]
