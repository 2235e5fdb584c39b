"""Message classes, and the table that maps message types to the handlers of an actor class."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, overload

import msgspec

if TYPE_CHECKING:
    from fw_actors.runtime.reply import PendingReply

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
ActorT = TypeVar("ActorT")

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


RequestT = TypeVar("RequestT", bound=Request[Any])
RequestT_co = TypeVar("RequestT_co", bound=Request[Any], covariant=True)
MessageT = TypeVar("MessageT", bound=Message)
MessageT_co = TypeVar("MessageT_co", bound=Message, covariant=True)


class Answers(Generic[RequestT_co]):
    """Marks a method as the handler of a request, which returns the answer.

    One that answers later returns its `context.keep_reply()`.
    """

    def __init__(self, kind: type[RequestT_co]) -> None:
        self._kind = kind

    def __call__(
        self: Answers[Request[R]],
        handler: Callable[
            [ActorT, RequestT_co],
            R | PendingReply[R] | Coroutine[Any, Any, R | PendingReply[R]],
        ],
    ) -> Callable[[ActorT, RequestT_co], Any]:
        """Mark the method and return it."""
        setattr(handler, MARK, self._kind)
        return handler


class Takes(Generic[MessageT_co]):
    """Marks a method as the handler of a plain message, which returns nothing."""

    def __init__(self, kind: type[MessageT_co]) -> None:
        self._kind = kind

    def __call__(
        self, handler: Callable[[ActorT, MessageT_co], Coroutine[Any, Any, None] | None]
    ) -> Callable[[ActorT, MessageT_co], Any]:
        """Mark the method and return it."""
        setattr(handler, MARK, self._kind)
        return handler


@overload
def handles(kind: type[RequestT]) -> Answers[RequestT]: ...  # type: ignore[overload-overlap]


@overload
def handles(kind: type[MessageT]) -> Takes[MessageT]: ...


def handles(kind: Any) -> Answers[Any] | Takes[Any]:
    """Mark a method as the handler for messages of exactly the type `kind`.

    A type checker compares what it returns with the answer of the request.
    Raises TypeError if `kind` is not a subclass of `Message`.
    """
    if not isinstance(kind, type):
        name = getattr(kind, "__name__", repr(kind))
        raise TypeError(f"@handles takes a type in brackets: @handles(MessageType) above {name}")
    if not issubclass(kind, Message):
        raise TypeError(f"@handles takes a Message class, not {kind!r}")
    return Answers(kind) if issubclass(kind, Request) else Takes(kind)


def handler_table(cls: type) -> HandlerTable:
    """Return the handlers of a class and its bases; called once, when the class is created.

    A method that overrides a handler handles the same message, whether marked again or not.
    Raises TypeError if two methods handle the same message, or one cannot be a handler.
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
    for function in functions.values():
        _check_handler(function)
    return {kind: Handler(fn, inspect.iscoroutinefunction(fn)) for kind, fn in functions.items()}


def _check_handler(function: Callable[..., Any]) -> None:
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{name} is a generator: a handler returns its answer")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise TypeError(f"{name} must take one message: def name(self, message)") from None


PLAIN_RESULTS: Final[set[type]] = {type(None), bool, int, float, str}
"""Types of results that `check_result` has found good: to check each result costs a twentieth."""
MAX_PLAIN_RESULTS: Final = 1024


def check_result(function: Callable[[Any, Any], Any], result: object) -> None:
    """Raise TypeError if a handler that is no coroutine function returned something to await."""
    if hasattr(result, "__await__") or isinstance(result, AsyncGenerator | Generator):
        if isinstance(result, Coroutine | Generator):
            result.close()  # else Python warns of it, later and elsewhere
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"{name} returned a {type(result).__name__}: "
            "@handles must be the outermost decorator of an `async def`"
        )
    if len(PLAIN_RESULTS) < MAX_PLAIN_RESULTS:
        PLAIN_RESULTS.add(type(result))
