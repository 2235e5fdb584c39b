"""The threads of a store outlive a defect of their engine."""

from __future__ import annotations

from collections.abc import Callable

import outcome
import pytest
import trio

from fw_actors.errors import OverloadedError
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


async def test_executor_refuses_call_of_failed_engine_and_serves_the_next() -> None:
    executor = ThreadExecutor("reader", [DefectiveEngine()], 10, noticed=lambda: None)
    with trio.fail_after(60):
        executor.poll()
        with pytest.raises(OverloadedError, match=r"The store failed\."):
            await executor.execute(lambda tx: None, 0)
        assert await executor.execute(lambda tx: None, 0) == 7
        await executor.close()
