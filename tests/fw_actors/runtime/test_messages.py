"""Messages and handler tables."""

from __future__ import annotations

import pytest

from fw_actors.runtime import Actor, Message, handles
from fw_actors.runtime.messages import handler_table


class Ping(Message, frozen=True):
    n: int


class Base(Actor):
    @handles(Ping)
    def ping(self, message: Ping) -> str:
        return "base"


class Child(Base):
    async def ping(self, message: Ping) -> str:  # type: ignore[override]
        return "child"


def test_message_is_immutable() -> None:
    with pytest.raises(AttributeError):
        Ping(1).n = 2  # type: ignore[misc]


def test_handler_override_handles_the_same_message() -> None:
    assert Base.handlers[Ping].is_async is False
    assert Child.handlers[Ping].is_async is True
    assert Child.handlers[Ping].function is Child.ping


def test_handler_table_rejects_two_handlers_for_one_message() -> None:
    class Twice:
        @handles(Ping)
        def one(self, message: Ping) -> None: ...

        @handles(Ping)
        def two(self, message: Ping) -> None: ...

    with pytest.raises(TypeError, match="Twice: one and two both handle Ping"):
        handler_table(Twice)


def test_handles_rejects_other_types() -> None:
    with pytest.raises(TypeError, match="takes a Message class"):
        handles(int)  # type: ignore[type-var]
