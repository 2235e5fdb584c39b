"""Fairness by time: one busy actor does not hold up the others."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from fw_actors.runtime import Actor, KeyedPool, MailboxPolicy, Ref, Runtime, handles
from fw_actors.runtime.testing import LogBook
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    DiaryNote,
    Nap,
    SampleActor,
)


class BusyNotes(Actor):
    """Each note takes its number of ms of processor time."""

    mailbox = MailboxPolicy(capacity=10_000)

    def __init__(self) -> None:
        self.clock = trio.lowlevel.current_clock()
        self.handled = 0

    @handles(DiaryNote)
    def note(self, message: DiaryNote) -> None:
        assert isinstance(self.clock, MockClock)
        self.clock.jump(message.number / 1000)
        self.handled += 1

    @handles(Nap)
    async def nap(self, message: Nap) -> int:
        await trio.sleep(message.seconds)
        return 1


async def longest_pause(messages: int, refs: list[Ref], milliseconds: int) -> float:
    """Tell notes, and return the longest time in seconds that another task was held up."""
    for ref in refs:
        for _ in range(messages):
            ref.tell(DiaryNote(milliseconds))
    longest, last = 0.0, trio.current_time()
    for _ in range(messages * len(refs)):
        await trio.lowlevel.checkpoint()
        longest, last = max(longest, trio.current_time() - last), trio.current_time()
    return longest


async def test_actor_with_slow_handlers_lets_others_run(runtime: Runtime) -> None:
    """R-14: after the first few messages, the clock is read after each."""
    async with runtime.running("busy", BusyNotes) as ref:
        assert await longest_pause(200, [ref], 5) <= 0.05
        assert await longest_pause(200, [ref], 5) <= 0.01


@pytest.mark.parametrize("keyed", [False, True])
async def test_busy_actor_delays_other_actors_by_one_batch(runtime: Runtime, keyed: bool) -> None:
    """R-14: the question and its answer pass while the busy actor leaves the turn to others."""
    pool = KeyedPool(runtime, "p", lambda key: BusyNotes())
    longest = 0.0
    async with (
        runtime.running("busy", BusyNotes) as single,
        runtime.running("quick", SampleActor) as quick,
    ):
        busy: Ref = pool["k"] if keyed else single
        for _ in range(1000):
            busy.tell(DiaryNote(1))
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()  # the first batch is one of 8: it was not known as slow
        for _ in range(100):
            began = trio.current_time()
            await quick.ask(Nap(0), deadline=1.0)
            longest = max(longest, trio.current_time() - began)
    assert 0.001 < longest < 0.004  # 2 ms, and the message that was begun before these passed
    await pool.close()


async def test_keyed_actors_with_slow_handlers_let_others_run(runtime: Runtime) -> None:
    """R-14: workers read the clock between their jobs, too."""
    pool = KeyedPool(runtime, "p", lambda key: BusyNotes())
    assert await longest_pause(1, [pool[str(number)] for number in range(200)], 5) < 0.5
    await pool.close()


async def test_actor_with_quick_handlers_keeps_its_turn(runtime: Runtime) -> None:
    """R-14: 128 messages."""
    actor = BusyNotes()
    async with runtime.running("busy", lambda: actor) as ref:
        await wait_all_tasks_blocked()
        for _ in range(300):
            ref.tell(DiaryNote(0))
        seen = set()
        while actor.handled < 300:
            await trio.lowlevel.checkpoint()
            seen.add(actor.handled)
        assert seen <= {0, 128, 256, 300}


@pytest.mark.parametrize("keyed", [False, True])
async def test_slow_handler_is_logged(runtime: Runtime, log: LogBook, keyed: bool) -> None:
    """R-24: the 1st, 2nd, 4th of a class."""
    pool = KeyedPool(runtime, "p", lambda key: BusyNotes())
    async with runtime.running("busy", BusyNotes) as single:
        ref: Ref = pool["k"] if keyed else single
        for milliseconds in (10, 200, 300, 400, 500):
            ref.tell(DiaryNote(milliseconds))
            await wait_all_tasks_blocked()
        lines = log.named("slow_handler")
        assert [line["count"] for line in lines] == [1, 2, 4]
        assert lines[0]["actor"] == ref.name
        assert lines[0]["message_types"] == ("DiaryNote",)
        assert lines[0]["seconds"] == 0.2
    await pool.close()


async def test_slow_async_handler_is_logged_unless_its_class_waits(
    runtime: Runtime, log: LogBook
) -> None:
    """R-24."""

    class DeclaredSlow(SampleActor):
        slow_seconds = 60.0

    async with (
        runtime.running("a", DeclaredSlow) as waiting,
        runtime.running("b", BusyNotes) as busy,
    ):
        await waiting.ask(Nap(5.0), deadline=10.0)
        await busy.ask(Nap(0.05), deadline=10.0)
        assert log.named("slow_handler") == []
        await busy.ask(Nap(5.0), deadline=10.0)
        await waiting.ask(AddNumber(1), deadline=1.0)
        assert [line["actor"] for line in log.named("slow_handler")] == ["b"]
