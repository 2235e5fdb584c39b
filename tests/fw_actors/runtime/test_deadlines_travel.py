"""Deadlines travel down a chain of asks, and an abandoned request is not begun."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
import trio
from outcome import Outcome
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    Actor,
    ActorFailed,
    AskTimeout,
    KeyedPool,
    Message,
    PendingReply,
    Ref,
    Request,
    Runtime,
    handles,
)
from tests.fw_actors.runtime.sample_actors import AddNumber, Break, DiaryNote, Nap, SampleActor


class PassingJob(Request[int], frozen=True):
    seconds: float
    deadline: float | None = 60.0
    capped: bool = True


class PassingEnded(Message, frozen=True):
    reply: PendingReply[Any]
    outcome: Outcome[int]


class Passing(Actor):
    """Passes a job to the next actor; records the time that was left."""

    def __init__(self, following: Ref) -> None:
        self.following = following
        self.left: list[float] = []

    @handles(PassingJob)
    async def job(self, message: PassingJob) -> int:
        self.left.append(self.context.left)
        nap: Request[int] = Nap(message.seconds)
        if self.following.name == "middle":
            nap = message
        return await self.following.ask(nap, deadline=message.deadline, capped=message.capped)

    @handles(AddNumber)
    def add(self, message: AddNumber) -> int:
        self.left.append(self.context.left)
        return message.number

    @handles(DiaryNote)
    def note(self, message: DiaryNote) -> None:
        self.left.append(self.context.left)


class PassingByWork(Passing):
    @handles(PassingJob)
    async def job(self, message: PassingJob) -> int:
        reply = self.context.keep_reply()
        self.context.work(self._pass, message, then=lambda outcome: PassingEnded(reply, outcome))
        return 0

    async def _pass(self, message: PassingJob) -> int:
        await trio.sleep(1)
        self.left.append(self.context.left)
        return await self.following.ask(Nap(message.seconds), deadline=message.deadline)

    @handles(PassingEnded)
    def done(self, message: PassingEnded) -> None:
        message.reply.answer(message.outcome.unwrap())


async def test_context_left_is_the_remaining_time_of_the_asker(runtime: Runtime) -> None:
    """R-47."""
    actor = Passing(runtime.ref("nobody"))
    async with runtime.running("a", lambda: actor) as ref:
        await ref.ask(AddNumber(1), deadline=3.0)
        await ref.ask(AddNumber(1))
        ref.tell(DiaryNote(1))
        await wait_all_tasks_blocked()
    assert actor.left == [3.0, inf, inf]


async def test_ask_in_a_handler_is_capped_by_what_is_left(runtime: Runtime) -> None:
    """R-47: the chain stops when the asker has gone; the next request is served."""
    async with (
        runtime.running("store", SampleActor) as store,
        runtime.running("middle", lambda: Passing(store)) as middle,
        runtime.running("router", lambda: Passing(middle)) as router,
    ):
        began = trio.current_time()
        with pytest.raises(AskTimeout):
            await router.ask(PassingJob(20.0), deadline=1.0)
        assert trio.current_time() - began == 1.0
        assert await router.ask(AddNumber(1), deadline=0.5) == 1
        assert await middle.ask(AddNumber(1), deadline=0.5) == 1


@pytest.mark.parametrize("by_work", [False, True])
async def test_ask_needs_no_deadline_of_its_own(runtime: Runtime, by_work: bool) -> None:
    """R-40, R-47: the time left is the default, in work for a kept reply too."""
    kind = PassingByWork if by_work else Passing
    async with runtime.running("store", SampleActor) as store:
        actor = kind(store)
        async with runtime.running("middle", lambda: actor) as middle:
            assert await middle.ask(PassingJob(2.0, deadline=None), deadline=5.0) == 1
            began = trio.current_time()
            with pytest.raises(AskTimeout):
                await middle.ask(PassingJob(20.0, deadline=None), deadline=5.0)
            assert trio.current_time() - began == 5.0
            await trio.sleep(1)
            assert (await middle.inspect()).pending == 0
            assert actor.left == ([4.0, 4.0] if by_work else [5.0, 5.0])


async def test_request_of_a_departed_asker_is_never_begun(
    runtime: Runtime,
) -> None:
    """R-47: also if the asker was cancelled, with an hour left."""
    diary: list[Any] = []

    class NapStore(SampleActor):
        @handles(Nap)
        async def nap(self, message: Nap) -> int:
            diary.append(message.seconds)
            await trio.sleep(message.seconds)
            return 1

    async with (
        runtime.running("store", NapStore) as store,
        runtime.running("middle", lambda: Passing(store)) as middle,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(store.ask, Nap(10.0))
        await wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await middle.ask(PassingJob(5.0), deadline=3600.0)
        await trio.sleep(20)
        assert diary == [10.0]
        assert await middle.ask(AddNumber(1), deadline=0.1) == 1
        assert (await store.inspect()).actor.cancelled == 1


async def test_uncapped_request_outlives_its_asker(runtime: Runtime) -> None:
    """R-47: on request."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    async with runtime.running("middle", lambda: Passing(pool["k"])) as middle:
        with pytest.raises(AskTimeout):
            await middle.ask(PassingJob(5.0, capped=False), deadline=1.0)
        await trio.sleep(10)
        assert runtime.snapshot().late_replies == 1
        assert (await middle.inspect()).actor.failed == 0
    await pool.close()


async def test_ask_after_the_answer_is_not_capped(runtime: Runtime) -> None:
    """R-47: the asker has its answer and waits no longer."""
    naps: list[int] = []

    class EarlyAnswer(Passing):
        @handles(PassingJob)
        async def job(self, message: PassingJob) -> int:
            self.context.keep_reply().answer(7)
            assert self.context.left == inf
            naps.append(await self.following.ask(Nap(message.seconds), deadline=60.0))
            return 0

    async with (
        runtime.running("store", SampleActor) as store,
        runtime.running("middle", lambda: EarlyAnswer(store)) as middle,
    ):
        assert await middle.ask(PassingJob(20.0), deadline=1.0) == 7
        await trio.sleep(30)
        assert naps == [1]


class Cut(Exception):
    """A failure while a handler is cancelled."""


class YieldingNap(SampleActor):
    """Naps only while its asker waits; records the times at which it was cut short."""

    @handles(Nap, give_up=True)
    async def nap(self, message: Nap) -> int:
        try:
            await trio.sleep(message.seconds)
        except trio.Cancelled:
            self.diary.append(trio.current_time())
            if message.seconds == 13:
                raise Cut from None
            raise
        return 1


class PassingInHandler(Passing):
    @handles(PassingJob, give_up=True)
    async def job(self, message: PassingJob) -> int:
        return await self.following.ask(Nap(message.seconds))


class PassingInWork(Passing):
    @handles(PassingJob)
    def job(self, message: PassingJob) -> PendingReply[int]:
        reply: PendingReply[int] = self.context.keep_reply()
        nap = Nap(message.seconds)
        self.context.work(
            self.following.ask, nap, 60.0, then=lambda outcome: PassingEnded(reply, outcome)
        )
        return reply

    @handles(PassingEnded)
    def done(self, message: PassingEnded) -> None:
        try:
            message.reply.answer(message.outcome.unwrap())
        except AskTimeout as error:
            message.reply.fail(error)


class PassingByQuestion(PassingInWork):
    @handles(PassingJob)
    def job(self, message: PassingJob) -> PendingReply[int]:
        reply: PendingReply[int] = self.context.keep_reply()
        self.context.ask(
            self.following,
            Nap(message.seconds),
            then=lambda outcome: PassingEnded(reply, outcome),
            deadline=60.0,
        )
        return reply


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("passing", [PassingInHandler, PassingInWork, PassingByQuestion])
async def test_handler_that_gives_up_ends_without_an_asker(
    runtime: Runtime, passing: type[Passing], cancelled: bool
) -> None:
    """R-142: down the chain, and the next question finds the actors free."""
    cuts: list[float] = []
    async with (
        runtime.running("last", lambda: YieldingNap(cuts)) as last,
        runtime.running("first", lambda: passing(last)) as first,
    ):
        began = trio.current_time()
        if cancelled:
            with trio.move_on_after(1.0):
                await first.ask(PassingJob(20.0), deadline=50.0)
        else:
            with pytest.raises(AskTimeout, match="first"):
                await first.ask(PassingJob(20.0), deadline=1.0)
        assert await first.ask(PassingJob(0.5), deadline=10.0) == 1
        assert trio.current_time() - began == pytest.approx(1.5)
    assert cuts == [pytest.approx(began + 1.0)]
    statistics = runtime.statistics()
    assert statistics.deadlines.pending == 0
    nodes = runtime.snapshot().tree
    assert nodes == ()


async def test_handler_that_gives_up_finishes_told_messages(runtime: Runtime) -> None:
    """R-142: a told message has no asker that could go away."""
    cuts: list[float] = []
    async with runtime.running("last", lambda: YieldingNap(cuts)) as last:
        last.tell(Nap(5.0))
        await last.ask(AddNumber(1), deadline=9.0)
        assert trio.current_time() == 5.0
    assert cuts == []


async def test_handler_that_gives_up_may_still_fail(runtime: Runtime) -> None:
    """R-142: an error other than the cancellation is a failure."""
    pool = KeyedPool(runtime, "p", lambda key: YieldingNap())
    with pytest.raises(AskTimeout):
        await pool["k"].ask(Nap(13.0), deadline=1.0)
    await wait_all_tasks_blocked()
    assert pool.snapshot().failed == 1
    with pytest.raises(ActorFailed):
        await pool["k"].ask(Break(), deadline=5.0)
    await pool.close()


class AsksTooLate(Actor):
    """Asks for an asker that has gone."""

    def __init__(self, following: Ref) -> None:
        self.following = following
        self.errors: list[str] = []

    @handles(PassingJob)
    async def job(self, message: PassingJob) -> int:
        await trio.sleep(message.seconds)
        try:
            return await self.following.ask(AddNumber(1), deadline=message.deadline)
        except AskTimeout as error:
            self.errors.append(str(error))
            raise


async def test_ask_for_an_asker_that_has_gone_names_no_time_that_it_has_not_waited(
    runtime: Runtime,
) -> None:
    """R-47: it is not sent, and its error says so: it waited for 0 seconds."""
    async with (
        runtime.running("store", SampleActor) as store,
        runtime.running("late", lambda: AsksTooLate(store)) as late,
    ):
        with pytest.raises(AskTimeout):
            await late.ask(PassingJob(2.0), deadline=1.0)
        await trio.sleep(2)
        assert isinstance(late.cell.actor, AsksTooLate)
        assert late.cell.actor.errors == ["'store' did not answer within 0 s."]
        assert trio.current_time() == 3.0
