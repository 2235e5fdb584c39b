"""The share of the store's readers for a user whose reads are slow (H-142)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import trio
import trio.testing

from fw_actors.actors import gateway
from fw_actors.actors.gateway import ReadShares
from fw_actors.errors import OverloadedError
from fw_actors.store import Store

AT_ONCE = 8


class ThreadStore:
    """Runs each read in a thread, however many there are; counts those that run at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running = self.peak = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        with self._lock:
            self.running += 1
            self.peak = max(self.peak, self.running)
        yield
        with self._lock:
            self.running -= 1

    async def read(self, fn: Callable[[Any], Any]) -> Any:
        def run() -> Any:
            with self.counting():
                return fn(None)

        return await trio.to_thread.run_sync(run)


def slow(_: object) -> None:
    time.sleep(0.02)


@pytest.fixture(autouse=True)
def slow_after_10_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "SLOW_READ_SECONDS", 0.01)


@pytest.fixture
def store() -> ThreadStore:
    return ThreadStore()


async def peak_of(
    shares: ReadShares, store: ThreadStore, fn: Callable[[Any], object], reads: int = AT_ONCE
) -> int:
    """The number of reads of one user that ran at once."""
    store.peak = 0
    async with trio.open_nursery() as nursery:
        for _ in range(reads):
            nursery.start_soon(shares.read, cast("Store", store), "ann", fn)
    return store.peak


async def test_read_shares_do_not_limit_short_reads(
    store: ThreadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "SLOW_READ_SECONDS", 10.0)
    together = threading.Barrier(AT_ONCE, timeout=10)
    shares = ReadShares(2, 5.0)
    assert await peak_of(shares, store, lambda _: together.wait()) == AT_ONCE
    assert len(shares) == 0


@pytest.mark.parametrize(("readers", "at_once"), [(4, 3), (2, 1), (1, 1)])
async def test_read_shares_leave_one_reader_after_slow_read(
    store: ThreadStore, readers: int, at_once: int
) -> None:
    shares = ReadShares(readers, 5.0)
    await shares.read(cast("Store", store), "ann", slow)
    assert await peak_of(shares, store, slow) == at_once


async def test_read_shares_limit_reads_that_waited_for_slow_ones(store: ThreadStore) -> None:
    """They were admitted before a read of their user was slow, but have not begun."""
    shares, begin = ReadShares(2, 5.0), trio.Event()

    class LateStore(ThreadStore):
        async def read(self, fn: Callable[[Any], Any]) -> Any:
            await begin.wait()
            return await super().read(fn)

    counted = ThreadStore()

    def slow_and_counted(_: object) -> None:
        with counted.counting():
            slow(_)

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            busy = cast("Store", LateStore())
            nursery.start_soon(shares.read, busy, "ann", slow_and_counted)
        await trio.testing.wait_all_tasks_blocked()
        await shares.read(cast("Store", store), "ann", slow)
        begin.set()
    assert counted.peak == 1


async def test_read_shares_do_not_limit_other_users(store: ThreadStore) -> None:
    shares, over = ReadShares(2, 5.0), threading.Event()
    await shares.read(cast("Store", store), "ann", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shares.read, cast("Store", store), "ann", lambda _: over.wait(10))
        with trio.fail_after(5):
            await shares.read(cast("Store", store), "bob", lambda _: None)
        over.set()


async def test_read_shares_end_after_a_time_without_slow_reads(
    store: ThreadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "SLOW_READER_SECONDS", -1.0)
    shares = ReadShares(2, 5.0)
    await shares.read(cast("Store", store), "ann", slow)
    assert len(shares) == 1
    await shares.read(cast("Store", store), "ann", lambda _: None)
    assert len(shares) == 0


async def test_read_shares_refuse_a_read_that_waits_too_long(store: ThreadStore) -> None:
    shares, over = ReadShares(2, 0.05), threading.Event()
    await shares.read(cast("Store", store), "ann", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shares.read, cast("Store", store), "ann", lambda _: over.wait(10))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OverloadedError, match="Too many of your queries"):
            await shares.read(cast("Store", store), "ann", slow)
        over.set()


async def test_read_shares_keep_a_limited_number_of_slow_users(
    store: ThreadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "MAX_READ_SHARES", 2)
    shares = ReadShares(2, 5.0)
    for user in ("ann", "bob", "cleo"):
        await shares.read(cast("Store", store), user, slow)
    assert len(shares) == 1


async def test_read_shares_keep_nothing_of_a_cancelled_read(store: ThreadStore) -> None:
    shares = ReadShares(2, 5.0)
    with trio.CancelScope() as scope:
        scope.cancel()
        await shares.read(cast("Store", store), "ann", lambda _: None)
    assert len(shares) == 0
