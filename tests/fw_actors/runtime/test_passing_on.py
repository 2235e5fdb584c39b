"""Errors of the runtime, and refusals, that leave a handler."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from outcome import Outcome

from fw_actors.runtime import (
    Actor,
    ActorFailed,
    ActorGone,
    AskCycle,
    AskTimeout,
    Faults,
    KeyedPool,
    Message,
    NotHandled,
    PendingReply,
    Ref,
    Refused,
    Request,
    Runtime,
    handles,
)
from fw_actors.runtime.testing import LogBook
from supervisors import actor_child, open_supervisor
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Break,
    DiaryNote,
    Forward,
    Nap,
    SampleActor,
)


class NoSuchUser(Refused):
    pass


class NotEnough(Exception):
    pass


class Pay(Request[int], frozen=True):
    kind: type[Exception]


class PayLater(Request[int], frozen=True):
    kind: type[Exception]


class Paid(Message, frozen=True):
    reply: PendingReply[Any]
    outcome: Outcome[int]


class Till(Actor):
    refusals = (NotEnough,)

    def __init__(self) -> None:
        self.count = 0

    @handles(AddNumber)
    def add(self, message: AddNumber) -> int:
        self.count += message.number
        return self.count

    @handles(Pay)
    async def pay(self, message: Pay) -> int:
        raise message.kind("no")

    @handles(PayLater)
    def pay_later(self, message: PayLater) -> PendingReply[int]:
        reply: PendingReply[int] = self.context.keep_reply()
        self.context.work(self._refuse, message.kind, then=lambda outcome: Paid(reply, outcome))
        return reply

    async def _refuse(self, kind: type[Exception]) -> int:
        await trio.sleep(1)
        raise kind("no")

    @handles(Paid)
    def paid(self, message: Paid) -> None:
        message.reply.answer(message.outcome.unwrap())


class AskingRelay(Actor):
    """Asks another actor, and catches no error."""

    def __init__(self, other: Ref) -> None:
        self.other = other
        self.count = 0

    @handles(AddNumber)
    def add(self, message: AddNumber) -> int:
        self.count += message.number
        return self.count

    @handles(Nap)
    async def nap(self, message: Nap) -> int:
        return await self.other.ask(Nap(message.seconds), deadline=1.0)

    @handles(Break)
    async def break_down(self, message: Break) -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.other.ask, Break(), 1.0)
            nursery.start_soon(self.other.ask, Break(), 1.0)
        return 1

    @handles(DiaryNote)
    async def note(self, message: DiaryNote) -> None:
        await self.other.ask(Nap(5.0), deadline=1.0)


class Strict(AskingRelay):
    faults = Faults.CRASH


@pytest.mark.parametrize("kind", [Refused, NoSuchUser, NotEnough])
@pytest.mark.parametrize("request_kind", [Pay, PayLater])
async def test_refusal_reaches_the_asker_and_the_actor_goes_on(
    runtime: Runtime, kind: type[Exception], request_kind: type[Any]
) -> None:
    """R-17, also from a handler of the result of work, for the reply that was kept."""
    async with runtime.running("till", Till) as till:
        await till.ask(AddNumber(1), deadline=1.0)
        with pytest.raises(kind, match="no") as raised:
            await till.ask(request_kind(kind), deadline=5.0)
        assert type(raised.value) is kind
        assert await till.ask(AddNumber(1), deadline=1.0) == 2
        seen = await till.inspect()
        assert (seen.actor.failed, seen.pending) == (0, 0)


async def test_refusal_passes_through_a_keyed_actor(runtime: Runtime) -> None:
    """R-17: the instance continues."""
    pool = KeyedPool(runtime, "p", lambda key: Till())
    assert await pool["k"].ask(AddNumber(1), deadline=1.0) == 1
    with pytest.raises(NoSuchUser):
        await pool["k"].ask(Pay(NoSuchUser), deadline=1.0)
    assert await pool["k"].ask(AddNumber(1), deadline=1.0) == 2


async def test_undeclared_error_fails_the_instance(runtime: Runtime) -> None:
    """R-12."""
    pool = KeyedPool(runtime, "p", lambda key: Till())
    assert await pool["k"].ask(AddNumber(1), deadline=1.0) == 1
    with pytest.raises(ActorFailed):
        await pool["k"].ask(Pay(ValueError), deadline=1.0)
    assert await pool["k"].ask(AddNumber(1), deadline=1.0) == 1


async def test_timeout_passes_through_as_itself_and_harms_no_actor(runtime: Runtime) -> None:
    """R-18: a slow store does not bring the tree down, however often it is asked."""
    children = [
        actor_child("store", SampleActor),
        actor_child("middle", lambda: AskingRelay(runtime.ref("store"))),
    ]
    async with open_supervisor(runtime, "tree", children):
        middle = runtime.ref("middle")
        for _ in range(20):
            with pytest.raises(AskTimeout, match="'store'"):
                await middle.ask(Nap(2.0), deadline=10.0)
        assert sum(node.failed for node in runtime.snapshot().walk()) == 0


async def test_failure_of_another_actor_passes_through_a_nursery(runtime: Runtime) -> None:
    """R-18: from a group of such errors, the first."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    async with runtime.running("middle", lambda: AskingRelay(pool["k"])) as middle:
        with pytest.raises(ActorFailed, match="'p/k' failed: ValueError"):
            await middle.ask(Break(), deadline=5.0)
        assert await middle.ask(AddNumber(1), deadline=1.0) == 1


async def test_faults_of_other_actors_pass_through(runtime: Runtime) -> None:
    """R-18."""
    gone = runtime.ref("gone")
    async with runtime.running("a", SampleActor) as a, runtime.running("b", SampleActor) as b:
        for path, kind in (
            ((b, gone), ActorGone),
            ((b, a), AskCycle),
        ):
            for _ in range(10):
                with pytest.raises(kind):
                    await a.ask(Forward(path), deadline=5.0)
        with pytest.raises(NotHandled):
            await a.ask(Pay(Refused), deadline=1.0)
        assert await a.ask(AddNumber(1), deadline=1.0) == 1


async def test_fault_of_a_told_message_is_logged_and_counted(
    runtime: Runtime, log: LogBook
) -> None:
    """R-18: the 1st, 2nd, 4th of an actor."""
    async with (
        runtime.running("store", SampleActor) as store,
        runtime.running("middle", lambda: AskingRelay(store)) as middle,
    ):
        for number in range(4):
            middle.tell(DiaryNote(number))
        await trio.sleep(60)
        assert (await middle.inspect()).actor.passed_on == 4
    lines = log.named("passed_on")
    assert [line["count"] for line in lines] == [1, 2, 4]
    assert lines[0]["actor"] == "middle"
    assert lines[0]["message_type"] == "DiaryNote"
    assert "store" in str(lines[0]["error"])
    assert log.named("actor_failed") == []


async def test_fault_fails_an_actor_that_wants_it(runtime: Runtime) -> None:
    """R-18."""
    pool = KeyedPool(runtime, "p", lambda key: Strict(runtime.ref("gone")))
    assert await pool["k"].ask(AddNumber(1), deadline=1.0) == 1
    with pytest.raises(ActorFailed, match="ActorGone"):
        await pool["k"].ask(Nap(1.0), deadline=5.0)
    assert await pool["k"].ask(AddNumber(1), deadline=1.0) == 1


async def test_fault_settles_a_reply_that_the_same_handler_kept(runtime: Runtime) -> None:
    """R-18."""

    class KeepingPayer(SampleActor):
        @handles(Pay)
        async def pay(self, message: Pay) -> int:
            self.context.keep_reply()
            return await runtime.ref("gone").ask(Nap(1.0), deadline=1.0)

    async with runtime.running("a", KeepingPayer) as ref:
        with pytest.raises(ActorGone, match="'gone'"):
            await ref.ask(Pay(Refused), deadline=5.0)
        assert (await ref.inspect()).pending == 0


async def test_second_answer_is_still_a_failure(runtime: Runtime) -> None:
    """R-43: it is a defect of the actor, no fault of another one."""

    class AnswersTwice(SampleActor):
        @handles(Pay)
        def pay(self, message: Pay) -> PendingReply[int]:
            reply: PendingReply[int] = self.context.keep_reply()
            reply.answer(1)
            reply.answer(2)
            return reply

    pool = KeyedPool(runtime, "p", lambda key: AnswersTwice())
    assert await pool["k"].ask(Pay(Refused), deadline=5.0) == 1
    assert runtime.snapshot().tree[0].failed == 1
