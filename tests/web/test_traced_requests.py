"""Requests with `ops.traceContext`: each is a span, for whoever exports spans (O-349 to O-353)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fw_actors.runtime.clock import SeededEntropy
from fw_actors.tracing import Span, TraceContext, Tracer
from tests.web.client import AppClient
from tests.web.fakes import FakeDocuments, FakeGateway, app_of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class NotedSpan(Span):
    """Keeps what it is told."""

    __slots__ = ("attributes", "error", "name")

    is_recorded = True

    def __init__(self, name: str, context: TraceContext) -> None:
        super().__init__(context)
        self.name = name
        self.attributes: dict[str, object] = {}
        self.error: str | None = None

    def note(self, attributes: Mapping[str, str | int | float | bool]) -> None:
        self.attributes.update(attributes)

    def end(self, error: str = "") -> None:
        self.error = error


class NotingTracer(Tracer):
    """Keeps the spans of requests."""

    def __init__(self) -> None:
        super().__init__(SeededEntropy(1))
        self.spans: list[NotedSpan] = []

    def server(self, name: str, parent: TraceContext | None) -> Span:
        span = NotedSpan(name, parent or self.root())
        self.spans.append(span)
        return span


@pytest.fixture
def tracer() -> NotingTracer:
    return NotingTracer()


@pytest.fixture
def traced(gateway: FakeGateway, documents: FakeDocuments, tracer: NotingTracer) -> AppClient:
    return AppClient(app_of(gateway, tracer=tracer))


async def test_traced_request_has_attributes_without_its_query(
    traced: AppClient, tracer: NotingTracer
) -> None:
    """The names are those of OpenTelemetry (O-351), and a query may be secret (O-353)."""
    await traced.ask("GET", "/api/resource/Note/N-1?q=hidden", headers=[("traceparent", PARENT)])
    [span] = tracer.spans
    assert (span.name, span.error) == ("GET /api/resource/<doctype>/<name>", "")
    assert span.context.parent == PARENT
    assert span.attributes == {
        "http.request.method": "GET",
        "http.response.status_code": 401,
        "http.route": "/api/resource/<doctype>/<name>",
        "url.path": "/api/resource/Note/N-1",
        "url.scheme": "http",
    }


async def test_traced_request_of_unknown_method_and_path_has_a_fixed_name(
    traced: AppClient, tracer: NotingTracer
) -> None:
    """A name that clients choose would make any number of names."""
    await traced.ask("BREW", "/coffee")
    [span] = tracer.spans
    assert span.name == "HTTP"
    assert span.attributes["http.request.method"] == "_OTHER"
    assert "http.route" not in span.attributes


async def test_traced_request_that_meets_a_defect_has_its_status_as_error(
    traced: AppClient, tracer: NotingTracer, gateway: FakeGateway
) -> None:
    gateway.refuse = ValueError("the secret is hunter2")
    await traced.ask("POST", "/api/login", {"usr": "anna", "pwd": "x"})
    assert [span.error for span in tracer.spans] == ["500"]


@pytest.mark.parametrize("path", ["/metrics", "/api/health", "/api/ready"])
async def test_monitoring_request_has_no_span(
    traced: AppClient, tracer: NotingTracer, path: str
) -> None:
    """O-349."""
    await traced.ask("GET", path)
    assert tracer.spans == []
