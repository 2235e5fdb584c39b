"""Single actors: start, control, stop."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import ActorFailed, ActorGone, DeadLetterReason, Message, Runtime
from fw_actors.runtime.testing import LogBook
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    DiaryNote,
    Nap,
    SampleActor,
    SampleThatWaits,
    SlowLifecycle,
    StopSelf,
)


async def test_actor_started_and_stopping_enclose_the_messages(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SlowLifecycle(diary)) as ref:
        assert diary == ["hello"]
        ref.tell(DiaryNote(1))
    assert diary == ["hello", 1, "bye"]


async def test_actor_handles_early_messages_after_started(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    diary: list[Any] = []
    cell = runtime.cell("a")
    nursery.start_soon(cell.run, lambda: SlowLifecycle(diary))
    await wait_all_tasks_blocked()
    assert runtime.ref("a").tell(DiaryNote(1))
    await trio.sleep(2)
    assert diary == ["hello", 1]
    cell.stop(trio.current_time() + 5)


async def test_actor_can_stop_itself(runtime: Runtime) -> None:
    diary: list[Any] = []
    cell = runtime.cell("a")
    async with trio.open_nursery() as nursery:
        await nursery.start(cell.run, lambda: SlowLifecycle(diary))
        cell.tell(StopSelf())
        cell.tell(DiaryNote(1))
        await trio.lowlevel.checkpoint()
    assert diary == ["hello", 1, "bye"]
    assert not cell.tell(DiaryNote(2))


async def test_stop_at_its_deadline_cancels_and_settles_all(
    runtime: Runtime, log: LogBook, nursery: trio.Nursery
) -> None:
    ends: list[str] = []

    async def ask(seconds: float) -> None:
        with pytest.raises(ActorGone):
            await runtime.ref("a").ask(Nap(seconds))
        ends.append("gone")

    start = trio.current_time()
    async with runtime.running("a", SampleActor, shutdown_seconds=2.0) as ref:
        nursery.start_soon(ask, 60.0)
        await wait_all_tasks_blocked()
        nursery.start_soon(ask, 1.0)
        await wait_all_tasks_blocked()
        ref.tell(DiaryNote(1))
    await wait_all_tasks_blocked()
    assert trio.current_time() - start == 2.0
    assert ends == ["gone", "gone"]
    assert runtime.snapshot().dead_letters[DeadLetterReason.STOPPED] == 1
    assert log.named("actor_stop_forced") == [{"actor": "a", "depth": 2}]


async def test_actor_failure_in_any_phase_is_logged_once(runtime: Runtime, log: LogBook) -> None:
    class Unmade(SampleActor):
        def __init__(self) -> None:
            raise OSError("no disk")

    class UnstartedSingle(SampleActor):
        async def started(self) -> None:
            raise OSError("no disk")

    class Unstopped(SampleActor):
        async def stopping(self) -> None:
            raise OSError("no disk")

    for kind in (Unmade, UnstartedSingle, Unstopped):
        with pytest.raises(ActorFailed, match="'a' failed: OSError: no disk"):
            async with runtime.running("a", kind):
                pass
    phases = [entry["phase"] for entry in log.named("actor_failed")]
    assert phases == ["construct", "start", "stop"]


async def test_suspend_handles_nothing_until_resume(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(diary)) as ref:
        ref.suspend()
        ref.tell(DiaryNote(1))
        await wait_all_tasks_blocked()
        assert diary == []
        assert runtime.snapshot().tree[0].state == "suspended"
        ref.resume()
        await wait_all_tasks_blocked()
        assert diary == [1]


async def test_stop_resumes_a_suspended_actor(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(diary)) as ref:
        ref.suspend()
        ref.tell(DiaryNote(1))
    assert diary == [1]


async def test_stop_passes_a_full_mailbox(runtime: Runtime) -> None:
    async with runtime.running("a", SampleThatWaits, shutdown_seconds=1.0) as ref:
        ref.tell(Nap(60.0))
        await wait_all_tasks_blocked()
        ref.tell(DiaryNote(1))
        ref.tell(DiaryNote(2))
    assert trio.current_time() < 10


async def test_trace_sees_every_message_and_cannot_fail_the_actor(
    runtime: Runtime, log: LogBook
) -> None:
    seen: list[Message] = []

    def tracer(message: Message) -> None:
        seen.append(message)
        if message == DiaryNote(2):
            raise RuntimeError("blind")

    async with runtime.running("a", SampleActor) as ref:
        ref.trace(tracer)
        for n in (1, 2, 3):
            ref.tell(DiaryNote(n))
        assert await ref.ask(AddNumber(1)) == 1
    assert seen == [DiaryNote(1), DiaryNote(2)]
    assert log.named("trace_failed") == [{"actor": "a", "error": "RuntimeError: blind"}]


async def test_ref_runs_one_actor_at_a_time(runtime: Runtime) -> None:
    async with runtime.running("a", SampleActor) as ref:
        with pytest.raises(ValueError, match="'a' is already running"):
            async with runtime.running("a", SampleActor):
                pass
        assert await ref.ask(AddNumber(1)) == 1


async def test_ref_stays_valid_for_the_next_actor(runtime: Runtime) -> None:
    ref = runtime.ref("a")
    for _ in range(2):
        async with runtime.running("a", SampleActor):
            assert await ref.ask(AddNumber(1)) == 1
        assert not ref.tell(DiaryNote(1))


async def test_ref_without_holder_is_forgotten(runtime: Runtime) -> None:
    for n in range(100):
        runtime.ref(f"nobody-{n}").tell(DiaryNote(1))
    assert runtime.statistics().single_cells == 0
