"""Work, timers and watches."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from outcome import Error, Value
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import ActorFailed, DeadLetterReason, MailboxFull, Runtime
from tests.fw_actors.runtime.sample_actors import (
    Add,
    Begin,
    Break,
    Keep,
    Later,
    LogBook,
    Note,
    Sample,
    Waits,
)


async def test_work_ends_as_a_message_and_does_not_block(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: Sample(diary)) as ref:
        ref.tell(Begin(3.0))
        assert await ref.ask(Add(1), deadline=1.0) == 1
        await trio.sleep(4)
        assert diary == [Value(3.0)]


async def test_work_failure_is_a_message(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: Sample(diary)) as ref:
        ref.tell(Begin(-1.0))
        await wait_all_tasks_blocked()
    assert isinstance(diary[0], Error)
    assert str(diary[0].error) == "negative"


async def test_work_answers_a_kept_reply(runtime: Runtime) -> None:
    async with runtime.running("a", Sample) as ref:
        ref.tell(Begin(3.0))
        assert await ref.ask(Keep(), deadline=5.0) == 7


async def test_work_is_bounded_per_actor(runtime: Runtime) -> None:
    class Counting(Waits):
        refused = 0

        def begin(self, message: Begin) -> None:
            try:
                super().begin(message)
            except MailboxFull:
                self.refused += 1

    actor = Counting()
    async with runtime.running("a", lambda: actor) as ref:
        for _ in range(4):
            await ref.send(Begin(1.0))
        await trio.sleep(2)
        assert actor.refused == 2
        ref.tell(Begin(1.0))
        await trio.sleep(2)
        assert actor.refused == 2


async def test_work_may_finish_within_shutdown_seconds(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: Sample(diary), shutdown_seconds=5.0) as ref:
        ref.tell(Begin(3.0))
        await wait_all_tasks_blocked()
    assert diary == [Value(3.0)]


async def test_work_beyond_shutdown_seconds_is_cancelled(
    runtime: Runtime,
) -> None:
    diary: list[Any] = []
    start = trio.current_time()
    async with runtime.running("a", lambda: Sample(diary), shutdown_seconds=5.0) as ref:
        ref.tell(Begin(30.0))
        await wait_all_tasks_blocked()
    await trio.sleep(60)
    assert (diary, trio.current_time() - start) == ([], 65.0)


async def test_work_of_a_failed_instance_is_cancelled(runtime: Runtime) -> None:
    diary: list[Any] = []
    cell = runtime.cell("a")
    async with trio.open_nursery() as nursery:

        async def live(task_status: trio.TaskStatus[object]) -> None:
            with pytest.raises(ActorFailed):
                await cell.run(lambda: Sample(diary), task_status)

        await nursery.start(live)
        cell.tell(Begin(3.0))
        await wait_all_tasks_blocked()
        cell.tell(Break())
        await trio.sleep(10)
    cell.terminate()
    assert diary == []


async def test_completion_without_message_fails_the_actor(runtime: Runtime, log: LogBook) -> None:
    def unmade(outcome: object) -> Note:
        raise LookupError("no such message")

    class Careless(Sample):
        async def work(self) -> None:
            pass

        def begin(self, message: Begin) -> None:
            self.context.work(self.work, then=unmade)

    with pytest.raises(ActorFailed, match="LookupError: no such message"):
        await begun(runtime, Careless)
    (entry,) = log.named("actor_failed")
    assert (entry["actor"], entry["phase"]) == ("a", "handler")


async def begun(runtime: Runtime, kind: type[Sample]) -> None:
    async with runtime.running("a", kind) as ref:
        ref.tell(Begin(1.0))
        await trio.sleep_forever()


async def test_completions_are_never_refused_and_alternate_with_the_mailbox(
    runtime: Runtime,
) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: Waits(diary)) as ref:
        await ref.send(Later(1.0, 100))
        await ref.send(Later(1.0, 101))
        await wait_all_tasks_blocked()
        ref.suspend()
        await trio.sleep(2)
        ref.tell(Note(1))
        ref.tell(Note(2))
        assert not ref.tell(Note(3))
        ref.resume()
        await wait_all_tasks_blocked()
    assert diary == [100, 1, 101, 2]
    assert runtime.snapshot().dead_letters[DeadLetterReason.FULL] == 1


async def test_timer_can_be_cancelled_after_it_expired(
    runtime: Runtime,
) -> None:
    diary: list[Any] = []
    actor = Sample(diary)
    async with runtime.running("a", lambda: actor) as ref:
        first = actor.context.after(1.0, Note(1))
        second = actor.context.after(1.0, Note(2))
        first.cancel()
        ref.suspend()
        await trio.sleep(2)
        second.cancel()
        second.cancel()
        ref.resume()
        await trio.sleep(2)
        assert not second.pending
    assert diary == []
    assert len(runtime.deadlines) == 0


async def test_timers_do_not_delay_a_stop(runtime: Runtime) -> None:
    start = trio.current_time()
    async with runtime.running("a", Sample) as ref:
        ref.tell(Later(60.0, 1))
    assert trio.current_time() == start
    assert len(runtime.deadlines) == 0
