"""Topics: order, back-pressure, slow members, and members that end.

The module has more than 500 lines because all its tests are about one unit.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    Actor,
    ActorGone,
    ActorRef,
    AskCycle,
    DeadLetterReason,
    KeyedPool,
    MailboxFull,
    MailboxPolicy,
    Request,
    Runtime,
    SeededEntropy,
    Topic,
    TopicOverflow,
    TrioClock,
    handles,
    open_runtime,
)
from fw_actors.runtime.testing import LogBook
from supervisors import RestartIntensity, actor_child, open_supervisor
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Break,
    DiaryNote,
    Forward,
    Nap,
    SampleActor,
)


def opened(runtime: Runtime, **options: Any) -> Topic[DiaryNote]:
    return Topic(runtime, "news", **options)


async def test_publication_reaches_all_members(runtime: Runtime) -> None:
    """R-100."""
    topic = opened(runtime)
    first: list[Any] = []
    second: list[Any] = []
    async with (
        runtime.running("a", lambda: SampleActor(first)) as a,
        runtime.running("b", lambda: SampleActor(second)) as b,
    ):
        topic.subscribe(a)
        assert await topic.publish(DiaryNote(1)) == 1
        topic.subscribe(b)
        assert await topic.publish(DiaryNote(2)) == 2
        assert topic.tell(DiaryNote(3))
        await wait_all_tasks_blocked()
    assert (first, second) == ([1, 2, 3], [2, 3])


async def test_members_get_all_publications_in_one_order(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    """R-100: also when publishers have to wait for one of the members."""
    topic = opened(runtime)
    seen: list[list[Any]] = [[] for _ in range(3)]
    async with (
        runtime.running("a", lambda: SampleActor(seen[0])) as a,
        runtime.running("b", lambda: SampleActor(seen[1])) as b,
        runtime.running("c", lambda: SampleActor(seen[2])) as c,
    ):
        for ref, capacity in ((a, 1), (b, 3), (c, 100)):
            topic.subscribe(ref, capacity=capacity)
        b.suspend()
        for number in range(20):
            nursery.start_soon(topic.publish, DiaryNote(number))
        await wait_all_tasks_blocked()
        assert topic.snapshot().waiting == 17
        b.resume()
        await wait_all_tasks_blocked()
    assert sorted(seen[0]) == list(range(20))
    assert seen[0] == seen[1] == seen[2]


async def test_publisher_waits_for_a_slow_member(runtime: Runtime, nursery: trio.Nursery) -> None:
    """R-101: TopicOverflow.WAIT, and no member gets the publication before all can get it."""
    topic = opened(runtime)
    seen: list[Any] = []
    async with (
        runtime.running("slow", SampleActor) as slow,
        runtime.running("quick", lambda: SampleActor(seen)) as quick,
    ):
        topic.subscribe(slow, overflow=TopicOverflow.WAIT, capacity=2)
        topic.subscribe(quick)
        slow.suspend()
        for number in range(3):
            nursery.start_soon(topic.publish, DiaryNote(number))
        await wait_all_tasks_blocked()
        assert len(seen) == 2
        assert not topic.tell(DiaryNote(9))
        assert topic.snapshot().waiting == 1
        slow.resume()
        await wait_all_tasks_blocked()
        assert (len(seen), topic.snapshot().waiting) == (3, 0)
    assert runtime.snapshot().last_dead_letters[-1].recipient == "news"


async def test_cancelled_publisher_has_published_nothing(runtime: Runtime) -> None:
    """R-101."""
    topic = opened(runtime)
    seen: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(seen)) as ref:
        topic.subscribe(ref, capacity=1)
        ref.suspend()
        await topic.publish(DiaryNote(1))
        with trio.move_on_after(1) as scope:
            await topic.publish(DiaryNote(2))
        assert scope.cancelled_caught
        assert topic.snapshot().waiting == 0
        ref.resume()
        assert await topic.publish(DiaryNote(3)) == 1
        await wait_all_tasks_blocked()
    assert seen == [1, 3]


@pytest.mark.parametrize(
    ("overflow", "kept", "reason"),
    [
        (TopicOverflow.DROP_OLDEST, [3, 4], DeadLetterReason.DROPPED),
        (TopicOverflow.DROP_NEWEST, [1, 2], DeadLetterReason.FULL),
    ],
)
async def test_full_queue_drops_as_chosen(
    runtime: Runtime, overflow: TopicOverflow, kept: list[int], reason: DeadLetterReason
) -> None:
    """R-102: the other messages of the mailbox are not touched."""
    topic = opened(runtime)
    seen: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(seen)) as ref:
        member = topic.subscribe(ref, overflow=overflow, capacity=2)
        ref.suspend()
        ref.tell(DiaryNote(100))
        for number in range(1, 5):
            await topic.publish(DiaryNote(number))
        assert member.missed == 2
        ref.resume()
        await wait_all_tasks_blocked()
    assert sorted(seen) == [*kept, 100]
    assert runtime.snapshot().dead_letters[reason] == 2
    assert runtime.snapshot().last_dead_letters[-1].recipient == "news for a"


async def test_slow_member_is_unsubscribed_and_notified(runtime: Runtime, log: LogBook) -> None:
    """R-102: its queued publications are handled first."""
    topic = opened(runtime)
    seen: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(seen)) as ref:
        member = topic.subscribe(
            ref, overflow=TopicOverflow.UNSUBSCRIBE, capacity=2, then=DiaryNote(-1)
        )
        ref.suspend()
        assert [await topic.publish(DiaryNote(number)) for number in range(4)] == [1, 1, 0, 0]
        assert (len(topic), member.active) == (0, False)
        ref.resume()
        await wait_all_tasks_blocked()
    assert seen == [0, 1, -1]
    assert log.named("member_unsubscribed") == [
        {"topic": "news", "member": "a", "reason": "too slow"}
    ]


async def test_publications_take_turns_with_other_messages(runtime: Runtime) -> None:
    """R-103: neither a topic nor the mailbox, nor one of two topics, starves another."""
    topic, other = opened(runtime), Topic[DiaryNote](runtime, "other")
    seen: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(seen)) as ref:
        topic.subscribe(ref)
        other.subscribe(ref)
        ref.suspend()
        for number in range(20):
            await topic.publish(DiaryNote(number))
            await other.publish(DiaryNote(100 + number))
            ref.tell(DiaryNote(200 + number))
        ref.resume()
        await wait_all_tasks_blocked()
    assert seen[:10] == [0, 100, 1, 101, 2, 102, 3, 103, 200, 4]
    assert len(seen) == 60
    for least in (0, 100, 200):
        assert [n for n in seen if least <= n < least + 100] == [*range(least, least + 20)]


async def test_full_mailbox_drops_none_of_the_publications(runtime: Runtime) -> None:
    """R-102: a queue is not part of the mailbox's capacity."""
    topic = opened(runtime)

    class Two(SampleActor):
        mailbox = MailboxPolicy(capacity=2, overflow=SampleActor.mailbox.overflow.DROP_OLDEST)

    seen: list[Any] = []
    async with runtime.running("a", lambda: Two(seen)) as ref:
        topic.subscribe(ref)
        ref.suspend()
        await topic.publish(DiaryNote(1))
        for number in range(10, 14):
            ref.tell(DiaryNote(number))
        assert runtime.snapshot().tree[0].depth == 3
        ref.resume()
        await wait_all_tasks_blocked()
    assert seen == [1, 12, 13]


async def test_member_subscribes_again_with_new_terms(runtime: Runtime) -> None:
    topic = opened(runtime)
    seen: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(seen)) as ref:
        first = topic.subscribe(ref, capacity=1)
        ref.suspend()
        await topic.publish(DiaryNote(1))
        assert topic.subscribe(ref, capacity=3) is first
        with trio.fail_after(1):
            await topic.publish(DiaryNote(2))
        assert [member.depth for member in topic.snapshot().members] == [2]
        ref.resume()
        await wait_all_tasks_blocked()
    assert seen == [1, 2]


async def test_cancelled_membership_drops_its_queue_and_frees_publishers(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    topic = opened(runtime)
    seen: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(seen)) as ref:
        member = topic.subscribe(ref, capacity=1)
        ref.suspend()
        nursery.start_soon(topic.publish, DiaryNote(1))
        nursery.start_soon(topic.publish, DiaryNote(2))
        await wait_all_tasks_blocked()
        member.cancel()
        member.cancel()
        await wait_all_tasks_blocked()
        assert topic.snapshot() == topic.snapshot().__class__("news", 2, 0, ())
        ref.resume()
        ref.tell(DiaryNote(3))
        await wait_all_tasks_blocked()
    assert seen == [3]


class Chooses(SampleActor):
    """Becomes a member while it handles a message."""

    def __init__(self, topic: Topic[DiaryNote], diary: list[Any]) -> None:
        super().__init__(diary)
        self.topic = topic

    @handles(AddNumber)
    async def add(self, message: AddNumber) -> int:
        self.topic.subscribe(self.context.ref)
        self.topic.tell(DiaryNote(message.number))
        return message.number


async def test_handler_subscribes_its_own_actor(runtime: Runtime) -> None:
    """A member handles messages that were published in the same turn."""
    topic = opened(runtime)
    seen: list[Any] = []
    async with runtime.running("a", lambda: Chooses(topic, seen)) as ref:
        assert await ref.ask(AddNumber(7), deadline=1.0) == 7
        await wait_all_tasks_blocked()
    assert seen == [7]


async def test_single_actor_stays_a_member_over_a_restart(runtime: Runtime) -> None:
    """R-104: with the publications in its queue."""
    topic = opened(runtime)
    seen: list[Any] = []
    intensity = RestartIntensity(backoff=1.0, jitter=0.0)
    async with open_supervisor(
        runtime, "top", [actor_child("a", lambda: SampleActor(seen))], intensity=intensity
    ):
        ref = runtime.ref("a")
        topic.subscribe(ref)
        for number in range(2):
            ref.tell(Break())
            await wait_all_tasks_blocked()
            await topic.publish(DiaryNote(number))
        await trio.sleep(2)
        assert (seen, len(topic)) == ([0, 1], 1)


async def test_actor_that_stops_leaves_after_its_queue(runtime: Runtime) -> None:
    """R-104: and frees a publisher that waits for it."""
    topic = opened(runtime)
    seen: list[Any] = []
    async with (
        runtime.running("a", lambda: SampleActor(seen)) as ref,
        trio.open_nursery() as nursery,
    ):
        topic.subscribe(ref, capacity=2)
        ref.tell(Nap(1.0))
        await wait_all_tasks_blocked()
        for number in range(3):
            nursery.start_soon(topic.publish, DiaryNote(number))
        await wait_all_tasks_blocked()
        ref.stop(trio.current_time() + 5.0)
        assert len(topic) == 0
        await wait_all_tasks_blocked()
        assert topic.snapshot().published == 3
    assert len(seen) == 2
    with pytest.raises(ActorGone):
        topic.subscribe(ref)


async def test_queued_publications_of_a_cut_actor_are_dead_letters(runtime: Runtime) -> None:
    topic = opened(runtime)
    async with runtime.running("a", SampleActor) as ref:
        topic.subscribe(ref)
        ref.tell(Nap(100.0))
        await wait_all_tasks_blocked()
        await topic.publish(DiaryNote(1))
        ref.stop(trio.current_time() + 1.0)
    assert runtime.snapshot().dead_letters[DeadLetterReason.STOPPED] == 1


async def test_keyed_member_is_not_passivated_until_it_leaves(runtime: Runtime) -> None:
    """R-104."""
    topic = opened(runtime)
    seen: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(seen), idle_seconds=5.0)
    member = topic.subscribe(pool["k"])
    await trio.sleep(100)
    assert (len(pool), await topic.publish(DiaryNote(1))) == (1, 1)
    await trio.sleep(100)
    assert (seen, len(pool)) == ([1], 1)
    member.cancel()
    await trio.sleep(6)
    assert (len(pool), len(topic)) == (0, 0)
    assert pool.statistics().active == pool.statistics().idle == 0


async def test_keyed_member_leaves_when_its_instance_fails(runtime: Runtime) -> None:
    """R-104: the publications in its queue are handled by the next instance."""
    topic = opened(runtime)
    seen: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(seen), idle_seconds=5.0)
    topic.subscribe(pool["k"])
    pool["k"].tell(Break())
    await topic.publish(DiaryNote(1))
    await trio.sleep(1)
    assert (seen, len(topic)) == ([1], 0)
    await trio.sleep(6)
    assert len(pool) == 0


async def test_pool_with_members_closes(runtime: Runtime) -> None:
    topic = opened(runtime)
    seen: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(seen))
    for key in "abc":
        topic.subscribe(pool[key])
    await topic.publish(DiaryNote(1))
    with trio.fail_after(1):
        await pool.close()
    assert (seen, len(topic)) == ([1, 1, 1], 0)


async def test_keyed_actor_that_ends_itself_leaves(runtime: Runtime) -> None:
    topic = opened(runtime)

    class Once(SampleActor):
        @handles(DiaryNote)
        def note(self, message: DiaryNote) -> None:
            self.context.stop()

    pool = KeyedPool(runtime, "p", lambda key: Once())
    topic.subscribe(pool["k"])
    await topic.publish(DiaryNote(1))
    await wait_all_tasks_blocked()
    assert (len(topic), len(pool)) == (0, 0)


async def test_accept_chooses_publications(runtime: Runtime, log: LogBook) -> None:
    """A member whose `accept` fails leaves, and no other member is affected."""
    topic = opened(runtime)
    seen: list[Any] = []
    async with (
        runtime.running("a", lambda: SampleActor(seen)) as a,
        runtime.running("b", SampleActor) as b,
    ):
        topic.subscribe(a, accept=lambda note: note.number % 2 == 0)
        topic.subscribe(b, accept=lambda note: bool(1 // note.number))
        assert [await topic.publish(DiaryNote(number)) for number in (1, 2, 0, 4)] == [1, 1, 1, 1]
        await wait_all_tasks_blocked()
    assert seen == [2, 0, 4]
    assert log.named("member_unsubscribed")[0]["reason"] == (
        "ZeroDivisionError: integer division or modulo by zero"
    )


async def test_topic_has_a_limit_of_members(runtime: Runtime) -> None:
    topic = opened(runtime, max_members=1)
    async with runtime.running("a", SampleActor) as a, runtime.running("b", SampleActor) as b:
        topic.subscribe(a)
        with pytest.raises(MailboxFull, match="'news' is full: the limit is 1 members"):
            topic.subscribe(b)
        with pytest.raises(MailboxFull), topic.listening():
            pass
        with pytest.raises(ValueError, match="at least 1"):
            topic.subscribe(a, capacity=0)


class PublishTwice(Request[int], frozen=True):
    """Publishes two messages."""


class Publisher(SampleActor):
    def __init__(self, topic: Topic[DiaryNote]) -> None:
        super().__init__()
        self.topic = topic

    @handles(PublishTwice)
    async def twice(self, message: PublishTwice) -> int:
        await self.topic.publish(DiaryNote(1))
        return await self.topic.publish(DiaryNote(2))


async def test_publisher_that_is_the_full_member_gets_a_cycle(runtime: Runtime) -> None:
    """R-105."""
    topic = opened(runtime)
    async with runtime.running("a", lambda: Publisher(topic)) as ref:
        topic.subscribe(ref, capacity=1)
        with pytest.raises(AskCycle) as raised:
            await ref.ask(PublishTwice(), deadline=5.0)
        assert raised.value.cycle == ("a", "news", "a")
        assert topic.snapshot().waiting == 0


class NapThenAsk(Request[int], frozen=True):
    of: Any


class AskingMember(SampleActor):
    @handles(NapThenAsk)
    async def nap_then_ask(self, message: NapThenAsk) -> int:
        await trio.sleep(1)
        answer: int = await message.of.ask(AddNumber(1), deadline=5.0)
        return answer


async def test_full_member_that_asks_a_waiting_publisher_gets_a_cycle(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    """R-105."""
    topic = opened(runtime)
    async with (
        runtime.running("publisher", lambda: Publisher(topic)) as publisher,
        runtime.running("member", AskingMember) as member,
    ):
        topic.subscribe(member, capacity=1)
        with trio.CancelScope() as scope:
            nursery.start_soon(publish_meanwhile, publisher)
            with pytest.raises(AskCycle) as raised:
                await member.ask(NapThenAsk(publisher), deadline=5.0)
        assert not scope.cancelled_caught
        assert raised.value.cycle == ("member", "publisher", "news", "member")


async def publish_meanwhile(publisher: ActorRef) -> None:
    await trio.sleep(0.5)
    publisher.tell(PublishTwice())


async def test_publication_that_closes_a_cycle_ends_a_wait(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    """R-105: the member was not full yet when it asked the publisher."""
    topic = opened(runtime)
    cycles: list[tuple[str, ...]] = []

    async def publish() -> None:
        with pytest.raises(AskCycle) as raised:
            await runtime.ref("publisher").ask(PublishTwice(), deadline=60.0)
        cycles.append(raised.value.cycle)

    async with (
        runtime.running("publisher", lambda: Publisher(topic)) as publisher,
        runtime.running("member", SampleActor) as member,
        runtime.running("brake", SampleActor) as brake,
    ):
        topic.subscribe(member, capacity=1)
        topic.subscribe(brake, capacity=1)
        brake.suspend()
        await topic.publish(DiaryNote(0))
        nursery.start_soon(topic.publish, DiaryNote(1))
        await wait_all_tasks_blocked()
        nursery.start_soon(publish)
        await wait_all_tasks_blocked()
        member.tell(Forward((publisher,)))
        await wait_all_tasks_blocked()
        assert cycles == []
        brake.resume()
        await wait_all_tasks_blocked()
        assert cycles == [("publisher", "news", "member", "publisher")]
        assert topic.snapshot().waiting == 0


async def test_tell_from_a_thread_publishes(runtime: Runtime) -> None:
    topic = opened(runtime)
    seen: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(seen)) as ref:
        topic.subscribe(ref)
        assert await trio.to_thread.run_sync(topic.tell_from_thread, DiaryNote(1))
        with pytest.raises(RuntimeError, match="tell_from_thread"):
            await trio.to_thread.run_sync(topic.tell, DiaryNote(2))
        await wait_all_tasks_blocked()
    assert seen == [1]


async def test_context_variables_travel_with_publications(log: LogBook) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")
    seen: list[str] = []

    class Reads(Actor):
        @handles(DiaryNote)
        def note(self, message: DiaryNote) -> None:
            seen.append(variable.get())

    async with open_runtime(
        clock=TrioClock(0), entropy=SeededEntropy(1), log=log, carry=[variable]
    ) as runtime:
        topic = opened(runtime)
        async with runtime.running("a", Reads) as ref:
            topic.subscribe(ref)
            variable.set("request 1")
            await topic.publish(DiaryNote(1))
            await wait_all_tasks_blocked()
    assert seen == ["request 1"]


async def test_topic_listener_receives_publications_in_order(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    topic = opened(runtime)
    seen: list[int] = []

    async def listen(task_status: trio.TaskStatus[None]) -> None:
        with topic.listening(capacity=2) as listener:
            task_status.started()
            async for note in listener:
                seen.append(note.number)  # noqa: PERF401 - to be seen while it goes on

    await nursery.start(listen)
    for number in range(5):
        await topic.publish(DiaryNote(number))
    await wait_all_tasks_blocked()
    assert seen == [0, 1, 2, 3, 4]
    nursery.cancel_scope.cancel()
    with trio.CancelScope(shield=True):
        await wait_all_tasks_blocked()
    assert len(topic) == 0


async def test_listener_that_is_slow_ends_or_misses(runtime: Runtime) -> None:
    topic = opened(runtime)
    with (
        topic.listening(overflow=TopicOverflow.DROP_OLDEST, capacity=2) as drops,
        topic.listening(overflow=TopicOverflow.UNSUBSCRIBE, capacity=2) as leaves,
    ):
        for number in range(4):
            await topic.publish(DiaryNote(number))
        assert [note.number for note in drops.take_all()] == [2, 3]
        assert drops.missed == 2
        assert [note.number async for note in leaves] == [0, 1]


async def test_listener_serves_one_task(runtime: Runtime, nursery: trio.Nursery) -> None:
    topic = opened(runtime)
    with topic.listening() as listener:
        nursery.start_soon(listener.__anext__)
        await wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="one task at a time"):
            await listener.__anext__()
        await topic.publish(DiaryNote(1))
        await wait_all_tasks_blocked()


async def test_publishers_wait_for_a_listener(runtime: Runtime, nursery: trio.Nursery) -> None:
    topic = opened(runtime)
    with topic.listening(capacity=1) as listener:
        for number in range(3):
            nursery.start_soon(topic.publish, DiaryNote(number))
        await wait_all_tasks_blocked()
        assert topic.snapshot().waiting == 2
        got = [(await listener.__anext__()).number for _ in range(3)]
    assert sorted(got) == [0, 1, 2]
