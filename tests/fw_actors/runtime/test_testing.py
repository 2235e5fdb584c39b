"""Fault injection: drop, delay and crash on the n-th message that leaves a mailbox."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    ActorFailed,
    ActorGone,
    AskTimeout,
    KeyedPool,
    Message,
    Runtime,
    SeededEntropy,
)
from fw_actors.runtime.testing import (
    Crash,
    Delay,
    Drop,
    Fault,
    InjectedFault,
    LogBook,
    injecting,
    nth,
    probing,
)
from supervisors import actor_child, open_supervisor
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    DiaryNote,
    Later,
    SampleActor,
)


async def test_drop_loses_the_message(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(diary)) as ref:
        with injecting(ref, nth({2: Drop(), 4: Drop()})) as injector:
            for number in (1, 2, 3):
                ref.tell(DiaryNote(number))
            with pytest.raises(AskTimeout):
                await ref.ask(AddNumber(1), deadline=2.0)
        assert await ref.ask(AddNumber(5), deadline=2.0) == 5
    assert diary == [1, 3]
    assert injector.seen == 4
    assert injector.injected == [
        InjectedFault("a", 2, "DiaryNote", Drop()),
        InjectedFault("a", 4, "AddNumber", Drop()),
    ]


async def test_delay_delivers_the_message_later(
    runtime: Runtime,
) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(diary)) as ref:
        with injecting(ref, nth({1: Delay(3.0), 3: Delay(1.0)})):
            ref.tell(DiaryNote(1))
            ref.tell(DiaryNote(2))
            assert await ref.ask(AddNumber(7), deadline=2.0) == 7
            assert trio.current_time() == 1.0
            await trio.sleep(5)
    assert diary == [2, 1]
    assert len(runtime.deadlines) == 0


async def test_crash_fails_the_handler_and_is_supervised(runtime: Runtime, log: LogBook) -> None:
    diary: list[Any] = []
    async with open_supervisor(runtime, "top", [actor_child("a", lambda: SampleActor(diary))]):
        ref = runtime.ref("a")
        with injecting(ref, nth({2: Crash(), 4: Crash()})) as injector:
            ref.tell(DiaryNote(1))
            with pytest.raises(ActorFailed, match="'a' failed: InjectedCrash: on message 2"):
                await ref.ask(AddNumber(1), deadline=1.0)
            # A new instance, the same injector.
            assert await ref.ask(AddNumber(3), deadline=1.0) == 3
            ref.tell(DiaryNote(2))
            assert await ref.ask(AddNumber(4), deadline=1.0) == 4
        assert runtime.snapshot().tree[0].children[0].restarts == 2
    assert (diary, injector.seen) == ([1], 5)
    assert [entry["phase"] for entry in log.named("actor_failed")] == ["handler", "handler"]
    assert log.named("actor_failed")[0]["recent_messages"] == ("DiaryNote", "AddNumber")


async def test_delay_loses_the_request_with_its_instance(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    faults: list[str] = []

    async def ask() -> None:
        with pytest.raises(ActorGone):
            await runtime.ref("a").ask(AddNumber(1), deadline=60.0)
        faults.append("gone")

    async with runtime.running("a", SampleActor) as ref:
        with injecting(ref, nth({1: Delay(30.0)})):
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
    await wait_all_tasks_blocked()
    assert faults == ["gone"]
    assert len(runtime.deadlines) == 0


async def test_injecting_into_a_pool_includes_later_actors(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), idle_seconds=5.0)
    await pool["a"].ask(AddNumber(1))
    with injecting(pool, nth({1: Crash(), 2: Delay(8.0)})) as injector:
        with pytest.raises(ActorFailed):
            await pool["a"].ask(AddNumber(1), deadline=1.0)
        assert await pool["b"].ask(AddNumber(2), deadline=10.0) == 2
    assert [(entry.actor, entry.fault) for entry in injector.injected] == [
        ("p/a", Crash()),
        ("p/b", Delay(8.0)),
    ]
    assert trio.current_time() == 8.0
    assert await pool["a"].ask(AddNumber(1)) == 1


async def test_injecting_leaves_timers_alone(runtime: Runtime) -> None:
    diary: list[Any] = []
    rng = SeededEntropy(1)

    def plan(number: int, message: Message) -> Fault | None:
        return Drop() if isinstance(message, DiaryNote) and rng.uniform(0, 1) <= 1 else None

    async with runtime.running("a", lambda: SampleActor(diary)) as ref:
        with injecting(ref, plan):
            ref.tell(DiaryNote(1))
            ref.tell(Later(1.0, 2))
            await trio.sleep(2)
    assert diary == [2]


async def test_probe_keeps_received_messages(runtime: Runtime) -> None:
    """Each message is returned once, and by its type."""
    async with probing(runtime, "mailer", {AddNumber: 7}) as probe:
        ref = runtime.ref("mailer")
        ref.tell(DiaryNote(1))
        ref.tell(DiaryNote(2))
        assert await ref.ask(AddNumber(1), deadline=1.0) == 7
        assert (await probe.got(AddNumber)).number == 1
        assert [(await probe.got(DiaryNote)).number for _ in range(2)] == [1, 2]
        await probe.silent(5.0)


async def test_probe_waits_for_a_message(runtime: Runtime, nursery: trio.Nursery) -> None:
    async with probing(runtime, "mailer") as probe:
        ref = runtime.ref("mailer")

        async def tell_later() -> None:
            await trio.sleep(2)
            ref.tell(DiaryNote(1))

        nursery.start_soon(tell_later)
        with pytest.raises(AssertionError, match="no DiaryNote within 1 s"):
            await probe.got(DiaryNote)
        assert (await probe.got(DiaryNote, within=5.0)).number == 1


async def test_probe_is_not_silent_if_a_message_arrives(runtime: Runtime) -> None:
    async with probing(runtime, "mailer") as probe:
        runtime.ref("mailer").tell(DiaryNote(1))
        with pytest.raises(AssertionError, match="DiaryNote"):
            await probe.silent(1.0)
