"""Context variables: none leaks from actor to actor, and listed ones travel."""

from __future__ import annotations

import decimal
from collections.abc import AsyncIterator
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
import trio
import trio.lowlevel

from fw_actors.runtime import (
    Actor,
    DeadLetterReason,
    KeyedPool,
    MailboxPolicy,
    Message,
    Overflow,
    PendingReply,
    Ref,
    Request,
    Runtime,
    SeededEntropy,
    TrioClock,
    handles,
    open_runtime,
)
from supervisors import DynamicSupervisor, actor_child, dynamic_child, open_supervisor
from tests.fw_actors.runtime.sample_actors import Finished

USER: ContextVar[str] = ContextVar("user", default="nobody")
REQUEST: ContextVar[str] = ContextVar("request", default="none")
PRECISION = 28


class Become(Request[str], frozen=True):
    """Sets the variable, and is answered with its value before."""

    user: str


class Round(Request[int], frozen=True):
    """Sets the precision of decimals, and is answered with the one before."""

    digits: int


class SayRequest(Request[str], frozen=True):
    """Answered with the request's variable, through a further actor if there is one."""

    through: tuple[Ref, ...] = ()


class SayByWork(Request[str], frozen=True):
    pass


class Show(Message, frozen=True):
    pass


class VariableSetter(Actor):
    def __init__(self, diary: list[str] | None = None) -> None:
        USER.set("constructor")
        self.diary = diary if diary is not None else []
        self.kept: list[PendingReply[Any]] = []

    @handles(Become)
    async def become(self, message: Become) -> str:
        before = USER.get()
        USER.set(message.user)
        await trio.lowlevel.checkpoint()
        return before

    @handles(Round)
    def round(self, message: Round) -> int:
        before = decimal.getcontext().prec
        decimal.getcontext().prec = message.digits
        return before

    @handles(SayRequest)
    async def say(self, message: SayRequest) -> str:
        if message.through:
            return await message.through[0].ask(SayRequest(message.through[1:]), deadline=5.0)
        return REQUEST.get()

    @handles(SayByWork)
    def say_by_work(self, message: SayByWork) -> PendingReply[str]:
        reply = self.context.keep_reply()
        self.kept.append(reply)
        self.context.work(self._say, then=Finished)
        return reply

    async def _say(self) -> str:
        return REQUEST.get()

    @handles(Finished)
    def finished(self, message: Finished) -> None:
        self.kept.pop().answer(message.outcome.unwrap())

    @handles(Show)
    def show(self, message: Show) -> None:
        self.diary.append(REQUEST.get())


class Dropping(VariableSetter):
    mailbox = MailboxPolicy(capacity=1, overflow=Overflow.DROP_OLDEST)


async def test_variable_set_for_one_key_is_not_seen_by_another(runtime: Runtime) -> None:
    """R-19."""
    pool = KeyedPool(runtime, "p", lambda key: VariableSetter())
    for number in range(20):
        assert await pool[str(number)].ask(Become(f"user {number}"), deadline=1.0) == "nobody"
    assert USER.get() == "nobody"
    await pool.close()


@pytest.mark.parametrize("used_before", [False, True])
async def test_precision_set_for_one_key_is_not_seen_by_another(
    log: Any, used_before: bool
) -> None:
    """R-19: also if the program had used decimals before it opened the runtime."""
    clock, entropy = TrioClock(0), SeededEntropy(1)
    found: list[int] = []

    async def use() -> None:
        nonlocal found
        if used_before:
            decimal.getcontext()
        async with open_runtime(clock=clock, entropy=entropy, log=log) as runtime:
            pool = KeyedPool(runtime, "p", lambda key: VariableSetter())
            found += [await pool[str(n)].ask(Round(n), deadline=1.0) for n in range(3, 8)]
            for digits in range(3, 8):
                async with runtime.running("single", VariableSetter) as ref:
                    found.append(await ref.ask(Round(digits), deadline=1.0))
            await pool.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
    assert found == [PRECISION] * 10
    assert decimal.getcontext().prec == PRECISION


async def test_precision_set_by_a_constructor_is_hidden_from_senders(runtime: Runtime) -> None:
    """R-19: it runs in the task that sends the first message of a key."""

    class Rounded(VariableSetter):
        def __init__(self, digits: int) -> None:
            super().__init__()
            decimal.getcontext().prec = digits

    decimal.getcontext()
    pool = KeyedPool(runtime, "p", lambda key: Rounded(int(key)))
    for digits in range(3, 8):
        assert await pool[str(digits)].ask(Round(digits), deadline=1.0) == PRECISION
        assert decimal.getcontext().prec == PRECISION
    await pool.close()


async def test_variable_set_by_a_handler_is_hidden_from_children(
    runtime: Runtime,
) -> None:
    """R-19."""
    children = DynamicSupervisor("children")

    class StartingSetter(VariableSetter):
        @handles(Become)
        async def become(self, message: Become) -> str:
            USER.set(message.user)
            child = await children.start_child(actor_child("child", VariableSetter))
            return await child.ask(Become("child"), deadline=1.0)

    tree = [dynamic_child(children), actor_child("starting", StartingSetter)]
    async with open_supervisor(runtime, "top", tree):
        before = await runtime.ref("starting").ask(Become("handler"), deadline=1.0)
    assert before == "constructor"  # its own


async def test_variable_set_by_work_is_not_seen_by_other_work(runtime: Runtime) -> None:
    """R-19."""
    seen: list[str] = []

    async def work(user: str) -> None:
        seen.append(USER.get())
        USER.set(user)

    class WorkingSetter(VariableSetter):
        @handles(Become)
        async def become(self, message: Become) -> str:
            for number in range(5):
                self.context.work(work, str(number), then=lambda outcome: Show())
            return ""

    pool = KeyedPool(runtime, "p", lambda key: WorkingSetter())
    await pool["a"].ask(Become("x"), deadline=1.0)
    await pool["b"].ask(Become("x"), deadline=1.0)
    await pool.close()
    assert seen == ["nobody"] * 10


@pytest.fixture
async def carrying() -> AsyncIterator[Runtime]:
    clock, entropy = TrioClock(0), SeededEntropy(1)
    async with open_runtime(clock=clock, entropy=entropy, carry=(REQUEST,)) as runtime:
        yield runtime


async def in_request(name: str, ref: Ref, request: Request[str], answers: dict[str, str]) -> None:
    REQUEST.set(name)
    answers[name] = await ref.ask(request, deadline=5.0)


async def test_listed_variables_travel_with_asks(carrying: Runtime) -> None:
    """R-19: down a chain, each request with its own value, and no value remains."""
    pool = KeyedPool(carrying, "p", lambda key: VariableSetter())
    answers: dict[str, str] = {}
    async with carrying.running("a", VariableSetter) as ref, trio.open_nursery() as nursery:
        for number in range(2):
            request = SayRequest((pool["k"], pool["l"]))
            nursery.start_soon(in_request, f"request {number}", ref, request, answers)
            nursery.start_soon(
                in_request, f"keyed {number}", pool[str(number)], SayRequest(), answers
            )
    assert len(answers) == 4
    assert all(name == answer for name, answer in answers.items())
    assert await pool["k"].ask(SayRequest(), deadline=1.0) == "none"
    assert REQUEST not in copy_context()
    await pool.close()


async def test_listed_variables_travel_with_work(carrying: Runtime) -> None:
    """R-19."""
    answers: dict[str, str] = {}
    async with carrying.running("a", VariableSetter) as ref, trio.open_nursery() as nursery:
        nursery.start_soon(in_request, "one", ref, SayByWork(), answers)
    assert answers == {"one": "one"}


async def test_listed_variables_travel_with_sent_messages(carrying: Runtime) -> None:
    """R-19: a sent message that is not handled is a dead letter."""
    diary: list[str] = []

    async def send(ref: Ref) -> None:
        REQUEST.set("one")
        await ref.send(Show())

    async with carrying.running("a", lambda: Dropping(diary)) as ref:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, ref)
        await ref.ask(SayRequest(), deadline=1.0)
        ref.suspend()
        await ref.send(Show())
        await ref.send(Show())
        ref.resume()
    assert diary == ["one", "none"]
    snapshot = carrying.snapshot()
    assert snapshot.dead_letters[DeadLetterReason.DROPPED] == 1
    assert snapshot.last_dead_letters[0].message == "Show"
    assert snapshot.late_replies == 0
