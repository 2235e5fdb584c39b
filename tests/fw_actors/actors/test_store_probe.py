"""A readiness check never hangs with the store: ready is 503 then (H-102)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.metrics import StoreProbe, read_with_deadline
from fw_actors.errors import OverloadedError
from fw_actors.runtime import Ref, SeededEntropy, SilentLog, TrioClock, open_runtime
from fw_actors.store import StatementError
from supervisors.children import actor_child
from supervisors.tree import open_supervisor

T = TypeVar("T")
SECONDS = 2.0


class Store:
    """Answers while it is `open`; what was asked before is answered once it is."""

    def __init__(self) -> None:
        self.open = trio.Event()
        self.open.set()
        self.error: Exception | None = None
        self.reads = 0

    async def read(self, fn: Callable[[Any], T], *, reserved: bool = False) -> T:
        self.reads += 1
        with trio.CancelScope(shield=True):  # as a read that has begun
            await self.open.wait()
        if self.error is not None:
            raise self.error
        return fn(None)


@asynccontextmanager
async def looking(store: Any) -> AsyncIterator[Ref]:
    log: Any = SilentLog()
    async with open_runtime(clock=TrioClock(0), entropy=SeededEntropy(1), log=log) as runtime:
        child = actor_child("probe", lambda: StoreProbe(store))
        async with open_supervisor(runtime, "top", [child], stop_seconds=1.0):
            yield runtime.ref("probe")


async def test_what_the_store_answers_is_handed_on(autojump_clock: MockClock) -> None:
    async with looking(Store()) as probe:
        assert await read_with_deadline(probe, lambda tx: 7, SECONDS) == 7


async def test_a_store_that_hangs_is_waited_for_until_the_deadline_by_each_who_asks(
    autojump_clock: MockClock,
) -> None:
    store = Store()
    async with looking(store) as probe:
        store.open = trio.Event()
        for _ in range(3):
            began = trio.current_time()
            assert await read_with_deadline(probe, lambda tx: 7, SECONDS) is None
            assert trio.current_time() - began == pytest.approx(SECONDS)
        store.open.set()
        assert await read_with_deadline(probe, lambda tx: 7, SECONDS) == 7
        assert store.reads == 2, "who had left was not read for"


@pytest.mark.parametrize(
    "error", [OverloadedError("busy"), StatementError("broken"), ValueError("a defect")]
)
async def test_a_store_that_refuses_has_not_answered(
    error: Exception, autojump_clock: MockClock
) -> None:
    store = Store()
    async with looking(store) as probe:
        store.error = error
        for _ in range(20):  # more than a supervisor forgives
            assert await read_with_deadline(probe, lambda tx: 7, SECONDS) is None
        store.error = None
        assert await read_with_deadline(probe, lambda tx: 7, SECONDS) == 7


async def test_who_asks_before_it_runs_or_after_is_not_kept_waiting(
    autojump_clock: MockClock,
) -> None:
    async with looking(Store()) as probe:
        pass
    assert await read_with_deadline(probe, lambda tx: 7, SECONDS) is None
