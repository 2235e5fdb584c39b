"""Hooks for tracing: when each message was queued, begun and ended, and which message caused it.

Without hooks none of this code runs: only a runtime with hooks gives its actors the mailboxes and
handler tables of this module. Every message then travels as a `PendingReply` with context
variables, as with `open_runtime(carry=...)`. One of them is the message's own trace, so that
messages sent by its handler and its work know their cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from enum import Enum
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol

from fw_actors.runtime.errors import ActorError, passed_on
from fw_actors.runtime.mailbox import Feed, Item, Mailbox
from fw_actors.runtime.messages import GIVEN_UP, Handler, HandlerTable, Message
from fw_actors.runtime.reply import PendingReply

if TYPE_CHECKING:
    from fw_actors.runtime.actor import Actor
    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.system import Runtime


class TraceOutcome(Enum):
    """The ways in which the handling of a message ends."""

    HANDLED = "the handler returned"
    KEPT = "the handler returned, and will answer later"
    REFUSED = "the handler refused"
    PASSED_ON = "an error of the runtime went through the handler"
    FAILED = "the handler failed, and its instance with it"
    CANCELLED = "the handler was cancelled"


class MessageTrace:
    """The trace of one message. It has types and names, never the contents of a message."""

    __slots__ = (
        "actor",
        "begun_at",
        "data",
        "handled_seconds",
        "message_type",
        "number",
        "parent",
        "queued_at",
        "queued_seconds",
    )

    def __init__(
        self, number: int, actor: str, message_type: str, parent: int, queued_at: float
    ) -> None:
        self.number = number
        """Counts the messages of a runtime, from 1."""
        self.actor = actor
        """The name of the actor, or of the worker pool."""
        self.message_type = message_type
        self.parent = parent
        """The number of the message whose handler or work has sent it; 0 if none has."""
        self.queued_at = self.begun_at = queued_at
        """Times on trio's clock."""
        self.queued_seconds = 0.0
        """The seconds from the call that sent it to its handler, including the wait for room."""
        self.handled_seconds = 0.0
        self.data: Any = None
        """For the hooks; the runtime does not use it."""


class TraceHooks(Protocol):
    """Hooks for each message. An error of a hook is logged, and ends the tracing."""

    def enqueued(self, message: MessageTrace, parent: MessageTrace | None) -> None:
        """React to a message that was put into a mailbox; called in the sender's task.

        `parent` is the message whose handler or work has sent it.
        """

    def begun(self, message: MessageTrace) -> None:
        """React to the start of its handler; called in the handler's task and context.

        Not called for a message that is dropped, or whose asker stopped waiting before.
        """

    def ended(
        self, message: MessageTrace, outcome: TraceOutcome, error: BaseException | None
    ) -> None:
        """React to the end of its handler; called in the same task and context as `begun`."""


CURRENT_MESSAGE: Final[ContextVar[MessageTrace | None]] = ContextVar(
    "current message", default=None
)
"""The message that this task handles or works for."""


class Tracing:
    """The hooks of one runtime."""

    def __init__(self, runtime: Runtime, hooks: TraceHooks) -> None:
        self._runtime = runtime
        self._hooks: TraceHooks | None = hooks
        self._now = runtime.deadlines.now
        self._next_number = count(1).__next__

    def envelope(self, cell: ActorCell, item: Item) -> tuple[PendingReply[Any], MessageTrace]:
        """Return the item as a reply that has a new trace, and that trace."""
        reply = item if isinstance(item, PendingReply) else PendingReply(cell, item, sent=True)
        parent = CURRENT_MESSAGE.get()
        trace = self._trace(cell.name, reply.message, parent)
        others = tuple(pair for pair in reply.carried or () if pair[0] is not CURRENT_MESSAGE)
        reply.carried = (*others, (CURRENT_MESSAGE, trace))
        return reply, trace

    def enqueued(self, trace: MessageTrace) -> None:
        """Call the hook; in the sender's task."""
        if self._hooks is not None:
            self._call(self._hooks.enqueued, trace, CURRENT_MESSAGE.get())

    def instrument(self, actor: Actor, cell: ActorCell) -> None:
        """Make the handlers of this instance, in all its phases, call the hooks."""
        setattr(actor, "handlers", TracedHandlers(self, cell, actor.handlers))  # noqa: B010

    def begin(self, cell: ActorCell, message: Message) -> MessageTrace:
        """Return the trace of the message that is about to be handled, and call the hook."""
        trace = CURRENT_MESSAGE.get()
        if trace is None:  # from finished work, a timer or a watch: it was in no mailbox
            parent = cause_of(cell.serves)
            trace = self._trace(cell.name, message, parent)
            if self._hooks is not None:
                self._call(self._hooks.enqueued, trace, parent)
        trace.begun_at = self._now()
        trace.queued_seconds = trace.begun_at - trace.queued_at
        if self._hooks is not None:
            self._call(self._hooks.begun, trace)
        return trace

    def end(
        self, actor: Actor, trace: MessageTrace, result: object, error: BaseException | None
    ) -> None:
        """Call the hook for the end of a handler."""
        trace.handled_seconds = self._now() - trace.begun_at
        if self._hooks is not None:
            self._call(self._hooks.ended, trace, outcome_of(actor, result, error), error)

    def _trace(self, actor: str, message: Message, parent: MessageTrace | None) -> MessageTrace:
        return MessageTrace(
            self._next_number(),
            actor,
            type(message).__name__,
            0 if parent is None else parent.number,
            self._now(),
        )

    def _call(self, hook: Callable[..., object], *arguments: object) -> None:
        try:
            hook(*arguments)
        except Exception as error:
            self._hooks = None  # a failing hook must not fail an actor
            self._runtime.log.warning(
                "trace_failed", actor="", error=self._runtime.one_line(error), exc_info=error
            )


def cause_of(served: PendingReply[Any] | None) -> MessageTrace | None:
    """Return the trace that a request carries."""
    for variable, value in (served.carried if served is not None else None) or ():
        if variable is CURRENT_MESSAGE:
            trace: MessageTrace = value
            return trace
    return None


def outcome_of(actor: Actor, result: object, error: BaseException | None) -> TraceOutcome:
    """Return the outcome of a handler that returned `result` or raised `error`."""
    if result is GIVEN_UP:
        return TraceOutcome.CANCELLED
    if error is None:
        return TraceOutcome.KEPT if isinstance(result, PendingReply) else TraceOutcome.HANDLED
    if not isinstance(error, Exception):
        return TraceOutcome.CANCELLED
    fault = passed_on(error, actor.faults, actor.refusals)
    if fault is None:
        return TraceOutcome.FAILED
    return TraceOutcome.PASSED_ON if isinstance(fault, ActorError) else TraceOutcome.REFUSED


class TracedMailbox(Mailbox):
    """A mailbox whose messages have traces."""

    __slots__ = ("_cell", "_tracing")

    def __init__(self, tracing: Tracing, cell: ActorCell, capacity: int) -> None:
        super().__init__(capacity)
        self._tracing, self._cell = tracing, cell
        self.put = self._put_traced

    async def put_when_room(self, item: Item) -> None:
        """Wait for room and put the item; it is queued from now on."""
        reply, trace = self._tracing.envelope(self._cell, item)
        self._tracing.enqueued(trace)
        await super().put_when_room(reply)

    def add_feed(self, feed: Feed) -> None:
        """Take the items of a feed, too."""
        super().add_feed(feed)
        self.put = self._put_traced

    def remove_feed(self, feed: Feed) -> None:
        """Forget a feed."""
        super().remove_feed(feed)
        self.put = self._put_traced

    def _put_traced(self, item: Item) -> None:
        reply, trace = self._tracing.envelope(self._cell, item)
        self._put_noting(reply)
        self._tracing.enqueued(trace)


class TracedCall:
    """The call of one handler: sets the current trace, and calls the hooks at the end."""

    __slots__ = ("_actor", "_token", "_trace", "_tracing", "result")

    def __init__(self, tracing: Tracing, cell: ActorCell, actor: Actor, message: Message) -> None:
        self._tracing, self._actor = tracing, actor
        self._trace = tracing.begin(cell, message)
        self._token = CURRENT_MESSAGE.set(self._trace)
        self.result: Any = None

    def __enter__(self) -> TracedCall:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._tracing.end(self._actor, self._trace, self.result, error)
        CURRENT_MESSAGE.reset(self._token)


class TracedHandlers(Mapping[type[Message], Handler]):
    """The handlers of one instance, each of which calls the hooks; created on demand.

    `handlers` is the table of the current phase, which `enter` changes.
    """

    def __init__(self, tracing: Tracing, cell: ActorCell, handlers: HandlerTable) -> None:
        self._tracing, self._cell, self._handlers = tracing, cell, handlers
        self._traced: dict[Handler, Handler] = {}

    def __getitem__(self, kind: type[Message]) -> Handler:
        handler = self._handlers[kind]
        traced = self._traced.get(handler)
        if traced is None:
            wrapped = self._awaited if handler.is_async else self._plain
            traced = Handler(wrapped(handler.function), handler.is_async)
            self._traced[handler] = traced
        return traced

    def __iter__(self) -> Iterator[type[Message]]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)

    def _plain(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        @wraps(function)
        def traced(actor: Actor, message: Message) -> Any:
            with TracedCall(self._tracing, self._cell, actor, message) as call:
                call.result = function(actor, message)
            return call.result

        return traced

    def _awaited(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        @wraps(function)
        async def traced(actor: Actor, message: Message) -> Any:
            with TracedCall(self._tracing, self._cell, actor, message) as call:
                call.result = await function(actor, message)
            return call.result

        return traced
