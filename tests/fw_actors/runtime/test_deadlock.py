"""Deadlock detection: a wait that would close a cycle is refused, and no other."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from fw_actors.runtime import (
    Actor,
    ActorRef,
    AskCycle,
    AskTimeout,
    KeyedPool,
    MailboxPolicy,
    PendingReply,
    Ref,
    Request,
    Runtime,
    handles,
)
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    DiaryNote,
    Finished,
    Forward,
    Keep,
    Nap,
    SampleActor,
)


class Polite(Actor):
    """Forwards a request, and keeps the names of the cycle if there is one."""

    mailbox = MailboxPolicy(capacity=1)

    def __init__(self) -> None:
        self.cycle: tuple[str, ...] = ()

    @handles(Forward)
    async def forward(self, message: Forward) -> int:
        if not message.way:
            return 1
        first, *rest = message.way
        try:
            return 1 + await first.ask(Forward(tuple(rest)), deadline=5.0)
        except AskCycle as cycle:
            self.cycle = cycle.cycle
            return 100


async def start(stack: AsyncExitStack, runtime: Runtime, names: str) -> dict[str, ActorRef]:
    return {name: await stack.enter_async_context(runtime.running(name, Polite)) for name in names}


@pytest.mark.parametrize(
    ("way", "answer"), [("abc", 4), ("aba", 102), ("aa", 101), ("abcb", 103), ("abcd", 5)]
)
async def test_deadlock_is_found_in_cycles_only(runtime: Runtime, way: str, answer: int) -> None:
    async with AsyncExitStack() as stack:
        refs = await start(stack, runtime, "abcd")
        first, *rest = (refs[name] for name in way)
        assert await first.ask(Forward(tuple(rest))) == answer - 1


async def test_ask_cycle_names_the_actors(runtime: Runtime) -> None:
    async with AsyncExitStack() as stack:
        a, b, c = (await start(stack, runtime, "abc")).values()
        await a.ask(Forward((b, c, a)))
        inspected = c.cell.actor
        assert isinstance(inspected, Polite)
        assert inspected.cycle == ("c", "a", "b", "c")
        assert str(AskCycle(inspected.cycle)) == ("Waiting would be a deadlock: c -> a -> b -> c.")


async def test_deadlock_leaves_no_edges(runtime: Runtime) -> None:
    async with AsyncExitStack() as stack:
        a, b = (await start(stack, runtime, "ab")).values()
        await a.ask(Forward((b, a)))
        assert await b.ask(Forward((a,))) == 2
        assert [node.waits_for for node in runtime.snapshot().tree] == [(), ()]


class Push(Request[tuple[str, ...]], frozen=True):
    """Waits a second, then sends two notes; answered with the cycle that this would close."""

    to: Ref


class Pushing(Polite):
    @handles(Push)
    async def push(self, message: Push) -> tuple[str, ...]:
        await trio.sleep(1)
        try:
            await message.to.send(DiaryNote(1))
            await message.to.send(DiaryNote(2))
        except AskCycle as cycle:
            return cycle.cycle
        return ()


async def test_deadlock_includes_waits_for_room(runtime: Runtime, nursery: trio.Nursery) -> None:
    async with runtime.running("a", Pushing) as a, runtime.running("b", Pushing) as b:
        cycles: list[tuple[str, ...]] = []

        async def push() -> None:
            cycles.append(await a.ask(Push(b)))

        nursery.start_soon(push)
        await trio.sleep(0.5)
        assert await b.ask(Forward((a,))) == 2  # b waits for a, and has room for one note
        assert cycles == [("a", "b", "a")]


async def test_deadlock_includes_waits_for_a_stop(runtime: Runtime) -> None:
    """Closing its own pool from a handler would wait for this very handler."""
    pool = KeyedPool(runtime, "p", lambda key: Closing(pool))
    assert await pool["a"].ask(AddNumber(1), deadline=5.0) == 1
    assert pool["b"].tell(DiaryNote(1))  # nothing was begun: the pool is open
    async with runtime.running("other", lambda: Closing(pool)) as other:
        # An actor outside the pool may wait.
        assert await other.ask(AddNumber(1), deadline=5.0) == 0
    assert len(pool) == 0


class Closing(Actor):
    """Closes a pool; answers with the number of actors in the refused cycle."""

    def __init__(self, pool: KeyedPool) -> None:
        self.pool = pool

    @handles(AddNumber)
    async def add(self, message: AddNumber) -> int:
        try:
            await self.pool.close()
        except AskCycle as cycle:
            return len(set(cycle.cycle))
        return 0

    @handles(DiaryNote)
    def note(self, message: DiaryNote) -> None:
        pass


async def test_ask_in_a_handler_needs_a_deadline(runtime: Runtime) -> None:
    class WithoutDeadline(Polite):
        async def forward(self, message: Forward) -> int:
            if message.way:
                with pytest.raises(TypeError, match="needs a deadline"):
                    await message.way[0].ask(AddNumber(1))
            return 1

    async with (
        runtime.running("a", WithoutDeadline) as a,
        runtime.running("b", WithoutDeadline) as b,
    ):
        assert await a.ask(Forward((b,))) == 1


class ForwardInWork(Polite):
    """Keeps the reply, and forwards in work."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[PendingReply[int]] = []

    @handles(Forward)
    async def forward(self, message: Forward) -> int:
        self.kept.append(self.context.keep_reply())
        self.context.work(self._forward, message, then=Finished)
        return 0

    async def _forward(self, message: Forward) -> int:
        answer: int = await super().forward(message)
        return answer

    @handles(Finished)
    def finished(self, message: Finished) -> None:
        self.kept.pop(0).answer(message.outcome.unwrap())


async def test_deadlock_is_found_through_work_for_a_kept_reply(runtime: Runtime) -> None:
    """R-44: a waits for b, whose work waits for a; in either order of the two waits."""
    actor = ForwardInWork()
    async with (
        runtime.running("a", Polite) as a,
        runtime.running("b", lambda: actor) as b,
        runtime.running("c", Polite) as c,
    ):
        began = trio.current_time()
        assert await a.ask(Forward((b, a)), deadline=60.0) == 101
        assert actor.cycle == ("b", "a", "b")
        assert await a.ask(Forward((b, c, a)), deadline=60.0) == 102
        assert trio.current_time() == began
        assert await a.ask(Forward((b, c)), deadline=60.0) == 3
        assert await b.ask(Forward((a,)), deadline=60.0) == 2


async def test_wait_in_work_for_a_departed_asker_is_no_deadlock(runtime: Runtime) -> None:
    """R-44: an asker that timed out is in no cycle."""

    class SlowForwardInWork(ForwardInWork):
        async def _forward(self, message: Forward) -> int:
            await trio.sleep(10)
            answers.append(await message.way[0].ask(Forward(()), deadline=5.0, capped=False))
            return 1

    answers: list[int] = []
    async with runtime.running("a", SampleActor) as a, runtime.running("b", SlowForwardInWork) as b:
        with pytest.raises(AskTimeout):
            await a.ask(Forward((b, a)), deadline=1.0)
        await trio.sleep(20)
        assert answers == [1]
        assert [node.waits_for for node in runtime.snapshot().tree] == [(), ()]


async def test_task_in_an_outer_nursery_is_not_its_starter(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    """R-44: a task that outlives the handler blocks no actor; it may ask without a deadline."""
    answers: list[int] = []

    class StartingTask(SampleActor):
        @handles(Keep)
        def keep(self, message: Keep) -> int:
            nursery.start_soon(self._ask)
            return 0

        async def _ask(self) -> None:
            answers.append(await self.context.ref.ask(AddNumber(7)))

    pool = KeyedPool(runtime, "p", lambda key: StartingTask())
    async with runtime.running("a", StartingTask) as single:
        for ref in (single, pool["k"]):
            await ref.ask(Keep(), deadline=1.0)
            await trio.sleep(1)
    assert answers == [7, 7]
    await pool.close()


async def test_deadlock_is_found_if_all_work_asks_its_own_actor(
    runtime: Runtime,
) -> None:
    """R-44: the last piece of work gets the error, and the others go on."""
    cycles: list[tuple[str, ...]] = []

    class Own(SampleActor):
        mailbox = MailboxPolicy(max_work=3)

        @handles(DiaryNote)
        def note(self, message: DiaryNote) -> None:
            self.context.work(self._ask, message.number, then=Finished)

        async def _ask(self, number: int) -> int:
            try:
                return await self.context.ref.ask(AddNumber(number))
            except AskCycle as cycle:
                cycles.append(cycle.cycle)
                return 0

    diary: list[Any] = []
    async with runtime.running("a", lambda: Own(diary)) as ref:
        ref.suspend()
        for _ in range(4):
            ref.tell(DiaryNote(1))
        ref.resume()
        await trio.sleep(1)
        assert cycles == [("a", "a")]
        assert len(diary) == 4
        assert await ref.ask(Nap(1.0), deadline=5.0) == 1
