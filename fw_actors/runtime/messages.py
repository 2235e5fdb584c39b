"""Message classes, and the table that maps message types to the handlers of an actor class.

Also the context variables that travel with a message, from its sender to its handler.
"""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token, copy_context
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, overload

import msgspec

if TYPE_CHECKING:
    from fw_actors.runtime.reply import PendingReply

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
ActorT = TypeVar("ActorT")

MARK: Final = "__handles__"
PHASE_MARK: Final = "__handles_in_phase__"
GIVES_UP_MARK: Final = "__handles_while_wanted__"


class Message(msgspec.Struct, frozen=True):
    """A message to an actor. Subclass with `frozen=True`; fields must be immutable values."""


class Request(Message, Generic[R_co], frozen=True):
    """A message with an answer of type `R`, which `ask` returns. Subclass as `Request[R]`."""


class Handler(NamedTuple):
    """One entry of a handler table: the function, and whether its result must be awaited."""

    function: Callable[[Any, Any], Any]
    is_async: bool


HandlerTable = Mapping[type[Message], Handler]

Carried = tuple[tuple[ContextVar[Any], Any], ...]
"""The variables that travel with one request, with their values."""


RequestT = TypeVar("RequestT", bound=Request[Any])
RequestT_co = TypeVar("RequestT_co", bound=Request[Any], covariant=True)
MessageT = TypeVar("MessageT", bound=Message)
MessageT_co = TypeVar("MessageT_co", bound=Message, covariant=True)


class RequestMark(Generic[RequestT_co]):
    """Marks a method as the handler of a request, which returns the answer.

    A handler that answers later returns `context.keep_reply()`.
    """

    def __init__(self, kind: type[RequestT_co], phase: Enum | None, give_up: bool) -> None:
        self._kind = kind
        self._phase = phase
        self._give_up = give_up

    def __call__(
        self: RequestMark[Request[R]],
        handler: Callable[
            [ActorT, RequestT_co],
            R | PendingReply[R] | Coroutine[Any, Any, R | PendingReply[R]],
        ],
    ) -> Callable[[ActorT, RequestT_co], Any]:
        """Mark the method and return it."""
        setattr(handler, MARK, self._kind)
        setattr(handler, PHASE_MARK, self._phase)
        setattr(handler, GIVES_UP_MARK, self._give_up)
        return handler


class MessageMark(Generic[MessageT_co]):
    """Marks a method as the handler of a plain message, which returns nothing."""

    def __init__(self, kind: type[MessageT_co], phase: Enum | None) -> None:
        self._kind = kind
        self._phase = phase

    def __call__(
        self, handler: Callable[[ActorT, MessageT_co], Coroutine[Any, Any, None] | None]
    ) -> Callable[[ActorT, MessageT_co], Any]:
        """Mark the method and return it."""
        setattr(handler, MARK, self._kind)
        setattr(handler, PHASE_MARK, self._phase)
        return handler


@overload
def handles(  # type: ignore[overload-overlap]
    kind: type[RequestT], *, phase: Enum | None = None, give_up: bool = False
) -> RequestMark[RequestT]: ...


@overload
def handles(kind: type[MessageT], *, phase: Enum | None = None) -> MessageMark[MessageT]: ...


def handles(
    kind: Any, *, phase: Enum | None = None, give_up: bool = False
) -> RequestMark[Any] | MessageMark[Any]:
    """Mark a method as the handler for messages of exactly the type `kind`.

    With a `phase`, a member of the enumeration of the actor's `first_phase`, the handler applies
    only in that phase; in other phases the message is stashed unless another method handles it. A
    type checker compares the return type with the answer of the request. With `give_up`, an async
    handler of a request is cancelled once the asker stops waiting, and the actor continues. Raises
    TypeError if `kind` is not a subclass of `Message`, or `give_up` is not applicable.
    """
    if not isinstance(kind, type):
        name = getattr(kind, "__name__", repr(kind))
        raise TypeError(f"@handles takes a type in brackets: @handles(MessageType) above {name}")
    if not issubclass(kind, Message):
        raise TypeError(f"@handles takes a Message class, not {kind!r}")
    if issubclass(kind, Request):
        return RequestMark(kind, phase, give_up)
    if give_up:
        raise TypeError(f"{kind.__name__} is not a Request, so give_up does not apply")
    return MessageMark(kind, phase)


def handler_tables(
    cls: type, first: Enum | None
) -> tuple[HandlerTable, Mapping[Enum, HandlerTable]]:
    """Return the handlers of a class and its bases for its first phase, and for each phase.

    Called once, when the class is created. A method that overrides a handler handles the same
    message, whether it is marked again or not. Raises TypeError if two methods handle the same
    message, if a method cannot be a handler, or if phases are inconsistent.
    """
    names: dict[tuple[type[Message], Enum | None], str] = {}
    gives_up: dict[str, bool] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            kind = getattr(member, MARK, None)
            if kind is None:
                continue
            slot = kind, getattr(member, PHASE_MARK, None)
            if names.setdefault(slot, name) != name:
                raise TypeError(
                    f"{cls.__name__}: {names[slot]} and {name} both handle {kind.__name__}"
                )
            gives_up[name] = getattr(member, GIVES_UP_MARK, False)
    handlers = {
        slot: _handler(getattr(cls, name), gives_up=gives_up[name]) for slot, name in names.items()
    }
    common = {kind: handler for (kind, phase), handler in handlers.items() if phase is None}
    if first is None and len(common) == len(handlers):
        return common, {}
    for kind, phase in handlers:
        _check_phase(cls, kind, phase, first, common)
    assert first is not None  # or _check_phase has raised
    asides = {kind: Handler(set_aside, is_async=False) for kind, phase in handlers if phase}
    tables = {
        phase: {
            **common,
            **asides,
            **{kind: handler for (kind, of), handler in handlers.items() if of is phase},
        }
        for phase in type(first)
    }
    return tables[first], tables


def _check_phase(
    cls: type,
    kind: type[Message],
    phase: Enum | None,
    first: Enum | None,
    common: Mapping[type[Message], Handler],
) -> None:
    if phase is None:
        return
    if type(phase) is not type(first):
        raise TypeError(
            f"{cls.__name__} handles {kind.__name__} in the phase {phase}, "
            f"so its first_phase must be a {type(phase).__name__}, not {first!r}"
        )
    if kind in common:
        raise TypeError(
            f"{cls.__name__} handles {kind.__name__} in the phase {phase}, and in all phases"
        )


def set_aside(actor: Any, message: Message) -> PendingReply[Any]:
    """Stash a message that another phase handles."""
    kept: PendingReply[Any] = actor.context.stash(message)
    return kept


def _handler(function: Callable[..., Any], *, gives_up: bool) -> Handler:
    _check_handler(function)
    is_async = inspect.iscoroutinefunction(function)
    if not gives_up:
        return Handler(function, is_async)
    if not is_async:
        raise TypeError(f"{function.__qualname__} must be an `async def`, so that it can give up")
    return Handler(giving_up(function), is_async)


GIVEN_UP: Final = object()
"""The result of a handler that was cancelled because of `give_up`."""


def giving_up(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler that cancels `function` once the asker stops waiting."""

    @wraps(function)
    async def handle(actor: Any, message: Message) -> object:
        block: AbstractContextManager[object, bool] = actor.context.while_wanted()
        with block:
            return await function(actor, message)
        return GIVEN_UP

    return handle


def _check_handler(function: Callable[..., Any]) -> None:
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{name} is a generator: a handler returns its answer")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise TypeError(f"{name} must take one message: def name(self, message)") from None


PLAIN_RESULTS: Final[set[type]] = {type(None), bool, int, float, str}
"""Types of results that `check_result` has accepted; checking each result would cost 5 % of a
message."""
MAX_PLAIN_RESULTS: Final = 1024


def check_result(function: Callable[[Any, Any], Any], result: object) -> None:
    """Raise TypeError if a handler that is not a coroutine function returned an awaitable."""
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


def carried_values(variables: Sequence[ContextVar[Any]]) -> Carried:
    """Return the variables that have a value in this task."""
    context = copy_context()
    return tuple((variable, context[variable]) for variable in variables if variable in context)


@contextmanager
def carrying(carried: Carried | None) -> Iterator[None]:
    """Set the variables while the block runs, in this task."""
    tokens: list[tuple[ContextVar[Any], Token[Any]]] = []
    try:
        for variable, value in carried or ():
            tokens.append((variable, variable.set(value)))
        yield
    finally:
        for variable, token in reversed(tokens):
            variable.reset(token)


def carrying_handler(
    carried: Carried, function: Callable[[Any, Any], Any], *, is_async: bool
) -> Callable[[Any, Any], Any]:
    """Return an async handler that runs `function` with the variables set."""

    async def handle(actor: object, message: object) -> object:
        with carrying(carried):
            result = function(actor, message)
            return await result if is_async else result

    return handle
