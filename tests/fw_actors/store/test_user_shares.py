"""The share of the store's threads for a user whose calls are slow (H-142, H-143)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing

from fw_actors.errors import OverloadedError
from fw_actors.store import UserShares

AT_ONCE = 8


class Waited(NamedTuple):
    """A transaction that has waited for another process."""

    waited_seconds: float


class ThreadStore:
    """Runs each call in a thread, however many there are; counts those that run at once."""

    def __init__(self, waited_seconds: float = 0.0) -> None:
        self.waited_seconds = waited_seconds
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
                return fn(Waited(self.waited_seconds))

        return await trio.to_thread.run_sync(run)


class LateStore(ThreadStore):
    """Begins its calls at an event."""

    def __init__(self, begin: trio.Event) -> None:
        super().__init__()
        self._begin = begin

    async def read(self, fn: Callable[[Any], Any]) -> Any:
        await self._begin.wait()
        return await super().read(fn)


def slow(_: object) -> None:
    time.sleep(0.02)


def slow_within(store: ThreadStore, _: object) -> None:
    """Run a slow call that `store` counts."""
    with store.counting():
        slow(_)


def shares_of(
    threads: int = 2,
    *,
    slow_seconds: float = 0.01,
    slow_user_seconds: float = 60.0,
    max_wait_seconds: float = 5.0,
) -> UserShares:
    return UserShares(
        threads, slow_seconds, slow_user_seconds, max_wait_seconds, "Too many of your calls wait."
    )


@pytest.fixture
def store() -> ThreadStore:
    return ThreadStore()


async def peak_of(
    shares: UserShares, store: ThreadStore, fn: Callable[[Any], object], calls: int = AT_ONCE
) -> int:
    """The number of calls of one user that ran at once."""
    store.peak = 0
    async with trio.open_nursery() as nursery:
        for _ in range(calls):
            nursery.start_soon(shares.run, store.read, "ann", fn)
    return store.peak


async def test_user_shares_do_not_limit_short_calls(
    store: ThreadStore,
) -> None:
    together = threading.Barrier(AT_ONCE, timeout=10)
    shares = shares_of(slow_seconds=10.0)
    assert await peak_of(shares, store, lambda _: together.wait()) == AT_ONCE
    assert len(shares) == 0


@pytest.mark.parametrize(("threads", "at_once"), [(4, 3), (2, 1), (1, 1)])
async def test_user_shares_leave_one_thread_after_slow_call(
    store: ThreadStore, threads: int, at_once: int
) -> None:
    shares = shares_of(threads)
    await shares.run(store.read, "ann", slow)
    assert await peak_of(shares, store, slow) == at_once


async def test_user_shares_do_not_count_waits_for_other_processes() -> None:
    """Otherwise the slow writes of one process would limit the users of another one."""
    shares, store = shares_of(), ThreadStore(waited_seconds=0.02)
    await shares.run(store.read, "ann", slow)
    assert len(shares) == 0


async def test_user_shares_limit_calls_that_waited_for_slow_ones(store: ThreadStore) -> None:
    """They were admitted before a call of their user was slow, but have not begun."""
    shares, begin = shares_of(), trio.Event()

    counted = ThreadStore()
    slow_and_counted = partial(slow_within, counted)
    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(shares.run, LateStore(begin).read, "ann", slow_and_counted)
        await trio.testing.wait_all_tasks_blocked()
        await shares.run(store.read, "ann", slow)
        begin.set()
    assert counted.peak == 1


async def test_user_shares_limit_calls_while_a_slow_one_is_committed() -> None:
    """A call that arrives after the function of a slow one has returned does not end the limit."""
    shares, ran, commit, begin = shares_of(), trio.Event(), trio.Event(), trio.Event()

    class CommittingStore(ThreadStore):
        async def read(self, fn: Callable[[Any], Any]) -> Any:
            result = await super().read(fn)
            ran.set()
            await commit.wait()
            return result

    counted = ThreadStore()
    slow_and_counted = partial(slow_within, counted)
    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(shares.run, LateStore(begin).read, "ann", slow_and_counted)
        nursery.start_soon(shares.run, CommittingStore().read, "ann", slow)
        await ran.wait()
        nursery.start_soon(shares.run, LateStore(begin).read, "ann", slow_and_counted)
        await trio.testing.wait_all_tasks_blocked()
        begin.set()
        await trio.sleep(0.2)
        commit.set()
    assert counted.peak == 1


async def test_user_shares_do_not_limit_other_users(store: ThreadStore) -> None:
    shares, over = shares_of(), threading.Event()
    await shares.run(store.read, "ann", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shares.run, store.read, "ann", lambda _: over.wait(10))
        with trio.fail_after(5):
            await shares.run(store.read, "bob", lambda _: None)
        over.set()


async def test_user_shares_end_after_a_time_without_slow_calls(
    store: ThreadStore,
) -> None:
    shares = shares_of(slow_user_seconds=-1.0)
    await shares.run(store.read, "ann", slow)
    assert len(shares) == 1
    await shares.run(store.read, "ann", lambda _: None)
    assert len(shares) == 0


async def test_user_shares_refuse_a_call_that_waits_too_long(store: ThreadStore) -> None:
    shares, over = shares_of(max_wait_seconds=0.05), threading.Event()
    await shares.run(store.read, "ann", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shares.run, store.read, "ann", lambda _: over.wait(10))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OverloadedError, match="Too many of your calls wait"):
            await shares.run(store.read, "ann", slow)
        over.set()


async def test_user_shares_keep_a_limited_number_of_slow_users(
    store: ThreadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fw_actors.store.store.MAX_USER_SHARES", 2)
    shares = shares_of()
    for user in ("ann", "bob", "cleo"):
        await shares.run(store.read, user, slow)
    assert len(shares) == 1


async def test_user_shares_keep_nothing_of_a_cancelled_call(store: ThreadStore) -> None:
    shares = shares_of()
    with trio.CancelScope() as scope:
        scope.cancel()
        await shares.run(store.read, "ann", lambda _: None)
    assert len(shares) == 0
