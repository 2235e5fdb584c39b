"""A readiness check never hangs with the store: ready is 503 then (H-102)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.background import StoreProbe, read_with_deadline
from fw_actors.errors import OverloadedError
from fw_actors.runtime import Ref, SeededEntropy, SilentLog, TrioClock, open_runtime
from fw_actors.store import StatementError
from supervisors.children import actor_child
from supervisors.tree import open_supervisor
from tests.mail_kit import RecordingLog

T = TypeVar("T")
SECONDS = 2.0


class BlockableStore:
    """Answers while it is `open`; earlier reads are answered once it opens."""

    def __init__(self) -> None:
        self.open = trio.Event()
        self.open.set()
        self.error: Exception | None = None
        self.reads = 0

    async def read(self, fn: Callable[[Any], T], *, reserved: bool = False) -> T:
        self.reads += 1
        with trio.CancelScope(shield=True):  # like a read that has begun
            await self.open.wait()
        if self.error is not None:
            raise self.error
        return fn(None)


@asynccontextmanager
async def probing(store: Any, log: Any = None) -> AsyncIterator[Ref]:
    log = log or SilentLog()
    async with open_runtime(clock=TrioClock(0), entropy=SeededEntropy(1), log=log) as runtime:
        child = actor_child("probe", lambda: StoreProbe(store))
        async with open_supervisor(runtime, "top", [child], stop_seconds=1.0):
            yield runtime.ref("probe")


async def test_read_with_deadline_returns_answer_of_store(autojump_clock: MockClock) -> None:
    async with probing(BlockableStore()) as probe:
        assert await read_with_deadline(probe, lambda tx: 7, SECONDS) == 7


async def test_read_with_deadline_returns_none_while_store_hangs(
    autojump_clock: MockClock,
) -> None:
    store = BlockableStore()
    async with probing(store) as probe:
        store.open = trio.Event()
        for _ in range(3):
            began = trio.current_time()
            assert await read_with_deadline(probe, lambda tx: 7, SECONDS) is None
            assert trio.current_time() - began == pytest.approx(SECONDS)
        store.open.set()
        assert await read_with_deadline(probe, lambda tx: 7, SECONDS) == 7
        assert store.reads == 2, "reads of callers that had left were skipped"


@pytest.mark.parametrize(
    "error", [OverloadedError("busy"), StatementError("broken"), ValueError("a defect")]
)
async def test_read_with_deadline_returns_none_on_store_error(
    error: Exception, autojump_clock: MockClock
) -> None:
    store = BlockableStore()
    async with probing(store) as probe:
        store.error = error
        for _ in range(20):  # more than the restarts that a supervisor allows
            assert await read_with_deadline(probe, lambda tx: 7, SECONDS) is None
        store.error = None
        assert await read_with_deadline(probe, lambda tx: 7, SECONDS) == 7


async def test_store_probe_logs_defect_but_no_unavailable_store(
    autojump_clock: MockClock,
) -> None:
    """docs/operating.md: `probe.failed` is a defect of the code."""
    store, log = BlockableStore(), RecordingLog()
    async with probing(store, log) as probe:
        for error in (OverloadedError("busy"), StatementError("broken"), ValueError("a defect")):
            store.error = error
            await read_with_deadline(probe, lambda tx: 7, SECONDS)
    assert log.of("probe.failed") == [{"error": "ValueError: a defect"}]


async def test_read_with_deadline_returns_none_without_running_probe(
    autojump_clock: MockClock,
) -> None:
    async with probing(BlockableStore()) as probe:
        pass
    assert await read_with_deadline(probe, lambda tx: 7, SECONDS) is None
