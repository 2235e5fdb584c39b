"""Jobs and bulk replays that are recorded while their user is deleted or renamed on PostgreSQL.

As in `test_overlapping_writes`: the first transaction is held until the second one waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from examples import notes
from fw_actors.access.users import add_user
from fw_actors.actors.app_jobs import AppJobs
from fw_actors.errors import AuthenticationError
from fw_actors.ops.queued_jobs import APP_QUEUE, JobFilter
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import Backoff
from fw_actors.store import LeasedJob, Tx, jobs
from tests.fw_actors.actors import jobs_app
from tests.interop.overlap_kit import Overlap, as_administrator

ENQUEUED = 'SELECT "user" FROM fw_job'
BEGUN = 'SELECT "user", state FROM fw_bulk_replay'


def enqueue(fw: Any) -> int:
    return int(fw.enqueue(notes.share, note="n", with_whom="w"))


def end_of(act: str) -> Callable[[Any], Any]:
    """Delete or rename ada."""

    def end(fw: Any) -> None:
        ada = fw.get_doc("User", "ada")
        ada.delete() if act == "delete" else ada.rename("eve")

    return end


async def add_managers(site: Site) -> None:
    for name in ("ada", "bob"):
        adding = partial(add_user, name=name, email=f"{name}@x.test", roles=["System Manager"])
        await site.write("Administrator", adding)


@pytest.mark.parametrize(("act", "user"), [("delete", "ada/deleted"), ("rename", "eve")])
async def test_enqueued_job_does_not_stay_under_a_name_that_ends_meanwhile(
    site: Site, overlap: Overlap, act: str, user: str
) -> None:
    """Another account of the name would run it (A-21), and a renamed user would not (D-210)."""
    await add_managers(site)
    _, refusal = await overlap(
        lambda tx: enqueue(site.handle(tx, "ada")),
        partial(site.write, "Administrator", end_of(act)),
    )
    assert refusal is None
    assert await site.store.read(lambda tx: tx.raw(ENQUEUED)) == [{"user": user}]


@pytest.mark.parametrize("act", ["delete", "rename"])
async def test_enqueue_by_a_user_whose_name_ends_meanwhile_is_refused(
    site: Site, overlap: Overlap, act: str
) -> None:
    """The other order (A-21)."""
    await add_managers(site)
    _, refusal = await overlap(
        as_administrator(site, end_of(act)), partial(site.write, "ada", enqueue)
    )
    assert isinstance(refusal, AuthenticationError)
    assert await site.store.read(lambda tx: tx.raw(ENQUEUED)) == []


def begin_replay(fw: Any, site: Site) -> Any:
    return site.bulk.begin(fw, [["status", "=", "Failed"]])


@pytest.mark.parametrize(
    ("act", "run"),
    [
        ("delete", {"user": "ada", "state": "failed"}),
        ("rename", {"user": "eve", "state": "running"}),
    ],
)
async def test_bulk_replay_does_not_run_under_a_name_that_ends_meanwhile(
    site: Site, overlap: Overlap, act: str, run: dict[str, str]
) -> None:
    """Another account of the name would continue it (A-21, B-257)."""
    await add_managers(site)
    _, refusal = await overlap(
        lambda tx: begin_replay(site.handle(tx, "ada"), site),
        partial(site.write, "Administrator", end_of(act)),
    )
    assert refusal is None
    assert await site.store.read(lambda tx: tx.raw(BEGUN)) == [run]


async def test_bulk_replay_by_a_user_who_is_deleted_meanwhile_is_refused(
    site: Site, overlap: Overlap
) -> None:
    """The other order (A-21)."""
    await add_managers(site)
    _, refusal = await overlap(
        as_administrator(site, end_of("delete")),
        partial(site.write, "ada", partial(begin_replay, site=site)),
    )
    assert isinstance(refusal, AuthenticationError)


async def test_cancellation_of_many_skips_job_being_claimed(site: Site) -> None:
    """A worker keeps the job that it holds (O-222), and no claim is waited for."""
    await site.write("Administrator", enqueue)
    waiting = await site.write("Administrator", enqueue)
    claimed, cancelled = threading.Event(), threading.Event()

    def claim(tx: Tx) -> None:
        assert len(jobs.claim(tx, APP_QUEUE, "", 1, 60_000, "a token")) == 1
        claimed.set()
        assert cancelled.wait(30), "the cancellation waits for the claim"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.store.write, claim)
        await trio.to_thread.run_sync(claimed.wait, 30)
        matching = partial(site.jobs.cancel_matching, filters=JobFilter())
        assert (await site.write("Administrator", matching)).changed == 1
        cancelled.set()
    left = await site.store.read(lambda tx: tx.raw("SELECT id, lease FROM fw_job"))
    assert [(row["id"] < waiting, row["lease"]) for row in left] == [(True, "a token")]


class WorkIsDone(Exception):
    """Ends a worker after its transaction."""


class OverlappedWrites:
    """Stands for the store of AppJobs: beside its first write runs `second`."""

    def __init__(self, overlap: Overlap, second: Callable[[], Any]) -> None:
        self._overlap, self._second = overlap, second
        self.results: tuple[Any, Any] = (None, None)

    async def write(self, fn: Callable[[Tx], Any]) -> Any:
        self.results = await self._overlap(fn, self._second)
        raise WorkIsDone


@pytest.mark.parametrize("act", ["delete", "rename"])
async def test_job_that_enqueues_beside_end_of_its_user_does_not_deadlock(
    site: Site, overlap: Overlap, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """An account is locked before its jobs, as a deletion and a rename do (B-430)."""
    await add_managers(site)

    def claim(tx: Tx) -> LeasedJob:
        site.handle(tx, "ada").enqueue(jobs_app.emit)
        [job] = jobs.claim(tx, APP_QUEUE, "", 1, 60_000, "a token")
        return job

    finish_as = jobs.finish_as

    def finished(*given: Any) -> Any:
        user = finish_as(*given)
        overlap.meet()
        return user

    job = await site.store.write(claim)
    monkeypatch.setattr(jobs, "finish_as", finished)
    end = partial(site.write, "Administrator", end_of(act))
    store: Any = OverlappedWrites(overlap, end)
    worker = AppJobs(
        store, site.handle, Backoff(30.0, 3600.0), lambda *_: None, site.config.scrubber
    )
    with pytest.raises(WorkIsDone):
        await worker.carry_out(job)
    assert store.results == (None, None)
