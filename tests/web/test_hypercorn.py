"""Our reader of HTTP/1.1 and Hypercorn's agree on where each plain request begins and ends."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import h11
import pytest
import trio
import trio.testing
from hypercorn.config import Config
from hypercorn.trio import serve as hypercorn_serve
from quart import request
from quart_trio import QuartTrio

from fw_actors.runtime.clock import SeededEntropy
from tests.web.framing_cases import REFUSED
from tests.web.serving import served
from web.app import FrontEnd
from web.exchange import Exchange, RequestMetrics
from web.operations import Authentication, BodyRule, Operation, Route
from web.response import EventStreams, Response, json_response
from web.settings import Settings

PATH = "/api/auth/echo"  # a path whose POST needs no CSRF header
HEAD = b" /api/auth/echo?n=%d HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKS = b"Transfer-Encoding: chunked\r\n"
LAST = b"GET" + HEAD % 9 + b"Connection: close\r\n\r\n"

PLAIN: dict[str, bytes] = {
    "no body": b"GET" + HEAD % 1 + b"\r\n",
    "a HEAD": b"HEAD" + HEAD % 1 + b"\r\n",
    "a length": b"POST" + HEAD % 1 + b"Content-Length: 5\r\n\r\nhello",
    "a length of nothing": b"POST" + HEAD % 1 + b"Content-Length: 0\r\n\r\n",
    "blanks around a length": b"POST" + HEAD % 1 + b"Content-Length: \t 5 \t\r\n\r\nhello",
    "a body that looks like a request": b"POST"
    + HEAD % 1
    + b"Content-Length: %d\r\n\r\n" % len(LAST)
    + LAST,
    "one chunk": b"POST" + HEAD % 1 + CHUNKS + b"\r\n5\r\nhello\r\n0\r\n\r\n",
    "three chunks": b"POST" + HEAD % 1 + CHUNKS + b"\r\n1\r\nh\r\n3\r\nell\r\n1\r\no\r\n0\r\n\r\n",
    "no chunk": b"POST" + HEAD % 1 + CHUNKS + b"\r\n0\r\n\r\n",
    "a chunk extension": b"POST" + HEAD % 1 + CHUNKS + b"\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
    "leading zeros": b"POST" + HEAD % 1 + CHUNKS + b"\r\n0005\r\nhello\r\n000\r\n\r\n",
    "a chunk size in capitals": b"POST" + HEAD % 1 + CHUNKS + b"\r\nA\r\nhellohello\r\n0\r\n\r\n",
    "a trailer": b"POST" + HEAD % 1 + CHUNKS + b"\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
    "a chunk that looks like the last one": b"POST"
    + HEAD % 1
    + CHUNKS
    + b"\r\n5\r\n0\r\n\r\n\r\n0\r\n\r\n",
    "the coding in capitals": b"POST" + HEAD % 1 + CHUNKS.upper() + b"\r\n5\r\nhello\r\n0\r\n\r\n",
    "many fields": b"GET" + HEAD % 1 + b"A: b\r\n" * 90 + b"\r\n",
    "an escaped query": b"GET" + (HEAD % 1).replace(b"?n=", b"?a=%25&n=") + b"\r\n",
}


def echo(method: str, query: bytes, body: bytes) -> dict[str, str]:
    """Return what a server has understood."""
    return {"method": method, "query": query.decode(), "body": body.decode("latin-1")}


def our_app() -> FrontEnd:
    async def handle(exchange: Exchange) -> Response:
        requested = exchange.request
        return json_response(echo(requested.method, requested.query_string, exchange.body or b""))

    def read(body: bytes) -> bytes:
        return b"" if body == b"{}" else body  # a missing body is read as {}

    reading = BodyRule(read, optional=True)
    operations = {
        "GET": Operation(handle, Authentication.IGNORED, query=None),
        "POST": Operation(handle, Authentication.IGNORED, reading, query=None),
    }
    settings = Settings("bb", "http://127.0.0.1:1")
    nothing: Any = None
    return FrontEnd(
        [Route(PATH, operations)],
        nothing,
        settings,
        SeededEntropy(1),
        RequestMetrics(),
        EventStreams(),
    )


def quart_app() -> QuartTrio:
    app = QuartTrio(__name__)

    @app.route("/<path:path>", methods=["GET", "POST"])
    async def handle(path: str) -> dict[str, str]:
        body = await request.get_data()
        assert isinstance(body, bytes)
        return echo(request.method, request.query_string, body)

    return app


@asynccontextmanager
async def served_by_hypercorn(app: QuartTrio) -> AsyncIterator[int]:
    """Serve `app` as Hypercorn does; yield the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    port: int = listening.getsockname()[1]
    config, stop = Config(), trio.Event()
    config.bind = [f"fd://{listening.detach()}"]  # Hypercorn closes it
    config.loglevel = "CRITICAL"
    config.graceful_timeout = 0.1
    async with trio.open_nursery() as nursery:
        serve: Callable[..., Any] = hypercorn_serve
        nursery.start_soon(lambda: serve(app, config, shutdown_trigger=stop.wait))
        with trio.fail_after(20):
            yield port
        stop.set()


async def exchange(port: int, data: bytes) -> bytes:
    """Send `data`; return all that came until the end, or until the server waits for more.

    Hypercorn keeps a connection open for a while that it has said to close.
    """
    got = bytearray()
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:

        async def read() -> None:
            async for part in stream:
                got.extend(part)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await stream.send_all(data)
            await trio.testing.wait_all_tasks_blocked(0.05)
            nursery.cancel_scope.cancel()
    return bytes(got)


def understood(got: bytes, *methods: str) -> list[tuple[int, Any]]:
    """Return the status and the echo of each response, those to `methods` and no more."""
    found = []
    for method in methods:
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        reader.send(h11.EndOfMessage())
        reader.receive_data(got)
        head = cast("h11.Response", reader.next_event())
        body = b""
        while isinstance(event := reader.next_event(), h11.Data):
            body += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage)
        found.append((head.status_code, json.loads(body) if body else None))
        got = reader.trailing_data[0]
    assert got == b""
    return found


@pytest.mark.parametrize("data", PLAIN.values(), ids=PLAIN.keys())
async def test_framing_is_read_as_hypercorn_reads_it(data: bytes) -> None:
    """The same requests, in the same order, with the same bodies, and nothing between them."""
    methods = (data.partition(b" ")[0].decode(), "GET")
    async with served(our_app()) as site, served_by_hypercorn(quart_app()) as port:
        ours = understood(await exchange(site.port, data + LAST), *methods)
        assert ours == understood(await exchange(port, data + LAST), *methods)
    assert [status for status, _ in ours] == [200, 200]


ACCEPTED_BY_HYPERCORN = frozenset(
    {
        "length and chunks",
        "chunks and length",
        "one length twice",
        "a list of lengths",
        "a chunk extension with a lone CR",
        "a chunk extension that begins with a lone CR",
        "a lone CR behind a last chunk",
        "a last chunk with a lone LF",
        "a trailer section with lone LFs",
        "a trailer with a lone LF",
        "a trailer that goes on",
        "a trailer that goes on after a tab",
        "two hosts in one",
        "a host with a blank",
        "a host with a path",
        "a host with a user",
        "a host with a scheme",
        "a host with a port that is no number",
        "an IPv6 address without brackets",
        "a host that is not ASCII",
        "lone LFs",
        "a lone LF among others",
        "a line that goes on",
        "a line that goes on after a tab",
        "HTTP/1.2",
        "HTTP/2.0",
        "the preface of HTTP/2",
        "HTTP/9.9",
        "a head of 17 KiB",
        "a request line of 17 KiB",
    }
)
REJECTIONS = tuple(b"HTTP/1.1 %d " % status for status in (400, 431, 501, 505))


@pytest.mark.parametrize("name", REFUSED)
async def test_framing_is_stricter_than_hypercorns_only_where_listed(name: str) -> None:
    """Our reader rejects them all (`test_framing`); a listed one shows the purpose of a check."""
    data, _ = REFUSED[name]
    async with served_by_hypercorn(quart_app()) as port:
        got = await exchange(port, data + LAST)
    rejects = got.startswith(
        (b"HTTP/1.1 400 ", b"HTTP/1.1 431 ", b"HTTP/1.1 501 ", b"HTTP/1.1 505 ")
    )
    assert rejects is (name not in ACCEPTED_BY_HYPERCORN)
    if rejects:
        assert b"n=9" not in got
