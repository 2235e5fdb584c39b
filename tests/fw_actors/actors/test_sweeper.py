"""When sweeps run: spec, Limits ("auth sweep | hourly", "removes older ones daily")."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.sweeper import DAILY, HOURLY, Schedule, Sweeper
from fw_actors.errors import OverloadedError
from fw_actors.runtime import SeededEntropy, TrioClock, open_runtime
from fw_actors.services.sweeps import BATCH
from tests.http_site import http_site
from tests.mail_kit import Log

T = TypeVar("T")
HOUR, DAY = 3600, 86_400


class Store:
    """Runs what it is given; `busy` of the calls are refused."""

    def __init__(self) -> None:
        self.busy = 0

    async def write(self, fn: Callable[[Any], T]) -> T:
        await trio.lowlevel.checkpoint()
        if self.busy:
            self.busy -= 1
            raise OverloadedError
        return fn(None)


class Step:
    """A batch that notes when it ran; `left` rows are there to delete."""

    def __init__(self, left: int = 0) -> None:
        self.left, self.times = left, list[float]()

    def __call__(self, tx: Any) -> int:
        self.times.append(round(trio.current_time(), 2))
        deleted = min(self.left, BATCH)
        self.left -= deleted
        return deleted


@asynccontextmanager
async def sweeping(store: Store, schedules: Mapping[str, Schedule]) -> AsyncIterator[Log]:
    log = Log()
    async with open_runtime(clock=TrioClock(0), entropy=SeededEntropy(1), log=log) as runtime:
        make: Any = lambda: Sweeper(store, log, schedules)  # type: ignore[arg-type]  # noqa: E731
        async with runtime.running("sweeper", make):
            yield log


async def test_each_sweep_runs_soon_after_the_start_and_then_by_its_schedule(
    autojump_clock: MockClock,
) -> None:
    hourly, daily = Step(), Step()
    schedules = {"auth": Schedule(HOURLY, (hourly,)), "webhooks": Schedule(DAILY, (daily,))}
    async with sweeping(Store(), schedules):
        await trio.sleep(DAY + HOUR)
    assert (hourly.times[0], len(hourly.times)) == (60.0, 25)
    assert {round(b - a) for a, b in pairwise(hourly.times)} == {HOUR}
    assert [round(at) for at in daily.times] == [60, 60 + DAY]


async def test_a_sweep_works_in_batches_with_a_pause_between(autojump_clock: MockClock) -> None:
    """Pitfalls, Retention: "in batches of at most 1,000 rows …, pausing between"."""
    first, second = Step(2 * BATCH + 5), Step(1)
    async with sweeping(Store(), {"auth": Schedule(HOURLY, (first, second))}) as log:
        await trio.sleep(70)
    assert (first.times, second.times) == ([60.0, 60.05, 60.1], [60.15])
    assert log.of("sweep.done") == [{"sweep": "auth", "deleted": 2 * BATCH + 6}]


async def test_a_store_in_trouble_is_asked_again_for_the_same_batch(
    autojump_clock: MockClock,
) -> None:
    store, step = Store(), Step(1)
    store.busy = 3
    async with sweeping(store, {"auth": Schedule(HOURLY, (step,))}) as log:
        await trio.sleep(70)
    assert step.times == [63.0]
    assert log.of("sweep.done") == [{"sweep": "auth", "deleted": 1}]


@pytest.mark.parametrize(("scheduler", "left"), [(True, 0), (False, 1)])
async def test_the_service_sweeps_where_the_scheduler_is_on(
    tmp_path: Path, autojump_clock: MockClock, scheduler: bool, left: int
) -> None:
    """Spec: "hourly where the scheduler is enabled"."""
    async with http_site(tmp_path, scheduler=scheduler, session_days=1) as site:
        await site.hire("ann")
        sid = await site.sid("ann")
        site.pass_time(DAY)
        assert not await site.alive(sid), "expiry is read, swept or not"
        await trio.sleep(61)
        assert len(await site.rows("SELECT * FROM fw_session")) == left
