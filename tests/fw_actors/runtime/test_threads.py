"""Messages from threads other than trio's."""

from __future__ import annotations

from functools import partial
from threading import Thread
from typing import Any

import pytest
import trio
import trio.testing

from fw_actors.runtime import (
    Actor,
    KeyedPool,
    Ref,
    Runtime,
    SeededEntropy,
    TrioClock,
    handles,
    open_runtime,
)
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    DiaryNote,
    Keep,
    SampleActor,
    SampleThatWaits,
)

MAX_FROM_THREADS = 10_000


async def in_thread(function: Any, *args: Any) -> Any:
    """Run a function in a thread outside of trio, as a library's callback would."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(function(*args))
        except Exception as error:
            results.append(error)

    thread = Thread(target=run)
    thread.start()
    await trio.to_thread.run_sync(thread.join)
    return results[0]


async def test_tell_from_another_thread_is_refused_without_harm(runtime: Runtime) -> None:
    """R-36."""
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(diary)) as ref:
        await ref.ask(AddNumber(1), deadline=1.0)
        error = await in_thread(ref.tell, DiaryNote(1))
        assert isinstance(error, RuntimeError)
        assert "tell_from_thread" in str(error)
        assert await ref.ask(AddNumber(1), deadline=1.0) == 2
    assert diary == []


async def test_tell_of_a_key_from_another_thread_is_refused(runtime: Runtime) -> None:
    """R-36."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    assert isinstance(await in_thread(pool["k"].tell, DiaryNote(1)), RuntimeError)
    assert len(pool) == 0
    assert await pool["k"].ask(AddNumber(1), deadline=1.0) == 1
    assert isinstance(await in_thread(pool["k"].tell, DiaryNote(1)), RuntimeError)
    assert await pool["k"].ask(AddNumber(1), deadline=1.0) >= 1


async def test_ask_from_the_trio_of_another_thread_is_refused(runtime: Runtime) -> None:
    """R-36."""
    async with runtime.running("a", SampleActor) as ref:
        error = await in_thread(trio.run, partial(ref.ask, AddNumber(1), deadline=1.0))
        assert isinstance(error, RuntimeError)
        assert await ref.ask(AddNumber(1), deadline=1.0) == 1


@pytest.mark.parametrize("keyed", [False, True])
async def test_tell_from_thread_delivers_in_order(runtime: Runtime, keyed: bool) -> None:
    """R-36."""
    diary: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(diary))

    def tell_all(ref: Ref) -> list[bool]:
        return [ref.tell_from_thread(DiaryNote(number)) for number in range(100)]

    async with runtime.running("a", lambda: SampleActor(diary)) as single:
        ref: Ref = pool["k"] if keyed else single
        assert await in_thread(tell_all, ref) == [True] * 100
        await ref.ask(AddNumber(1), deadline=1.0)
        assert diary == list(range(100))


async def test_tell_from_thread_records_what_is_refused(runtime: Runtime) -> None:
    """R-31: a message that the mailbox refuses is a dead letter."""
    async with runtime.running("a", SampleThatWaits) as ref:
        ref.suspend()
        for number in range(5):
            assert await in_thread(ref.tell_from_thread, DiaryNote(number))
        await trio.testing.wait_all_tasks_blocked()
        assert sum(runtime.snapshot().dead_letters.values()) == 3
        ref.resume()


async def test_tell_from_thread_is_bounded(runtime: Runtime) -> None:
    """R-36: a thread cannot fill the memory while trio's thread is busy."""
    reported: list[bool] = []

    class FloodedByThread(Actor):
        @handles(DiaryNote)
        def note(self, message: DiaryNote) -> None:
            thread = Thread(target=self.flood)
            thread.start()
            thread.join()

        def flood(self) -> None:
            ref = self.context.ref
            reported.extend(ref.tell_from_thread(AddNumber(1)) for _ in range(MAX_FROM_THREADS + 1))

    async with runtime.running("a", FloodedByThread) as ref:
        ref.tell(DiaryNote(1))
        await trio.testing.wait_all_tasks_blocked()
    assert reported == [True] * MAX_FROM_THREADS + [False]


async def test_tell_from_thread_returns_false_after_the_run() -> None:
    """R-36."""
    clock = TrioClock(0)
    async with open_runtime(clock=clock, entropy=SeededEntropy(1)) as runtime:
        ref = runtime.ref("a")
    assert await in_thread(ref.tell_from_thread, DiaryNote(1)) is False


@pytest.mark.parametrize("call", ["stop", "suspend", "resume", "trace"])
async def test_control_from_another_thread_is_refused_and_changes_nothing(
    runtime: Runtime, call: str
) -> None:
    """R-36."""
    arguments = {"stop": (0.0,), "trace": (print,)}.get(call, ())
    async with runtime.running("a", SampleActor) as ref:
        if call == "resume":
            ref.suspend()
        error = await in_thread(getattr(ref, call), *arguments)
        assert isinstance(error, RuntimeError)
        assert "use trio.from_thread.run_sync" in str(error)
        state = (await ref.inspect()).actor.state
        assert state == ("suspended" if call == "resume" else "running")
        ref.resume()
        assert await ref.ask(AddNumber(1), deadline=1.0) == 1


async def test_inspection_from_the_trio_of_another_thread_is_refused(runtime: Runtime) -> None:
    """R-36."""
    async with runtime.running("a", SampleActor) as ref:
        error = await in_thread(trio.run, ref.inspect)
        assert isinstance(error, RuntimeError)
        assert "use trio.from_thread.run" in str(error)


@pytest.mark.parametrize(("call", "value"), [("answer", 7), ("fail", ValueError("no"))])
async def test_answer_from_another_thread_is_refused_and_not_lost(
    runtime: Runtime, call: str, value: Any
) -> None:
    """R-36: it can still be given."""
    sample = SampleActor()
    async with runtime.running("a", lambda: sample) as ref, trio.open_nursery() as nursery:
        answers: list[int] = []

        async def ask() -> None:
            answers.append(await ref.ask(Keep()))

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        reply = sample.kept[0]
        error = await in_thread(getattr(reply, call), value)
        assert isinstance(error, RuntimeError)
        assert "use trio.from_thread.run_sync" in str(error)
        reply.answer(3)
    assert answers == [3]
