"""Routes of health, readiness and metrics (H-101, H-102, H-104)."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import trio
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fw_actors.access.sessions import Caller
from fw_actors.actors.gateway import Gateway
from fw_actors.actors.metrics import MetricSample
from fw_actors.documents.permissions import SYSTEM_MANAGER
from fw_actors.errors import OverloadedError, PermissionDeniedError
from web.exchange import (
    Exchange,
    RequestMetrics,
    has_forwarding_header,
    is_loopback,
    names_this_machine,
)
from web.operations import Authentication, Operation, Route
from web.response import Response, json_response
from web.response_schemas import OkResponse

CollectSamples = Callable[[], Awaitable[Sequence[MetricSample]]]

METRICS: Final = "/metrics"
_FILES: Final = {  # as ProcessCollector describes them
    "process_open_fds": "Number of open file descriptors.",
    "process_max_fds": "Maximum number of open file descriptors.",
}
ALWAYS_SERVED: Final = frozenset({"/api/health", "/api/ready"})
"""Served regardless of the number of requests in progress."""
MONITORED: Final = ALWAYS_SERVED | {METRICS}
"""Paths that monitoring polls; their requests are logged at level debug."""


class HealthRoutes:
    """The routes of health, readiness and metrics."""

    def __init__(
        self,
        gateway: Gateway,
        request_metrics: RequestMetrics,
        of_service: CollectSamples | None = None,
    ) -> None:
        """`of_service` returns the samples of all processes, if the service has several."""
        self._gateway, self.request_metrics, self._of_service = gateway, request_metrics, of_service
        self._check: _ReadinessCheck | None = None
        self._process = ProcessCollector(registry=None)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(
                "/api/health",
                {"GET": Operation(self.health, Authentication.IGNORED, response=OkResponse)},
            ),
            Route(
                "/api/ready",
                {"GET": Operation(self.ready, Authentication.IGNORED, response=OkResponse)},
            ),
            Route(METRICS, {"GET": Operation(self.metrics, Authentication.OPTIONAL)}),
        ]

    async def health(self, exchange: Exchange) -> Response:
        """Report that the process serves requests."""
        return json_response({"ok": True})

    async def ready(self, exchange: Exchange) -> Response:
        """Report readiness: 503 while starting, while draining, and without a store."""
        if not await self._is_ready():
            raise OverloadedError("The service is not ready. Try again in a moment.")
        return json_response({"ok": True})

    async def _is_ready(self) -> bool:
        """Check once for all concurrent requests, since their number is not limited."""
        while (check := self._check) is not None:
            await check.done.wait()
            if check.ready is not None:
                return check.ready  # else its client disconnected before the result
        check = self._check = _ReadinessCheck()
        try:
            check.ready = await self._gateway.ready()
            return check.ready
        finally:
            self._check = None
            check.done.set()

    async def metrics(self, exchange: Exchange) -> Response:
        """Return the metrics to this machine, and to a System Manager's API key (H-104).

        Requests that a proxy on this machine forwards have further headers, and get no metrics. A
        browser on this machine gets none for a page from elsewhere.
        """
        request = exchange.request
        here = (
            is_loopback(exchange.peer)
            and not has_forwarding_header(request)
            and names_this_machine(request.headers.get("Host", ""))
        )
        if not here and not _is_managers_key(exchange.caller):
            raise PermissionDeniedError(
                "Metrics can be read only from this machine, by its address or as localhost, or "
                "with the API key of a System Manager."
            )
        return Response(await self.exposition(), content_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def exposition(self) -> bytes:
        """Return the metrics as text, without checking a caller."""
        registry = CollectorRegistry(auto_describe=False)
        if self._of_service is not None:
            samples = await self._of_service()
        else:
            of_process = (*await self._gateway.samples(), *self.request_metrics.samples())
            samples = [*of_process, *system_samples(self._process)]
        registry.register(_MetricsCollector(samples))
        return generate_latest(registry)


def system_samples(collector: ProcessCollector) -> list[MetricSample]:
    """Return the samples of this process from the system: memory, processor time, open files.

    The collector opens files, and would omit the open files just when there are too many.
    """
    samples = _samples_of(collector)
    if not any(sample.name in _FILES for sample in samples) and _has_no_descriptor():
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        samples += [MetricSample(name, "gauge", text, limit) for name, text in _FILES.items()]
    return samples


def _has_no_descriptor() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EMFILE
    return False


def _samples_of(collector: Collector) -> list[MetricSample]:
    """Return the samples of a collector of gauges and counters without labels."""
    return [
        MetricSample(
            family.name, "counter" if family.type == "counter" else "gauge", text, sample.value
        )
        for family in collector.collect()
        for text, sample in ((family.documentation, each) for each in family.samples)
    ]


class _ReadinessCheck:
    """A readiness check in progress, for which concurrent requests wait."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.ready: bool | None = None


def _is_managers_key(caller: Caller | None) -> bool:
    return caller is not None and caller.api_key is not None and SYSTEM_MANAGER in caller.roles


class _MetricsCollector:
    """Passes samples to prometheus-client, which formats them."""

    def __init__(self, samples: Iterable[MetricSample]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        """Return one family for each name, in the order of the samples."""
        families: dict[str, _Family] = {}
        for sample in self._samples:
            family = families.get(sample.name)
            if family is None:
                family = families[sample.name] = _FAMILIES[sample.kind](
                    sample.name, sample.help, labels=list(sample.labels)
                )
            labels = list(sample.labels.values())
            if isinstance(family, HistogramMetricFamily):
                family.add_metric(labels, list(sample.buckets), sample.value)
            else:
                family.add_metric(labels, sample.value)
        return families.values()


_Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
_FAMILIES: Final[dict[str, Callable[..., _Family]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
