"""Trace contexts of the service: reading, storing and passing them on.

The contexts are those of the W3C recommendation Trace Context, which has them in two headers.
`traceparent` names the trace and the caller's operation, `tracestate` is a list that belongs to
the tracing systems on the way. An invalid `traceparent` is ignored together with `tracestate`; an
invalid `tracestate` is ignored alone. Valid values are passed on unchanged.

Without `ops.traceContext` nothing of this runs. With it, a `Tracer` makes the contexts of traces;
one that also records its spans is made by `supervisors.service.telemetry`. Rules: B-421 to B-429.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from fw_actors.runtime import Entropy
from fw_actors.runtime.tracing import TraceHooks

T = TypeVar("T")

ID_BYTES: Final = 16
PARENT_BYTES: Final = 8
MAX_STATE_CHARACTERS: Final = 512
"""Characters; a longer tracestate is dropped whole."""
MAX_MEMBERS: Final = 32

_SAMPLED: Final = 0x01
_RANDOM: Final = 0x02  # of level 2: the trace-id is random
_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MAX_PARENT_CHARACTERS: Final = 512  # of a later version
_MEMBER: Final = re.compile(
    r"([a-z0-9][a-z0-9_\-*/@]{0,255})="
    r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_BLANKS: Final = " \t"

TraceHeaders = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A position in a trace: its id, the id of the parent of the following operations, the flags,
    and the list `tracestate`.
    """

    trace_id: str
    parent_id: str
    flags: int = 0
    state: str = ""

    @property
    def is_sampled(self) -> bool:
        """Whether the operations before this one may have been recorded."""
        return bool(self.flags & _SAMPLED)

    @property
    def parent(self) -> str:
        """The value of `traceparent`."""
        return f"00-{self.trace_id}-{self.parent_id}-{self.flags:02x}"

    @property
    def headers(self) -> TraceHeaders:
        """The headers of a request."""
        parent = (b"traceparent", self.parent.encode())
        return (parent, (b"tracestate", self.state.encode())) if self.state else (parent,)

    def followed_by(self, parent_id: str) -> TraceContext:
        """Return the context for the operations that the operation with this id begins."""
        return replace(self, parent_id=parent_id)


def read_context(parents: Sequence[str], states: Sequence[str] = ()) -> TraceContext | None:
    """Return the context that came with a request; None without a valid `traceparent`.

    Args:
        parents: the values of all headers `traceparent`; more than one are ignored.
        states: the values of all headers `tracestate`, which are one list.
    """
    if len(parents) != 1:
        return None
    text = parents[0].strip(_BLANKS)
    match = _PARENT.fullmatch(text) if len(text) <= _MAX_PARENT_CHARACTERS else None
    if match is None:
        return None
    version, trace_id, parent_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    if not (int(trace_id, 16) and int(parent_id, 16)):
        return None
    known = _SAMPLED | _RANDOM if version == "00" else _SAMPLED
    return TraceContext(trace_id, parent_id, int(flags, 16) & known, _state(states))


def _state(lines: Sequence[str]) -> str:
    """Return a valid list as one text, else nothing."""
    text = ",".join(line.strip(_BLANKS) for line in lines).strip(_BLANKS)
    if len(text) > MAX_STATE_CHARACTERS:
        return ""
    members = [part.strip(_BLANKS) for part in text.split(",")]
    matches = [_MEMBER.fullmatch(member) for member in members if member]
    keys = {match[1] for match in matches if match is not None}
    if not keys or len(members) > MAX_MEMBERS or len(keys) < len(matches):
        return ""  # empty, too long, not valid, or with a key twice
    return text


def new_context(random: bytes) -> TraceContext:
    """Return the beginning of a trace, made of 24 random bytes; nothing of it was recorded."""
    text = random.hex()
    at = 2 * ID_BYTES
    return TraceContext(_not_zero(text[:at]), _not_zero(text[at:]))


def new_parent_id(random: bytes) -> str:
    """Return the id of an operation, made of 8 random bytes."""
    return _not_zero(random.hex())


def _not_zero(digits: str) -> str:
    return digits if int(digits, 16) else f"{digits[:-1]}1"


def encode_context(context: TraceContext) -> str:
    """Return a context as it is stored."""
    return f"{context.parent} {context.state}" if context.state else context.parent


def decode_context(text: str | None) -> TraceContext | None:
    """Return a stored context; None if there is none, or raw SQL damaged it."""
    if not text:
        return None
    parent, _, state = text.partition(" ")
    return read_context([parent], [state])


CURRENT_TRACE: Final[ContextVar[TraceContext | None]] = ContextVar("current trace", default=None)
"""The trace context of the current task or transaction."""


@contextmanager
def in_trace(context: TraceContext | None) -> Iterator[None]:
    """Set the current trace context for the block."""
    token = CURRENT_TRACE.set(context)
    try:
        yield
    finally:
        CURRENT_TRACE.reset(token)


class Span:
    """One operation of a trace. This one is not recorded."""

    __slots__ = ("context",)

    is_recorded = False
    """Whether attributes are recorded."""

    def __init__(self, context: TraceContext) -> None:
        self.context = context
        """The context for the operations that this one begins."""

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
        """Begin a queued operation, with the context that was stored with it."""
        return Span(parent)

    def transaction_span(self, name: str) -> Span | None:
        """Begin a transaction of the present operation; None if it is not recorded."""
        return None

    def root(self) -> TraceContext:
        """Return the beginning of a trace of an operation that no request has caused."""
        return new_context(self._entropy.bytes(ID_BYTES + PARENT_BYTES))

    def context_of(self, tx: Any) -> TraceContext:
        """Return the trace context of the transaction; without a request, begin a trace for all
        that it records (B-423).
        """
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
        """Return the result of `execute(fn)`; `fn` has the trace context of its caller."""
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
