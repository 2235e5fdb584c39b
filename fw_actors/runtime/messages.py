"""What actors are told and asked: frozen structs, and the table of a class's handlers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

R_co = TypeVar("R_co", covariant=True)
MessageT = TypeVar("MessageT", bound="Message")
ActorT = TypeVar("ActorT")
ResultT = TypeVar("ResultT")

MARK: Final = "__handles__"


class Message(msgspec.Struct, frozen=True):
    """A note to an actor. Subclass with `frozen=True`; fields are immutable values."""


class Request(Message, Generic[R_co], frozen=True):
    """A question to an actor; `ask` returns an `R`. Subclass as `Request[R], frozen=True`."""


class Handler(NamedTuple):
    """One entry of a handler table: the plain function, and whether it has to be awaited."""

    function: Callable[[Any, Any], Any]
    is_async: bool


HandlerTable = Mapping[type[Message], Handler]


def handles(
    kind: type[MessageT],
) -> Callable[[Callable[[ActorT, MessageT], ResultT]], Callable[[ActorT, MessageT], ResultT]]:
    """Mark a method as the handler for messages of exactly the type `kind`.

    Raises TypeError when `kind` isn't a `Message`.
    """
    if not issubclass(kind, Message):
        raise TypeError(f"@handles takes a Message class, not {kind!r}")

    def mark(
        handler: Callable[[ActorT, MessageT], ResultT],
    ) -> Callable[[ActorT, MessageT], ResultT]:
        setattr(handler, MARK, kind)
        return handler

    return mark


def handler_table(cls: type) -> HandlerTable:
    """Collect the handlers of a class and of its bases. Built once, when the class is made.

    A method that overrides a handler handles the same message, marked again or not.
    Raises TypeError when two methods handle one message.
    """
    names: dict[type[Message], str] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            kind = getattr(member, MARK, None)
            if kind is None:
                continue
            if names.setdefault(kind, name) != name:
                raise TypeError(
                    f"{cls.__name__}: {names[kind]} and {name} both handle {kind.__name__}"
                )
    functions = {kind: getattr(cls, name) for kind, name in names.items()}
    return {kind: Handler(fn, inspect.iscoroutinefunction(fn)) for kind, fn in functions.items()}
