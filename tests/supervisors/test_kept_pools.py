"""A restart of siblings ends the instances of a keyed pool and keeps the mailboxes of its keys."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import ActorGone, DeadLetterReason, KeyedPool, RestartIntensity, Runtime
from supervisors import (
    Strategy,
    actor_child,
    open_supervisor,
    pool_child,
    supervisor_child,
)
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Begin,
    Break,
    DiaryNote,
    Keep,
    Later,
    LogBook,
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
async def test_pool_ends_instances_after_the_message_in_hand_and_keeps_the_others(
    runtime: Runtime, strategy: Strategy
) -> None:
    """R-76."""
    diary: list[object] = []
    made: list[tuple[str, float]] = []

    def make(key: str) -> SampleActor:
        made.append((key, trio.current_time()))
        return SampleActor(diary)

    pool = KeyedPool(runtime, "p", make)
    specs = [actor_child("bad", SampleActor), pool_child("p", pool)]
    async with open_supervisor(runtime, "top", specs, strategy=strategy):
        await pool["idle"].ask(AddNumber(1))
        pool["a"].tell(Nap(0.3))
        for number in range(5):
            pool["a"].tell(Nap(0.3))
            pool["a"].tell(DiaryNote(number))
        await wait_all_tasks_blocked()
        runtime.ref("bad").tell(Break())
        await trio.sleep(0.1)
        assert len(pool) == 1  # the idle one has gone
        assert pool["a"].tell(DiaryNote(5))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pool["new"].ask, AddNumber(1), 60.0)
            assert await pool["a"].ask(AddNumber(1), deadline=60.0) == 1
    assert diary == [0, 1, 2, 3, 4, 5]
    assert sorted(made) == [("a", 0.0), ("a", 0.3), ("idle", 0.0), ("new", 0.3)]
    assert sum(runtime.snapshot().dead_letters.values()) == 0


@in_many_orders
async def test_pool_keeps_senders_that_wait_for_room(runtime: Runtime) -> None:
    """R-76."""
    diary: list[object] = []
    pool = KeyedPool(runtime, "p", lambda key: SampleThatWaits(diary))
    specs = [actor_child("bad", SampleActor), pool_child("p", pool)]
    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        async with trio.open_nursery() as nursery:
            pool["a"].tell(Nap(1.0))
            await wait_all_tasks_blocked()
            for number in range(4):
                nursery.start_soon(pool["a"].send, DiaryNote(number))
            await wait_all_tasks_blocked()
            runtime.ref("bad").tell(Break())
        assert await pool["a"].ask(AddNumber(1)) == 1
    assert sorted(map(str, diary)) == ["0", "1", "2", "3"]


@in_many_orders
async def test_pool_runs_stopping_of_each_instance_before_the_next_one(runtime: Runtime) -> None:
    """R-13, R-76: of an idle one and of one with messages."""
    diary: list[object] = []
    pool = KeyedPool(runtime, "p", lambda key: SlowLifecycle(diary))
    specs = [actor_child("bad", SampleActor), pool_child("p", pool)]
    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        await pool["idle"].ask(AddNumber(1))
        pool["a"].tell(Nap(1.0))
        pool["a"].tell(DiaryNote(1))
        await trio.sleep(1.5)
        runtime.ref("bad").tell(Break())
        await trio.sleep(5)
        assert diary == ["hello", "hello", "bye", "bye", "hello", 1]


@in_many_orders
async def test_pool_lets_work_finish_before_instances_end(runtime: Runtime) -> None:
    """R-76: the asker whose reply waits for work is answered; timers end with the instance."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    specs = [actor_child("bad", SampleActor), pool_child("p", pool)]
    answers: list[int] = []

    async def ask() -> None:
        answers.append(await pool["a"].ask(Keep()))

    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            pool["a"].tell(Begin(2.0))
            pool["a"].tell(Later(1000.0, 1))
            pool["timer"].tell(Later(1000.0, 1))
            await wait_all_tasks_blocked()
            runtime.ref("bad").tell(Break())
            await trio.sleep(1)
            nursery.start_soon(pool["a"].ask, AddNumber(1))
        assert trio.current_time() == 2.0
    assert answers == [7]
    assert len(runtime.deadlines) == 0


@in_many_orders
async def test_slow_pool_is_cut_and_keeps_its_mailboxes(runtime: Runtime, log: LogBook) -> None:
    """R-61, R-76: only the message in hand, and the work, are lost."""
    diary: list[object] = []
    pool = KeyedPool(runtime, "p", lambda key: SampleThatWaits(diary))
    specs = [actor_child("bad", SampleActor), pool_child("p", pool, shutdown_seconds=2.0)]
    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        async with trio.open_nursery() as nursery:

            async def ask(key: str) -> None:
                with pytest.raises(ActorGone):
                    await pool[key].ask(Nap(1000.0))

            nursery.start_soon(ask, "a")
            nursery.start_soon(ask, "b")
            for _ in range(3):  # one more than `max_work`: the mailbox is not read
                pool["work"].tell(Begin(1000.0))
                await wait_all_tasks_blocked()
            pool["work"].tell(DiaryNote(1))
            pool["a"].tell(DiaryNote(2))
            await wait_all_tasks_blocked()
            runtime.ref("bad").tell(Break())
        assert trio.current_time() == 2.0
        assert await pool["a"].ask(AddNumber(1), deadline=1.0) == 1
        assert await pool["work"].ask(AddNumber(1), deadline=1.0) == 1
    assert sorted(map(str, diary)) == ["1", "2"]
    assert [entry["actors"] for entry in log.named("pool_stop_forced")] == [3]


@in_many_orders
async def test_pool_stopped_during_the_delay_settles_its_mailboxes(runtime: Runtime) -> None:
    """R-61: the messages for the next instances become dead letters."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    inner = supervisor_child("inner", [pool_child("p", pool)])
    specs = [actor_child("bad", SampleActor), inner]
    async with (
        trio.open_nursery() as nursery,
        open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL, intensity=SLOW),
    ):
        for _ in range(2):
            runtime.ref("bad").tell(Break())
        await wait_all_tasks_blocked()
        assert pool["a"].tell(DiaryNote(1))

        async def ask() -> None:
            with pytest.raises(ActorGone):
                await pool["b"].ask(AddNumber(1))

        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
    assert runtime.snapshot().dead_letters[DeadLetterReason.STOPPED] == 1
    assert not pool["a"].tell(DiaryNote(2))
    assert (len(pool), len(runtime.deadlines)) == (0, 0)


@in_many_orders
async def test_pool_holds_a_failed_key_until_its_restart(runtime: Runtime) -> None:
    """R-58, R-76: and then until its own delay is over."""
    diary: list[object] = []
    intensity = RestartIntensity(backoff=3.0, backoff_cap=3.0, jitter=0.0)
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(diary), intensity=intensity)
    specs = [actor_child("bad", SampleActor), pool_child("p", pool)]
    async with open_supervisor(
        runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL, intensity=SLOW
    ):
        for message in (Break(), Break(), DiaryNote(1)):
            pool["a"].tell(message)
        await wait_all_tasks_blocked()
        for _ in range(2):
            runtime.ref("bad").tell(Break())
        await wait_all_tasks_blocked()
        await trio.sleep(2.5)
        assert diary == []
        await trio.sleep(1)
        assert diary == [1]


@in_many_orders
async def test_pool_is_restarted_while_a_key_without_messages_fails(runtime: Runtime) -> None:
    """R-76: before the failed instance has left, and in any order."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    specs = [actor_child("bad", SampleActor), pool_child("p", pool, shutdown_seconds=2.0)]
    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        for _ in range(3):
            for key in "abcdefgh":
                pool[key].tell(Break())
            runtime.ref("bad").tell(Break())
            with trio.fail_after(50):
                await trio.sleep(20)
                assert await pool["a"].ask(AddNumber(1), deadline=20.0) == 1
        assert len(pool) == 1


@in_many_orders
async def test_pool_is_restarted_after_work_alone_was_cut(runtime: Runtime) -> None:
    """R-61, R-76: the key waits only for its work, and has no messages."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    specs = [actor_child("bad", SampleActor), pool_child("p", pool, shutdown_seconds=2.0)]
    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        pool["a"].tell(Begin(1000.0))
        await wait_all_tasks_blocked()
        runtime.ref("bad").tell(Break())
        await trio.sleep(1)
        assert await pool["b"].ask(AddNumber(1), deadline=5.0) == 1
        assert trio.current_time() == 2.0
        assert len(pool) == 1
