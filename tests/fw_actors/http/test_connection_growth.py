"""The number of connections grows only if useful, and handshakes starve no task (B-154)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trustme
from trio.testing import MockClock, wait_all_tasks_blocked

from fw_actors.http import NetworkError, Origin, PoolLimits, open_sender
from fw_actors.http import pool as pool_module
from fw_actors.http.exchange import Connection
from fw_actors.http.pool import (
    BUSY_LOAD,
    MAX_WAIT_SECONDS,
    SATURATED_LOAD,
    WAITS_PER_CONNECTION,
    WAITS_WHEN_SATURATED,
    Pool,
    ThreadLoad,
)
from fw_actors.http.tls import SessionCache, TlsConnection
from fw_actors.runtime.clock import Deadlines
from tests.fw_actors.http.lookups import loopback
from tests.fw_actors.http.receiver import OK, ScriptedConnection, headers, receiving

HERE, THERE = Origin("https", "here", 443), Origin("https", "there", 443)
PLAIN = Origin("http", "here", 80)


class SocketlessConnection:
    """A connection without a socket."""

    def __init__(self, origin: Origin = HERE) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self.broken = False
        self.reusable = True

    def is_reusable(self) -> bool:
        return self.reusable

    def close(self) -> None:
        self.broken = True


@asynccontextmanager
async def opened_pool(*, load: float = BUSY_LOAD, idle: int = 512) -> AsyncIterator[Pool]:
    """Give a pool in a process whose thread computes for that share of the time."""
    deadlines = Deadlines()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        try:
            yield Pool(PoolLimits(idle=idle), deadlines, lambda: load)
        finally:
            deadlines.close()


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with opened_pool() as opened:
        yield opened


def in_use(pool: Pool, count: int, origin: Origin = HERE) -> Sequence[Connection]:
    connections = [cast(Connection, SocketlessConnection(origin)) for _ in range(count)]
    for connection in connections:
        pool.add(connection)
    return connections


async def test_post_waits_while_connection_to_its_origin_is_in_use(pool: Pool) -> None:
    first, second = in_use(pool, 2)
    pool.release(first)
    assert pool.begin_wait(HERE)
    pool.discard(second)
    assert not pool.begin_wait(HERE)
    assert pool.take(HERE) is first
    assert pool.begin_wait(HERE)
    assert not pool.begin_wait(THERE)


async def test_post_waits_for_plain_connection_only_if_another_would_displace_one() -> None:
    async with opened_pool(idle=3) as pool:
        first, *_ = in_use(pool, 2, PLAIN)
        assert not pool.begin_wait(PLAIN)
        in_use(pool, 1, THERE)
        assert pool.begin_wait(PLAIN)
        pool.discard(first)
        assert not pool.begin_wait(PLAIN)


async def test_post_never_waits_while_thread_is_not_busy() -> None:
    async with opened_pool(load=BUSY_LOAD - 0.01) as pool:
        in_use(pool, 1)
        assert not pool.begin_wait(HERE)


@pytest.mark.parametrize(
    ("load", "limit"),
    [
        (BUSY_LOAD, WAITS_PER_CONNECTION),
        (SATURATED_LOAD - 0.01, WAITS_PER_CONNECTION),
        (SATURATED_LOAD, WAITS_WHEN_SATURATED),
    ],
)
async def test_origin_gets_another_connection_after_so_many_waits(load: float, limit: int) -> None:
    async with opened_pool(load=load) as pool:
        in_use(pool, 1)
        waits = [pool.begin_wait(HERE) for _ in range(2 * (limit + 1))]
        assert [number for number, wait in enumerate(waits) if not wait] == [limit, 2 * limit + 1]


async def test_longest_waiting_post_is_served_first(pool: Pool) -> None:
    [first] = in_use(pool, 1)
    got: list[tuple[int, Connection | None]] = []

    async def wait(number: int) -> None:
        got.append((number, await pool.wait(HERE, 1.0)))

    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(wait, number)
            await wait_all_tasks_blocked()
        pool.release(first)
        await wait_all_tasks_blocked()
        assert got == [(0, first)]
        assert (pool.statistics().in_use, pool.statistics().idle) == (1, 0)
        pool.release(first)
    assert got == [(0, first), (1, first)]


async def test_post_gets_no_connection_of_another_origin(pool: Pool) -> None:
    in_use(pool, 1)
    [other] = in_use(pool, 1, THERE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.wait, HERE, 1.0)
        await wait_all_tasks_blocked()
        pool.release(other)
        assert pool.statistics().idle == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("ends", ["dead", "discarded"])
async def test_wait_ends_with_the_last_connection(pool: Pool, ends: str) -> None:
    [last] = in_use(pool, 1)
    got: list[Connection | None] = []

    async def wait() -> None:
        got.append(await pool.wait(HERE, 1.0))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        if ends == "dead":
            cast(SocketlessConnection, last).reusable = False
            pool.release(last)
        else:
            pool.discard(last)
    assert got == [None]
    assert trio.current_time() - began < 1.0


@pytest.mark.parametrize("ends", ["dead", "discarded"])
async def test_post_takes_the_place_of_a_closed_connection(pool: Pool, ends: str) -> None:
    closed, hanging = in_use(pool, 2)
    got: list[tuple[int, Connection | None]] = []

    async def wait(number: int) -> None:
        got.append((number, await pool.wait(HERE, 1.0)))

    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(wait, number)
            await wait_all_tasks_blocked()
        if ends == "dead":
            cast(SocketlessConnection, closed).reusable = False
            pool.release(closed)
        else:
            pool.discard(closed)
        await wait_all_tasks_blocked()
        assert got == [(0, None)]
        assert (pool.statistics().in_use, pool.statistics().idle) == (1, 0)
        pool.release(hanging)
    assert got == [(0, None), (1, hanging)]


@pytest.mark.parametrize(("seconds", "waited"), [(0.25, 0.25), (15.0, MAX_WAIT_SECONDS)])
async def test_wait_ends_at_its_limit(
    autojump_clock: MockClock, seconds: float, waited: float
) -> None:
    async with opened_pool() as pool:
        in_use(pool, 1)
        began = trio.current_time()
        assert await pool.wait(HERE, seconds) is None
        assert trio.current_time() - began == waited


async def test_connection_that_comes_at_the_limit_is_not_lost(mock_clock: MockClock) -> None:
    async with opened_pool() as pool, trio.open_nursery() as nursery:
        [connection] = in_use(pool, 1)
        got: list[Connection | None] = []

        async def wait() -> None:
            got.append(await pool.wait(HERE, 1.0))

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        mock_clock.jump(1.0)  # both happen in one pass of the scheduler
        pool.release(connection)
        await wait_all_tasks_blocked()
        assert got == [connection]
        pool.release(connection)
        assert (pool.statistics().in_use, pool.statistics().idle) == (0, 1)


async def test_cancelled_wait_takes_no_connection(pool: Pool) -> None:
    [connection] = in_use(pool, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.wait, HERE, 1.0)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        pool.release(connection)
    assert (pool.statistics().in_use, pool.statistics().idle) == (0, 1)


def test_load_is_that_of_the_last_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"clock": 0.0, "computed": 0.0}
    clocks = SimpleNamespace(perf_counter=lambda: now["clock"], thread_time=lambda: now["computed"])
    monkeypatch.setattr(pool_module, "time", clocks)
    load = ThreadLoad()
    found = []
    for elapsed, computed in [(0.03, 0.02), (0.001, 0.0), (10.0, 0.5), (0.03, 0.01)]:
        now["clock"] += elapsed
        now["computed"] += computed
        found.append(round(load.share(), 6))
    assert found == [0.666667, 0.666667, 0.049995, 0.333333]


async def slow(connection: ScriptedConnection) -> None:
    """Answer each request after 20 ms."""
    while await connection.request():
        await trio.sleep(0.02)
        await connection.answer(OK)


@pytest.mark.parametrize(("share", "connections"), [(-1.0, 1), (2.0, 5)])
async def test_sender_opens_no_connection_while_it_is_busy(
    share: float, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "BUSY_LOAD", share)
    monkeypatch.setattr(pool_module, "LOAD_SECONDS", 0.0)
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("hook.test").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async with (
        receiving(slow, context=serving) as receiver,
        open_sender(context=trusting, lookup=loopback) as opened,
    ):

        async def post() -> None:
            to = receiver.target("hook.test")
            await opened.post(to, b"{}", headers, timeout=20.0)

        await post()
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(post)
        assert receiver.connections == connections


async def test_sender_that_is_closed_ends_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "BUSY_LOAD", -1.0)
    monkeypatch.setattr(pool_module, "LOAD_SECONDS", 0.0)
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("hook.test").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    ended: list[int] = []
    requested, both_ended = trio.Event(), trio.Event()

    async def hang(connection: ScriptedConnection) -> None:
        await connection.request()
        requested.set()
        await trio.sleep_forever()

    async with receiving(hang, context=serving) as receiver, trio.open_nursery() as nursery:

        async def post(number: int) -> None:
            with suppress(NetworkError):
                await opened.post(receiver.target("hook.test"), b"{}", headers, timeout=60.0)
            ended.append(number)
            if len(ended) == 2:
                both_ended.set()

        async with open_sender(context=trusting, lookup=loopback) as opened:
            nursery.start_soon(post, 0)
            await requested.wait()
            nursery.start_soon(post, 1)
            await wait_all_tasks_blocked(0.01)
        with trio.fail_after(5):
            await both_ended.wait()
    assert receiver.connections == 1


class Handshake:
    """A TLS session whose handshake takes two steps; it notes the pass of each."""

    def __init__(self, passes: list[int], now: list[int]) -> None:
        self.left, self.passes, self.now = 2, passes, now

    def do_handshake(self) -> None:
        self.passes.append(self.now[0])
        self.left -= 1
        if self.left:
            raise ssl.SSLWantReadError


async def test_handshake_steps_yield_to_other_tasks() -> None:
    handshaking, passes, now = trio.Lock(), list[int](), [0]
    context = SimpleNamespace(wrap_bio=lambda *_, **__: Handshake(passes, now))

    async def count_passes() -> None:
        while True:
            now[0] += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_passes)
        with ExitStack() as opened:
            async with trio.open_nursery() as handshakes:
                for _ in range(20):
                    here, there = (opened.enter_context(each) for each in socket.socketpair())
                    there.sendall(b"an answer")
                    connection = TlsConnection(
                        HERE, here, cast(ssl.SSLContext, context), SessionCache()
                    )
                    handshakes.start_soon(connection.do_handshake, handshaking)
        nursery.cancel_scope.cancel()
    assert len(passes) == 40
    # The order in a pass is random: a step may run after the count in one, before it in the next.
    assert max(passes.count(each) for each in passes) <= 2
