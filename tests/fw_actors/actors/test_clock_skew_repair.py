"""Waiting never trusts the wall clock (O-160, B-198)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors import queue_worker
from fw_actors.actors.queue_worker import REPAIR_SECONDS, ClockSkewRepair
from fw_actors.errors import OverloadedError
from fw_actors.ops.site import Site
from fw_actors.store import Tx, jobs
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


async def due_count(site: Site) -> int:
    return await site.store.read(lambda tx: jobs.due_count(tx, "mail"))


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


async def test_clock_skew_repair_recalls_a_batch_at_a_time_and_logs_their_sum(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that was ahead may have scheduled a million jobs, and every write would wait."""
    monkeypatch.setattr(queue_worker, "REPAIRED_AT_ONCE", 2)
    async with inline_site(tmp_path) as site:
        repair, log = ClockSkewRepair("mail", CAP_SECONDS, LEASE_SECONDS), RecordingLog()
        for _ in range(3):
            await put(site, FAR_SECONDS + 1)
        await repair.run(site.store, log, site.clock.now())
        assert await due_count(site) == 2
        assert log.entries == []
        await repair.run(site.store, log, site.clock.now())
        assert await due_count(site) == 3
        assert log.entries == [("queue.rescheduled", {"queue": "mail", "jobs": 3})]


async def test_clock_skew_repair_searches_leases_in_a_read(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No index has them: all waiting jobs are read, and a write would delay every other."""
    async with inline_site(tmp_path) as site:
        read, searches = site.store.read, 0

        async def counted(fn: Callable[[Tx], Any], **options: Any) -> Any:
            nonlocal searches
            searches += 1
            return await read(fn, **options)

        monkeypatch.setattr(site.store, "read", counted)
        repair = ClockSkewRepair("mail", CAP_SECONDS, LEASE_SECONDS)
        await repair.run(site.store, RecordingLog(), site.clock.now())
        assert searches == 1
        await trio.sleep(REPAIR_SECONDS)
        await repair.run(site.store, RecordingLog(), site.clock.now())
        assert searches == 1


async def test_clock_skew_repair_goes_on_without_the_leases_if_the_read_is_refused(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that takes longer than a query may must not end the polls."""
    async with inline_site(tmp_path) as site:
        await put(site, 0)
        lease_ms = HOUR_MS + round(LEASE_SECONDS * 1000)
        await site.store.write(lambda tx: jobs.claim(tx, "mail", "", 1, lease_ms, "token"))
        repair = ClockSkewRepair("mail", 2 * HOUR_MS / 1000, LEASE_SECONDS)

        async def refused(_fn: object) -> None:
            raise OverloadedError("The query took too long.")

        with monkeypatch.context() as patched:
            patched.setattr(site.store, "read", refused)
            await repair.run(site.store, RecordingLog(), site.clock.now())
        await trio.sleep(REPAIR_SECONDS)
        await repair.run(site.store, RecordingLog(), site.clock.now())
        assert await due_in(site) == [LEASE_SECONDS]
