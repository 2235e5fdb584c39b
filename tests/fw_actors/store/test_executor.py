"""The threads of a store outlive a defect of their engine, and tell what they wait for."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import outcome
import pytest
import trio
import trio.testing

from fw_actors.errors import OverloadedError
from fw_actors.runtime.clock import SeededEntropy, SystemClock
from fw_actors.store import executor as executors
from fw_actors.store import open_sqlite
from fw_actors.store.executor import EngineCounts, Pull, ThreadExecutor, WorkItem


class DefectiveEngine:
    """An engine that fails at the first run, after it has taken an item, and at each poll."""

    def __init__(self) -> None:
        self.counts = EngineCounts()
        self.failures = 1

    def run(self, first: WorkItem, pull: Pull, empty: Callable[[], bool]) -> list[WorkItem]:
        first.begin()
        if self.failures:
            self.failures -= 1
            raise MemoryError
        first.answer = outcome.Value(7)
        return [first]

    def poll(self) -> bool:
        raise MemoryError

    def close(self) -> None:
        """Do nothing."""


class PlainEngine(DefectiveEngine):
    """An engine that runs each function without a transaction."""

    def run(self, first: WorkItem, pull: Pull, empty: Callable[[], bool]) -> list[WorkItem]:
        first.begin()
        first.answer = outcome.Value(first.fn(None))  # type: ignore[arg-type]
        return [first]


async def test_executor_measures_longest_running_call() -> None:
    begun, release = threading.Event(), threading.Event()

    def wait(tx: object) -> None:
        begun.set()
        assert release.wait(60)

    executor = ThreadExecutor("writer", [PlainEngine()], 10)
    assert executor.longest_seconds == 0.0
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(executor.execute, wait, 0)
            await trio.to_thread.run_sync(begun.wait, 60)
            first = executor.longest_seconds
            assert executor.longest_seconds > first > 0.0
            release.set()
        await executor.close()
    assert executor.longest_seconds == 0.0


async def test_executor_logs_place_of_slow_call_that_others_wait_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A hook or a job that does not return: nothing else tells for what all writes wait."""
    monkeypatch.setattr(executors, "SLOW_SECONDS", 0.0)
    begun, release = threading.Event(), threading.Event()

    def wait(tx: object) -> None:
        begun.set()
        assert release.wait(60)

    executor = ThreadExecutor("writer", [PlainEngine()], 10)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(executor.execute, wait, 0)
            await trio.to_thread.run_sync(begun.wait, 60)
            for _ in range(3):
                nursery.start_soon(executor.execute, lambda tx: None, 0)
            await trio.testing.wait_all_tasks_blocked()
            release.set()
        await executor.close()
    (line,) = [each.getMessage() for each in caplog.records]
    assert re.fullmatch(
        r"a transaction has taken \d+ s so far, in test_executor\.py, line \d+", line
    )


async def test_statistics_log_slow_call_that_no_other_waits_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A site without users makes no other call, while its metrics are read."""
    monkeypatch.setattr(executors, "SLOW_SECONDS", 0.0)
    begun, release = threading.Event(), threading.Event()

    def wait(tx: object) -> None:
        begun.set()
        assert release.wait(60)

    opening = open_sqlite(path, clock=SystemClock(), entropy=SeededEntropy(1))
    with trio.fail_after(60):
        async with opening as store, trio.open_nursery() as nursery:
            nursery.start_soon(store.write, wait)
            await trio.to_thread.run_sync(begun.wait, 60)
            store.statistics()
            release.set()
    assert [each.getMessage()[:26] for each in caplog.records] == ["a transaction has taken 0 "]


async def test_executor_refuses_call_of_failed_engine_and_serves_the_next() -> None:
    executor = ThreadExecutor("reader", [DefectiveEngine()], 10, noticed=lambda: None)
    with trio.fail_after(60):
        executor.poll()
        with pytest.raises(OverloadedError, match=r"The store failed\."):
            await executor.execute(lambda tx: None, 0)
        assert await executor.execute(lambda tx: None, 0) == 7
        await executor.close()
