"""Connections whose clients keep the server waiting are bounded, and give way, longest first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from web.connections import (
    ClientConnection,
    ClientStream,
    ConnectionLimits,
    OpenConnections,
    WaitState,
)

PROXY = "10.0.0.1"
LIMITS = ConnectionLimits(
    connections=6,
    by_address=3,
    body_bytes=100,
    body_bytes_by_address=60,
    unread_bytes=1000,
    unread_bytes_by_address=600,
    request_seconds=10,
)


class NotingStream(ClientStream):
    """A stream that notes when it is aborted."""

    def __init__(self, inner: trio.SocketStream) -> None:
        super().__init__(inner)
        self.aborted_at: float | None = None

    def abort(self) -> None:
        super().abort()
        self.aborted_at = trio.current_time()


SOCKETS = ExitStack()


def connect(opened: OpenConnections, peer: str = "192.0.2.1") -> ClientConnection:
    ours, theirs = trio.socket.socketpair()
    SOCKETS.enter_context(ours)
    SOCKETS.enter_context(theirs)
    return opened.add(NotingStream(trio.SocketStream(ours)), peer)


def closed_at(connection: ClientConnection) -> float | None:
    stream = connection.stream
    assert isinstance(stream, NotingStream)
    return stream.aborted_at


def are_open(*connections: ClientConnection) -> list[bool]:
    return [closed_at(each) is None for each in connections]


@pytest.fixture
def opened() -> Iterator[OpenConnections]:
    with SOCKETS:
        yield OpenConnections(LIMITS, lambda peer: peer == PROXY)


@asynccontextmanager
async def watched(opened: OpenConnections) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(opened.close_expired)
        yield
        nursery.cancel_scope.cancel()


async def test_connection_has_its_full_time_from_the_last_request(
    opened: OpenConnections, autojump_clock: MockClock
) -> None:
    async with watched(opened):
        start = trio.current_time()
        first = connect(opened)
        await trio.sleep(4)
        second = connect(opened)
        await trio.sleep(4)
        first.end_wait()
        first.wait_for(WaitState.REQUEST)
        await trio.sleep(60)
        ends = [closed_at(first) or 0, closed_at(second) or 0]
        assert [end - start for end in ends] == [pytest.approx(18), pytest.approx(14)]
        assert len(opened) == 0


async def test_connection_with_a_request_in_progress_never_expires(
    opened: OpenConnections, autojump_clock: MockClock
) -> None:
    async with watched(opened):
        busy = connect(opened)
        busy.end_wait()
        await trio.sleep(60)
        assert are_open(busy) == [True]


async def test_make_room_closes_the_longest_waiting_connection(
    opened: OpenConnections, autojump_clock: MockClock
) -> None:
    made = []
    for number in range(6):
        made.append(connect(opened, f"192.0.2.{number}"))
        await trio.sleep(1)
    made[0].end_wait()  # has a request in hand
    made[1].end_wait()
    made[1].wait_for(WaitState.READING)  # its client has not begun to read: youngest now
    await opened.make_room()
    assert are_open(*made) == [True, True, False, True, True, True]
    connect(opened)
    await opened.make_room()
    assert are_open(*made) == [True, True, False, False, True, True]


async def test_make_room_closes_no_request_in_progress(
    opened: OpenConnections, nursery: trio.Nursery
) -> None:
    made = [connect(opened, f"192.0.2.{number}") for number in range(6)]
    for each in made:
        each.end_wait()
    has_room = trio.Event()

    async def make_room() -> None:
        await opened.make_room()
        has_room.set()

    nursery.start_soon(make_room)
    await trio.testing.wait_all_tasks_blocked()
    assert not has_room.is_set()
    made[4].wait_for(WaitState.REQUEST)
    with trio.fail_after(5):
        await has_room.wait()
    assert are_open(*made) == [True, True, True, True, False, True]


async def test_request_of_closed_connection_is_cancelled(opened: OpenConnections) -> None:
    """Its client cannot get the response (H-132)."""
    busy, idle = connect(opened), connect(opened)
    scopes = [trio.CancelScope(), trio.CancelScope()]
    busy.begin_request(scopes[0])
    opened.close(idle)
    assert [scope.cancel_called for scope in scopes] == [False, False]
    opened.close(busy)
    idle.begin_request(scopes[1])  # had arrived when its connection was closed
    assert [scope.cancel_called for scope in scopes] == [True, True]


@pytest.mark.parametrize(
    ("peer", "others"),
    [
        ("192.0.2.1", "192.0.2.2"),
        ("::ffff:192.0.2.1", "192.0.2.2"),
        ("2001:db8::1", "2001:db8:0:1::1"),
    ],
)
async def test_address_beyond_its_limit_loses_only_its_own_oldest(
    opened: OpenConnections, peer: str, others: str
) -> None:
    """H-123."""
    other = connect(opened, others)
    made = [connect(opened, peer) for _ in range(5)]
    assert are_open(other, *made) == [True, False, False, True, True, True]


async def test_ipv6_addresses_are_counted_by_64_bits(opened: OpenConnections) -> None:
    made = [connect(opened, f"2001:db8::{number}") for number in range(1, 5)]
    assert are_open(*made) == [False, True, True, True]


async def test_trusted_proxy_may_keep_all_connections_waiting(
    opened: OpenConnections,
) -> None:
    made = [connect(opened, PROXY) for _ in range(6)]
    assert all(are_open(*made))


async def test_address_is_counted_by_waiting_connections_only(opened: OpenConnections) -> None:
    made = []
    for _ in range(5):
        made.append(connect(opened))
        made[-1].end_wait()
    assert all(are_open(*made))
    for each in made:
        each.wait_for(WaitState.REQUEST)
    assert are_open(*made) == [False, False, True, True, True]


async def test_incomplete_bodies_of_an_address_have_their_own_limit(
    opened: OpenConnections,
) -> None:
    silent, first, second = (connect(opened) for _ in range(3))
    other = connect(opened, "192.0.2.2")
    for each in (first, second, other):
        each.wait_for(WaitState.BODY)
        each.hold(30)
    assert (all(are_open(silent, first, second, other)), opened.held_bytes(WaitState.BODY)) == (
        True,
        90,
    )
    second.hold(31)
    assert are_open(silent, first, second, other) == [True, False, True, True]
    assert opened.held_bytes(WaitState.BODY) == 61


async def test_incomplete_bodies_beyond_the_limit_close_the_oldest(
    opened: OpenConnections,
) -> None:
    made = [connect(opened, f"192.0.2.{number}") for number in range(4)]
    for each in made:
        each.wait_for(WaitState.BODY)
        each.hold(30)
    assert are_open(*made) == [False, True, True, True]
    made[1].end_wait()  # whole now: it counts no more
    assert opened.held_bytes(WaitState.BODY) == 60


async def test_incomplete_bodies_of_a_proxy_share_the_total_limit(
    opened: OpenConnections,
) -> None:
    made = [connect(opened, PROXY) for _ in range(3)]
    for each in made:
        each.wait_for(WaitState.BODY)
        each.hold(40)
    assert are_open(*made) == [False, True, True]


async def test_unread_responses_have_their_own_limits(
    opened: OpenConnections,
) -> None:
    body = connect(opened, "192.0.2.9")
    body.wait_for(WaitState.BODY)
    body.hold(60)
    made = [connect(opened, f"192.0.2.{number // 2}") for number in range(5)]
    for each in made:
        each.wait_for(WaitState.READING)
        each.hold(290)
    assert are_open(body, *made) == [True, False, False, True, True, True]
    made[3].hold(320)  # together with the other one of its address it is too much
    assert are_open(body, *made) == [True, False, False, False, True, True]
    made[3].end_wait()  # read now: it counts no more
    assert opened.held_bytes(WaitState.READING) == 290
    assert opened.held_bytes(WaitState.BODY) == 60


async def test_unread_response_beyond_every_limit_stays_if_alone(
    opened: OpenConnections,
) -> None:
    """An app's response may have any size, and waiting would not make it smaller."""
    made = [connect(opened) for _ in range(2)] + [connect(opened, "192.0.2.2")]
    for each in made:
        each.wait_for(WaitState.READING)
        each.hold(2000)
    assert are_open(*made) == [False, False, True]


async def test_end_closes_waiting_connections_and_awaits_the_others(
    opened: OpenConnections, nursery: trio.Nursery
) -> None:
    waiting, busy, reading = (connect(opened) for _ in range(3))
    busy.end_wait()
    reading.wait_for(WaitState.BODY)
    ended = trio.Event()

    async def end() -> None:
        await opened.end()
        ended.set()

    nursery.start_soon(end)
    await trio.testing.wait_all_tasks_blocked()
    assert are_open(waiting, busy, reading) == [False, True, True]
    new = connect(opened)
    opened.close(reading)
    await trio.testing.wait_all_tasks_blocked()
    assert not ended.is_set()
    opened.close(busy)
    with trio.fail_after(5):
        await ended.wait()
    assert are_open(new) == [True]
    opened.close_all()
    assert all(opened.count(each) == 0 for each in WaitState)
