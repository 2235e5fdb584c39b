"""A client without an account cannot take all slots: other clients are served meanwhile."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import MockClock

from fw_actors.config import ProxyTrustPolicy
from tests.live_site import NO_TLS, LiveSite, eventually
from tests.web.fakes import FakeGateway, app_of
from tests.web.serving import BOOT, SIGN_IN, SIGN_IN_HEAD, answer, rest, served
from web.connections import ConnectionLimits

MANY = 2_050  # more than the 2,000 connections that a server takes by default
UNFINISHED = SIGN_IN_HEAD % 100 + b"{"


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * MANY), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    """A service as it is operated, which nothing protects."""
    with LiveSite(tmp_path_factory.mktemp("flooded")) as site:
        site.start()
        yield site


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    """A service whose clients all come from one trusted proxy."""
    with LiveSite(tmp_path_factory.mktemp("proxied")) as site:
        site.start(FW_TRUST_PROXY="127.0.0.0/8")
        yield site


def opened(site: LiveSite, count: int, data: bytes, stack: ExitStack) -> list[socket.socket]:
    """Open connections, each of which sends `data` and then nothing."""
    url = httpx.URL(site.url)
    made = []
    for _ in range(count):
        made.append(stack.enter_context(socket.create_connection((url.host, url.port or 0), 20)))
        if data:
            made[-1].sendall(data)
    return made


def statuses(site: LiveSite) -> list[int]:
    """Return the statuses of an honest client, each on a new connection."""
    paths = ("/api/health", "/api/ready", "/api/boot", "/login")
    return [httpx.get(site.url + path, timeout=60, verify=NO_TLS).status_code for path in paths]


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", UNFINISHED])
@pytest.mark.parametrize("kind", ["site", "proxied"])
def test_flood_of_incomplete_requests_blocks_no_other_client(
    request: pytest.FixtureRequest, kind: str, data: bytes
) -> None:
    """Each of these alone would hold a slot for 10 s and more, all of them every slot."""
    site: LiveSite = request.getfixturevalue(kind)
    with ExitStack() as stack:
        opened(site, MANY, data, stack)
        assert statuses(site) == [200] * 4


@pytest.mark.usefixtures("many_descriptors")
def test_incomplete_request_takes_no_slot(proxied: LiveSite) -> None:
    """At most 1,000 requests at once (H-120); these 1,001 are none yet (H-121)."""
    with ExitStack() as stack:
        unfinished = opened(proxied, 1_001, UNFINISHED, stack)
        assert statuses(proxied) == [200] * 4
        unfinished[-1].sendall(b" " * 99)
        assert unfinished[-1].recv(12) == b"HTTP/1.1 400", "its own one is served when it is whole"


async def was_closed(stream: trio.SocketStream) -> bool:
    """Read to the end; say whether there was no response."""
    try:
        return await rest(stream) == b""
    except trio.BrokenResourceError:  # closed with bytes unread
        return True


async def drip(stream: trio.SocketStream, data: bytes) -> None:
    """Send `data` every second for as long as it is taken."""
    with suppress(trio.BrokenResourceError):
        while True:
            await trio.sleep(1)
            await stream.send_all(data)


async def test_health_and_readiness_are_served_without_free_slots(
    gateway: FakeGateway,
) -> None:
    """H-103."""
    app = app_of(gateway, max_requests=0)
    async with served(app) as site:
        for path, status in ((b"health", b"200"), (b"ready", b"200"), (b"boot", b"503")):
            got = await site.exchange(b"GET /api/" + path + b" HTTP/1.0\r\n\r\n")
            assert got.startswith(b"HTTP/1.1 " + status)


async def test_address_beyond_its_limit_loses_its_oldest_connection(
    gateway: FakeGateway,
) -> None:
    limits = ConnectionLimits(connections=100, by_address=2)
    async with served(app_of(gateway), limits=limits) as site:
        first, second = await site.connect(), await site.connect()
        await second.send_all(BOOT)
        await answer(second)
        third = await site.connect()
        await third.send_all(BOOT)
        await answer(third)
        assert await rest(first) == b""
        for stream in (second, third):
            await stream.send_all(BOOT)
            assert (await answer(stream)).startswith(b"HTTP/1.1 200 ")
            await stream.aclose()
        await first.aclose()


async def test_trusted_proxy_has_no_limit_of_its_address(
    gateway: FakeGateway,
) -> None:
    trust = ProxyTrustPolicy(every_peer=True, networks=())
    limits = ConnectionLimits(connections=5, by_address=1)
    async with served(app_of(gateway, trust=trust), limits=limits) as site:
        streams = [await site.connect() for _ in range(5)]
        for stream in streams:
            await stream.send_all(BOOT)
            assert (await answer(stream)).startswith(b"HTTP/1.1 200 ")
            await stream.aclose()


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\n", UNFINISHED])
async def test_new_connection_closes_a_silent_one_at_the_limit(
    gateway: FakeGateway, autojump_clock: MockClock, data: bytes
) -> None:
    """The bound by address does not apply here: all connections are a trusted proxy's."""
    trust = ProxyTrustPolicy(every_peer=True, networks=())
    limits = ConnectionLimits(connections=4, by_address=1)
    async with served(app_of(gateway, trust=trust), limits=limits) as site:
        start = trio.current_time()
        silent = [await site.connect() for _ in range(4)]
        for stream in silent:
            await stream.send_all(data)
        async with await site.connect() as honest:
            await honest.send_all(BOOT)
            assert (await answer(honest)).startswith(b"HTTP/1.1 200 ")
        assert trio.current_time() - start < 1
        assert await was_closed(silent[0])
        for stream in silent:
            await stream.aclose()


async def test_request_in_progress_survives_any_number_of_connections(
    gateway: FakeGateway,
) -> None:
    limits = ConnectionLimits(connections=4, by_address=4)
    async with served(app_of(gateway), limits=limits) as site:
        async with await site.connect() as busy:
            await busy.send_all(SIGN_IN)
            silent = [await site.connect() for _ in range(20)]
            assert (await answer(busy)).startswith(b"HTTP/1.1 200 ")
        for stream in silent:
            await stream.aclose()


async def test_incomplete_bodies_are_limited_in_bytes(gateway: FakeGateway) -> None:
    limits = ConnectionLimits(body_bytes=100_000, body_bytes_by_address=50_000)
    part = b" " * 30_000
    async with served(app_of(gateway), limits=limits) as site:
        first, second = await site.connect(), await site.connect()
        await first.send_all(SIGN_IN_HEAD % 60_000)
        await first.send_all(part)
        await second.send_all(SIGN_IN_HEAD % 60_000)
        await second.send_all(part)
        assert await was_closed(first)  # the older one gives way
        await second.send_all(part)
        assert (await answer(second)).startswith(b"HTTP/1.1 400 ")
        await first.aclose()
        await second.aclose()


async def test_slow_body_is_408_and_ends_the_connection(
    gateway: FakeGateway, autojump_clock: MockClock
) -> None:
    """A byte a second is less than 500: 408 (H-125, H-58)."""
    start = trio.current_time()
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        await stream.send_all(SIGN_IN_HEAD % 100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip, stream, b" ")
            got = await rest(stream)
            nursery.cancel_scope.cancel()
    assert got.startswith(b"HTTP/1.1 408 ")
    assert b'"RequestTimeoutError"' in got
    assert b"\r\nconnection: close\r\n" in got.lower()
    assert trio.current_time() - start < 12


async def test_incomplete_head_has_15_seconds(
    gateway: FakeGateway, autojump_clock: MockClock
) -> None:
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        start = trio.current_time()
        await stream.send_all(b"GET / HTTP/1.1\r\n")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip, stream, b"X: x\r\n")
            assert await was_closed(stream)
            assert trio.current_time() - start == pytest.approx(15, abs=1)
            nursery.cancel_scope.cancel()


@contextmanager
def no_descriptors(pid: int) -> Iterator[None]:
    """Let a running process open no further file: the standard streams take all numbers."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[LiveSite]:
    with LiveSite(tmp_path) as site:
        site.start()
        yield site


def test_client_waits_while_no_descriptor_is_free(own_site: LiveSite) -> None:
    """H-139: the log states it once, and the client is served when one is free."""
    assert own_site.process is not None
    statuses(own_site)  # the server of the start is over
    url = httpx.URL(own_site.url)
    log = own_site.folder / "serve.log"
    console = (own_site.folder / "data" / "console.address").read_text().strip()
    with ExitStack() as stack:
        with no_descriptors(own_site.process.pid):
            waiting = stack.enter_context(socket.create_connection((url.host, url.port or 0), 20))
            waiting.sendall(BOOT)
            terminal = stack.enter_context(socket.socket(socket.AF_UNIX))
            terminal.connect(console)
            eventually(lambda: "console.no_descriptors" in log.read_text())
            eventually(lambda: "web.no_descriptors" in log.read_text())
        assert waiting.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert "Traceback" not in log.read_text()
    assert log.read_text().count("web.no_descriptors") == 1
