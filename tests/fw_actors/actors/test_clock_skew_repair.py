"""Waiting never trusts the wall clock (O-160, B-198)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.queue_worker import REPAIR_SECONDS, ClockSkewRepair
from fw_actors.ops.site import Site
from fw_actors.store import jobs
from tests.mail_kit import RecordingLog
from tests.site_kit import inline_site

pytestmark = pytest.mark.usefixtures("on_both_stores")

CAP_SECONDS = 100.0
FAR_SECONDS = 400.0
LEASE_SECONDS = 60.0
HOUR_MS = 3_600_000


async def put(site: Site, seconds: float) -> None:
    """Enqueue a job that is due in so many seconds."""
    at = site.clock.now() + round(seconds * 1000)
    await site.store.write(lambda tx: jobs.enqueue(tx, queue="mail", next_at=at))


async def due_in(site: Site) -> list[float]:
    heads = await site.store.read(lambda tx: jobs.heads(tx, "mail"))
    return [(head.next_at - site.clock.now()) / 1000 for head in heads]


async def test_clock_skew_repair_recalls_far_job_and_logs_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with inline_site(tmp_path) as site:
        repair, log = ClockSkewRepair("mail", CAP_SECONDS, LEASE_SECONDS), RecordingLog()
        await put(site, FAR_SECONDS + 1)
        await repair.run(site.store, log, site.clock.now())
        assert await due_in(site) == [0.0]
        assert log.entries == [("queue.rescheduled", {"queue": "mail", "jobs": 1})]
        await trio.sleep(REPAIR_SECONDS)
        await repair.run(site.store, log, site.clock.now())
        assert len(log.entries) == 1


async def test_clock_skew_repair_keeps_job_within_limit(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with inline_site(tmp_path) as site:
        await put(site, FAR_SECONDS)
        await ClockSkewRepair("mail", CAP_SECONDS, LEASE_SECONDS).run(
            site.store, RecordingLog(), site.clock.now()
        )
        assert await due_in(site) == [FAR_SECONDS]


async def test_clock_skew_repair_runs_once_per_minute(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with inline_site(tmp_path) as site:
        repair = ClockSkewRepair("mail", CAP_SECONDS, LEASE_SECONDS)
        await repair.run(site.store, RecordingLog(), site.clock.now())
        await put(site, FAR_SECONDS * 10)
        await trio.sleep(REPAIR_SECONDS - 1)
        await repair.run(site.store, RecordingLog(), site.clock.now())
        assert (await due_in(site))[0] > FAR_SECONDS
        await trio.sleep(1)
        await repair.run(site.store, RecordingLog(), site.clock.now())
        assert await due_in(site) == [0.0]


async def test_clock_skew_repair_runs_immediately_after_backward_clock_jump(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with inline_site(tmp_path) as site:
        repair = ClockSkewRepair("mail", CAP_SECONDS, LEASE_SECONDS)
        await repair.run(site.store, RecordingLog(), site.clock.now() + 1)
        await put(site, FAR_SECONDS + 1)
        await repair.run(site.store, RecordingLog(), site.clock.now())
        assert await due_in(site) == [0.0]


@pytest.mark.parametrize(("ahead", "left"), [(240_000, 300.0), (HOUR_MS, 60.0)])
async def test_clock_skew_repair_shortens_leases_only_after_long_backward_clock_jump(
    ahead: int, left: float, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A job of a process that has died is taken over when a lease has passed (B-198, O-33)."""
    async with inline_site(tmp_path) as site:
        now = site.clock.now()
        repair = ClockSkewRepair("mail", 2 * HOUR_MS / 1000, LEASE_SECONDS)
        await repair.run(site.store, RecordingLog(), now + ahead)
        await put(site, 0)
        lease_ms = ahead + round(LEASE_SECONDS * 1000)  # as if the clock had been ahead
        await site.store.write(lambda tx: jobs.claim(tx, "mail", "", 1, lease_ms, "token"))
        await repair.run(site.store, RecordingLog(), now)
        assert await due_in(site) == [left]


@pytest.mark.parametrize(("ahead", "left"), [(240_000, 300.0), (HOUR_MS, 60.0)])
async def test_clock_skew_repair_shortens_leases_at_start(
    ahead: int, left: float, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The clock may have been set back while the service was stopped (B-198)."""
    async with inline_site(tmp_path) as site:
        await put(site, 0)
        lease_ms = ahead + round(LEASE_SECONDS * 1000)  # as if the clock had been ahead
        await site.store.write(lambda tx: jobs.claim(tx, "mail", "", 1, lease_ms, "token"))
        repair = ClockSkewRepair("mail", 2 * HOUR_MS / 1000, LEASE_SECONDS)
        await repair.run(site.store, RecordingLog(), site.clock.now())
        assert await due_in(site) == [left]


async def test_clock_skew_repair_keeps_retries_when_it_shortens_leases(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """They wait up to the cap (B-198)."""
    async with inline_site(tmp_path) as site:
        now = site.clock.now()
        repair = ClockSkewRepair("mail", 2 * HOUR_MS / 1000, LEASE_SECONDS)
        await repair.run(site.store, RecordingLog(), now + HOUR_MS)
        await put(site, 3600)
        await repair.run(site.store, RecordingLog(), now)
        assert await due_in(site) == [3600.0]
