"""Memberships of topics: new terms, a second membership, and actors that are being created."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import DeadLetterReason, KeyedPool, Runtime, Topic, TopicOverflow
from fw_actors.runtime.testing import LogBook
from tests.fw_actors.runtime.sample_actors import AddNumber, DiaryNote, Nap, SampleActor


class SlowToStart(SampleActor):
    async def started(self) -> None:
        await trio.sleep(1)


class SlowToFail(SampleActor):
    async def started(self) -> None:
        await trio.sleep(1)
        raise ValueError("not started")


@pytest.mark.parametrize(
    ("overflow", "capacity"), [(TopicOverflow.DROP_OLDEST, 2), (TopicOverflow.WAIT, 3)]
)
async def test_membership_that_is_full_by_new_terms_makes_publishers_wait(
    runtime: Runtime, nursery: trio.Nursery, overflow: TopicOverflow, capacity: int
) -> None:
    """R-101, R-102: it does not lose the oldest publication."""
    topic: Topic[DiaryNote] = Topic(runtime, "news")
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(diary)) as a:
        a.suspend()
        topic.subscribe(a, overflow=overflow, capacity=capacity)
        for number in (1, 2):
            assert topic.tell(DiaryNote(number))
        topic.subscribe(a, overflow=TopicOverflow.WAIT, capacity=2)
        assert not topic.tell(DiaryNote(3))
        nursery.start_soon(topic.publish, DiaryNote(4))
        await wait_all_tasks_blocked()
        assert topic.snapshot().waiting == 1
        a.resume()
        await wait_all_tasks_blocked()
        assert diary == [1, 2, 4]


async def test_membership_with_smaller_capacity_drops_all_that_exceed_it(runtime: Runtime) -> None:
    """R-102: the queue kept its former length, because each publication replaced one."""
    topic: Topic[DiaryNote] = Topic(runtime, "news")
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(diary)) as a:
        a.suspend()
        member = topic.subscribe(a, overflow=TopicOverflow.DROP_OLDEST, capacity=4)
        for number in (1, 2, 3, 4):
            topic.tell(DiaryNote(number))
        topic.subscribe(a, overflow=TopicOverflow.DROP_OLDEST, capacity=2)
        topic.tell(DiaryNote(5))
        assert member.missed == 3
        a.resume()
        await wait_all_tasks_blocked()
        assert diary == [4, 5]


async def test_membership_after_another_keeps_the_order(runtime: Runtime) -> None:
    """R-100: also if publications of the one that has ended are still to be handled."""
    topic: Topic[DiaryNote] = Topic(runtime, "news")
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(diary)) as a:
        a.suspend()
        topic.subscribe(a, overflow=TopicOverflow.UNSUBSCRIBE, capacity=3, then=DiaryNote(99))
        for number in (1, 2, 3, 4):
            topic.tell(DiaryNote(number))
        topic.subscribe(a, capacity=5)
        assert topic.tell(DiaryNote(5))
        assert not topic.tell(DiaryNote(6))  # the queue is the member's one queue
        a.resume()
        await wait_all_tasks_blocked()
        assert topic.tell(DiaryNote(7))
        await wait_all_tasks_blocked()
        assert diary == [1, 2, 3, 99, 5, 7]


async def test_membership_cancelled_after_its_end_leaves_nothing(runtime: Runtime) -> None:
    """R-104: neither in the mailbox of a single actor, nor in that of an idle keyed one."""
    topic: Topic[DiaryNote] = Topic(runtime, "news")
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), idle_seconds=60.0)
    async with runtime.running("a", SampleActor) as a, trio.open_nursery() as nursery:
        for ref in (a, pool["k"]):
            nursery.start_soon(ref.ask, Nap(1.0), 5.0)
        await wait_all_tasks_blocked()
        members = [
            topic.subscribe(ref, overflow=TopicOverflow.UNSUBSCRIBE, capacity=1)
            for ref in (a, pool["k"])
        ]
        for number in (1, 2):
            topic.tell(DiaryNote(number))
        for member in members:
            member.cancel()
        await trio.sleep(2)
        (keyed,) = pool.cells()
        assert (a.cell.mailbox.is_fed, keyed.mailbox.is_fed) == (False, False)
        assert (a.cell.handled, keyed.handled) == (1, 1)


async def test_membership_of_new_keyed_actor_begins_with_its_start(runtime: Runtime) -> None:
    """R-104: a keyed actor is created if necessary, also if its class overrides `started`."""
    topic: Topic[DiaryNote] = Topic(runtime, "news")
    diary: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: SlowToStart(diary), idle_seconds=1.0)
    member = topic.subscribe(pool["k"])
    await trio.sleep(10)
    assert (len(topic), len(pool)) == (1, 1)
    assert await topic.publish(DiaryNote(1)) == 1
    await wait_all_tasks_blocked()
    assert diary == [1]
    member.cancel()
    await trio.sleep(2)
    assert len(pool) == 0


async def test_membership_cancelled_during_a_start_that_fails_ends_only_the_actor(
    runtime: Runtime, log: LogBook
) -> None:
    """R-55: there is no message left for the failure, which ended the runtime."""
    topic: Topic[DiaryNote] = Topic(runtime, "news")
    pool = KeyedPool(
        runtime, "p", lambda key: SlowToFail() if key == "k" else SampleActor(), idle_seconds=1.0
    )
    member = topic.subscribe(pool["k"])
    topic.tell(DiaryNote(1))
    await trio.sleep(0.5)
    member.cancel()
    await trio.sleep(5)
    assert len(log.named("actor_failed")) == 1
    assert await pool["other"].ask(AddNumber(1), deadline=1.0) == 1


async def test_membership_publication_for_a_failed_start_is_a_dead_letter(
    runtime: Runtime,
) -> None:
    """R-80."""
    topic: Topic[DiaryNote] = Topic(runtime, "news")
    pool = KeyedPool(runtime, "p", lambda key: SlowToFail(), idle_seconds=1.0)
    topic.subscribe(pool["k"])
    topic.tell(DiaryNote(1))
    await trio.sleep(5)
    assert runtime.snapshot().dead_letters[DeadLetterReason.FAILED] == 1
