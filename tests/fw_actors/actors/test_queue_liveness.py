"""Free slots of several processes are used for mails and app jobs, which share a worker (B-238).

As `test_node_liveness`, with a queue whose jobs take random times.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.metrics import Counter
from fw_actors.actors.queue_worker import (
    MAX_SLEEP_SECONDS,
    MIN_SLEEP_SECONDS,
    REST_SECONDS,
    Drain,
    JobFailed,
    QueuePolicy,
    QueueWakeUps,
    QueueWorker,
    Waker,
)
from fw_actors.documents.handle import Fw
from fw_actors.ops.queued_jobs import APP_QUEUE
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import Backoff, Transition
from fw_actors.rules.safe_output import Scrubber
from fw_actors.runtime import ActorError, MailboxPolicy, Ref, SilentLog, open_runtime
from fw_actors.runtime.testing import task_order
from fw_actors.store import LeasedJob, Tx, jobs
from supervisors import actor_child, open_supervisor
from tests.fw_actors.actors import jobs_app
from tests.fw_actors.actors.node_kit import VirtualNode, VirtualNodes
from tests.site_kit import inline_site

SEEDS: Final = range(int(os.environ.get("NODE_SEEDS", "6")))
ACTS = 40
SAMPLE_SECONDS = 0.04
LEASE_SECONDS = 20.0
EXPLAINED_SECONDS = MIN_SLEEP_SECONDS + REST_SECONDS + 0.1
"""A job that another process has just tried to claim, a wake-up after another one, and the time
between two samples; further four writes."""


class JobsOfRandomTime:
    """The jobs of all processes. `seconds` are those that they may take."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.seconds = random.choice([[0.01], [0.01, 3.0], [0.5, 1.0], [0.01, 15.0]])
        self.failing = random.choice([0.0, 0.3])
        self.claimed_at = -inf
        self.current: set[int] = set()
        self.repeated: list[int] = []
        """Jobs that were begun while they ran."""


class SharedQueue(QueueWorker):
    """Works on the queue of app jobs, whose functions it does not run."""

    mailbox = MailboxPolicy(max_work=4)

    def __init__(self, site: Site, given: JobsOfRandomTime, slots: int) -> None:
        policy = QueuePolicy(APP_QUEUE, slots, LEASE_SECONDS, Backoff(1.2, 3.0))
        super().__init__(site.store, policy, Scrubber())
        self._given = given

    async def carry_out(self, job: LeasedJob) -> None:
        given = self._given
        if job.id in given.current:
            given.repeated.append(job.id)
        given.current.add(job.id)
        given.claimed_at = trio.current_time()
        try:
            await trio.sleep(given.random.choice(given.seconds))
            if given.random.random() < given.failing:
                raise JobFailed("it failed.")
        finally:
            given.current.discard(job.id)
        await self.settle(job, lambda tx: jobs.finish(tx, job.id, job.lease))

    def write_failure(self, tx: Tx, job: LeasedJob, transition: Transition, error: str) -> bool:
        if transition.next_attempt is None:
            return jobs.fail(tx, job.id, job.lease, error)
        return jobs.retry(tx, job.id, job.lease, transition.next_attempt, error)


class QueueNode:
    """The parts of a process that runs jobs."""

    def __init__(self, site: Site, worker: Ref) -> None:
        self.site, self.store, self.worker = site, site.store, worker
        self._waker = Waker(worker, elsewhere=True)

    def woken(self) -> None:
        """See `NodeParts`."""
        self._waker()


@asynccontextmanager
async def open_queue_node(
    folder: Path, seed: int, given: JobsOfRandomTime, slots: int
) -> AsyncIterator[QueueNode]:
    """Run a worker, and stop it as the service does."""
    wake_ups: list[QueueWakeUps] = []

    def recorded(queue: str) -> None:
        for wake_up in wake_ups:
            wake_up(queue)

    async with (
        inline_site(folder, seed, recorded) as site,
        open_runtime(clock=site.clock, entropy=site.entropy, log=SilentLog()) as runtime,
    ):
        worker = runtime.ref("queue")
        child = actor_child("queue", lambda: SharedQueue(site, given, slots), shutdown_seconds=12.0)
        async with open_supervisor(runtime, "node", [child], stop_seconds=12.0):
            wake_ups.append(QueueWakeUps(Counter(()), {APP_QUEUE: worker}, site.store))
            try:
                yield QueueNode(site, worker)
            finally:
                worker.tell(Drain(10.0))


QueueNodes = VirtualNodes[QueueNode]


class QueueWaitMonitor:
    """Measures for how long a job waits that is due while a process has a free slot."""

    def __init__(self, operator: Site, nodes: QueueNodes, given: JobsOfRandomTime) -> None:
        self._operator, self._nodes, self._given = operator, nodes, given
        self.longest, self.report = 0.0, ""

    async def run(self) -> None:
        """Measure until cancelled."""
        since = inf
        while True:
            await trio.sleep(SAMPLE_SECONDS)
            free: list[Any] = []
            async with trio.open_nursery() as nursery:
                for node in self._nodes.up:
                    nursery.start_soon(self._inspect, node, free)
            due = await self._operator.store.read(
                lambda tx: any(head.next_at <= tx.now for head in jobs.heads(tx, APP_QUEUE))
            )
            now = trio.current_time()
            since = min(since, now) if due and any(free) else inf
            begun = max(since, self._given.claimed_at)
            if since <= self._nodes.killed_at + SAMPLE_SECONDS:  # a wake-up was lost with it
                begun = max(begun, self._nodes.killed_at + MAX_SLEEP_SECONDS)
            if now - begun > self.longest:
                self.longest, self.report = now - begun, f"from {begun:.3f} to {now:.3f}"

    async def _inspect(self, node: VirtualNode[QueueNode], free: list[Any]) -> None:
        with suppress(ActorError):
            found = await node.parts.worker.inspect()
            if node.is_up:
                free.append(found.described["free"])


async def put(node: VirtualNode[QueueNode], count: int = 1) -> None:
    """Enqueue jobs in one transaction."""

    def enqueue(fw: Fw) -> None:
        for _ in range(count):
            fw.enqueue(jobs_app.note, text="done")

    await node.parts.site.write("Administrator", enqueue)


@pytest.mark.usefixtures("on_both_stores")
@pytest.mark.parametrize("seed", SEEDS)
def test_processes_claim_due_jobs_without_pause(seed: int, tmp_path: Path) -> None:
    """Whichever process records them, and whichever ends meanwhile; none runs a job that another
    one runs, except after a kill (O-36)."""
    with task_order(seed):
        trio.run(work_randomly, seed, tmp_path, clock=MockClock(autojump_threshold=0))


async def work_randomly(seed: int, folder: Path) -> None:
    random = Random(seed)
    given = JobsOfRandomTime(random)
    slots, slowest = random.choice([1, 2, 4]), random.choice([0.0, 0.005, 0.05])
    history, kills = [], 0
    async with inline_site(folder, 100 * seed) as operator, trio.open_nursery() as nursery:
        nodes: QueueNodes = VirtualNodes(
            nursery,
            lambda number: open_queue_node(folder, 100 * seed + number, given, slots),
            random,
            slowest=slowest,
            notice_seconds=random.choice([0.0, 0.01]),
            each_commit=operator.config.sqlite_file is None,
        )
        monitor = QueueWaitMonitor(operator, nodes, given)
        for _ in range(random.choice([2, 2, 3])):
            await nodes.start()
        nursery.start_soon(monitor.run)
        for _ in range(ACTS):
            act = random.choice(["put", "put", "put", "put", "start", "stop", "kill"])
            node = random.choice(nodes.up)
            if act == "put":
                await put(node, random.choice([1, 1, 2, 8]))
            elif act == "start" and len(nodes.up) < 3:
                await nodes.start()
            elif act == "stop" and len(nodes.up) > 1:
                nodes.stop(node)
            elif act == "kill" and len(nodes.up) > 1:
                nodes.kill(node)
                kills += 1
            history.append(f"{trio.current_time():.3f} {act} {node.number}")
            await trio.sleep(random.choice([0.0, 0.01, 0.1, 0.5]))
        for node in list(nodes.up):
            nodes.kill(node)
        nursery.cancel_scope.cancel()
    message = "\n".join([*history, monitor.report])
    assert monitor.longest < EXPLAINED_SECONDS + 4 * slowest, message
    assert kills or not given.repeated, message


@asynccontextmanager
async def open_queue_pair(
    folder: Path, given: JobsOfRandomTime, slots: int
) -> AsyncIterator[tuple[QueueNodes, VirtualNode[QueueNode]]]:
    """Run two processes, which poll at different times; return the first one."""
    async with inline_site(folder, 99) as operator, trio.open_nursery() as nursery:
        nodes: QueueNodes = VirtualNodes(
            nursery,
            lambda number: open_queue_node(folder, number, given, slots),
            Random(1),
            each_commit=operator.config.sqlite_file is None,
        )
        first = await nodes.start()
        await trio.sleep(0.4)
        await nodes.start()
        yield nodes, first
        nursery.cancel_scope.cancel()


def jobs_of(seconds: float) -> JobsOfRandomTime:
    """Return jobs that take so long, and do not fail."""
    given = JobsOfRandomTime(Random(1))
    given.seconds, given.failing = [seconds], 0.0
    return given


@pytest.mark.usefixtures("on_both_stores")
async def test_worker_without_free_slot_wakes_another_process(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A commit wakes the process that has made it, whose only slot is taken (B-238)."""
    given = jobs_of(5.0)
    async with open_queue_pair(tmp_path, given, slots=1) as (_, first):
        for _ in range(2):
            await put(first)
            await trio.sleep(0.06)
        assert len(given.current) == 2


async def test_workers_without_free_slots_do_not_wake_each_other(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A notice that arrives soon after a poll puts a poll off, which is not one for new work
    (B-238)."""
    given = jobs_of(9.0)
    async with open_queue_pair(tmp_path, given, slots=1) as (nodes, first):
        for _ in range(10):
            await put(first)
            await trio.sleep(0.03)
        assert len(given.current) == 2
        await trio.sleep(0.1)
        sent = nodes.notices
        await trio.sleep(5.0)
        assert nodes.notices == sent


@pytest.mark.usefixtures("on_both_stores")
async def test_draining_worker_leaves_new_job_to_another_process_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A request in flight commits it while the process drains (B-238)."""
    given = jobs_of(5.0)
    async with open_queue_pair(tmp_path, given, slots=2) as (nodes, first):
        await put(first)
        nodes.stop(first)
        await trio.sleep(0.05)
        await put(first)
        await trio.sleep(0.06)
        assert len(given.current) == 2


@pytest.mark.usefixtures("on_both_stores")
async def test_drained_worker_leaves_cancelled_job_to_another_process_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Its lease is given back after ten seconds (O-31, B-238)."""
    given = jobs_of(15.0)
    async with open_queue_pair(tmp_path, given, slots=1) as (nodes, first):
        await put(first)
        await trio.sleep(0.3)
        nodes.stop(first)
        began = trio.current_time()
        await trio.sleep(12.0)
    assert given.claimed_at - began == pytest.approx(10.0, abs=0.06)
