"""For those who watch the service: is it alive, is it ready, and its numbers (interface §2, §8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric

from fw_actors.documents.permissions import SYSTEM_MANAGER
from fw_actors.errors import OverloadedError, PermissionDeniedError
from web.answers import Done
from web.client_address import is_loopback
from web.envelope import Answer, answer_json
from web.exchange import Exchange
from web.gateway import Gateway
from web.operations import Operation, Path, Session

FORWARDED: Final = "forwarded"
X_FORWARDED: Final = "x-forwarded-"


class HealthRoutes:
    """The paths of this module, over one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Readings(gateway))

    def paths(self) -> list[Path]:
        """Return what is served."""
        return [
            Path("/api/health", {"GET": Operation(self.health, Session.IGNORED, answer=Done)}),
            Path("/api/ready", {"GET": Operation(self.ready, Session.IGNORED, answer=Done)}),
            Path("/metrics", {"GET": Operation(self.metrics, Session.OPTIONAL)}),
        ]

    async def health(self, exchange: Exchange) -> Answer:
        """Answer, which is all there is to say."""
        return answer_json({"ok": True})

    async def ready(self, exchange: Exchange) -> Answer:
        """Say whether requests can be served: 503 while starting, draining, without a store."""
        if not self._gateway.ready():
            raise OverloadedError("The service is not ready. Try again in a moment.")
        return answer_json({"ok": True})

    async def metrics(self, exchange: Exchange) -> Answer:
        """Show the numbers to this machine, or to the API key of a System Manager.

        A proxy on this machine speaks for others, and says so.
        """
        caller = exchange.caller
        by_key = caller is not None and caller.api_key is not None
        if by_key and caller is not None and SYSTEM_MANAGER in caller.roles:
            return self._page()
        if not is_loopback(exchange.peer) or _was_forwarded(exchange.request.headers.keys()):
            raise PermissionDeniedError("The metrics are for this machine and System Managers.")
        return self._page()

    def _page(self) -> Answer:
        return Answer(generate_latest(self._registry), content_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Readings:
    """Hands the gateway's numbers to prometheus-client, which knows the format."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterable[Metric]:
        """Return one family for each name, in the order of first sight."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for reading in self._gateway.snapshot():
            family = families.get(reading.name)
            if family is None:
                kind = CounterMetricFamily if reading.kind == "counter" else GaugeMetricFamily
                family = kind(reading.name, reading.help, labels=list(reading.labels))
                families[reading.name] = family
            family.add_metric(list(reading.labels.values()), reading.value)
        return families.values()


def _was_forwarded(names: Iterable[str]) -> bool:
    return any(n == FORWARDED or n.startswith(X_FORWARDED) for n in map(str.lower, names))
