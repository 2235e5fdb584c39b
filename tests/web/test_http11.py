"""HTTP/1.1 on one connection, on real sockets: request bodies and responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import structlog
import trio
import trio.testing

from tests.web.client import AppClient, connected
from tests.web.fakes import FakeGateway, app_of
from tests.web.serving import BODY, BOOT, SIGN_IN, SIGN_IN_HEAD, answer, rest, served
from web import http11
from web.app import FrontEnd
from web.exchange import Exchange
from web.operations import Operation
from web.request import LimitedBody, front_request
from web.response import RECONNECT, Response, SendPart, sse_event

LAST = b"GET /api/boot HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.lowlevel.checkpoint()


def endless(app: FrontEnd) -> None:
    """Replace /api/boot by an endless event stream."""

    async def events(send: SendPart) -> None:
        await send(sse_event(b"{}"))
        await trio.sleep_forever()

    async def handle(_: Exchange) -> Response:
        return app.streams.open(events)

    operations = app.routes["/api/boot"].operations
    assert isinstance(operations, dict)
    operations["GET"] = Operation(handle, operations["GET"].authentication)


def stuck(app: FrontEnd, *, in_group: bool = False) -> None:
    """Have /api/boot never respond; `in_group`: its cancellation is raised in a group."""

    async def handle(_: Exchange) -> Response:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            if in_group:
                raise BaseExceptionGroup("of a nursery", [cancelled]) from None
            raise
        raise AssertionError

    operations = app.routes["/api/boot"].operations
    assert isinstance(operations, dict)
    operations["GET"] = Operation(handle, operations["GET"].authentication)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"http://x", "/"),
        (b"http://x?a=b", "/"),
        (b"HTTP://[::1]:80/app/Note?a=b", "/app/Note"),
        (b"http://x//app", "/*"),
        (b"http:///app", "/*"),
        (b"ftp://x/app", "/*"),
    ],
)
def test_absolute_target_is_read_without_its_host(target: bytes, path: str) -> None:
    """RFC 9112 3.2.2 (H-137)."""
    assert front_request("GET", target, [], "1.1", None).path == path


async def test_connection_ends_after_its_last_allowed_request(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H-140."""
    assert http11.REQUESTS_PER_CONNECTION == 10_000
    monkeypatch.setattr(http11, "REQUESTS_PER_CONNECTION", 2)
    async with served(app_of(gateway)) as site:
        got = await site.exchange(BOOT * 3)
    first, second = got.lower().split(b"http/1.1 200 ")[1:]
    assert b"connection: close" not in first
    assert b"connection: close" in second


async def test_pipelined_requests_are_answered_in_order(gateway: FakeGateway) -> None:
    async with served(app_of(gateway)) as site:
        got = await site.exchange(BOOT + SIGN_IN + LAST)
    assert got.count(b"HTTP/1.1 200 ") == 3
    assert got.index(b'"site"') < got.index(b'"fullName"') < got.rindex(b'"site"')


@pytest.mark.parametrize("size", [1, 7, len(BODY)])
async def test_body_is_read_from_parts_of_any_size(gateway: FakeGateway, size: int) -> None:
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        await stream.send_all(SIGN_IN_HEAD % len(BODY))
        for start in range(0, len(BODY), size):
            await stream.send_all(BODY[start : start + size])
        assert (await answer(stream)).startswith(b"HTTP/1.1 200 ")


async def test_body_is_read_from_chunks(gateway: FakeGateway) -> None:
    head = SIGN_IN_HEAD.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked")
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
    async with served(app_of(gateway)) as site:
        got = await site.exchange(head + chunks + LAST)
    assert got.count(b"HTTP/1.1 200 ") == 2


async def test_body_of_many_chunks_lets_other_requests_run(gateway: FakeGateway) -> None:
    """A chunk costs as much as kilobytes of content, and needs no account."""
    head = SIGN_IN_HEAD.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked")
    body = BODY + b" " * 20_000
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with served(app_of(gateway)) as site, trio.open_nursery() as nursery:
        nursery.start_soon(others)
        got = await site.exchange(head + chunks + LAST)
        nursery.cancel_scope.cancel()
    assert got.count(b"HTTP/1.1 200 ") == 2
    assert turns > len(chunks) / 4096


async def test_expect_100_is_answered_before_the_body(gateway: FakeGateway) -> None:
    """RFC 9110 §10.1.1."""
    head = (SIGN_IN_HEAD % len(BODY)).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        await stream.send_all(head)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 100 ")
        await stream.send_all(BODY)
        assert (await answer(stream)).startswith(b"HTTP/1.1 200 ")


async def test_response_without_a_body_keeps_the_connection_in_step(gateway: FakeGateway) -> None:
    """RFC 9110 §9.3.2: HEAD has the length and no body."""
    async with served(app_of(gateway)) as site:
        options = b"OPTIONS /api/boot HTTP/1.1\r\nHost: x\r\n\r\n"
        got = await site.exchange(BOOT.replace(b"GET", b"HEAD") + options + LAST)
    heads = got.split(b"HTTP/1.1 ")[1:]
    assert [head[:3] for head in heads] == [b"200", b"204", b"200"]
    assert heads[0].endswith(b"\r\n\r\n")
    assert b"\r\ncontent-length: " in heads[0]
    assert heads[1].endswith(b"\r\n\r\n")
    assert b"content-length" not in heads[1]


async def test_response_is_sent_in_one_piece(gateway: FakeGateway) -> None:
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        await stream.send_all(BOOT)
        got = await stream.receive_some()
        assert got.startswith(b"HTTP/1.1 200 ")
        assert got.endswith(b"}")


async def test_event_stream_is_sent_in_parts_until_the_client_leaves(
    gateway: FakeGateway,
) -> None:
    app = app_of(gateway)
    endless(app)
    async with served(app) as site:
        async with await site.connect() as stream:
            await stream.send_all(BOOT)
            got = b""
            while not got.endswith(b"{}\n\n\r\n"):
                got += await stream.receive_some()
            assert RECONNECT in got
            assert b"transfer-encoding: chunked" in got.lower()
            assert (len(app.streams), app.active_requests) == (1, 1)
        await until(lambda: (len(app.streams), app.active_requests) == (0, 0))


@pytest.mark.parametrize("unread", [b"", LAST, b"x" * 10_000])
async def test_request_is_cancelled_when_its_client_disconnects(
    gateway: FakeGateway, unread: bytes
) -> None:
    """Even if the client has sent more that the server has not read (H-132)."""
    app = app_of(gateway)
    stuck(app)
    async with served(app) as site:
        async with await site.connect() as stream:
            await stream.send_all(BOOT + unread)
            await until(lambda: app.active_requests == 1)
        await until(lambda: app.active_requests == 0)


async def test_request_is_cancelled_when_its_client_has_disconnected_before(
    gateway: FakeGateway,
) -> None:
    app = app_of(gateway)
    stuck(app)
    with trio.fail_after(20):
        async with connected(app) as stream:
            await stream.send_all(BOOT)
            await stream.send_eof()
            assert await rest(stream) == b""
    assert app.active_requests == 0


@pytest.mark.parametrize("in_group", [False, True])
async def test_cancelled_request_is_logged_and_counted(
    gateway: FakeGateway, in_group: bool
) -> None:
    """The slowest requests are the ones whose clients give up (H-136)."""
    app = app_of(gateway)
    stuck(app, in_group=in_group)
    with structlog.testing.capture_logs() as lines:
        async with served(app) as site:
            async with await site.connect() as stream:
                await stream.send_all(BOOT)
                await until(lambda: app.active_requests == 1)
            await until(lambda: app.active_requests == 0)
            response = await AppClient(app, "127.0.0.1").ask("GET", "/metrics")
    (line,) = [line for line in lines if line.get("path") == "/api/boot"]
    assert (line["event"], line["status"]) == ("web.request", 499)
    assert b'fw_requests_total{route="/api/boot",status="499"} 1.0' in response.body


async def test_pipelined_requests_let_other_requests_run(gateway: FakeGateway) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with connected(app_of(gateway)) as stream, trio.open_nursery() as nursery:
        await stream.send_all(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n" * 200 + LAST)
        nursery.start_soon(others)
        got = await rest(stream)
        nursery.cancel_scope.cancel()
    assert got.count(b"HTTP/1.1 404 ") == 200
    assert turns >= 200


@pytest.mark.parametrize(("path", "status"), [(b"login", b"200"), (b"resource/Note", b"401")])
async def test_idle_connection_keeps_no_body(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, path: bytes, status: bytes
) -> None:
    """The limits of the bytes of bodies (H-126) do not count one that was answered."""
    bodies: list[LimitedBody] = []

    class NotedBody(LimitedBody):
        def set_complete(self) -> None:
            super().set_complete()
            bodies.append(self)

    monkeypatch.setattr("web.request.FrontRequest.body_class", NotedBody)
    async with connected(app_of(gateway)) as stream:
        await stream.send_all(SIGN_IN.replace(b"login", path))
        assert (await answer(stream)).startswith(b"HTTP/1.1 " + status)
        assert [(body.received, body.kept) for body in bodies] == [(len(BODY), 0)]


async def test_stream_for_request_with_late_body_keeps_the_connection(
    gateway: FakeGateway,
) -> None:
    app = app_of(gateway)

    async def send_part(send: SendPart) -> None:
        await send(b"a part")

    async def handle(_: Exchange) -> Response:
        return Response(b"", stream=send_part)

    operations = app.routes["/api/health"].operations
    assert isinstance(operations, dict)
    operations["GET"] = Operation(handle, operations["GET"].authentication)
    head = BOOT.replace(b"boot", b"health").replace(b"\r\n\r\n", b"\r\nContent-Length: 4\r\n\r\n")
    async with connected(app) as stream:
        await stream.send_all(head + b"la")
        await trio.testing.wait_all_tasks_blocked()
        await stream.send_all(b"te" + LAST)
        got = await rest(stream)
    assert got.count(b"HTTP/1.1 200 ") == 2
    assert b"a part" in got


async def test_event_stream_is_completed_by_a_stop(gateway: FakeGateway) -> None:
    app = app_of(gateway)
    endless(app)
    async with served(app) as site, await site.connect() as stream:
        await stream.send_all(BOOT)
        await until(lambda: len(app.streams) == 1)
        site.stop.set()
        assert (await rest(stream)).endswith(b"0\r\n\r\n")


async def test_overload_is_503_and_keeps_the_connection(
    gateway: FakeGateway,
) -> None:
    """Beyond the limit of requests in progress, a request gets 503 (H-120)."""
    app = app_of(gateway, max_requests=1)
    other = front_request("GET", b"/api/boot", [], "1.1", None)
    async with served(app) as site, await site.connect() as stream:
        with app.slot(other):
            await stream.send_all(BOOT)
            got = await answer(stream)
            assert got.startswith(b"HTTP/1.1 503 ")
            assert b"\r\nretry-after: " in got
        await stream.send_all(BOOT)
        assert (await answer(stream)).startswith(b"HTTP/1.1 200 ")


async def test_failure_while_streaming_ends_only_its_connection(
    gateway: FakeGateway,
) -> None:
    app = app_of(gateway)

    async def broken(send: SendPart) -> None:
        await send(b"a part")
        raise ValueError("a defect")

    async def handle(_: Exchange) -> Response:
        return Response(b"", stream=broken)

    operations: Mapping[str, Operation] = app.routes["/api/health"].operations
    assert isinstance(operations, dict)
    operations["GET"] = Operation(handle, operations["GET"].authentication)
    async with served(app) as site:
        with structlog.testing.capture_logs() as logs:
            got = await site.exchange(BOOT.replace(b"boot", b"health"))
            await until(lambda: "web.connection_failed" in [line["event"] for line in logs])
        assert b"a part" in got
        assert not got.endswith(b"0\r\n\r\n"), "no end that looks like one"
        assert (await site.exchange(LAST)).startswith(b"HTTP/1.1 200 ")
