"""Messages and handler tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

from fw_actors.runtime import (
    Actor,
    ActorFailed,
    AskTimeout,
    KeyedActor,
    KeyedPool,
    Message,
    Request,
    Runtime,
    handles,
)
from fw_actors.runtime.messages import handler_tables


class PingRequest(Request[str], frozen=True):
    n: int


class Pong(Request[str], frozen=True):
    pass


class PingBase(Actor):
    @handles(PingRequest)
    def ping(self, message: PingRequest) -> str:
        return "base"


class PingOverride(PingBase):
    async def ping(self, message: PingRequest) -> str:
        return "child"


def test_message_is_immutable() -> None:
    with pytest.raises(AttributeError):
        PingRequest(1).n = 2  # type: ignore[misc]


def test_handler_override_handles_the_same_message() -> None:
    assert PingBase.handlers[PingRequest].is_async is False
    assert PingOverride.handlers[PingRequest].is_async is True
    assert PingOverride.handlers[PingRequest].function is PingOverride.ping


def test_handler_table_rejects_two_handlers_for_one_message() -> None:
    class TwoPingHandlers:
        @handles(PingRequest)
        def one(self, message: PingRequest) -> str: ...  # type: ignore[empty-body]

        @handles(PingRequest)
        def two(self, message: PingRequest) -> str: ...  # type: ignore[empty-body]

    with pytest.raises(TypeError, match="TwoPingHandlers: one and two both handle PingRequest"):
        handler_tables(TwoPingHandlers, None)[0]


def test_handles_rejects_other_types() -> None:
    with pytest.raises(TypeError, match="takes a Message class"):
        handles(int)  # type: ignore[type-var]


def test_handles_without_brackets_is_refused() -> None:
    """R-21."""
    with pytest.raises(TypeError, match=r"@handles takes a type in brackets: .* above ping"):

        class Bare(Actor):
            @handles  # type: ignore[call-overload]
            def ping(self, message: PingRequest) -> str:
                return "pong"


def test_handler_without_a_parameter_is_refused_with_its_class() -> None:
    """R-21."""
    with pytest.raises(TypeError, match=r"HandlerWithoutParameter\.ping must take one message"):

        class HandlerWithoutParameter(Actor):
            @handles(PingRequest)  # type: ignore[arg-type]
            def ping(self) -> str:
                return "pong"


def test_handler_that_yields_is_refused_with_its_class() -> None:
    """R-21."""
    with pytest.raises(TypeError, match=r"Yields\.ping is a generator"):

        class Yields(Actor):
            @handles(PingRequest)  # type: ignore[arg-type]
            async def ping(self, message: PingRequest) -> AsyncIterator[str]:
                yield "pong"


def plain(handler: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that hides that a function is a coroutine function."""

    def wrapper(*args: Any) -> Any:
        return handler(*args)

    return wrapper


class HiddenCoroutine(Actor):
    @handles(PingRequest)
    @plain
    async def ping(self, message: PingRequest) -> str:
        return "pong"

    @handles(Pong)
    @plain
    async def pong(self, message: Pong) -> AsyncIterator[str]:
        yield "pong"


@pytest.mark.parametrize("message", [PingRequest(1), Pong()])
async def test_handler_whose_result_is_to_be_awaited_fails_the_question(
    runtime: Runtime, message: Request[str]
) -> None:
    """R-22."""
    pool = KeyedPool(runtime, "pool", lambda _: HiddenCoroutine())
    with pytest.raises(ActorFailed, match="@handles must be the outermost decorator"):
        await pool["a"].ask(message, deadline=1.0)


class Locker(KeyedActor):
    @handles(PingRequest)
    def ping(self, message: PingRequest) -> str:
        return self.context.key.upper()


async def test_actor_of_a_pool_has_its_key_as_a_text(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "pool", lambda _: Locker())
    assert await pool["ann"].ask(PingRequest(1), deadline=1.0) == "ANN"


async def test_actor_of_a_pool_is_refused_elsewhere(runtime: Runtime) -> None:
    with pytest.raises(ActorFailed, match="Locker is a KeyedActor: it can only run in a KeyedPool"):
        async with runtime.running("a", Locker):
            raise AssertionError("runs")


async def test_ref_of_a_class_is_the_ref_of_the_name(runtime: Runtime) -> None:
    assert runtime.ref("a", of=PingBase) == runtime.ref("a")


def test_handler_that_cannot_give_up_is_refused() -> None:
    """R-142: a plain message has no asker, and a plain function cannot be cut."""
    with pytest.raises(TypeError, match="Message is not a Request"):
        handles(Message, give_up=True)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="must be an `async def`"):

        class Hasty(Actor):
            @handles(Pong, give_up=True)
            def asked(self, message: Pong) -> str:
                return ""


async def test_handler_that_overrides_one_that_gives_up_does_so_too(runtime: Runtime) -> None:
    """R-142."""

    class GivingUp(Actor):
        @handles(Pong, give_up=True)
        async def asked(self, message: Pong) -> str:
            return ""

    class GivingUpOverride(GivingUp):
        async def asked(self, message: Pong) -> str:
            await trio.sleep(60)
            return ""

    async with runtime.running("a", GivingUpOverride) as ref:
        for _ in range(2):
            with pytest.raises(AskTimeout):
                await ref.ask(Pong(), deadline=1.0)
        assert (await ref.inspect()).actor.cancelled == 0
        assert (await ref.inspect()).actor.handled == 2
