"""Spans of OpenTelemetry, exported over OTLP/HTTP (O-348 to O-354).

The environment variables of OpenTelemetry's specification, such as OTEL_EXPORTER_OTLP_ENDPOINT,
configure the export. The SDK collects spans in a bounded queue, drops those that do not fit, and
exports them in its own thread, so that an unreachable collector delays nothing. OpenTelemetry is
imported only if spans are exported.

A trace that is not sampled costs only the decision and its ids: nothing is recorded, and its
messages and transactions have no spans.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import Token
from typing import TYPE_CHECKING, Any, Final

import trio

from fw_actors import __version__
from fw_actors.config import Config
from fw_actors.runtime import Entropy, Log, MessageTrace, TraceOutcome
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.tracing import CURRENT_TRACE, ID_BYTES, PARENT_BYTES, Span, TraceContext, Tracer

if TYPE_CHECKING:
    from opentelemetry import trace as api
    from opentelemetry.sdk.trace import TracerProvider

FLUSH_SECONDS: Final = 2.0
"""The time that the export of the last spans may take at a stop."""
INSTALL: Final = "pip install 'fw-actors[opentelemetry]'"
SCOPE: Final = "fw"

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL: Final = "http/protobuf"
_ENVIRON: Final = os.environ  # noqa: TID251 - the SDK also reads its variables there
_FLAGS_OF_CALLER: Final = 0x02
_NO_FAULT: Final = frozenset({TraceOutcome.HANDLED, TraceOutcome.KEPT, TraceOutcome.REFUSED})


def is_exporting(environ: Mapping[str, str]) -> bool:
    """Return whether the variables of OpenTelemetry request the export of spans."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return exporter == "otlp" or (not exporter and any(map(environ.get, _ENDPOINTS)))


@asynccontextmanager
async def open_tracer(config: Config, entropy: Entropy, log: Log) -> AsyncIterator[Tracer | None]:
    """Yield the tracer of the service; None without `ops.traceContext`.

    It records spans if the process's environment requests it. A missing library or wrong variable
    is logged as a warning, and the service runs without spans. Leaving the block exports the last
    spans, for at most two seconds.
    """
    if not config.ops.trace_context:
        yield None
        return
    provider = _provider(entropy, log) if is_exporting(_ENVIRON) else None
    if provider is None:
        yield Tracer(entropy)
        return
    database = "postgresql" if config.sqlite_file is None else "sqlite"
    try:
        yield OpenTelemetryTracer(entropy, provider, database)
    finally:
        with trio.move_on_after(FLUSH_SECONDS, shield=True) as scope:
            await trio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)
        if scope.cancelled_caught:
            log.warning("telemetry.not_flushed", seconds=FLUSH_SECONDS)


def _provider(entropy: Entropy, log: Log) -> TracerProvider | None:
    """Return a provider that exports according to the process's environment; None if it cannot."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.warning("telemetry.not_installed", error=str(error), hint=INSTALL)
        return None
    try:
        provider = make_provider(entropy)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except Exception as error:  # a variable of OpenTelemetry is wrong
        log.warning("telemetry.not_started", error=f"{type(error).__name__}: {error}"[:500])
        return None
    protocol = next(filter(None, map(_ENVIRON.get, _PROTOCOLS)), _PROTOCOL)
    if protocol != _PROTOCOL:
        log.warning("telemetry.protocol", protocol=protocol[:40], used=_PROTOCOL)
    return provider


def make_provider(entropy: Entropy) -> TracerProvider:
    """Return a provider without an exporter; its sampler and resource are from the environment."""
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class Ids(IdGenerator):
        """Takes ids from the service's source of randomness."""

        def generate_trace_id(self) -> int:
            return int.from_bytes(entropy.bytes(ID_BYTES)) or 1

        def generate_span_id(self) -> int:
            return int.from_bytes(entropy.bytes(PARENT_BYTES)) or 1

        def is_trace_id_random(self) -> bool:
            return True

    logging.getLogger("opentelemetry.attributes").setLevel(logging.ERROR)
    resource = Resource({SERVICE_NAME: SCOPE, SERVICE_VERSION: __version__})
    environment = Resource.create()  # its service.name is unknown_service by default
    if str(environment.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = environment.merge(resource)
    else:
        resource = resource.merge(environment)
    return TracerProvider(resource=resource, id_generator=Ids(), shutdown_on_exit=False)


class RecordedSpan(Span):
    """A recorded operation."""

    __slots__ = ("_ended", "_span")

    is_recorded = True

    def __init__(self, context: TraceContext, span: api.Span) -> None:
        super().__init__(context)
        self._span = span
        self._ended = False

    def note(self, attributes: Mapping[str, str | int | float | bool]) -> None:
        """Add attributes, which must not contain a secret."""
        self._span.set_attributes(attributes)

    def event(self, name: str) -> None:
        """Add an event at the current time."""
        self._span.add_event(name)

    def end(self, error: str = "") -> None:
        """End the span, with the type of its error; the second call does nothing."""
        if self._ended:
            return
        self._ended = True
        if error:
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", error)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class OpenTelemetryTracer(Tracer):
    """Creates the contexts of operations, and records them if the sampler decides so."""

    def __init__(self, entropy: Entropy, provider: TracerProvider, database: str) -> None:
        """`database`: OpenTelemetry's name of the store's database system."""
        from opentelemetry import trace
        from opentelemetry.context import Context

        super().__init__(entropy)
        self._api, self._nothing = trace, Context()
        self._tracer = provider.get_tracer(SCOPE, __version__)
        self._database = database
        self.hooks = MessageSpans(self)

    def server(self, name: str, parent: TraceContext | None) -> Span:
        """Begin an incoming request, with its trace context."""
        return self._begin(name, self._api.SpanKind.SERVER, parent, remote=True)

    def client(self, name: str, parent: TraceContext) -> Span:
        """Begin a request to another system, which gets the context of the span."""
        return self._begin(name, self._api.SpanKind.CLIENT, parent, remote=True)

    def consumer(self, name: str, parent: TraceContext) -> Span:
        """Begin an operation that another one has queued, with the stored context."""
        return self._begin(name, self._api.SpanKind.CONSUMER, parent, remote=True)

    def message(self, name: str, caller: TraceContext) -> Span | None:
        """Begin a part of the operation `caller`; None if that is not sampled."""
        if not caller.is_sampled:
            return None
        span = self._begin(name, self._api.SpanKind.INTERNAL, caller, remote=False)
        return span if span.is_recorded else None

    def transaction_span(self, name: str) -> Span | None:
        """Begin a transaction; None if it is not recorded."""
        caller = CURRENT_TRACE.get()
        if caller is None or not caller.is_sampled:
            return None
        span = self._begin(f"{name} transaction", self._api.SpanKind.CLIENT, caller, remote=False)
        span.note({"db.system.name": self._database, "db.operation.name": name})
        return span if span.is_recorded else None

    def root(self) -> TraceContext:
        """Return the root of a new trace, for operations that no request has caused."""
        span = self._begin("events", self._api.SpanKind.PRODUCER, None, remote=False)
        span.end()
        return span.context

    def _begin(
        self, name: str, kind: api.SpanKind, parent: TraceContext | None, *, remote: bool
    ) -> Span:
        trace, context, state = self._api, self._nothing, None
        if parent is not None:
            state = trace.TraceState.from_header([parent.state])
            of_parent = trace.SpanContext(
                int(parent.trace_id, 16), int(parent.parent_id, 16), remote,
                trace.TraceFlags(parent.flags), state,
            )  # fmt: skip
            context = trace.set_span_in_context(trace.NonRecordingSpan(of_parent), context)
        span = self._tracer.start_span(name, context, kind)
        made = span.get_span_context()
        kept = "" if parent is None else parent.state
        if made.trace_state is not state and made.trace_state:  # the sampler has added to it
            kept = made.trace_state.to_header()
        flags = int(made.trace_flags) | (0 if parent is None else parent.flags & _FLAGS_OF_CALLER)
        own = TraceContext(f"{made.trace_id:032x}", f"{made.span_id:016x}", flags, kept)
        return RecordedSpan(own, span) if span.is_recording() else Span(own)


class MessageSpans:
    """Hooks of the runtime: a span for each message of a trace that is sampled."""

    def __init__(self, tracer: OpenTelemetryTracer) -> None:
        self._tracer = tracer

    def enqueued(self, message: MessageTrace, parent: MessageTrace | None) -> None:
        """Store the trace context of its sender."""
        context = CURRENT_TRACE.get()
        if context is not None and context.is_sampled:
            message.data = context

    def begun(self, message: MessageTrace) -> None:
        """Begin its span, which becomes the trace context of the handler."""
        if message.data is None:
            return
        actor = message.actor.partition("/")[0]  # a key may be derived from a person's name
        span = self._tracer.message(f"{actor} {message.message_type}", message.data)
        message.data = None
        if span is not None:
            span.note(
                {
                    "fw.actor": actor,
                    "fw.message": message.message_type,
                    "fw.queued_ms": round(message.queued_seconds * MS_PER_SECOND, 3),
                }
            )
            message.data = span, CURRENT_TRACE.set(span.context)

    def ended(
        self, message: MessageTrace, outcome: TraceOutcome, error: BaseException | None
    ) -> None:
        """End the message's span."""
        data: tuple[Span, Token[Any]] | None = message.data
        if data is None:
            return
        span, token = data
        CURRENT_TRACE.reset(token)
        span.note({"fw.outcome": outcome.name.lower()})
        span.end("" if outcome in _NO_FAULT else type(error).__name__)
