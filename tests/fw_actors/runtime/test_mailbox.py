"""What becomes of messages for which there is no room."""

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
    MailboxFull,
    MailboxPolicy,
    Runtime,
)
from tests.fw_actors.runtime.sample_actors import Add, Drops, Nap, Note, Refuses, Sample, Waits


async def occupy(ref: ActorRef, nursery: trio.Nursery, seconds: float = 10.0) -> None:
    """Have the actor handle something for a while, with nothing in its mailbox."""

    async def nap() -> None:
        await ref.ask(Nap(seconds))

    nursery.start_soon(nap)
    await wait_all_tasks_blocked()


async def test_messages_are_handled_in_the_order_of_their_arrival(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: Sample(diary), 60) as ref:
        assert all(ref.tell(Note(n)) for n in range(100))
        assert await ref.ask(Add(3)) == 3
    assert diary == list(range(100))


async def test_more_than_a_turn_of_messages_lets_others_run_in_between(runtime: Runtime) -> None:
    class Roomy(Sample):
        mailbox = MailboxPolicy(capacity=1000)

    diary: list[Any] = []
    async with runtime.running("a", lambda: Roomy(diary), 60) as ref:
        for n in range(300):
            ref.tell(Note(n))
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert 0 < len(diary) < 300
    assert len(diary) == 300


async def test_wait_lets_senders_wait_in_order_and_refuses_tell(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: Waits(diary), 60) as ref:
        await occupy(ref, nursery)
        assert ref.tell(Note(1))
        assert ref.tell(Note(2))
        assert not ref.tell(Note(99))
        async with trio.open_nursery() as senders:
            for n in (3, 4):
                senders.start_soon(ref.send, Note(n))
                await wait_all_tasks_blocked()
    assert diary == [1, 2, 3, 4]
    assert runtime.snapshot().dead_letters[DeadLetterReason.FULL] == 1


async def test_a_sender_that_is_cancelled_while_it_waits_has_sent_nothing(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: Waits(diary), 60) as ref:
        await occupy(ref, nursery)
        ref.tell(Note(1))
        ref.tell(Note(2))
        with trio.move_on_after(1) as scope:
            await ref.send(Note(3))
        assert scope.cancelled_caught
    assert diary == [1, 2]


async def test_an_ask_waits_for_room_within_its_deadline(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    async with runtime.running("a", Waits, 60) as ref:
        await occupy(ref, nursery)
        ref.tell(Note(1))
        ref.tell(Note(2))
        start = trio.current_time()
        with pytest.raises(AskTimeout):
            await ref.ask(Add(1), deadline=4.0)
        assert trio.current_time() - start == 4.0
        assert await ref.ask(Add(1), deadline=20.0) == 1


async def test_waiting_for_room_and_for_the_answer_share_one_deadline(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    async with runtime.running("a", Waits, 60) as ref:
        await occupy(ref, nursery, 3.0)
        ref.tell(Note(1))
        ref.tell(Note(2))
        start = trio.current_time()
        with pytest.raises(AskTimeout):
            await ref.ask(Nap(10.0), deadline=5.0)
        assert trio.current_time() - start == pytest.approx(5.0)


async def test_an_answer_that_comes_before_the_asker_goes_on_is_not_lost(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    """Room is made and the question answered in one turn, while the asker still sleeps."""

    class Prompt(Waits):
        async def add(self, message: Add) -> int:
            return message.number

    async with runtime.running("a", Prompt, 60) as ref:
        await occupy(ref, nursery)
        ref.tell(Note(1))
        ref.tell(Note(2))
        assert await ref.ask(Add(5)) == 5


async def test_refuse_refuses_everybody_at_once(runtime: Runtime, nursery: trio.Nursery) -> None:
    async with runtime.running("a", Refuses, 60) as ref:
        await occupy(ref, nursery)
        ref.tell(Note(1))
        ref.tell(Note(2))
        assert not ref.tell(Note(3))
        with pytest.raises(MailboxFull, match="'a' is full: the limit is 2 messages"):
            await ref.send(Note(3))
        with pytest.raises(MailboxFull):
            await ref.ask(Add(1), deadline=1.0)


async def test_drop_oldest_makes_room_and_tells_the_one_who_asked(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    diary: list[Any] = []
    refused: list[int] = []

    async def ask(ref: ActorRef) -> None:
        with pytest.raises(MailboxFull):
            await ref.ask(Add(1))
        refused.append(1)

    async with runtime.running("a", lambda: Drops(diary), 60) as ref:
        await occupy(ref, nursery)
        nursery.start_soon(ask, ref)
        await wait_all_tasks_blocked()
        for n in range(1, 5):
            assert ref.tell(Note(n))
    assert diary == [3, 4]
    assert refused == [1]
    assert runtime.snapshot().dead_letters[DeadLetterReason.DROPPED] == 2


async def test_closing_sends_waiting_senders_away_and_handles_what_is_inside(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    diary: list[Any] = []
    gone: list[int] = []

    async def send(ref: ActorRef) -> None:
        with pytest.raises(ActorGone):
            await ref.send(Note(3))
        gone.append(3)

    async with runtime.running("a", lambda: Waits(diary), 60) as ref:
        await occupy(ref, nursery)
        ref.tell(Note(1))
        ref.tell(Note(2))
        nursery.start_soon(send, ref)
        await wait_all_tasks_blocked()
    assert (diary, gone) == ([1, 2], [3])


def test_a_mailbox_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        MailboxPolicy(capacity=0)
