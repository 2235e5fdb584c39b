"""The server on real sockets: limits, failures and the stop, as a client sees them."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, NoReturn

import pytest
import structlog
import trio
import trio.testing
from trio.testing import MockClock

from fw_actors.errors import ConfigurationError
from tests.web.fakes import FakeGateway, HeldGateway, app_of
from tests.web.serving import BOOT, SIGN_IN, SIGN_IN_HEAD, RunningServer, answer, rest, served
from web.connections import REQUEST_SECONDS, ConnectionLimits
from web.listening import bind
from web.server import serve


async def test_server_serves_requests_of_a_connection_in_turn(gateway: FakeGateway) -> None:
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        for _ in range(3):
            await stream.send_all(SIGN_IN)
            got = await answer(stream)
            assert got.startswith(b"HTTP/1.1 200 ")
            assert b"\r\nserver:" not in got.lower()
    assert len(gateway.attempts) == 3
    assert gateway.attempts[0].address == "127.0.0.1"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: a\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n", b"431"),
    ],
)
async def test_server_answers_invalid_http_with_a_bare_status(
    gateway: FakeGateway, data: bytes, status: bytes
) -> None:
    """Invalid HTTP gets a bare status (H-129)."""
    async with served(app_of(gateway)) as site:
        got = await site.exchange(data)
        assert got.startswith(b"HTTP/1.1 " + status)
        assert b"content-length: 0\r\n" in got


@pytest.mark.parametrize(
    "head",
    [
        b"GET ?x HTTP/1.1\r\nHost: x\r\n",
        b"GET //api/boot HTTP/1.1\r\nHost: x\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n",
        b"GET /%ff%00 HTTP/1.1\r\nHost: x\r\n",
    ],
)
async def test_server_answers_odd_targets_with_404(gateway: FakeGateway, head: bytes) -> None:
    async with served(app_of(gateway)) as site:
        got = await site.exchange(head + b"Connection: close\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 404 ")
        assert b'"NotFoundError"' in got


async def test_server_serves_http_1_0_without_a_host(gateway: FakeGateway) -> None:
    async with served(app_of(gateway)) as site:
        got = await site.exchange(b"GET /api/health HTTP/1.0\r\n\r\n")
        assert got.endswith(b'{"ok":true}')


@pytest.mark.parametrize(
    ("target", "status"), [(b"GET /api/boot", b"200"), (b"GET /nothing", b"404")]
)
async def test_server_ignores_an_upgrade_to_web_sockets(
    gateway: FakeGateway, target: bytes, status: bytes
) -> None:
    """The request is answered; only invalid HTTP gets a bare status (H-129; RFC 9110 §7.8)."""
    upgrade = (
        target + b" HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        await stream.send_all(upgrade)
        got = await answer(stream)
        assert got.startswith(b"HTTP/1.1 " + status)
        assert b"\r\nx-request-id: " in got.lower()
        await stream.send_all(SIGN_IN)
        assert (await answer(stream)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/health HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n",
        b"PRI * HTTP/2.0\r\nHost: x\r\n",
    ],
)
async def test_server_ignores_an_upgrade_to_http_2(gateway: FakeGateway, head: bytes) -> None:
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        await stream.send_all(head + b"\r\n")
        assert bytes(await stream.receive_some(9)) == b"HTTP/1.1 "


@pytest.mark.parametrize("first", [SIGN_IN, BOOT, SIGN_IN_HEAD % 99 + b"{"])
@pytest.mark.parametrize(
    "then", [b"\0\xff", b"\r\n\r\n\r\n", b"GET \r\n", b"PRI * HTTP/2.0\r\n\r\n"]
)
async def test_server_logs_no_error_for_garbage_after_a_request(
    gateway: FakeGateway, caplog: pytest.LogCaptureFixture, first: bytes, then: bytes
) -> None:
    """Any client may send it; a traceback for each would drown the other log lines."""
    async with served(app_of(gateway)) as site:
        with structlog.testing.capture_logs() as logs:
            async with await site.connect() as stream:
                await stream.send_all(first + then)
                await stream.send_eof()
                with suppress(trio.BrokenResourceError):
                    await rest(stream)
        events = [line for line in logs if line["event"] != "web.request"]
        assert not [line for line in events if line["log_level"] != "debug"]
        assert not caplog.records
        assert (await site.exchange(BOOT.replace(b"1.1", b"1.0"))).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("size", [66 * 1024, 2 * 1024 * 1024])
async def test_server_lets_a_client_read_its_413(gateway: FakeGateway, size: int) -> None:
    """The response waits for the rest of the body; TCP would reset the connection otherwise."""
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        await stream.send_all(SIGN_IN_HEAD % size + b"x" * size)
        assert (await answer(stream)).startswith(b"HTTP/1.1 413 ")
        await stream.send_all(SIGN_IN)
        assert (await answer(stream)).startswith(b"HTTP/1.1 200 ")


async def test_server_cancels_the_request_of_a_client_that_leaves() -> None:
    gateway = HeldGateway()
    app = app_of(gateway)
    async with served(app) as site:
        async with await site.connect() as stream:
            await stream.send_all(SIGN_IN)
            await gateway.began.wait()
        await gateway.cancelled.wait()
        while app.active_requests:
            await trio.lowlevel.checkpoint()


async def test_server_stop_finishes_requests_and_starts_none() -> None:
    """Ready is 503 while draining; a balancer has to be able to ask (H-102, H-135)."""
    gateway = HeldGateway()
    async with served(app_of(gateway)) as site:
        idle = await site.connect()
        await idle.send_all(BOOT)
        await answer(idle)
        busy = await site.connect()
        await busy.send_all(SIGN_IN)
        await gateway.began.wait()
        site.stop.set()
        assert await rest(idle) == b""  # ended by the server
        gateway.is_ready = False
        for path, status in ((b"boot", b"503"), (b"ready", b"503"), (b"health", b"200")):
            got = await site.exchange(b"GET /api/" + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert got.startswith(b"HTTP/1.1 " + status)
            assert b"\r\nconnection: close\r\n" in got.lower()
        gateway.release.set()
        assert (await answer(busy)).startswith(b"HTTP/1.1 200 ")
        assert await rest(busy) == b""
        for stream in (idle, busy):
            await stream.aclose()


async def test_server_stop_ends_in_time() -> None:
    gateway = HeldGateway()
    async with served(app_of(gateway), drain_seconds=0.05) as site:
        stream = await site.connect()
        await stream.send_all(SIGN_IN)
        await gateway.began.wait()
        site.stop.set()
        await gateway.cancelled.wait()
        with suppress(trio.BrokenResourceError):  # a reset is as good as an orderly end
            assert await rest(stream) == b""
        await stream.aclose()


async def test_server_stop_is_not_held_by_a_client_that_does_not_read(
    gateway: FakeGateway,
) -> None:
    app = app_of(gateway, login={"notice": "x" * 30_000_000}, max_requests=1)
    async with served(app, drain_seconds=0.05) as site:
        stream = await site.connect()
        await stream.send_all(BOOT)
        await stream.receive_some(1)
        assert (await site.exchange(b"GET /login HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        site.stop.set()
    await stream.aclose()


async def test_server_limits_the_bytes_of_unread_responses(gateway: FakeGateway) -> None:
    """Each is under way for as long as its client takes it in drops."""
    app = app_of(gateway, login={"notice": "x" * 10_000_000})
    limits = ConnectionLimits(unread_bytes=25_000_000, unread_bytes_by_address=25_000_000)
    async with served(app, drain_seconds=0.05, limits=limits) as site:
        streams = []
        for _ in range(3):
            streams.append(await site.connect())
            await streams[-1].send_all(BOOT)
            await streams[-1].receive_some(1)
        with suppress(trio.BrokenResourceError):
            assert len(await rest(streams[0])) < 10_000_000, "the oldest gives way"
        for stream in streams[1:]:
            got = await stream.receive_some()
            while len(got) < 10_000_000:
                part = await stream.receive_some()
                assert part
                got += part
        for stream in streams:
            await stream.aclose()


async def test_server_closes_all_connections_when_cancelled() -> None:
    gateway = HeldGateway()
    bound = bind("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        run: Any = lambda task_status: serve(  # noqa: E731
            app_of(gateway), bound, stop=trio.Event(), drain_seconds=0, task_status=task_status
        )
        await nursery.start(run)
        stream = await trio.open_tcp_stream("127.0.0.1", int(bound.url.rpartition(":")[2]))
        await stream.send_all(SIGN_IN)
        with trio.fail_after(20):
            await gateway.began.wait()
        nursery.cancel_scope.cancel()
    assert gateway.cancelled.is_set()
    assert bound.socket.fileno() == -1
    await stream.aclose()


async def test_server_survives_a_failing_connection(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(head: bytes) -> None:
        raise ValueError("a defect of the server")

    async with served(app_of(gateway)) as site:
        with structlog.testing.capture_logs() as logs, monkeypatch.context() as patch:
            patch.setattr("web.http11.head_fault", broken)
            assert await site.exchange(BOOT) == b""
            while not logs:
                await trio.lowlevel.checkpoint()
        assert [line["event"] for line in logs] == ["web.connection_failed"]
        assert (await site.exchange(BOOT.replace(b"1.1", b"1.0"))).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("failure", [errno.ECONNABORTED, errno.EPROTO, errno.EHOSTUNREACH])
async def test_server_survives_a_failing_accept(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, failure: int
) -> None:
    """Linux reports it at accept(2); the listening socket has not failed."""
    accept = trio.SocketListener.accept
    failures = [failure]

    async def failing(listener: trio.SocketListener) -> trio.SocketStream:
        stream = await accept(listener)
        if not failures:
            return stream
        await trio.aclose_forcefully(stream)
        raise OSError(failures.pop(), "failed while it waited")

    monkeypatch.setattr(trio.SocketListener, "accept", failing)
    async with served(app_of(gateway)) as site:
        with suppress(trio.BrokenResourceError):  # a reset is as good as an orderly end
            assert await site.exchange(BOOT) == b""
        got = await site.exchange(BOOT.replace(b"1.1", b"1.0"))
        assert got.startswith(b"HTTP/1.1 200 ")
    assert not failures


async def test_server_keeps_clients_while_descriptors_are_not_needed(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H-139: without a free descriptor accept(2) fails even if no connection waits."""
    accept = trio.SocketListener.accept
    free = [1]

    async def failing(listener: trio.SocketListener) -> trio.SocketStream:
        if not free:
            raise OSError(errno.EMFILE, "Too many open files")
        stream = await accept(listener)
        free.pop()
        return stream

    monkeypatch.setattr(trio.SocketListener, "accept", failing)
    async with served(app_of(gateway)) as site, await site.connect() as first:
        await trio.testing.wait_all_tasks_blocked(0.3)  # longer than a pause between attempts
        await first.send_all(BOOT)
        assert (await answer(first)).startswith(b"HTTP/1.1 200 ")
        with structlog.testing.capture_logs() as logs:
            async with await site.connect() as second:
                assert await first.receive_some() == b""  # closed for the second
                free.append(1)
                await second.send_all(BOOT)
                assert (await answer(second)).startswith(b"HTTP/1.1 200 ")
        assert [each["event"] for each in logs if each["log_level"] == "warning"] == [
            "web.no_descriptors"
        ]


def test_bind_picks_a_free_port() -> None:
    with bind("127.0.0.1", 0).socket as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"FW_BIND: cannot listen at 127.*:{port}: "):
            bind("127.0.0.1", port)


def test_bind_of_unknown_name_is_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: object, **options: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(
        ConfigurationError, match=r"FW_BIND: cannot listen at no-such-host\.invalid:80: Name or"
    ):
        bind("no-such-host.invalid", 80)


@pytest.mark.parametrize(
    ("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")]
)
def test_url_of_can_be_opened(host: str, shown: str) -> None:
    if ":" in host and not socket.has_ipv6:
        return
    bound = bind(host, 0)
    with bound.socket:
        assert bound.url == f"http://{shown}:{bound.socket.getsockname()[1]}"


@asynccontextmanager
async def idle_connections(site: RunningServer) -> AsyncIterator[list[trio.SocketStream]]:
    """Give connections that wait for their second request."""
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(await site.connect()) for _ in range(16)]
        for stream in streams:
            await stream.send_all(BOOT)
            await answer(stream)
        await trio.testing.wait_all_tasks_blocked()
        yield streams


async def test_server_answers_request_that_arrives_as_its_time_ends(
    gateway: FakeGateway, mock_clock: MockClock
) -> None:
    """A proxy repeats no POST on a connection that ends without a response (H-124)."""
    async with served(app_of(gateway)) as site, idle_connections(site) as streams:
        for stream in streams:
            os.write(stream.socket.fileno(), BOOT)
        mock_clock.jump(REQUEST_SECONDS)
        for stream in streams:
            assert (await answer(stream)).startswith(b"HTTP/1.1 200 ")


async def test_server_stop_answers_requests_that_have_arrived(gateway: FakeGateway) -> None:
    """With 503 a proxy or client knows that nothing was done (H-135)."""
    async with served(app_of(gateway)) as site, idle_connections(site) as streams:
        for stream in streams:
            os.write(stream.socket.fileno(), BOOT)
        site.stop.set()
        for stream in streams:
            got = await rest(stream)
            assert got.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 503 ")), got
