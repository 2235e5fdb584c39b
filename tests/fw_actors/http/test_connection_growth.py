"""The number of TLS connections grows only if useful, and handshakes starve no task (B-154)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import cast

import pytest
import trio
import trustme
from trio.testing import MockClock, wait_all_tasks_blocked

from fw_actors.http import Origin, PoolLimits, dial, open_sender
from fw_actors.http.dial import Address
from fw_actors.http.exchange import Connection
from fw_actors.http.pool import WAIT_SECONDS, Pool
from fw_actors.http.tls import RecordStream, Tls
from tests.fw_actors.http.receiver import OK, Talk, headers, receiving

HERE, THERE = Origin("https", "here", 443), Origin("https", "there", 443)
PLAIN = Origin("http", "here", 80)


class Held:
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


def in_use(kept: Pool, count: int, origin: Origin = HERE) -> Sequence[Connection]:
    connections = [cast(Connection, Held(origin)) for _ in range(count)]
    for connection in connections:
        kept.add(connection)
    return connections


async def test_pool_reports_origins_in_use() -> None:
    kept = Pool(PoolLimits())
    first, second = in_use(kept, 2)
    kept.give_back(first)
    assert kept.is_in_use(HERE)
    kept.discard(second)
    assert not kept.is_in_use(HERE)
    assert kept.take(HERE) is first
    assert kept.is_in_use(HERE)
    assert not kept.is_in_use(THERE)


async def test_pool_never_waits_for_plain_connection() -> None:
    kept = Pool(PoolLimits())
    in_use(kept, 1, PLAIN)
    assert not kept.is_in_use(PLAIN)


async def test_pool_serves_longest_waiting_post_first() -> None:
    kept = Pool(PoolLimits())
    [first] = in_use(kept, 1)
    got: list[tuple[int, Connection | None]] = []

    async def wait(number: int) -> None:
        got.append((number, await kept.wait(HERE)))

    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(wait, number)
            await wait_all_tasks_blocked()
        kept.give_back(first)
        await wait_all_tasks_blocked()
        assert got == [(0, first)]
        assert (kept.statistics().in_use, kept.statistics().idle) == (1, 0)
        kept.give_back(first)
    assert got == [(0, first), (1, first)]


async def test_pool_serves_only_posts_of_same_origin(
    autojump_clock: MockClock,
) -> None:
    kept = Pool(PoolLimits())
    [other] = in_use(kept, 1, THERE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.wait, HERE)
        await wait_all_tasks_blocked()
        kept.give_back(other)
        assert kept.statistics().idle == 1


async def test_pool_passes_on_no_dead_connection(autojump_clock: MockClock) -> None:
    kept = Pool(PoolLimits())
    [dead] = in_use(kept, 1)
    cast(Held, dead).reusable = False
    got: list[Connection | None] = []

    async def wait() -> None:
        got.append(await kept.wait(HERE))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        kept.give_back(dead)
    assert got == [None]


async def test_pool_ends_wait_after_quarter_second(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    assert await Pool(PoolLimits()).wait(HERE) is None
    assert trio.current_time() - began == WAIT_SECONDS


async def test_pool_keeps_connection_of_cancelled_wait() -> None:
    kept = Pool(PoolLimits())
    [connection] = in_use(kept, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.wait, HERE)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        kept.give_back(connection)
    assert (kept.statistics().in_use, kept.statistics().idle) == (0, 1)


async def slow(talk: Talk) -> None:
    """Answer each request after 20 ms."""
    while await talk.request():
        await trio.sleep(0.02)
        await talk.answer(OK)


@pytest.mark.parametrize(("busy", "connections"), [(0, 1), (9, 5)])
async def test_sender_dials_no_connection_while_handshakes_wait(
    busy: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial, "BUSY_HANDSHAKES", busy)
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("hook.test").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    def lookup(host: str, port: int) -> list[Address]:
        return [(socket.AF_INET, ("127.0.0.1", port))]

    async with (
        receiving(slow, context=serving) as receiver,
        open_sender(context=trusting, lookup=lookup) as opened,
    ):

        async def post() -> None:
            to = receiver.target("hook.test")
            await opened.post(to, b"{}", headers, timeout=20.0)

        await post()
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(post)
        assert receiver.connections == connections


class Handshake:
    """A TLS session whose handshake takes some steps; it notes the pass of each."""

    def __init__(self, passes: list[int], now: list[int]) -> None:
        self.left, self.passes, self.now = 3, passes, now

    def do_handshake(self) -> None:
        self.passes.append(self.now[0])
        self.left -= 1
        if self.left:
            raise ssl.SSLWantReadError


class HandshakeRecords:
    """A peer that answers at once."""

    async def send_all(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return b"record"


async def test_handshake_steps_yield_to_other_tasks() -> None:
    handshaking, passes, now = trio.Lock(), list[int](), [0]
    context = ssl.create_default_context()

    async def count_passes() -> None:
        while True:
            now[0] += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_passes)
        async with trio.open_nursery() as handshakes:
            for _ in range(20):
                tls = Tls(context, "hook.test")
                tls.session = cast(ssl.SSLObject, Handshake(passes, now))
                records = cast(RecordStream, HandshakeRecords())
                handshakes.start_soon(tls.do_handshake, records, handshaking)
        nursery.cancel_scope.cancel()
    assert len(passes) == 60
    # The order in a pass is random: a step may run after the count in one, before it in the next.
    assert max(passes.count(each) for each in passes) <= 2
