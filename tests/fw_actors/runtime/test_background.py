"""Work, timers and watches."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from outcome import Error, Value
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    ActorFailed,
    DeadLetterReason,
    KeyedPool,
    MailboxFull,
    MailboxPolicy,
    Message,
    Ref,
    Runtime,
    handles,
)
from fw_actors.runtime.testing import LogBook
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Begin,
    Break,
    DiaryNote,
    Finished,
    Keep,
    Later,
    SampleActor,
    SampleThatWaits,
)


async def test_work_ends_as_a_message_and_does_not_block(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(diary)) as ref:
        ref.tell(Begin(3.0))
        assert await ref.ask(AddNumber(1), deadline=1.0) == 1
        await trio.sleep(4)
        assert diary == [Value(3.0)]


async def test_work_failure_is_a_message(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(diary)) as ref:
        ref.tell(Begin(-1.0))
        await wait_all_tasks_blocked()
    assert isinstance(diary[0], Error)
    assert str(diary[0].error) == "negative"


async def test_work_answers_a_kept_reply(runtime: Runtime) -> None:
    async with runtime.running("a", SampleActor) as ref:
        ref.tell(Begin(3.0))
        assert await ref.ask(Keep(), deadline=5.0) == 7


class Burst(Message, frozen=True):
    """Begins these pieces of work, of a second each."""

    pieces: int
    wait: bool = True


class TwoWorks(SampleThatWaits):
    """Counts the pieces that run at once; at most two may."""

    def __init__(self) -> None:
        super().__init__()
        self.running = self.peak = self.refused = 0

    async def _work(self, seconds: float) -> float:
        self.running += 1
        self.peak = max(self.peak, self.running)
        await trio.sleep(seconds)
        self.running -= 1
        return seconds

    @handles(Burst)
    def burst(self, message: Burst) -> None:
        try:
            for _ in range(message.pieces):
                self.context.work(self._work, 1.0, then=Finished, wait=message.wait)
        except MailboxFull:
            self.refused += 1


@pytest.mark.parametrize("keyed", [False, True])
async def test_work_beyond_its_limit_holds_the_mailbox(runtime: Runtime, keyed: bool) -> None:
    """R-38: ten senders at once are served two at a time; nothing fails."""
    actor = TwoWorks()
    pool = KeyedPool(runtime, "p", lambda key: actor)
    began = trio.current_time()

    async with runtime.running("a", lambda: actor) as single:
        ref: Ref = pool["k"] if keyed else single
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ref.send, Begin(1.0))
        await ref.ask(AddNumber(1), deadline=60.0)
        await trio.sleep(5)
        assert (len(actor.diary), actor.peak) == (10, 2)
        assert trio.current_time() - began < 15
        name = "p" if keyed else "a"
        node = next(node for node in runtime.snapshot().tree if node.name == name)
        assert (node.failed, node.depth, node.running) == (0, 0, 0)
    await pool.close()


async def test_work_at_its_limit_does_not_hold_the_mailbox_yet(runtime: Runtime) -> None:
    """R-38: at the limit, the actor still handles other messages."""
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleThatWaits(diary)) as ref:
        for _ in range(2):
            await ref.send(Begin(10.0))
        await ref.send(DiaryNote(1))
        await wait_all_tasks_blocked()
        assert diary == [1]


async def test_work_beyond_its_limit_makes_senders_wait(runtime: Runtime) -> None:
    """R-38: the overflow policy of the mailbox decides."""
    actor = TwoWorks()
    async with runtime.running("a", lambda: actor) as ref:
        for _ in range(5):
            await ref.send(Begin(10.0))
            await wait_all_tasks_blocked()
        assert not ref.tell(Begin(10.0))
        with trio.move_on_after(5) as scope:
            await ref.send(Begin(10.0))
        assert scope.cancelled_caught
        assert (await ref.inspect()).works == 3


async def test_work_beyond_its_limit_waits_its_turn_in_a_handler(runtime: Runtime) -> None:
    """R-38: two at a time, up to the capacity of the mailbox more."""
    actor = TwoWorks()
    async with runtime.running("a", lambda: actor) as ref:
        ref.tell(Burst(4))
        await trio.sleep(10)
        assert (len(actor.diary), actor.peak, actor.refused) == (4, 2, 0)
        ref.tell(Burst(5))
        await trio.sleep(10)
        assert (len(actor.diary), actor.peak, actor.refused) == (8, 2, 1)


async def test_work_that_may_not_wait_is_refused(runtime: Runtime) -> None:
    """R-38."""
    actor = TwoWorks()
    async with runtime.running("a", lambda: actor) as ref:
        assert actor.context.room_for_work == 2
        ref.tell(Burst(3, wait=False))
        await wait_all_tasks_blocked()
        assert (actor.running, actor.refused, actor.context.room_for_work) == (2, 1, 0)


async def test_work_that_waits_ends_with_the_instance(runtime: Runtime) -> None:
    """R-38: a pool that holds messages behind work can be closed, and one may fail."""
    actor = TwoWorks()
    pool = KeyedPool(runtime, "p", lambda key: actor)
    pool["k"].tell(Burst(4))
    pool["k"].tell(DiaryNote(1))
    await wait_all_tasks_blocked()
    assert pool.statistics().active == 1
    await pool.close(trio.current_time())
    assert (pool.statistics().cells, pool.statistics().active) == (0, 0)
    assert (len(actor.diary), actor.peak) == (0, 2)
    assert runtime.snapshot().dead_letters[DeadLetterReason.STOPPED] == 1


async def test_work_may_finish_within_shutdown_seconds(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleActor(diary), shutdown_seconds=5.0) as ref:
        ref.tell(Begin(3.0))
        await wait_all_tasks_blocked()
    assert diary == [Value(3.0)]


async def test_work_beyond_shutdown_seconds_is_cancelled(
    runtime: Runtime,
) -> None:
    diary: list[Any] = []
    start = trio.current_time()
    async with runtime.running("a", lambda: SampleActor(diary), shutdown_seconds=5.0) as ref:
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
                await cell.run(lambda: SampleActor(diary), task_status)

        await nursery.start(live)
        cell.tell(Begin(3.0))
        await wait_all_tasks_blocked()
        cell.tell(Break())
        await trio.sleep(10)
    cell.terminate()
    assert diary == []


async def test_completion_without_message_fails_the_actor(runtime: Runtime, log: LogBook) -> None:
    def unmade(outcome: object) -> DiaryNote:
        raise LookupError("no such message")

    class WithoutCompletion(SampleActor):
        async def work(self) -> None:
            pass

        def begin(self, message: Begin) -> None:
            self.context.work(self.work, then=unmade)

    with pytest.raises(ActorFailed, match="LookupError: no such message"):
        await begun(runtime, WithoutCompletion)
    (entry,) = log.named("actor_failed")
    assert (entry["actor"], entry["phase"]) == ("a", "handler")


class SilentWorker(SampleActor):
    """An actor that gets no message about its work."""

    @handles(Begin)
    def begin(self, message: Begin) -> None:
        self.context.work(self.work, message.seconds)

    async def work(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("negative")
        await trio.sleep(seconds)
        self.diary.append(self.context.works)


async def test_work_without_a_message_ends_by_itself(runtime: Runtime, log: LogBook) -> None:
    diary: list[Any] = []
    pool = KeyedPool(runtime, "pool", lambda _: SilentWorker(diary), idle_seconds=5.0)
    pool.tell("a", Begin(3.0))
    await trio.sleep(4)
    assert diary == [1]
    assert not log.named("work_failed")
    await trio.sleep(6)
    assert len(pool) == 0, "it is idle once its work has ended"


class OneSilentWork(SilentWorker):
    """Takes no message from its mailbox while it works."""

    mailbox = MailboxPolicy(max_work=1)


async def test_end_of_work_without_a_message_opens_the_mailbox_again(runtime: Runtime) -> None:
    diary: list[Any] = []
    pool = KeyedPool(runtime, "pool", lambda _: OneSilentWork(diary))
    async with runtime.running("a", lambda: OneSilentWork(diary)) as single:
        for ref in (single, pool["a"]):
            ref.tell(Begin(3.0))
            assert await ref.ask(AddNumber(1), deadline=5.0) == 1
    assert diary == [1, 1]


async def test_stop_waits_for_work_without_a_message(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SilentWorker(diary)) as ref:
        ref.tell(Begin(3.0))
        await wait_all_tasks_blocked()
    assert diary == [1]


async def test_failed_work_without_a_message_is_only_logged(runtime: Runtime, log: LogBook) -> None:
    async with runtime.running("a", SilentWorker) as ref:
        ref.tell(Begin(-1.0))
        await trio.sleep(1)
        assert await ref.ask(AddNumber(1), deadline=1.0) == 1
    (entry,) = log.named("work_failed")
    assert (entry["actor"], entry["error"]) == ("a", "ValueError: negative")


async def begun(runtime: Runtime, kind: type[SampleActor]) -> None:
    async with runtime.running("a", kind) as ref:
        ref.tell(Begin(1.0))
        await trio.sleep_forever()


async def test_completions_are_never_refused_and_alternate_with_the_mailbox(
    runtime: Runtime,
) -> None:
    diary: list[Any] = []
    async with runtime.running("a", lambda: SampleThatWaits(diary)) as ref:
        await ref.send(Later(1.0, 100))
        await ref.send(Later(1.0, 101))
        await wait_all_tasks_blocked()
        ref.suspend()
        await trio.sleep(2)
        ref.tell(DiaryNote(1))
        ref.tell(DiaryNote(2))
        assert not ref.tell(DiaryNote(3))
        ref.resume()
        await wait_all_tasks_blocked()
    assert diary == [100, 1, 101, 2]
    assert runtime.snapshot().dead_letters[DeadLetterReason.FULL] == 1


async def test_timer_can_be_cancelled_after_it_expired(
    runtime: Runtime,
) -> None:
    diary: list[Any] = []
    actor = SampleActor(diary)
    async with runtime.running("a", lambda: actor) as ref:
        first = actor.context.after(1.0, DiaryNote(1))
        second = actor.context.after(1.0, DiaryNote(2))
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
    async with runtime.running("a", SampleActor) as ref:
        ref.tell(Later(60.0, 1))
    assert trio.current_time() == start
    assert len(runtime.deadlines) == 0
