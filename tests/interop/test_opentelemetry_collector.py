"""Spans as a collector gets them over OTLP/HTTP, and a receiver its `traceparent`."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trio

from fw_actors.runtime import SystemEntropy
from fw_actors.tracing import TraceContext, in_trace
from supervisors.service import telemetry
from supervisors.service.telemetry import open_tracer
from tests.accounts_kit import PASSWORD
from tests.fw_actors.actors import jobs_app
from tests.http_site import http_site
from tests.mail_kit import RecordingLog
from tests.site_kit import make_config

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http",
    reason="the extra opentelemetry is not installed: pip install 'fw-actors[opentelemetry]'",
)

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = TraceContext(TRACE, PARENT, 1, "congo=t61")
SECRET = "a secret of the webhook"


class Sink(ThreadingHTTPServer):
    """Takes POSTs: a collector under /v1/traces, and a receiver of webhooks elsewhere."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), CollectorHandler)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def exported(self) -> list[Any]:
        """Return the spans that were exported."""
        found = []
        for path, _, body in self.got:
            if path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        found += scope.spans
        return found


class CollectorHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, Sink)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.got.append((self.path, headers, body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_collector_gets_request_message_transaction_and_delivery(
    tmp_path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one trace, over OTLP/HTTP, without secrets (O-349, O-351, O-353)."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
    headers = [("traceparent", CALLER.parent), ("tracestate", CALLER.state)]
    async with http_site(tmp_path, trace_context=True, mode="development") as site:
        await site.add_account("ada", "System Manager")
        sid = await site.sid("ada", headers=headers)
        body = {
            "url": f"{sink.url}/hook?token=hidden", "event_type": "Custom", "custom_event": "a.b",
            "secret": SECRET, "enabled": 1,
        }  # fmt: skip
        assert (await site.ask("POST", "/api/resource/Webhook", body, sid=sid)).status == 201
        event = {"name": "a.b", "data": {"n": 1}}
        await site.op("webhooks.emit", event, sid=sid, headers=headers)
        with trio.fail_after(20):
            await site.log.wait("delivery.attempted", 1)
    spans = [span for span in sink.exported() if span.trace_id.hex() == TRACE]
    by_id = {span.span_id: span for span in spans}
    [(_, sent, _)] = [got for got in sink.got if got[0].startswith("/hook")]
    [delivery] = [span for span in spans if span.name == "POST"]
    assert sent["traceparent"] == f"00-{TRACE}-{delivery.span_id.hex()}-01"
    assert sent["tracestate"] == CALLER.state
    write = by_id[delivery.parent_span_id]
    request = by_id[write.parent_span_id]
    assert (write.name, request.name) == (
        "write transaction", "POST /api/method/core.services.webhooks.emit",
    )  # fmt: skip
    assert request.parent_span_id.hex() == PARENT
    assert "lockouts AttemptSignIn" in {span.name for span in spans}
    attributes = {each.key: each.value for each in delivery.attributes}
    assert attributes["url.full"].string_value == f"{sink.url}/hook?…"
    assert attributes["http.response.status_code"].int_value == 200
    assert attributes["server.port"].int_value == sink.server_port
    everything = b"".join(body for path, _, body in sink.got if path == "/v1/traces")
    for secret in (SECRET, "hidden", sid, PASSWORD):
        assert secret.encode() not in everything


async def test_collector_gets_attempts_of_jobs(
    tmp_path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As children of what queued them, with the kind of their error alone (O-349, O-353)."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
    async with http_site(tmp_path, trace_context=True) as site:
        with in_trace(CALLER):
            await site.do(lambda fw: fw.enqueue(jobs_app.note, text="done"))
            await site.do(lambda fw: fw.enqueue(jobs_app.fail_after_writing, text="undone"))
        with trio.fail_after(20):
            await site.log.wait("job.done", 1)
            await site.log.wait("job.failed", 1)
    spans = [span for span in sink.exported() if span.trace_id.hex() == TRACE]
    by_id = {span.span_id: span for span in spans}
    done, failed = (
        next(span for span in spans if span.name == f"{jobs_app.__name__}.{function}")
        for function in ("note", "fail_after_writing")
    )
    for span in (done, failed):
        write = by_id[span.parent_span_id]
        assert (write.name, write.parent_span_id.hex()) == ("write transaction", PARENT)
    own = [span.name for span in spans if span.parent_span_id == done.span_id]
    assert own == ["write transaction"]
    attributes = {each.key: each.value for each in failed.attributes}
    assert attributes["error.type"].string_value == "RuntimeError"
    assert attributes["fw.attempt"].int_value == 1
    assert {"fw.job", "fw.queued_ms"} <= set(attributes)
    assert b"the other system is down" not in b"".join(body for _, _, body in sink.got)


async def test_unreachable_collector_does_not_delay_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-354."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(telemetry, "FLUSH_SECONDS", 0.1)
    log = RecordingLog()
    config = make_config(tmp_path, trace_context=True)
    with trio.fail_after(15):
        async with open_tracer(config, SystemEntropy(), log) as tracer:
            assert tracer is not None
            tracer.server("GET /x", CALLER).end()
    assert log.of("telemetry.not_flushed") == [{"seconds": 0.1}]


def test_opentelemetry_is_imported_only_to_export_spans() -> None:
    """O-348."""
    script = (
        "import sys, supervisors.service.tree;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
