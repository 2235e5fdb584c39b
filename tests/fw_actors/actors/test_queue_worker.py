"""The rules that all queues of jobs share, on a queue whose jobs take as long as a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from trio.testing import MockClock

from fw_actors.actors.queue_worker import (
    REST_SECONDS,
    Drain,
    JobFailed,
    QueuePolicy,
    QueueWorker,
    WakeUp,
)
from fw_actors.rules.delivery import Backoff, Verdict
from fw_actors.rules.safe_output import Scrubber
from fw_actors.runtime import MailboxPolicy, Ref, open_runtime
from fw_actors.runtime.clock import SeededEntropy
from fw_actors.store import LeasedJob, Store, Tx, jobs
from supervisors import open_supervisor
from supervisors.children import actor_child
from tests.mail_kit import RecordingLog
from tests.site_kit import inline_site

LEASE_SECONDS = 10.0


class SlowQueue(QueueWorker):
    """Each try takes as long as the bench says, and ends as the job's function says."""

    mailbox = MailboxPolicy(max_work=3)

    def __init__(self, bench: Bench) -> None:
        policy = QueuePolicy("slow", 2, LEASE_SECONDS, Backoff(30, 3600))
        super().__init__(bench.store, policy, Scrubber())
        self._bench = bench

    async def carry_out(self, job: LeasedJob) -> None:
        seconds = self._bench.seconds[min(len(self._bench.begun), len(self._bench.seconds) - 1)]
        self._bench.begun.append(job.deaths)
        await trio.sleep(seconds)
        if job.function == "fails":
            raise JobFailed("it failed.")
        await self.settle(job, lambda tx: jobs.finish(tx, job.id, job.lease))

    def write_failure(self, tx: Tx, job: LeasedJob, verdict: Verdict, error: str) -> bool:
        assert verdict.next_attempt is not None
        return jobs.retry(tx, job.id, job.lease, verdict.next_attempt, error)


class Bench:
    """A running queue and what is around it; `seconds`: of the tries, the last one of all more."""

    def __init__(self, store: Store, seconds: Sequence[float]) -> None:
        self.store, self.seconds = store, seconds
        self.begun: list[int] = []
        """The deaths of its job, for each try."""
        self.log = RecordingLog()
        self.queue: Ref

    async def put(self, function: str = "ends") -> None:
        await self.store.write(lambda tx: jobs.enqueue(tx, queue="slow", function=function))
        self.queue.tell(WakeUp())

    async def have_in_hand_twice(self, function: str) -> None:
        """Put a job, and wait until its lease is over."""
        await self.put(function)
        await trio.sleep(LEASE_SECONDS + 1)
        assert self.begun == [0, 1]

    def said(self) -> list[str]:
        return [event for event, _ in self.log.entries]


@asynccontextmanager
async def open_bench(folder: Path, *seconds: float) -> AsyncIterator[Bench]:
    async with inline_site(folder) as site:
        bench = Bench(site.store, seconds)
        async with open_runtime(
            clock=site.clock, entropy=SeededEntropy(1), log=bench.log
        ) as runtime:
            bench.queue = runtime.ref("slow")
            async with open_supervisor(
                runtime, "bench", [actor_child("slow", lambda: SlowQueue(bench))]
            ):
                yield bench


async def test_a_job_that_outlives_its_lease_is_in_hand_twice_and_both_end_in_order(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A process that was frozen: the first has lost its lease, what the second says counts."""
    async with open_bench(tmp_path, LEASE_SECONDS + 2, 5.0) as bench:
        await bench.have_in_hand_twice("fails")
        await trio.sleep(6)
        assert bench.said() == ["job.lease_lost", "job.failed"]
        (stats,) = await bench.store.read(jobs.stats)
        assert (stats.scheduled, stats.leased) == (1, 0)


async def test_a_drain_ends_each_of_two_holds_on_one_job(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_bench(tmp_path, 100.0) as bench:
        await bench.have_in_hand_twice("ends")
        bench.queue.tell(Drain(1.0))
        await trio.sleep(2)
        assert bench.said() == ["job.lease_lost"]
        (stats,) = await bench.store.read(jobs.stats)
        assert (stats.ready, stats.leased) == (1, 0)


async def test_a_place_is_free_again_when_a_job_ends(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_bench(tmp_path, 3.0) as bench:
        for _ in range(5):
            await bench.put()
        await trio.sleep(2.5)
        assert len(bench.begun) == 2
        await trio.sleep(3)
        assert len(bench.begun) == 4
        await trio.sleep(3)
        assert len(bench.begun) == 5


async def test_wake_ups_by_commits_elsewhere_share_a_look_into_the_store(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Hundreds a second cost the reads of twenty; the first and the last are not waited for."""
    async with open_bench(tmp_path, 1.0) as bench:
        await trio.sleep(0.5)
        before = bench.store.statistics().reads
        for _ in range(100):
            bench.queue.tell(WakeUp(elsewhere=True))
            await trio.sleep(0.001)
        looks = bench.store.statistics().reads - before
        assert 2 <= looks <= 4
        await bench.store.write(lambda tx: jobs.enqueue(tx, queue="slow"))
        bench.queue.tell(WakeUp(elsewhere=True))
        await trio.sleep(REST_SECONDS + 0.01)
        assert bench.begun == [0]
