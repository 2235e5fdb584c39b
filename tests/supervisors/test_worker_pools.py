"""Worker pools: the next free worker takes the next message, and a failure loses only its own.

The module has more than 500 lines because all its tests are about one unit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    Actor,
    ActorFailed,
    ActorGone,
    AskCycle,
    AskTimeout,
    DeadLetterReason,
    MailboxFull,
    MailboxPolicy,
    Overflow,
    Ref,
    Request,
    Runtime,
    Topic,
    WorkerPool,
    handles,
)
from fw_actors.runtime.testing import Crash, LogBook, injecting, nth
from supervisors import (
    RestartIntensity,
    Strategy,
    SupervisorFailed,
    actor_child,
    open_supervisor,
    worker_pool_child,
)
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Begin,
    Break,
    DiaryNote,
    Forward,
    Keep,
    Nap,
    SampleActor,
)
from tests.supervisors.orders import in_many_orders

PATIENT = RestartIntensity(restarts=100, backoff=0.1, jitter=0.0)


@asynccontextmanager
async def working(
    runtime: Runtime, pool: WorkerPool[Any], **options: Any
) -> AsyncIterator[WorkerPool[Any]]:
    options.setdefault("intensity", PATIENT)
    async with open_supervisor(runtime, "top", [worker_pool_child(pool, **options)]):
        yield pool


@in_many_orders
async def test_free_workers_take_the_next_messages(runtime: Runtime) -> None:
    """R-110: as many at once as there are workers, the others in their order."""
    taken: list[tuple[float, int]] = []

    class Naps(Actor):
        @handles(DiaryNote)
        async def note(self, message: DiaryNote) -> None:
            taken.append((trio.current_time(), message.number))
            await trio.sleep(1)

    async with working(runtime, WorkerPool(runtime, "naps", Naps, size=3)) as pool:
        began = trio.current_time()
        for number in range(7):
            assert pool.tell(DiaryNote(number))
        await trio.sleep(10)
        assert pool.free == 3
    assert sorted(taken) == [(began + number // 3, number) for number in range(7)]


@in_many_orders
async def test_busy_worker_delays_no_message(runtime: Runtime) -> None:
    """R-110."""
    async with working(runtime, WorkerPool(runtime, "naps", SampleActor, size=2)) as pool:
        pool.tell(Nap(100.0))
        await wait_all_tasks_blocked()
        for _ in range(50):
            assert await pool.ask(Nap(0.1), deadline=1.0) == 1
        assert (pool.free, pool.depth) == (1, 0)


@in_many_orders
async def test_failure_loses_only_the_message_in_hand(runtime: Runtime) -> None:
    """R-111: at once or later, all others are answered."""
    answers: list[Any] = []

    async def ask(request: Request[int]) -> None:
        try:
            answers.append(await pool.ask(request, deadline=5.0))
        except ActorFailed as failure:
            answers.append(failure.error)

    pool = WorkerPool(runtime, "sums", SampleActor, size=3)
    async with trio.open_nursery() as nursery, working(runtime, pool):
        requests: list[Request[int]] = [Nap(0.5), Break(), Nap(0.1), Break(), Nap(0.2)]
        for request in requests * 4:
            nursery.start_soon(ask, request)
        await trio.sleep(4)
    assert sorted(answers, key=str) == [1] * 12 + ["ValueError: broken"] * 8


@in_many_orders
async def test_pool_of_one_failed_worker_keeps_its_messages(runtime: Runtime) -> None:
    """R-111: they wait for the restart."""
    async with working(runtime, WorkerPool(runtime, "sums", SampleActor, size=1)) as pool:
        for _ in range(3):
            pool.tell(Break())
        assert await pool.ask(AddNumber(5), deadline=5.0) == 5


@pytest.mark.parametrize("overflow", list(Overflow))
@in_many_orders
async def test_full_mailbox_follows_its_overflow_policy(
    runtime: Runtime, overflow: Overflow
) -> None:
    """R-112."""
    policy = MailboxPolicy(capacity=2, overflow=overflow)
    pool = WorkerPool(runtime, "naps", SampleActor, size=2, mailbox=policy)
    async with working(runtime, pool):
        for _ in range(2):
            pool.tell(Nap(1.0))
        await wait_all_tasks_blocked()
        assert pool.tell(DiaryNote(1))
        assert pool.tell(DiaryNote(2))
        assert pool.tell(DiaryNote(3)) is (overflow is Overflow.DROP_OLDEST)
        before = trio.current_time()
        if overflow is Overflow.REFUSE:
            with pytest.raises(MailboxFull):
                await pool.send(DiaryNote(4))
        else:
            await pool.send(DiaryNote(4))
        assert trio.current_time() - before == (1.0 if overflow is Overflow.WAIT else 0.0)


@in_many_orders
async def test_deadline_of_an_ask_skips_and_cancels_its_request(runtime: Runtime) -> None:
    """R-113: a request whose asker has gone is skipped."""
    diary: list[Any] = []
    pool = WorkerPool(runtime, "naps", lambda: SampleActor(diary), size=2)
    async with working(runtime, pool):
        for _ in range(2):
            pool.tell(Nap(2.0))
        await wait_all_tasks_blocked()
        with pytest.raises(AskTimeout):
            await pool.ask(Break(), deadline=1.0)
        await trio.sleep(2)
        assert [worker.failed for worker in pool.workers] == [0, 0]
        assert sum(worker.cancelled for worker in pool.workers) == 1
        with pytest.raises(AskTimeout, match=r"'naps/\d' did not answer within 1 s"):
            await pool.ask(Nap(2.0), deadline=1.0)


@in_many_orders
async def test_deadlines_travel_through_a_pool(runtime: Runtime) -> None:
    """R-113."""
    pool = WorkerPool(runtime, "front", SampleActor, size=2)
    children = [actor_child("slow", SampleActor), worker_pool_child(pool)]
    async with open_supervisor(runtime, "top", children):
        runtime.ref("slow").tell(Nap(100.0))
        began = trio.current_time()
        with pytest.raises(AskTimeout):
            await pool.ask(Forward((runtime.ref("slow"),)), deadline=1.0)
        await wait_all_tasks_blocked()
        assert (pool.free, trio.current_time() - began) == (2, 1.0)


@in_many_orders
async def test_kept_replies_and_work_belong_to_the_worker(runtime: Runtime) -> None:
    """A failure ends those of its own instance only."""
    answers: list[Any] = []
    pool = WorkerPool(runtime, "keeps", SampleActor, size=2)

    async def ask() -> None:
        with pytest.raises((ActorFailed, ActorGone)) as raised:
            await pool.ask(Keep(), deadline=60.0)
        answers.append(type(raised.value))

    async with working(runtime, pool), trio.open_nursery() as nursery:
        pool.tell(Nap(1.0))
        await wait_all_tasks_blocked()
        nursery.start_soon(ask)  # the reply is kept by the other worker
        await wait_all_tasks_blocked()
        pool.tell(Break())
        await wait_all_tasks_blocked()
        assert answers == [ActorFailed]


@in_many_orders
async def test_worker_full_of_work_leaves_messages_to_others(runtime: Runtime) -> None:
    class OneWork(SampleActor):
        mailbox = MailboxPolicy(max_work=1)

    diary: list[Any] = []
    async with working(runtime, WorkerPool(runtime, "w", lambda: OneWork(diary), size=2)) as pool:
        first = pool.workers[0]
        first.tell(Begin(5.0))
        await wait_all_tasks_blocked()
        for _ in range(4):
            pool.tell(Begin(5.0))
        await wait_all_tasks_blocked()
        assert sum(worker.works for worker in pool.workers) == 4
        assert pool.depth == 1
        await trio.sleep(20)
        assert (len(diary), pool.depth, pool.free) == (5, 0, 2)


@in_many_orders
async def test_suspended_worker_leaves_messages_to_others(runtime: Runtime) -> None:
    async with working(runtime, WorkerPool(runtime, "w", SampleActor, size=2)) as pool:
        pool.workers[0].suspend()
        pool.workers[1].suspend()
        for _ in range(3):
            pool.tell(DiaryNote(1))
        await wait_all_tasks_blocked()
        assert pool.depth == 3
        pool.workers[1].resume()
        await wait_all_tasks_blocked()
        assert (pool.depth, pool.workers[1].handled) == (0, 3)


@in_many_orders
async def test_stop_empties_the_mailbox_with_all_workers(runtime: Runtime) -> None:
    """R-114: within the time of one worker, and senders are refused at once."""
    answers: list[Any] = []
    pool = WorkerPool(runtime, "naps", SampleActor, size=2)

    async def ask() -> None:
        answers.append(await pool.ask(Nap(1.0), deadline=60.0))

    began = trio.current_time()
    async with trio.open_nursery() as nursery, working(runtime, pool):
        for _ in range(6):
            nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        nursery.start_soon(tell_when_stopping, pool)
    assert (answers, trio.current_time() - began) == ([1] * 6, 3.0)


async def tell_when_stopping(pool: WorkerPool[Any]) -> None:
    await trio.sleep(0.5)
    assert not pool.tell(DiaryNote(1))
    with pytest.raises(ActorGone):
        await pool.ask(AddNumber(1), deadline=1.0)


@in_many_orders
async def test_deadline_of_a_stop_ends_all_askers(runtime: Runtime) -> None:
    """R-114."""
    answers: list[Any] = []
    pool = WorkerPool(runtime, "naps", SampleActor, size=2)

    async def ask() -> None:
        with pytest.raises(ActorGone):
            await pool.ask(Nap(100.0), deadline=200.0)
        answers.append("gone")

    began = trio.current_time()
    async with trio.open_nursery() as nursery, working(runtime, pool, shutdown_seconds=3.0):
        for _ in range(5):
            nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        pool.tell(DiaryNote(1))
    assert trio.current_time() - began == 3.0
    await wait_all_tasks_blocked()
    assert answers == ["gone"] * 5
    assert runtime.snapshot().dead_letters[DeadLetterReason.STOPPED] == 1
    assert len(runtime.deadlines) == 0


@in_many_orders
async def test_failed_pool_keeps_its_mailbox_for_its_restart(
    runtime: Runtime, log: LogBook
) -> None:
    """R-111."""
    pool = WorkerPool(runtime, "sums", SampleActor, size=2)
    child = worker_pool_child(pool, intensity=RestartIntensity(restarts=1))
    async with open_supervisor(runtime, "top", [child], intensity=PATIENT):
        for _ in range(3):
            pool.tell(Break())
        pool.tell(DiaryNote(1))
        assert await pool.ask(AddNumber(3), deadline=9.0) == 3
    assert log.named("supervisor_gave_up") == [
        {"supervisor": "sums", "child": log.named("supervisor_gave_up")[0]["child"]}
    ]


@in_many_orders
async def test_pool_that_is_restarted_with_a_sibling_keeps_its_mailbox(runtime: Runtime) -> None:
    """R-76."""
    pool = WorkerPool(runtime, "sums", SampleActor, size=2)
    async with open_supervisor(
        runtime,
        "top",
        [actor_child("a", SampleActor), worker_pool_child(pool)],
        strategy=Strategy.ONE_FOR_ALL,
        intensity=RestartIntensity(backoff=1.0, jitter=0.0),
    ):
        for _ in range(2):
            runtime.ref("a").tell(Break())
            await wait_all_tasks_blocked()
        assert pool.tell(DiaryNote(1))
        assert await pool.ask(AddNumber(2), deadline=5.0) == 2


@in_many_orders
async def test_worker_that_ends_itself_is_replaced(runtime: Runtime) -> None:
    class Ends(SampleActor):
        @handles(DiaryNote)
        def note(self, message: DiaryNote) -> None:
            self.context.stop()

    async with working(runtime, WorkerPool(runtime, "w", Ends, size=2)) as pool:
        for number in range(5):
            assert pool.tell(DiaryNote(number))
        assert await pool.ask(AddNumber(1), deadline=5.0) == 1
        await trio.sleep(1)
        assert (pool.depth, pool.free) == (0, 2)
        assert sum(worker.restarts for worker in pool.workers) == 5


@in_many_orders
async def test_failing_start_fails_the_supervisor(runtime: Runtime) -> None:
    def make() -> SampleActor:
        raise ValueError("no such file")

    with pytest.raises(SupervisorFailed, match="no such file"):
        async with working(runtime, WorkerPool(runtime, "w", make, size=2)):
            raise AssertionError("never reached")


@in_many_orders
async def test_pool_is_shown_with_its_workers(runtime: Runtime) -> None:
    async with working(runtime, WorkerPool(runtime, "w", SampleActor, size=2)) as pool:
        for _ in range(3):
            pool.tell(Nap(1.0))
        await wait_all_tasks_blocked()
        node = runtime.snapshot().tree[0].children[0]
        assert (node.name, node.depth, node.capacity) == ("w", 1, 128)
        assert [child.name for child in node.children] == ["w/1", "w/2"]
        assert [child.depth for child in node.children] == [0, 0]


class AskPool(Request[int], frozen=True):
    pools: Any
    """Each asks the next one; the last one answers."""


class Router(Actor):
    @handles(AskPool)
    async def route(self, message: AskPool) -> int:
        if not message.pools:
            await trio.sleep(1)
            return 1
        first, *rest = message.pools
        answer: int = await first.ask(AskPool(tuple(rest)), deadline=10.0)
        return answer


@in_many_orders
async def test_worker_may_ask_its_own_pool(runtime: Runtime) -> None:
    """R-115: it is no cycle as long as one worker can answer."""
    async with working(runtime, WorkerPool(runtime, "w", Router, size=3)) as pool:
        assert await pool.ask(AskPool((pool, pool)), deadline=10.0) == 1
        with pytest.raises(AskCycle):
            await pool.ask(AskPool((pool, pool, pool)), deadline=10.0)


@in_many_orders
async def test_cycle_over_a_pool_needs_all_its_workers(runtime: Runtime) -> None:
    """R-115."""
    pool = WorkerPool(runtime, "w", Router, size=2)
    children = [actor_child("a", Router), worker_pool_child(pool)]
    async with trio.open_nursery() as nursery, open_supervisor(runtime, "top", children):
        a: Ref = runtime.ref("a")
        began = trio.current_time()
        nursery.start_soon(partial(pool.ask, AskPool(()), deadline=10.0))
        await wait_all_tasks_blocked()
        with pytest.raises(AskCycle):  # by the one free worker, which asks `a`
            await a.ask(AskPool((pool, a)), deadline=10.0)
        assert trio.current_time() == began


@in_many_orders
async def test_full_pool_waiting_for_its_sender_is_a_cycle(runtime: Runtime) -> None:
    """R-115: with one worker that does not, it is none."""
    pool = WorkerPool(runtime, "w", Router, size=2, mailbox=MailboxPolicy(capacity=1))

    class Sends(Router):
        @handles(DiaryNote)
        async def note(self, message: DiaryNote) -> None:
            await trio.sleep(message.number)
            for _ in range(3):
                await pool.send(AskPool(()))

    children = [actor_child("a", Sends), worker_pool_child(pool)]
    async with open_supervisor(runtime, "top", children) as top:
        a = runtime.ref("a")
        a.tell(DiaryNote(1))
        await wait_all_tasks_blocked()
        for _ in range(2):
            pool.tell(AskPool((a,)))
            await wait_all_tasks_blocked()
        await trio.sleep(2)
        assert runtime.ref("a").cell.passed_on == 1
        assert top.children[0].failed == 0


@in_many_orders
async def test_topic_publishes_to_a_pool(runtime: Runtime) -> None:
    """One worker handles each publication."""
    topic: Topic[DiaryNote] = Topic(runtime, "news")
    diary: list[Any] = []
    async with working(
        runtime, WorkerPool(runtime, "w", lambda: SampleActor(diary), size=2)
    ) as pool:
        topic.subscribe(pool)
        for number in range(5):
            await topic.publish(DiaryNote(number))
        await wait_all_tasks_blocked()
        assert sorted(diary) == [0, 1, 2, 3, 4]
    assert len(topic) == 0


@in_many_orders
async def test_injector_sees_the_messages_of_all_workers(runtime: Runtime) -> None:
    async with working(runtime, WorkerPool(runtime, "w", SampleActor, size=2)) as pool:
        with injecting(pool, nth({2: Crash()})) as injector:
            assert await pool.ask(AddNumber(1), deadline=1.0) == 1
            with pytest.raises(ActorFailed, match="InjectedCrash"):
                await pool.ask(AddNumber(1), deadline=1.0)
        assert injector.seen == 2


@in_many_orders
async def test_pool_has_no_single_state(runtime: Runtime) -> None:
    async with working(runtime, WorkerPool(runtime, "w", SampleActor, size=2)) as pool:
        with pytest.raises(TypeError, match="'w' is a worker pool, which cannot be inspected"):
            await pool.inspect()
        with pytest.raises(TypeError, match="cannot be watched"):
            pool.presence()
        assert await trio.to_thread.run_sync(pool.tell_from_thread, DiaryNote(1))
    with pytest.raises(ValueError, match="size must be at least 1"):
        WorkerPool(runtime, "w", SampleActor, size=0)


@in_many_orders
async def test_pool_that_does_not_run_refuses(runtime: Runtime) -> None:
    pool = WorkerPool(runtime, "w", SampleActor, size=2)
    assert not pool.tell(DiaryNote(1))
    with pytest.raises(ActorGone):
        await pool.ask(AddNumber(1), deadline=1.0)


class TellsItself(SampleActor):
    """Its class drops the oldest message; only the policy of the pool counts."""

    mailbox = MailboxPolicy(overflow=Overflow.DROP_OLDEST)

    @handles(AddNumber)
    async def add(self, message: AddNumber) -> int:
        for number in range(message.number):
            self.diary.append(self.context.ref.tell(DiaryNote(number)))
        await trio.sleep(5)
        return await self.context.ref.ask(Nap(1.0), deadline=2.0)


@in_many_orders
async def test_worker_that_sends_to_itself_sends_to_the_pool(runtime: Runtime) -> None:
    """R-31, R-110, R-115: a free worker takes the message at once, within the pool's policy."""
    diary: list[Any] = []
    crew = WorkerPool(
        runtime, "w", lambda: TellsItself(diary), size=2, mailbox=MailboxPolicy(capacity=2)
    )
    async with working(runtime, crew) as pool, trio.open_nursery() as nursery:
        nursery.start_soon(pool.ask, AddNumber(3), 9.0)
        await wait_all_tasks_blocked()
        assert diary == [True, True, False, 0, 1]
        await trio.sleep(10)
    assert trio.current_time() == 10.0


@in_many_orders
async def test_senders_that_wait_for_room_wake_free_workers(runtime: Runtime) -> None:
    """R-110: also if the mailbox has room for fewer messages than there are workers."""
    crew = WorkerPool(runtime, "w", SampleActor, size=4, mailbox=MailboxPolicy(capacity=1))
    async with working(runtime, crew) as pool, trio.open_nursery() as nursery:
        await wait_all_tasks_blocked()
        for _ in range(4):
            nursery.start_soon(pool.ask, Nap(1.0), 9.0)
    assert trio.current_time() == 1.0
