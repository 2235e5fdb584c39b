"""Mailboxes: order, limits and overflow policies."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    ActorGone,
    ActorRef,
    AskTimeout,
    DeadLetterReason,
    KeyedPool,
    MailboxFull,
    MailboxPolicy,
    Overflow,
    Runtime,
)
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    DiaryNote,
    Later,
    Nap,
    SampleActor,
    SampleThatDrops,
    SampleThatRefuses,
    SampleThatWaits,
)


async def occupy(ref: ActorRef, nursery: trio.Nursery, seconds: float = 10.0) -> None:
    """Keep the actor busy for a while, with an empty mailbox."""

    async def nap() -> None:
        await ref.ask(Nap(seconds))

    nursery.start_soon(nap)
    await wait_all_tasks_blocked()


async def test_mailbox_keeps_order_of_arrival(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(diary), 60) as ref:
        assert all(ref.tell(DiaryNote(n)) for n in range(100))
        assert await ref.ask(AddNumber(3)) == 3
    assert diary == list(range(100))


async def test_mailbox_of_more_than_a_batch_yields_between_batches(runtime: Runtime) -> None:
    class RoomyMailbox(SampleActor):
        mailbox = MailboxPolicy(capacity=1000)

    diary: list[Any] = []
    async with runtime.running("a", lambda: RoomyMailbox(diary), 60) as ref:
        for n in range(300):
            ref.tell(DiaryNote(n))
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert 0 < len(diary) < 300
    assert len(diary) == 300


async def test_mailbox_given_to_an_actor_replaces_that_of_its_class(runtime: Runtime) -> None:
    """R-123: capacity and overflow of one actor, of a class that would have room and wait."""
    refusing = MailboxPolicy(capacity=2, overflow=Overflow.REFUSE)
    async with runtime.running("a", SampleActor, 60, mailbox=refusing) as ref:
        ref.suspend()
        assert [ref.tell(DiaryNote(n)) for n in range(3)] == [True, True, False]
        with pytest.raises(MailboxFull):
            await ref.ask(AddNumber(1))
        ref.resume()
    async with runtime.running("a", SampleActor, 60) as ref:  # the name does not keep the mailbox
        ref.suspend()
        assert all(ref.tell(DiaryNote(n)) for n in range(3))
        ref.resume()


async def test_mailbox_given_to_an_actor_limits_its_timers(runtime: Runtime) -> None:
    """R-123."""
    async with runtime.running("a", SampleActor, 60, mailbox=MailboxPolicy(max_timers=1)) as ref:
        ref.tell(Later(60.0, 1))
        ref.tell(Later(60.0, 2))
        await wait_all_tasks_blocked()
        inspection = await ref.inspect()
        assert (inspection.timers, inspection.actor.passed_on) == (1, 1)


async def test_mailbox_given_to_a_pool_holds_for_each_key(runtime: Runtime) -> None:
    """R-123: also for a key that is made anew, and for the mailboxes that are used again."""
    drop = MailboxPolicy(capacity=1, overflow=Overflow.DROP_OLDEST)
    diary: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(diary), idle_seconds=1.0, mailbox=drop)
    for _ in range(2):
        for key in "ab":
            assert all(pool[key].tell(DiaryNote(n)) for n in range(3))
        await trio.sleep(2.0)
        assert len(pool) == 0
    assert diary == [2, 2, 2, 2]
    assert runtime.dead_letters.counts()[DeadLetterReason.DROPPED] == 8


async def test_overflow_wait_queues_senders_and_refuses_tell(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleThatWaits(diary), 60) as ref:
        await occupy(ref, nursery)
        assert ref.tell(DiaryNote(1))
        assert ref.tell(DiaryNote(2))
        assert not ref.tell(DiaryNote(99))
        async with trio.open_nursery() as senders:
            for n in (3, 4):
                senders.start_soon(ref.send, DiaryNote(n))
                await wait_all_tasks_blocked()
    assert diary == [1, 2, 3, 4]
    assert runtime.snapshot().dead_letters[DeadLetterReason.FULL] == 1


async def test_send_cancelled_while_waiting_sends_nothing(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleThatWaits(diary), 60) as ref:
        await occupy(ref, nursery)
        ref.tell(DiaryNote(1))
        ref.tell(DiaryNote(2))
        with trio.move_on_after(1) as scope:
            await ref.send(DiaryNote(3))
        assert scope.cancelled_caught
    assert diary == [1, 2]


async def test_ask_waits_for_room_within_its_deadline(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    async with runtime.running("a", SampleThatWaits, 60) as ref:
        await occupy(ref, nursery)
        ref.tell(DiaryNote(1))
        ref.tell(DiaryNote(2))
        start = trio.current_time()
        with pytest.raises(AskTimeout):
            await ref.ask(AddNumber(1), deadline=4.0)
        assert trio.current_time() - start == 4.0
        assert await ref.ask(AddNumber(1), deadline=20.0) == 1


async def test_ask_shares_one_deadline_between_room_and_answer(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    async with runtime.running("a", SampleThatWaits, 60) as ref:
        await occupy(ref, nursery, 3.0)
        ref.tell(DiaryNote(1))
        ref.tell(DiaryNote(2))
        start = trio.current_time()
        with pytest.raises(AskTimeout):
            await ref.ask(Nap(10.0), deadline=5.0)
        assert trio.current_time() - start == pytest.approx(5.0)


async def test_ask_answered_before_it_resumes_returns_the_answer(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    """One batch makes room and answers the request, before the asker's task runs again."""

    class Prompt(SampleThatWaits):
        async def add(self, message: AddNumber) -> int:
            return message.number

    async with runtime.running("a", Prompt, 60) as ref:
        await occupy(ref, nursery)
        ref.tell(DiaryNote(1))
        ref.tell(DiaryNote(2))
        assert await ref.ask(AddNumber(5)) == 5


async def test_overflow_refuse_refuses_at_once(runtime: Runtime, nursery: trio.Nursery) -> None:
    async with runtime.running("a", SampleThatRefuses, 60) as ref:
        await occupy(ref, nursery)
        ref.tell(DiaryNote(1))
        ref.tell(DiaryNote(2))
        assert not ref.tell(DiaryNote(3))
        with pytest.raises(MailboxFull, match="'a' is full: the limit is 2 messages"):
            await ref.send(DiaryNote(3))
        with pytest.raises(MailboxFull):
            await ref.ask(AddNumber(1), deadline=1.0)


async def test_overflow_drop_oldest_fails_the_oldest_asker(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    """R-33."""
    diary: list[Any] = []
    refused: list[int] = []

    async def ask(ref: ActorRef) -> None:
        with pytest.raises(MailboxFull):
            await ref.ask(AddNumber(1))
        refused.append(1)

    async with runtime.running("a", lambda: SampleThatDrops(diary), 60) as ref:
        await occupy(ref, nursery)
        nursery.start_soon(ask, ref)
        await wait_all_tasks_blocked()
        for n in range(1, 5):
            assert ref.tell(DiaryNote(n))
    assert diary == [3, 4]
    assert refused == [1]
    assert runtime.snapshot().dead_letters[DeadLetterReason.DROPPED] == 2


async def test_mailbox_close_refuses_waiting_senders(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    diary: list[Any] = []
    gone: list[int] = []

    async def send(ref: ActorRef) -> None:
        with pytest.raises(ActorGone):
            await ref.send(DiaryNote(3))
        gone.append(3)

    async with runtime.running("a", lambda: SampleThatWaits(diary), 60) as ref:
        await occupy(ref, nursery)
        ref.tell(DiaryNote(1))
        ref.tell(DiaryNote(2))
        nursery.start_soon(send, ref)
        await wait_all_tasks_blocked()
    assert (diary, gone) == ([1, 2], [3])


def test_mailbox_policy_rejects_zero_capacity() -> None:
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        MailboxPolicy(capacity=0)
