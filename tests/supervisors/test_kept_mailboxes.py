"""A restart of siblings ends their instances and keeps their mailboxes."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import ActorGone, DeadLetterReason, MailboxPolicy, Overflow, Runtime
from fw_actors.runtime.testing import LogBook
from supervisors import (
    Restart,
    RestartIntensity,
    Strategy,
    actor_child,
    open_supervisor,
    supervisor_child,
)
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Begin,
    Break,
    DiaryNote,
    Keep,
    Nap,
    SampleActor,
    SampleThatWaits,
    SlowLifecycle,
)
from tests.supervisors.orders import in_many_orders

GROUPS = [Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE]
SLOW = RestartIntensity(restarts=9, backoff=1.0, jitter=0.0)


@pytest.mark.parametrize("strategy", GROUPS)
@in_many_orders
async def test_sibling_ends_after_the_message_in_hand_and_keeps_the_others(
    runtime: Runtime, strategy: Strategy
) -> None:
    """R-76."""
    diary: list[object] = []
    made: list[float] = []

    def sibling() -> SampleActor:
        made.append(trio.current_time())
        return SampleActor(diary)

    specs = [actor_child("bad", SampleActor), actor_child("good", sibling)]
    async with open_supervisor(runtime, "top", specs, strategy=strategy):
        good = runtime.ref("good")
        good.tell(Nap(0.3))
        for number in range(5):
            good.tell(Nap(0.3))
            good.tell(DiaryNote(number))
        await wait_all_tasks_blocked()
        runtime.ref("bad").tell(Break())
        await trio.sleep(0.1)
        assert good.tell(DiaryNote(5))
        assert await good.ask(AddNumber(1), deadline=60.0) == 1
    assert diary == [0, 1, 2, 3, 4, 5]
    assert made == [0.0, 0.3]
    assert sum(runtime.snapshot().dead_letters.values()) == 0


@in_many_orders
async def test_sibling_with_a_full_mailbox_keeps_its_waiting_senders(runtime: Runtime) -> None:
    """R-76: the sender waits over the restart."""
    diary: list[object] = []
    specs = [actor_child("bad", SampleActor), actor_child("good", lambda: SampleThatWaits(diary))]
    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        good = runtime.ref("good")
        async with trio.open_nursery() as nursery:
            good.tell(Nap(1.0))
            await wait_all_tasks_blocked()
            for number in range(4):
                nursery.start_soon(good.send, DiaryNote(number))
            await wait_all_tasks_blocked()
            runtime.ref("bad").tell(Break())
        assert await good.ask(AddNumber(1)) == 1
    assert sorted(map(str, diary)) == ["0", "1", "2", "3"]


@in_many_orders
async def test_sibling_ends_in_order_before_its_successor_starts(runtime: Runtime) -> None:
    """R-76: `stopping` runs, and a suspended actor ends as well."""
    diary: list[object] = []
    specs = [actor_child("bad", SampleActor), actor_child("good", lambda: SlowLifecycle(diary))]
    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        runtime.ref("good").suspend()
        runtime.ref("good").tell(DiaryNote(1))
        runtime.ref("bad").tell(Break())
        await trio.sleep(5)
        assert diary == ["hello", "bye", "hello", 1]


@in_many_orders
async def test_sibling_finishes_its_work_before_it_ends(runtime: Runtime) -> None:
    """R-76: the asker whose reply waits for work is answered."""
    specs = [actor_child("bad", SampleActor), actor_child("good", SampleActor)]
    answers: list[int] = []

    async def ask() -> None:
        answers.append(await runtime.ref("good").ask(Keep()))

    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            runtime.ref("good").tell(Begin(2.0))
            await wait_all_tasks_blocked()
            runtime.ref("bad").tell(Break())
        assert trio.current_time() == 2.0
    assert answers == [7]


@in_many_orders
async def test_slow_sibling_is_cut_and_keeps_its_mailbox(runtime: Runtime, log: LogBook) -> None:
    """R-61, R-76: only the message in hand is lost."""
    diary: list[object] = []
    specs = [
        actor_child("bad", SampleActor),
        actor_child("good", lambda: SampleActor(diary), shutdown_seconds=2.0),
    ]
    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        good = runtime.ref("good")
        good.tell(DiaryNote(1))
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(ActorGone):
                    await good.ask(Nap(1000.0))

            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            good.tell(DiaryNote(2))
            runtime.ref("bad").tell(Break())
        assert trio.current_time() == 2.0
        assert await good.ask(AddNumber(1)) == 1
    assert diary == [1, 2]
    assert [entry["child"] for entry in log.named("stop_overdue")] == ["good"]


@in_many_orders
async def test_sibling_stopped_during_the_delay_settles_its_mailbox(runtime: Runtime) -> None:
    """R-61: the messages for the next instance become dead letters."""
    specs = [actor_child("bad", SampleActor), actor_child("good", SampleActor)]
    async with open_supervisor(
        runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL, intensity=SLOW
    ):
        good = runtime.ref("good")
        for _ in range(2):
            runtime.ref("bad").tell(Break())
        await wait_all_tasks_blocked()
        assert good.tell(DiaryNote(1))
    assert runtime.snapshot().dead_letters[DeadLetterReason.STOPPED] == 1
    assert len(runtime.deadlines) == 0


@in_many_orders
async def test_sibling_temporary_handles_its_mailbox_and_is_gone(runtime: Runtime) -> None:
    """R-71, R-60: there is no next instance that would handle it."""
    diary: list[object] = []
    specs = [
        actor_child("bad", SampleActor),
        actor_child("once", lambda: SampleActor(diary), restart=Restart.TEMPORARY),
    ]
    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        once = runtime.ref("once")
        once.tell(Nap(1.0))
        once.tell(DiaryNote(1))
        await wait_all_tasks_blocked()
        runtime.ref("bad").tell(Break())
        await trio.sleep(2)
        assert not once.tell(DiaryNote(2))
    assert diary == [1]


@pytest.mark.parametrize("strategy", GROUPS)
@in_many_orders
async def test_supervisor_as_a_sibling_keeps_the_mailboxes_below_it(
    runtime: Runtime, strategy: Strategy
) -> None:
    """R-76, also if no other ref exists."""
    diary: list[object] = []
    inner = supervisor_child("inner", [actor_child("deep", lambda: SampleActor(diary))])
    async with open_supervisor(
        runtime, "top", [actor_child("bad", SampleActor), inner], strategy=strategy, intensity=SLOW
    ):
        runtime.ref("deep").tell(Nap(0.5))
        runtime.ref("deep").tell(DiaryNote(1))
        await wait_all_tasks_blocked()
        runtime.ref("bad").tell(Break())
        runtime.ref("bad").tell(Break())
        await trio.sleep(0.7)
        assert runtime.ref("deep").tell(DiaryNote(2))
        await trio.sleep(5)
    assert diary == [1, 2]


@in_many_orders
async def test_supervisor_as_a_sibling_stopped_during_the_delay_settles_mailboxes(
    runtime: Runtime,
) -> None:
    """R-61."""
    inner = supervisor_child("inner", [actor_child("deep", SampleActor)])
    async with open_supervisor(
        runtime,
        "top",
        [actor_child("bad", SampleActor), inner],
        strategy=Strategy.ONE_FOR_ALL,
        intensity=SLOW,
    ):
        for _ in range(2):
            runtime.ref("bad").tell(Break())
        await wait_all_tasks_blocked()
        assert runtime.ref("deep").tell(DiaryNote(1))
    assert runtime.snapshot().dead_letters[DeadLetterReason.STOPPED] == 1
    with pytest.raises(ActorGone):
        await runtime.ref("deep").ask(AddNumber(1))


@in_many_orders
async def test_mailbox_given_to_a_dynamic_child_holds_after_a_restart(runtime: Runtime) -> None:
    """R-123."""
    refusing = MailboxPolicy(capacity=1, overflow=Overflow.REFUSE)
    async with open_supervisor(runtime, "top", []) as supervisor:
        child = actor_child("a", SampleActor, mailbox=refusing)
        ref = await supervisor.start_child(child)
        ref.tell(Break())
        await wait_all_tasks_blocked()
        assert await ref.ask(AddNumber(1), deadline=60.0) == 1  # by the next instance
        ref.suspend()
        assert [ref.tell(DiaryNote(n)) for n in range(2)] == [True, False]
        ref.resume()


@in_many_orders
async def test_stop_during_the_delay_before_a_restart_has_no_effect(runtime: Runtime) -> None:
    """R-62: the next instance would have a closed mailbox."""
    async with open_supervisor(
        runtime, "top", [actor_child("a", SampleActor)], intensity=SLOW
    ) as supervisor:
        ref = runtime.ref("a")
        for _ in range(2):
            ref.tell(Break())
        await wait_all_tasks_blocked()
        assert supervisor.children[0].state == "waiting"
        ref.stop(trio.current_time())
        assert ref.tell(DiaryNote(1))
        assert await ref.ask(AddNumber(1), deadline=5.0) == 1
        assert supervisor.children[0].handled == 2
