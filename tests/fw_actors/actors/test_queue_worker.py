"""The common rules of job queues, on a queue whose jobs have a given duration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from fw_actors.actors.metrics import Counter
from fw_actors.actors.queue_worker import (
    REST_SECONDS,
    Drain,
    JobFailed,
    QueuePolicy,
    QueueWakeUps,
    QueueWorker,
    Waker,
    WakeUp,
)
from fw_actors.rules.delivery import Backoff, Transition
from fw_actors.rules.safe_output import Scrubber
from fw_actors.runtime import (
    Actor,
    MailboxPolicy,
    Ref,
    Runtime,
    SystemClock,
    handles,
    open_runtime,
)
from fw_actors.runtime.clock import SeededEntropy
from fw_actors.store import LeasedJob, Store, Tx, jobs
from supervisors import open_supervisor
from supervisors.children import actor_child
from tests.mail_kit import RecordingLog
from tests.site_kit import inline_site

LEASE_SECONDS = 10.0


class SlowQueue(QueueWorker):
    """An attempt lasts as long as the harness sets, and its function's name sets its outcome."""

    mailbox = MailboxPolicy(max_work=3)

    def __init__(self, harness: QueueHarness) -> None:
        policy = QueuePolicy("slow", 2, LEASE_SECONDS, Backoff(30, 3600))
        super().__init__(harness.store, policy, Scrubber())
        self._harness = harness

    async def carry_out(self, job: LeasedJob) -> None:
        seconds = self._harness.seconds[
            min(len(self._harness.begun), len(self._harness.seconds) - 1)
        ]
        self._harness.begun.append(job.expired_leases)
        await trio.sleep(seconds)
        if job.function == "fails":
            raise JobFailed("it failed.")
        await self.settle(job, lambda tx: jobs.finish(tx, job.id, job.lease))

    def write_failure(self, tx: Tx, job: LeasedJob, transition: Transition, error: str) -> bool:
        assert transition.next_attempt is not None
        return jobs.retry(tx, job.id, job.lease, transition.next_attempt, error)


class QueueHarness:
    """A running queue; `seconds` are the durations of attempts, of which the last one repeats."""

    def __init__(self, store: Store, seconds: Sequence[float]) -> None:
        self.store, self.seconds = store, seconds
        self.begun: list[int] = []
        """The deaths of the job at each attempt."""
        self.log = RecordingLog()
        self.queue: Ref

    async def put(self, function: str = "ends") -> None:
        await self.store.write(lambda tx: jobs.enqueue(tx, queue="slow", function=function))
        self.queue.tell(WakeUp())

    async def lease_twice(self, function: str) -> None:
        """Enqueue a job, and wait until its lease has expired."""
        await self.put(function)
        await trio.sleep(LEASE_SECONDS + 1)
        assert self.begun == [0, 1]

    def said(self) -> list[str]:
        return [event for event, _ in self.log.entries]


@asynccontextmanager
async def open_harness(folder: Path, *seconds: float) -> AsyncIterator[QueueHarness]:
    async with inline_site(folder) as site:
        harness = QueueHarness(site.store, seconds)
        async with open_runtime(
            clock=site.clock, entropy=SeededEntropy(1), log=harness.log
        ) as runtime:
            harness.queue = runtime.ref("slow")
            async with open_supervisor(
                runtime, "harness", [actor_child("slow", lambda: SlowQueue(harness))]
            ):
                yield harness


async def test_queue_worker_counts_second_holder_of_expired_lease(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """As after a frozen process: the first holder has lost its lease, so the second one counts."""
    async with open_harness(tmp_path, LEASE_SECONDS + 2, 5.0) as harness:
        await harness.lease_twice("fails")
        await trio.sleep(6)
        assert harness.said() == ["job.lease_lost", "job.failed"]
        (stats,) = await harness.store.read(jobs.stats)
        assert (stats.scheduled, stats.leased) == (1, 0)


async def test_queue_worker_drain_ends_both_holds_of_job(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_harness(tmp_path, 100.0) as harness:
        await harness.lease_twice("ends")
        harness.queue.tell(Drain(1.0))
        await trio.sleep(2)
        assert harness.said() == ["job.lease_lost"]
        (stats,) = await harness.store.read(jobs.stats)
        assert (stats.ready, stats.leased) == (1, 0)


async def test_queue_worker_frees_slot_at_end_of_job(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_harness(tmp_path, 3.0) as harness:
        for _ in range(5):
            await harness.put()
        await trio.sleep(2.5)
        assert len(harness.begun) == 2
        await trio.sleep(3)
        assert len(harness.begun) == 4
        await trio.sleep(3)
        assert len(harness.begun) == 5


async def test_external_wake_ups_share_reads_of_store(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Hundreds per second cost about twenty reads; the first and the last are served at once."""
    async with open_harness(tmp_path, 1.0) as harness:
        await trio.sleep(0.5)
        before = harness.store.statistics().reads
        for _ in range(100):
            harness.queue.tell(WakeUp(elsewhere=True))
            await trio.sleep(0.001)
        reads = harness.store.statistics().reads - before
        assert 2 <= reads <= 4
        await harness.store.write(lambda tx: jobs.enqueue(tx, queue="slow"))
        harness.queue.tell(WakeUp(elsewhere=True))
        await trio.sleep(REST_SECONDS + 0.01)
        assert harness.begun == [0]


class WakeUpCounter(Actor):
    """Counts its wake-ups; a deaf one does not say that it has taken them."""

    def __init__(self, woken: list[WakeUp], *, deaf: bool = False) -> None:
        self._woken, self._deaf = woken, deaf

    @handles(WakeUp)
    def woken_up(self, message: WakeUp) -> None:
        if not self._deaf:
            message.acknowledge()
        self._woken.append(message)


def bench_runtime() -> AbstractAsyncContextManager[Runtime]:
    return open_runtime(clock=SystemClock(), entropy=SeededEntropy(1), log=RecordingLog())


class NotifyingStore:
    """Counts the notices to other processes."""

    def __init__(self) -> None:
        self.notices = 0

    def notify_others(self) -> None:
        self.notices += 1


async def test_queue_wake_up_waits_once_for_worker(autojump_clock: MockClock) -> None:
    """A mailbox is not filled by the commits while its actor is busy; all are counted."""
    woken: list[WakeUp] = []
    recorded = Counter(())
    children = [actor_child("slow", lambda: WakeUpCounter(woken))]
    async with bench_runtime() as runtime, open_supervisor(runtime, "harness", children):
        worker = runtime.ref("slow")
        store: Any = NotifyingStore()
        wake_up = QueueWakeUps(recorded, {"slow": worker}, store)
        worker.suspend()
        for _ in range(1000):
            wake_up("slow")
        worker.resume()
        await wait_all_tasks_blocked()
        assert len(woken) == 1
        wake_up("slow")
        await wait_all_tasks_blocked()
        assert len(woken) == 2
        assert runtime.dead_letters.last() == ()
    assert (recorded.counts(), store.notices) == ({"slow": 1001}, 0)


async def test_queue_wake_up_without_worker_notifies_other_processes(
    autojump_clock: MockClock,
) -> None:
    """This process may be stopping, while another one has free slots (B-238)."""
    recorded, store = Counter(()), cast("Any", NotifyingStore())
    async with bench_runtime() as runtime:
        QueueWakeUps(recorded, {"slow": runtime.ref("slow")}, store)("slow")
    assert (recorded.counts(), store.notices) == ({"slow": 1}, 1)


async def test_waker_repeats_wake_up_that_may_be_lost(autojump_clock: MockClock) -> None:
    """Its worker's instance may have ended."""
    woken: list[WakeUp] = []
    children = [actor_child("slow", lambda: WakeUpCounter(woken, deaf=True))]
    async with bench_runtime() as runtime, open_supervisor(runtime, "harness", children):
        waker = Waker(runtime.ref("slow"), elsewhere=True)
        for _ in range(5):
            waker()
            waker()
            await trio.sleep(0.5)
    assert [each.elsewhere for each in woken] == [True] * 3
