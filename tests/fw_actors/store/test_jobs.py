"""Jobs and leases (B-197, B-210, B-211)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fw_actors.store import LeasedJob, Store, Tx, jobs
from tests.fw_actors.store.conftest import OpenStore

LEASE_MS = 40_000


class SteppedClock:
    """A clock that advances only when a test sets it."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
async def queue(open_store: OpenStore, clock: SteppedClock) -> AsyncIterator[Store]:
    async with open_store(clock=clock, inline=True) as store:
        yield store


def put(partition: str = "w1", **given: Any) -> Callable[[Tx], int]:
    return lambda tx: jobs.enqueue_numbered(tx, queue="webhook", partition=partition, **given)


def take(partition: str = "w1", limit: int = 10, token: str = "t1") -> Callable[[Tx], Any]:
    return lambda tx: jobs.claim(tx, "webhook", partition, limit, LEASE_MS, token)


def heads(tx: Tx) -> list[jobs.QueueHead]:
    return jobs.heads(tx, "webhook")


def row(tx: Tx, job_id: int) -> dict[str, Any]:
    columns = "next_at, attempts, deaths, lease, error"
    (found,) = tx.raw(f"SELECT {columns} FROM fw_job WHERE id = :id", {"id": job_id})
    return found


async def test_claim_returns_every_field_of_job(queue: Store, clock: SteppedClock) -> None:
    job_id = await queue.write(
        put(subject="d-1", function="app.send", arguments='{"a": 1}', user="ada")
    )
    given = ("webhook", "w1", "d-1", "app.send", '{"a": 1}', "ada")
    assert await queue.write(take()) == [LeasedJob(job_id, *given, 0, 0, "t1", clock.ms)]


async def test_claim_skips_leased_job(queue: Store) -> None:
    await queue.write(put())
    assert len(await queue.write(take(token="t1"))) == 1
    assert await queue.write(take(token="t2")) == []


async def test_claim_takes_limited_number_of_longest_waiting_jobs(
    queue: Store, clock: SteppedClock
) -> None:
    late = await queue.write(put(next_at=clock.ms - 1))
    early = await queue.write(put(next_at=clock.ms - 2))
    await queue.write(put("w2"))
    assert [job.id for job in await queue.write(take(limit=1))] == [early]
    assert [job.id for job in await queue.write(take(limit=5))] == [late]


async def test_claim_skips_job_not_yet_due(queue: Store, clock: SteppedClock) -> None:
    await queue.write(put(next_at=clock.ms + 1))
    assert await queue.write(take()) == []
    clock.ms += 1
    assert len(await queue.write(take())) == 1


async def test_claim_takes_over_expired_lease_and_counts_death(
    queue: Store, clock: SteppedClock
) -> None:
    await queue.write(put())
    for deaths in range(3):
        (job,) = await queue.write(take(token=f"t{deaths}"))
        assert (job.expired_leases, job.attempts) == (deaths, 0)
        assert await queue.write(take(token="early")) == []
        clock.ms += LEASE_MS


Outcome = Callable[[Tx, int, str], bool]
OUTCOMES: dict[str, Outcome] = {
    "retry": lambda tx, job, token: jobs.retry(tx, job, token, 2_000_000, "timeout: late"),
    "finish": jobs.finish,
    "fail": lambda tx, job, token: jobs.fail(tx, job, token, "status: 404"),
    "release": jobs.release,
}


@pytest.mark.parametrize("name", OUTCOMES)
async def test_outcome_is_written_by_lease_holder_only(
    queue: Store, clock: SteppedClock, name: str
) -> None:
    outcome = OUTCOMES[name]
    await queue.write(put())
    await queue.write(take(token="slow"))
    clock.ms += LEASE_MS
    (job,) = await queue.write(take(token="holder"))
    before = await queue.read(lambda tx: row(tx, job.id))
    assert await queue.write(lambda tx: outcome(tx, job.id, "slow")) is False
    assert await queue.read(lambda tx: row(tx, job.id)) == before
    assert await queue.write(lambda tx: outcome(tx, job.id, "holder")) is True
    assert await queue.write(lambda tx: outcome(tx, job.id, "holder")) is False, "once only"


NO_LEASE = {"lease": None}
AFTER = [  # after one death, so that its count is visible
    ("retry", {"next_at": 2_000_000, "attempts": 1, "deaths": 0, "error": "timeout: late"}),
    ("fail", {"next_at": None, "attempts": 1, "deaths": 0, "error": "status: 404"}),
    ("release", {"next_at": 1_040_000, "attempts": 0, "deaths": 1, "error": None}),
]


@pytest.mark.parametrize(("name", "expected"), AFTER)
async def test_outcome_updates_columns_of_job(
    queue: Store, clock: SteppedClock, name: str, expected: dict[str, Any]
) -> None:
    await queue.write(put())
    await queue.write(take(token="died"))
    clock.ms += LEASE_MS
    (job,) = await queue.write(take())
    await queue.write(lambda tx: OUTCOMES[name](tx, job.id, "t1"))
    assert await queue.read(lambda tx: row(tx, job.id)) == expected | NO_LEASE


async def test_finish_removes_row_of_job(queue: Store) -> None:
    job_id = await queue.write(put())
    await queue.write(take())
    await queue.write(lambda tx: jobs.finish(tx, job_id, "t1"))
    assert await queue.read(jobs.stats) == []


async def test_settle_all_updates_jobs_with_matching_lease(
    queue: Store, clock: SteppedClock
) -> None:
    ids = [await queue.write(put(subject=str(n))) for n in range(6)]
    await queue.write(take())
    settled = [
        jobs.Settlement(ids[3], "t1", clock.ms + 30_000, 'timeout: "late" é'),
        jobs.Settlement(ids[4], "t1", None, "status: 301"),
        jobs.Settlement(ids[5], "another", None, "x"),
    ]
    assert await queue.write(lambda tx: jobs.settle_all(tx, settled)) == 2
    left = await queue.read(lambda tx: {n: row(tx, ids[n]) for n in (1, 3, 4, 5)})
    assert list(left[3].values()) == [clock.ms + 30_000, 1, 0, None, 'timeout: "late" é']
    assert list(left[4].values()) == [None, 1, 0, None, "status: 301"]
    assert [left[n]["lease"] for n in (1, 5)] == ["t1", "t1"]
    assert await queue.write(lambda tx: jobs.settle_all(tx, [])) == 0


async def test_delete_held_removes_given_jobs_only(queue: Store) -> None:
    ids = [await queue.write(put(subject=str(n))) for n in range(4)]
    await queue.write(take())
    await queue.write(lambda tx: jobs.delete_held(tx, [ids[0], ids[2], 999]))
    await queue.write(lambda tx: jobs.delete_held(tx, []))
    left = await queue.read(lambda tx: [one["id"] for one in tx.raw("SELECT id FROM fw_job")])
    assert sorted(left) == [ids[1], ids[3]]


async def test_heads_return_earliest_time_per_partition(queue: Store, clock: SteppedClock) -> None:
    for partition, wait in (("w2", 5), ("w1", 9), ("w1", 7), ("", 3)):
        await queue.write(put(partition, next_at=clock.ms + wait))
    failed = await queue.write(put("w3"))
    await queue.write(take("w3"))
    await queue.write(lambda tx: jobs.fail(tx, failed, "t1", "gone"))
    await queue.write(lambda tx: jobs.enqueue(tx, queue="mail", partition="w9"))
    expected = [("", clock.ms + 3), ("w1", clock.ms + 7), ("w2", clock.ms + 5)]
    assert await queue.read(heads) == expected
    assert await queue.read(lambda tx: jobs.heads(tx, "nothing")) == []


async def test_next_due_returns_first_future_time_of_partition(
    queue: Store, clock: SteppedClock
) -> None:
    """A scan finds due jobs, and the worker sleeps until the next one (B-197)."""
    now = clock.ms
    for at in (now - 1, now, now + 7, now + 3):
        await queue.write(put(next_at=at))
    await queue.write(put("w2", next_at=now + 1))
    await queue.write(lambda tx: jobs.enqueue(tx, queue="mail", partition="w1", next_at=now + 2))

    async def next_due(partition: str) -> int | None:
        return await queue.read(lambda tx: jobs.next_due(tx, "webhook", partition))

    assert [await next_due(each) for each in ("w1", "w2", "w3")] == [now + 3, now + 1, None]


async def test_stats_count_jobs_by_queue_and_state(queue: Store, clock: SteppedClock) -> None:
    await queue.write(put(next_at=clock.ms - 2500))
    await queue.write(put(next_at=clock.ms + 1))
    await queue.write(put("w2"))
    await queue.write(take("w2"))
    failed = await queue.write(put("w3"))
    await queue.write(take("w3"))
    await queue.write(lambda tx: jobs.fail(tx, failed, "t1", "gone"))
    await queue.write(lambda tx: jobs.enqueue(tx, queue="mail", next_at=clock.ms + 1))
    assert await queue.read(jobs.stats) == [
        ("mail", 0, 1, 0, 0, 0.0),
        ("webhook", 1, 1, 1, 1, 2.5),
    ]


async def test_reschedule_makes_jobs_beyond_limit_due_now(
    queue: Store, clock: SteppedClock
) -> None:
    """A next attempt beyond the limit is due now; a nearer one keeps its time."""
    latest = clock.ms + 1000
    near = await queue.write(put("w1", next_at=latest))
    far = [await queue.write(put(p, next_at=latest + 1)) for p in ("w1", "w2", "")]
    failed = await queue.write(put("w2"))
    await queue.write(take("w2"))
    await queue.write(lambda tx: jobs.fail(tx, failed, "t1", "gone"))
    other = await queue.write(
        lambda tx: jobs.enqueue_numbered(tx, queue="mail", next_at=latest + 1)
    )
    assert await queue.write(lambda tx: jobs.reschedule(tx, "webhook", latest, 9)) == len(far)
    times = await queue.read(lambda tx: {n: row(tx, n)["next_at"] for n in (near, *far, other)})
    assert times == {near: latest, other: latest + 1} | dict.fromkeys(far, clock.ms)
    assert await queue.read(lambda tx: row(tx, failed)["next_at"]) is None


async def test_lease_takes_same_jobs_as_claim(queue: Store, clock: SteppedClock) -> None:
    for _ in range(3):
        await queue.write(put())
    await queue.write(put(partition="w2"))
    lease = lambda tx: jobs.lease(tx, "webhook", "w1", 2, LEASE_MS, "t1")  # noqa: E731
    assert [await queue.write(lease) for _ in range(3)] == [2, 1, 0]
    assert await queue.write(heads) == [
        ("w1", clock.ms + LEASE_MS),
        ("w2", clock.ms),
    ]
    clock.ms += LEASE_MS
    assert [job.expired_leases for job in await queue.write(take(token="t2"))] == [1, 1, 1]


async def test_renew_extends_lease_of_holder_only(queue: Store, clock: SteppedClock) -> None:
    job_id = await queue.write(put())
    await queue.write(take())
    clock.ms += LEASE_MS - 1
    assert await queue.write(lambda tx: jobs.renew(tx, job_id, "t2", LEASE_MS)) is None
    assert await queue.write(lambda tx: jobs.renew(tx, job_id, "t1", LEASE_MS)) == ""
    assert await queue.write(heads) == [("w1", clock.ms + LEASE_MS)]
    found = await queue.read(lambda tx: row(tx, job_id))
    assert (found["attempts"], found["deaths"], found["lease"]) == (0, 0, "t1")
