"""For those who watch the service: is it alive, is it ready, and its numbers (H-101, H-102,
H-104)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import trio
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric

from fw_actors.access.types import Caller, Reading
from fw_actors.actors.gateway import Gateway
from fw_actors.documents.permissions import SYSTEM_MANAGER
from fw_actors.errors import OverloadedError, PermissionDeniedError
from web.exchange import Exchange, Traffic
from web.operations import Operation, Path, Session
from web.request import is_loopback
from web.response import Answer, answer_json, says_forwarded
from web.response_schemas import Done

METRICS: Final = "/metrics"
ALWAYS_SERVED: Final = frozenset({"/api/health", "/api/ready"})
"""Served however many requests are in hand."""
LOOKED_AT: Final = ALWAYS_SERVED | {METRICS}
"""What machines ask for all the time; their requests are logged at level debug."""


class HealthRoutes:
    """The paths of this module, over one gateway."""

    def __init__(self, gateway: Gateway, traffic: Traffic) -> None:
        self._gateway, self._traffic = gateway, traffic
        self._asking: _Asking | None = None
        self._process = ProcessCollector(registry=None)

    def paths(self) -> list[Path]:
        """Return what is served."""
        return [
            Path("/api/health", {"GET": Operation(self.health, Session.IGNORED, answer=Done)}),
            Path("/api/ready", {"GET": Operation(self.ready, Session.IGNORED, answer=Done)}),
            Path(METRICS, {"GET": Operation(self.metrics, Session.OPTIONAL)}),
        ]

    async def health(self, exchange: Exchange) -> Answer:
        """Answer, which is all there is to say."""
        return answer_json({"ok": True})

    async def ready(self, exchange: Exchange) -> Answer:
        """Say whether requests can be served: 503 while starting, draining, without a store."""
        if not await self._is_ready():
            raise OverloadedError("The service is not ready. Try again in a moment.")
        return answer_json({"ok": True})

    async def _is_ready(self) -> bool:
        """Ask the gateway once for all who ask at the same time: no limit of requests applies."""
        while (asking := self._asking) is not None:
            await asking.done.wait()
            if asking.ready is not None:
                return asking.ready  # else its client went away before there was an answer
        asking = self._asking = _Asking()
        try:
            asking.ready = await self._gateway.ready()
            return asking.ready
        finally:
            self._asking = None
            asking.done.set()

    async def metrics(self, exchange: Exchange) -> Answer:
        """Show the numbers to this machine, and to a System Manager's API key (H-104).

        A proxy on this machine speaks for others, and says so.
        """
        here = is_loopback(exchange.peer) and not says_forwarded(exchange.request.headers.keys())
        if not here and not _is_managers_key(exchange.caller):
            raise PermissionDeniedError(
                "The metrics are for this machine, and for the API key of a System Manager."
            )
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Readings([*await self._gateway.readings(), *self._traffic.readings()]))
        registry.register(self._process)
        return Answer(generate_latest(registry), content_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Asking:
    """A question to the gateway that several requests wait for."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.ready: bool | None = None


def _is_managers_key(caller: Caller | None) -> bool:
    return caller is not None and caller.api_key is not None and SYSTEM_MANAGER in caller.roles


class _Readings:
    """Hands numbers to prometheus-client, which knows the format."""

    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Metric]:
        """Return one family for each name, in the order of first sight."""
        families: dict[str, _Family] = {}
        for reading in self._readings:
            family = families.get(reading.name)
            if family is None:
                family = families[reading.name] = _FAMILIES[reading.kind](
                    reading.name, reading.help, labels=list(reading.labels)
                )
            labels = list(reading.labels.values())
            if isinstance(family, HistogramMetricFamily):
                family.add_metric(labels, list(reading.buckets), reading.value)
            else:
                family.add_metric(labels, reading.value)
        return families.values()


_Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
_FAMILIES: Final[dict[str, Callable[..., _Family]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
