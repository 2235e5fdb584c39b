"""Traces of the service: where each operation stands in its trace, and how it is passed on.

Without `ops.traceContext` nothing of this runs. With it, a `Tracer` makes the contexts of traces;
one that also records its spans is made by `supervisors.service.telemetry`. Rules: B-421 to B-429.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from fw_actors.rules.trace_context import (
    ID_BYTES,
    PARENT_BYTES,
    TraceContext,
    new_context,
    new_parent_id,
)
from fw_actors.runtime import Entropy
from fw_actors.runtime.tracing import TraceHooks

T = TypeVar("T")

CURRENT_TRACE: Final[ContextVar[TraceContext | None]] = ContextVar("current trace", default=None)
"""Where the present task, or transaction, stands in its trace."""


@contextmanager
def in_trace(context: TraceContext | None) -> Iterator[None]:
    """Stand there while the block runs, in this task or thread."""
    token = CURRENT_TRACE.set(context)
    try:
        yield
    finally:
        CURRENT_TRACE.reset(token)


class Span:
    """One operation of a trace. This one is not recorded."""

    __slots__ = ("context",)

    is_recorded = False
    """Whether it is worth the while to note anything."""

    def __init__(self, context: TraceContext) -> None:
        self.context = context
        """The context of what the operation begins."""

    def note(self, attributes: Mapping[str, str | int | float | bool]) -> None:
        """Add attributes, which must hold no secret."""

    def event(self, name: str) -> None:
        """Note a moment."""

    def end(self, error: str = "") -> None:
        """End it, with the kind of its error; a second time does nothing."""


class Tracer:
    """Makes the contexts of operations, and records none of them."""

    hooks: TraceHooks | None = None
    """The hooks of the runtime by which messages become spans."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._begun: WeakKeyDictionary[Any, TraceContext] = WeakKeyDictionary()

    def server(self, name: str, parent: TraceContext | None) -> Span:
        """Begin a request that came in, with the context that it came with."""
        return Span(parent or self.root())

    def client(self, name: str, parent: TraceContext) -> Span:
        """Begin a request to another system, which gets the context of the span."""
        return Span(parent.followed_by(new_parent_id(self._entropy.bytes(PARENT_BYTES))))

    def consumer(self, name: str, parent: TraceContext) -> Span:
        """Begin what another operation has queued, with the context that was stored with it."""
        return Span(parent)

    def transaction_span(self, name: str) -> Span | None:
        """Begin a transaction of the present operation; None if it is not recorded."""
        return None

    def root(self) -> TraceContext:
        """Return the beginning of a trace of what no request has caused."""
        return new_context(self._entropy.bytes(ID_BYTES + PARENT_BYTES))

    def context_of(self, tx: Any) -> TraceContext:
        """Return where the present transaction stands; one that no request caused begins a trace,
        which is that of all that it records (B-423)."""
        context = CURRENT_TRACE.get() or self._begun.get(tx)
        if context is None:
            context = self._begun[tx] = self.root()
        return context

    async def transaction(
        self,
        name: str,
        execute: Callable[[Callable[[Any], T]], Awaitable[T]],
        fn: Callable[[Any], T],
    ) -> T:
        """Return what `execute(fn)` returns; `fn` stands where its caller stands in the trace."""
        caller = CURRENT_TRACE.get()
        if caller is None:
            return await execute(fn)
        span = self.transaction_span(name)
        context = caller if span is None else span.context

        def work(tx: Any) -> T:
            if span is not None:
                span.event("begun")  # until then it has waited for its turn
            with in_trace(context):
                return fn(tx)

        try:
            result = await execute(work)
        except BaseException as error:
            if span is not None:
                span.end(type(error).__name__)
            raise
        if span is not None:
            span.end()
        return result
