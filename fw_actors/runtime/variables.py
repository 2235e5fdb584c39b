"""Context variables: none leaks from actor to actor, and listed ones travel with requests.

A worker runs handlers of many actors in one task, so in one context. A variable cannot be unset
again, so a worker whose job has left its context changed ends, and a new one takes over. The
settings of `decimal` are an object in such a variable, and may be changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token, copy_context
from decimal import Context as DecimalContext
from decimal import getcontext, setcontext
from typing import Any, Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def _variable_of_decimal() -> ContextVar[Any]:
    """Return the variable that `decimal` keeps its settings in, which has no public name."""
    context = copy_context()
    context.run(getcontext)  # creates the settings
    found = (variable for variable in context if variable.name == "decimal_context")
    return next(found, ContextVar("absent"))


DECIMAL: Final = _variable_of_decimal()

Carried = tuple[tuple[ContextVar[Any], Any], ...]
"""The variables that travel with one request, with their values."""


def own_decimal_context() -> DecimalContext | None:
    """Give this task decimal settings of its own if it has inherited some; return them."""
    if DECIMAL not in copy_context():
        return None
    setcontext(getcontext().copy())
    return getcontext()


def run_apart(function: Callable[[T], R], argument: T) -> R:
    """Call `function` without leaving a trace in the variables of this task."""
    context = copy_context()
    if DECIMAL in context:
        context.run(own_decimal_context)
    return context.run(function, argument)


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
