"""Message classes, and the table that maps message types to the handlers of an actor class."""

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
    """A message to an actor. Subclass with `frozen=True`; fields must be immutable values."""


class Request(Message, Generic[R_co], frozen=True):
    """A message with an answer of type `R`, which `ask` returns. Subclass as `Request[R]`."""


class Handler(NamedTuple):
    """One entry of a handler table: the function, and whether its result must be awaited."""

    function: Callable[[Any, Any], Any]
    is_async: bool


HandlerTable = Mapping[type[Message], Handler]


def handles(
    kind: type[MessageT],
) -> Callable[[Callable[[ActorT, MessageT], ResultT]], Callable[[ActorT, MessageT], ResultT]]:
    """Mark a method as the handler for messages of exactly the type `kind`.

    Raises TypeError if `kind` is not a subclass of `Message`.
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
    """Return the handlers of a class and its bases; called once, when the class is created.

    A method that overrides a handler handles the same message, whether marked again or not.
    Raises TypeError if two methods handle the same message.
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
