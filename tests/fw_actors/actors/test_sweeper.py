"""When sweeps run: auth hourly, webhooks and audit daily (O-70, O-71, B-281)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.sweeper import BATCH, DAILY, HOURLY, Schedule, Sweeper
from fw_actors.errors import OverloadedError
from fw_actors.runtime import SeededEntropy, TrioClock, open_runtime
from tests.http_site import HttpSite, http_site
from tests.mail_kit import RecordingLog

T = TypeVar("T")
HOUR, DAY = 3600, 86_400


class BusyStore:
    """Runs functions; the next `busy` calls are refused."""

    def __init__(self) -> None:
        self.busy = 0

    async def write(self, fn: Callable[[Any], T]) -> T:
        await trio.lowlevel.checkpoint()
        if self.busy:
            self.busy -= 1
            raise OverloadedError
        return fn(None)


class SweepStep:
    """A batch that records its times; `left` rows remain to be deleted."""

    def __init__(self, left: int = 0) -> None:
        self.left, self.times = left, list[float]()

    def __call__(self, tx: Any) -> int:
        self.times.append(round(trio.current_time(), 2))
        deleted = min(self.left, BATCH)
        self.left -= deleted
        return deleted


@asynccontextmanager
async def sweeping(
    store: BusyStore, schedules: Mapping[str, Schedule]
) -> AsyncIterator[RecordingLog]:
    log = RecordingLog()
    async with open_runtime(clock=TrioClock(0), entropy=SeededEntropy(1), log=log) as runtime:
        make: Any = lambda: Sweeper(store, log, schedules)  # type: ignore[arg-type]  # noqa: E731
        async with runtime.running("sweeper", make):
            yield log


async def test_sweep_runs_after_start_and_then_by_schedule(
    autojump_clock: MockClock,
) -> None:
    hourly, daily = SweepStep(), SweepStep()
    schedules = {"auth": Schedule(HOURLY, (hourly,)), "webhooks": Schedule(DAILY, (daily,))}
    async with sweeping(BusyStore(), schedules):
        await trio.sleep(DAY + HOUR)
    assert (hourly.times[0], len(hourly.times)) == (60.0, 25)
    assert {round(b - a) for a, b in pairwise(hourly.times)} == {HOUR}
    assert [round(at) for at in daily.times] == [60, 60 + DAY]


async def test_sweep_deletes_in_batches_with_pauses(autojump_clock: MockClock) -> None:
    """A sweep deletes in batches of at most 1,000 rows, pausing between (O-74)."""
    first, second = SweepStep(2 * BATCH + 5), SweepStep(1)
    async with sweeping(BusyStore(), {"auth": Schedule(HOURLY, (first, second))}) as log:
        await trio.sleep(70)
    assert (first.times, second.times) == ([60.0, 60.05, 60.1], [60.15])
    assert log.of("sweep.done") == [{"sweep": "auth", "deleted": 2 * BATCH + 6}]


async def test_sweep_repeats_batch_refused_by_overloaded_store(
    autojump_clock: MockClock,
) -> None:
    store, step = BusyStore(), SweepStep(1)
    store.busy = 3
    async with sweeping(store, {"auth": Schedule(HOURLY, (step,))}) as log:
        await trio.sleep(70)
    assert step.times == [63.0]
    assert log.of("sweep.done") == [{"sweep": "auth", "deleted": 1}]


async def put_expired(site: HttpSite) -> None:
    """Store an expired session, and a delivery and an Audit Event beyond their retention."""
    now = site.clock.now()
    session = (
        'INSERT INTO fw_session (id, sid_hash, "user", created, last_seen, expires)'
        " VALUES (:id, :id_hash, 'ann', 0, 0, :at)"
    )
    delivery = (
        "INSERT INTO doc_webhook_delivery (name, status, last_attempt) VALUES (:id, 'Sent', :at)"
    )
    event = "INSERT INTO doc_audit_event (name, action, creation) VALUES (:id, 'Denied', :at)"
    old = {"id": str(now), "at": now - 400 * DAY * 1000}
    await site.rows(session, id=old["id"], id_hash=str(now).encode(), at=now - 1)
    await site.rows(delivery, **old)
    await site.rows(event, **old)


async def expired(site: HttpSite) -> tuple[int, int, int]:
    """Return the numbers of sessions, deliveries and Audit Events."""
    tables = ("fw_session", "doc_webhook_delivery", "doc_audit_event")
    sessions, deliveries, events = [
        (await site.rows(f"SELECT count(*) AS n FROM {table}"))[0]["n"] for table in tables
    ]
    return sessions, deliveries, events


async def later(clock: MockClock, seconds: float) -> None:
    """Advance the time in one step, then let due work run."""
    clock.jump(seconds)
    await trio.sleep(2)


@pytest.mark.usefixtures("on_both_stores")
async def test_service_sweeps_repeat_hourly_and_daily(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Auth is swept hourly, deliveries and audit daily, where the scheduler runs (O-70, O-71)."""
    async with http_site(tmp_path) as site:
        await put_expired(site)
        await trio.sleep(70)
        assert await expired(site) == (0, 0, 0), "the first sweeps, a minute after the start"
        await put_expired(site)
        await later(autojump_clock, HOUR - 30)
        assert await expired(site) == (1, 1, 1), "between two sweeps"
        await later(autojump_clock, 30)
        assert await expired(site) == (0, 1, 1), "an hour after the first"
        await put_expired(site)
        await later(autojump_clock, HOUR)
        assert await expired(site) == (0, 2, 2), "two hours after it"
        await later(autojump_clock, DAY - 2 * HOUR - 60)
        assert await expired(site) == (0, 2, 2)
        await later(autojump_clock, 60)
        assert await expired(site) == (0, 0, 0), "a day after it"
        await put_expired(site)
        await later(autojump_clock, DAY + 10)
        assert await expired(site) == (0, 0, 0), "two days after it"


async def test_service_sweeps_respect_retention_settings(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    keep = {"webhook_retention_days": 0, "audit_retention_days": 401}
    async with http_site(tmp_path, **keep) as site:
        await put_expired(site)
        await trio.sleep(70)
        assert await expired(site) == (0, 1, 1)
        await later(autojump_clock, DAY)
        await later(autojump_clock, 70)
        assert await expired(site) == (0, 1, 0), (
            "one is kept for ever, the other is 401 days old now"
        )


async def test_service_without_scheduler_sweeps_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Nothing is swept without the scheduler (O-75); reads check the expiry themselves (O-72)."""
    async with http_site(tmp_path, scheduler=False, session_days=1) as site:
        await site.add_account("ann")
        sid = await site.sid("ann")
        site.pass_time(DAY)
        assert not await site.alive(sid)
        await put_expired(site)
        before = await expired(site)
        assert before == (2, 1, 2)
        await trio.sleep(70)
        await later(autojump_clock, HOUR + 10)
        await later(autojump_clock, DAY + 10)
        assert await expired(site) == before
        assert site.log.of("sweep.done") == []
