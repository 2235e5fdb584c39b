"""Spans of OpenTelemetry: their records, and the spans at a collector (O-348 to O-354)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from fw_actors.runtime import (
    Actor,
    Request,
    SeededEntropy,
    SystemEntropy,
    TrioClock,
    handles,
    open_runtime,
)
from fw_actors.tracing import CURRENT_TRACE, TraceContext, Tracer, in_trace
from supervisors.service.telemetry import (
    OpenTelemetryTracer,
    is_exporting,
    make_provider,
    open_tracer,
)
from tests.mail_kit import RecordingLog
from tests.site_kit import make_config

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http",
    reason="the extra opentelemetry is not installed: pip install 'fw-actors[opentelemetry]'",
)

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from opentelemetry.trace import SpanKind

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = TraceContext(TRACE, PARENT, 1, "congo=t61")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


class SpanRecording:
    """A tracer whose spans stay in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = make_provider(SeededEntropy(1))
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.resource = provider.resource.attributes
        self.tracer = OpenTelemetryTracer(SeededEntropy(2), provider, "sqlite")

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}


def ids(span: ReadableSpan) -> tuple[str, str, str]:
    """Return trace, span and parent."""
    parent = 0 if span.parent is None else span.parent.span_id
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}", f"{parent:016x}"


@pytest.mark.parametrize(
    ("environ", "exports"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, False),
        ({"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
    ],
)
def test_is_exporting_follows_the_opentelemetry_variables(
    environ: dict[str, str], exports: bool
) -> None:
    """O-348."""
    assert is_exporting(environ) is exports


@pytest.mark.parametrize(
    ("variables", "name"),
    [({}, "fw"), ({"OTEL_SERVICE_NAME": "desk"}, "desk")],
)
def test_resource_has_service_name_and_version(
    variables: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    resource = SpanRecording().resource
    assert resource["service.name"] == name
    assert resource["service.version"]


def test_server_span_is_a_child_and_keeps_the_tracestate() -> None:
    recording = SpanRecording()
    span = recording.tracer.server("GET /x", CALLER)
    span.note({"http.response.status_code": 200})
    span.end()
    span.end("twice")
    recorded = recording.spans["GET /x"]
    assert ids(recorded) == (TRACE, span.context.parent_id, PARENT)
    assert (span.context.flags, span.context.state) == (1, CALLER.state)
    assert dict(recorded.attributes or {}) == {"http.response.status_code": 200}


def test_consumer_span_is_a_child_of_the_queueing_trace() -> None:
    """B-429."""
    recording = SpanRecording()
    span = recording.tracer.consumer("notes.report", CALLER)
    span.end()
    recorded = recording.spans["notes.report"]
    assert ids(recorded) == (TRACE, span.context.parent_id, PARENT)
    assert recorded.kind is SpanKind.CONSUMER


def test_client_span_has_the_error_as_status() -> None:
    recording = SpanRecording()
    recording.tracer.client("POST", CALLER).end("timeout")
    recorded = recording.spans["POST"]
    assert not recorded.status.is_ok
    assert dict(recorded.attributes or {}) == {"error.type": "timeout"}


@pytest.mark.parametrize(
    ("sampler", "flags", "sampled"),
    [
        ("", 1, True),
        ("", 0, False),
        ("", 3, True),
        ("", 2, False),
        ("always_off", 1, False),
        ("always_on", 0, True),
    ],
)
def test_sampler_decides_which_spans_are_recorded(
    sampler: str, flags: int, sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its decision is the flag that goes on; the other flag stays as it came (O-350)."""
    if sampler:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    recording = SpanRecording()
    span = recording.tracer.server("GET /x", TraceContext(TRACE, PARENT, flags))
    span.end()
    assert span.is_recorded is span.context.is_sampled is sampled
    assert (span.context.flags & 2) == (flags & 2)
    assert span.context.trace_id == TRACE
    assert span.context.parent_id != PARENT
    assert bool(recording.spans) is sampled


async def test_transaction_span_is_a_child_of_its_request() -> None:
    recording = SpanRecording()

    async def execute(fn: Any) -> Any:
        return fn("tx")

    with in_trace(CALLER):
        context = await recording.tracer.transaction(
            "write", execute, lambda tx: CURRENT_TRACE.get()
        )
        with pytest.raises(LookupError):
            await recording.tracer.transaction("read", execute, lambda tx: {}[tx])
    await recording.tracer.transaction("outside", execute, str)
    with in_trace(TraceContext(TRACE, PARENT, 0)):
        await recording.tracer.transaction("unsampled", execute, str)
    write = recording.spans["write transaction"]
    assert set(recording.spans) == {"write transaction", "read transaction"}
    assert context is not None
    assert ids(write) == (TRACE, context.parent_id, PARENT)
    assert [event.name for event in write.events] == ["begun"]
    assert dict(write.attributes or {}) == {
        "db.system.name": "sqlite", "db.operation.name": "write",
    }  # fmt: skip
    failed = recording.spans["read transaction"].attributes or {}
    assert failed["error.type"] == "KeyError"


class TraceQuestion(Request[TraceContext | None], frozen=True):
    """Answered with where the handler stands; of `then`, by asking it."""

    then: Any = None


class TraceAnswerer(Actor):
    @handles(TraceQuestion)
    async def answer(self, message: TraceQuestion) -> TraceContext | None:
        if message.then is not None:
            answer: TraceContext | None = await message.then.ask(TraceQuestion())
            return answer
        return CURRENT_TRACE.get()


async def test_message_spans_are_nested_by_asks() -> None:
    """With the time in the mailbox; those outside of a sampled trace have none (O-349)."""
    recording = SpanRecording()
    async with (
        open_runtime(
            clock=TrioClock(0),
            entropy=SeededEntropy(1),
            carry=(CURRENT_TRACE,),
            hooks=recording.tracer.hooks,
        ) as runtime,
        runtime.running("a", TraceAnswerer) as a,
        runtime.running("b", TraceAnswerer) as b,
    ):
        with in_trace(CALLER):
            seen = await a.ask(TraceQuestion(b), deadline=5)
        assert await a.ask(TraceQuestion(), deadline=5) is None
        with in_trace(TraceContext(TRACE, PARENT, 0)):
            unsampled = await a.ask(TraceQuestion(), deadline=5)
    assert unsampled == TraceContext(TRACE, PARENT, 0)
    outer, inner = recording.spans["a TraceQuestion"], recording.spans["b TraceQuestion"]
    assert len(recording.spans) == 2
    assert ids(outer)[::2] == (TRACE, PARENT)
    assert ids(inner)[2] == ids(outer)[1]
    assert seen is not None
    assert seen.parent_id == ids(inner)[1]
    attributes = dict(inner.attributes or {})
    assert attributes.pop("fw.queued_ms") >= 0  # type: ignore[operator]
    assert attributes == {"fw.actor": "b", "fw.message": "TraceQuestion", "fw.outcome": "handled"}


async def test_tracer_is_absent_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    async with open_tracer(make_config(tmp_path), SystemEntropy(), RecordingLog()) as tracer:
        assert tracer is None


@pytest.mark.parametrize(
    ("hidden", "variables", "event"),
    [
        (True, {}, "telemetry.not_installed"),
        (False, {"OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, "telemetry.not_started"),
    ],
)
async def test_failed_export_setup_is_a_warning_at_start(
    tmp_path: Path,
    hidden: bool,
    variables: dict[str, str],
    event: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """O-352."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if hidden:
        module = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
        monkeypatch.setitem(sys.modules, module, None)
    log = RecordingLog()
    config = make_config(tmp_path, trace_context=True)
    async with open_tracer(config, SystemEntropy(), log) as tracer:
        assert type(tracer) is Tracer
    [fields] = log.of(event)
    if hidden:
        assert fields["hint"] == "pip install 'fw-actors[opentelemetry]'"


async def test_unsupported_export_protocol_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    log = RecordingLog()
    async with open_tracer(make_config(tmp_path, trace_context=True), SystemEntropy(), log):
        pass
    assert log.of("telemetry.protocol") == [{"protocol": "grpc", "used": "http/protobuf"}]
