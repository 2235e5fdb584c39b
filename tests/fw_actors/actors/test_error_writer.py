"""Recorded defects reach the Error Log (D-226)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.background import ERROR_LOG_RETRY_SECONDS, ErrorWriter
from fw_actors.actors.queue_worker import WakeUp
from fw_actors.errors import OverloadedError
from fw_actors.runtime import SeededEntropy, SilentLog, TrioClock, open_runtime
from supervisors.children import actor_child
from supervisors.tree import open_supervisor

T = TypeVar("T")


class CountingErrors:
    """Counts flushes; the store refuses the first `refuse` of them."""

    def __init__(self, refuse: int = 0) -> None:
        self.waits, self.flushed, self.refuse = True, 0, refuse

    def flush(self, tx: Any) -> int:
        self.waits = False
        self.flushed += 1
        return 1


class RefusingStore:
    """Refuses the first `refuse` writes."""

    def __init__(self, errors: CountingErrors) -> None:
        self._errors = errors

    async def write(self, fn: Callable[[Any], T]) -> T:
        if self._errors.refuse:
            self._errors.refuse -= 1
            raise OverloadedError
        return fn(None)


@pytest.mark.parametrize("refuse", [0, 2])
async def test_error_writer_flushes_on_wake_up_and_retries_overload(
    refuse: int, autojump_clock: MockClock
) -> None:
    errors: Any = CountingErrors(refuse)
    store: Any = RefusingStore(errors)
    log: Any = SilentLog()
    async with open_runtime(clock=TrioClock(0), entropy=SeededEntropy(1), log=log) as runtime:
        child = actor_child("errors", lambda: ErrorWriter(store, errors))
        async with open_supervisor(runtime, "top", [child], stop_seconds=1.0):
            runtime.ref("errors").tell(WakeUp())
            await trio.sleep(refuse * ERROR_LOG_RETRY_SECONDS + 1)
            assert errors.flushed == 1
            runtime.ref("errors").tell(WakeUp())  # the queue is empty now
            await trio.sleep(1)
            assert errors.flushed == 1


async def test_error_writer_survives_long_overload_with_bounded_retries(
    autojump_clock: MockClock,
) -> None:
    """The store gets one write in five seconds, independent of the number of defects."""
    errors: Any = CountingErrors(refuse=10_000)
    store: Any = RefusingStore(errors)
    log: Any = SilentLog()
    async with open_runtime(clock=TrioClock(0), entropy=SeededEntropy(1), log=log) as runtime:
        child = actor_child("errors", lambda: ErrorWriter(store, errors))
        async with open_supervisor(runtime, "top", [child], stop_seconds=1.0) as supervisor:
            for _ in range(200):
                runtime.ref("errors").tell(WakeUp())
                await trio.sleep(0.1)
            assert 10_000 - errors.refuse <= 200 * 0.1 / ERROR_LOG_RETRY_SECONDS + 1
            assert [child.failed for child in supervisor.snapshot().children] == [0]
            errors.refuse = 0
            await trio.sleep(ERROR_LOG_RETRY_SECONDS)
            assert errors.flushed == 1
