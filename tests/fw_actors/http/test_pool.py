"""The synchronous steps of the pool, on connections that record their calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from fw_actors.http import Origin, PoolLimits
from fw_actors.http.exchange import Connection
from fw_actors.http.pool import Pool
from fw_actors.runtime.clock import Deadlines

HERE, THERE = Origin("http", "here", 80), Origin("http", "there", 80)


class FakeConnection:
    """A connection without a socket."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.address = ""
        self.idle_since = 0.0
        self.broken = False
        self.quiet = True
        self.closed = 0

    async def start(self, data: bytes) -> int:
        return len(data)

    async def send(self, data: memoryview) -> None:
        return None

    async def receive(self, limit: int) -> bytes:
        return b""

    async def receive_ready(self, limit: int) -> bytes:
        return b""

    def is_reusable(self) -> bool:
        return self.quiet and not self.broken

    def close(self) -> None:
        self.closed += 1


class ManualClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pool_at(clock: ManualClock, limits: PoolLimits) -> Pool:
    """A pool in which nobody waits."""
    return Pool(limits, cast(Deadlines, SimpleNamespace(now=clock)))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pool(clock: ManualClock) -> Pool:
    return pool_at(clock, PoolLimits(idle=3, idle_per_origin=2, idle_seconds=10.0))


def used(pool: Pool, origin: Origin = HERE) -> FakeConnection:
    """A connection that was dialled and came back."""
    connection = FakeConnection(origin)
    pool.add(connection)
    pool.release(connection)
    return connection


def test_pool_gives_last_returned_connection_first(pool: Pool) -> None:
    """Connections that are not needed may grow old and be closed."""
    first, second = used(pool), used(pool)
    assert (pool.take(HERE), pool.take(HERE), pool.take(HERE)) == (second, first, None)


def test_pool_gives_connection_only_to_its_origin(pool: Pool) -> None:
    used(pool)
    for other in (THERE, Origin("https", "here", 80), Origin("http", "here", 81)):
        assert pool.take(other) is None


def test_pool_closes_connections_above_origin_limit(pool: Pool) -> None:
    connections = [FakeConnection(HERE) for _ in range(3)]
    for connection in connections:
        pool.add(connection)
    for connection in connections:
        pool.release(connection)
    assert [connection.closed for connection in connections] == [0, 0, 1]


def test_pool_closes_oldest_idle_connection_for_another_origin(pool: Pool) -> None:
    connections = [used(pool, Origin("http", name, 80)) for name in "abcd"]
    assert [connection.closed for connection in connections] == [1, 0, 0, 0]
    assert pool.take(Origin("http", "a", 80)) is None
    assert pool.statistics().origins == 3


def test_pool_keeps_connection_that_displaces_older_sibling(clock: ManualClock) -> None:
    """The oldest of all may be the only one that its origin had."""
    pool = pool_at(clock, PoolLimits(idle=2, idle_per_origin=2, idle_seconds=10.0))
    mine = [FakeConnection(HERE), FakeConnection(HERE)]
    for connection in mine:
        pool.add(connection)
    pool.release(mine[0])
    used(pool, THERE)
    pool.release(mine[1])
    assert [connection.closed for connection in mine] == [1, 0]
    assert pool.take(HERE) is mine[1]
    pool.release(mine[1])
    clock.now += 10.0
    pool.sweep()
    assert (mine[1].closed, pool.statistics().idle, pool.statistics().origins) == (1, 0, 0)


def test_origins_that_take_turns_keep_equal_shares(clock: ManualClock) -> None:
    """The oldest connection is that of the origin whose turn is next (B-157)."""
    pool = pool_at(clock, PoolLimits(idle=8, idle_per_origin=4, idle_seconds=60.0))
    origins = [Origin("http", name, 80) for name in "abcd"]
    reused: dict[Origin, int] = {}
    for _ in range(3):
        reused = dict.fromkeys(origins, 0)
        for origin in origins:
            taken: list[Connection] = []
            for _ in range(4):
                kept = pool.take(origin)
                reused[origin] += kept is not None
                connection = kept or cast(Connection, FakeConnection(origin))
                if kept is None:
                    pool.add(connection)
                taken.append(connection)
            for connection in taken:
                pool.release(connection)
            clock.now += 1.0
    assert reused == dict.fromkeys(origins, 2)
    assert pool.statistics().idle == 8


def test_pool_closes_connection_that_is_not_reusable(pool: Pool) -> None:
    good, bad = used(pool), used(pool)
    bad.quiet = False
    assert pool.take(HERE) is good
    assert (good.closed, bad.closed) == (0, 1)


def test_pool_closes_connection_idle_too_long(pool: Pool, clock: ManualClock) -> None:
    old = used(pool)
    clock.now += 10.0
    assert pool.take(HERE) is None
    assert old.closed == 1


def test_pool_sweep_closes_only_old_and_dead_connections(pool: Pool, clock: ManualClock) -> None:
    old = used(pool)
    clock.now += 9.0
    dead, good = used(pool, THERE), used(pool, THERE)
    dead.quiet = False
    clock.now += 1.0
    pool.sweep()
    assert (old.closed, dead.closed, good.closed) == (1, 1, 0)
    assert pool.statistics().idle == 1


def test_pool_keeps_nothing_after_close(pool: Pool) -> None:
    idle, out = used(pool), FakeConnection(HERE)
    pool.add(out)
    pool.close_all()
    assert (idle.closed, out.closed) == (1, 0)
    pool.release(out)
    assert (out.closed, pool.statistics().idle, pool.statistics().in_use) == (1, 0, 0)


@pytest.mark.parametrize("limits", [PoolLimits(idle=0), PoolLimits(idle_per_origin=0)])
def test_pool_with_zero_limit_keeps_nothing(limits: PoolLimits, clock: ManualClock) -> None:
    assert used(pool_at(clock, limits)).closed == 1


class PoolMachine(RuleBasedStateMachine):
    """In any order of steps the counts are exact, and no connection is shared."""

    out = Bundle("out")

    def __init__(self) -> None:
        super().__init__()
        self.time = ManualClock()
        self.limits = PoolLimits(idle=2, idle_per_origin=2, idle_seconds=10.0)
        self.pool = pool_at(self.time, self.limits)
        self.all: list[FakeConnection] = []
        self.held: set[FakeConnection] = set()

    @rule(target=out, origin=st.sampled_from([HERE, THERE]))
    def begin(self, origin: Origin) -> FakeConnection:
        connection = self.pool.take(origin)
        if connection is None:
            connection = FakeConnection(origin)
            self.all.append(connection)
            self.pool.add(connection)
        assert isinstance(connection, FakeConnection)
        assert connection not in self.held
        assert (connection.origin, connection.closed) == (origin, 0)
        self.held.add(connection)
        return connection

    @rule(connection=consumes(out))
    def end_well(self, connection: FakeConnection) -> None:
        self.held.remove(connection)
        self.pool.release(connection)

    @rule(connection=consumes(out))
    def end_badly(self, connection: FakeConnection) -> None:
        self.held.remove(connection)
        self.pool.discard(connection)

    @rule(seconds=st.floats(0, 12))
    def wait(self, seconds: float) -> None:
        self.time.now += seconds

    @rule(data=st.data())
    def hang_up(self, data: st.DataObject) -> None:
        if self.all:
            data.draw(st.sampled_from(self.all)).quiet = False

    @rule()
    def sweep(self) -> None:
        self.pool.sweep()

    @invariant()
    def counts_are_what_is_there(self) -> None:
        now = self.pool.statistics()
        living = [connection for connection in self.all if not connection.closed]
        assert all(connection.closed <= 1 for connection in self.all)
        assert all(not connection.closed for connection in self.held)
        assert (now.in_use, now.idle) == (len(self.held), len(living) - len(self.held))
        assert (now.opened, now.closed) == (len(self.all), len(self.all) - len(living))
        assert now.idle <= self.limits.idle
        idle = [connection for connection in living if connection not in self.held]
        origins = {connection.origin for connection in idle}
        assert now.origins == len(origins)
        for origin in origins:
            assert sum(c.origin == origin for c in idle) <= self.limits.idle_per_origin


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
