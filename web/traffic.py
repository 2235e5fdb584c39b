"""Counts the requests that were answered, for `/metrics`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from fw_actors.actors.counters import Histogram
from fw_actors.services.access import Reading

UNROUTED: Final = "none"
"""The route of a request whose path is not served: paths from outside are no labels."""


class Traffic:
    """Requests by route and status, and how long they took."""

    def __init__(self) -> None:
        self._requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._seconds = Histogram()
        self._forwarded_ignored = 0

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests[route, status] += 1
        self._seconds.observe(seconds)

    def forwarded_ignored(self) -> None:
        """Count a request with X-Forwarded-* that FW_TRUST_PROXY=off ignores."""
        self._forwarded_ignored += 1

    def readings(self) -> Iterator[Reading]:
        """Yield the numbers of this moment."""
        for (route, status), count in self._requests.items():
            labels = {"route": route, "status": str(status)}
            yield Reading("fw_requests", "counter", "Requests answered.", count, labels)
        yield Reading(
            "fw_request_seconds",
            "histogram",
            "How long requests took.",
            self._seconds.sum,
            buckets=self._seconds.buckets(),
        )
        yield Reading(
            "fw_forwarded_ignored",
            "counter",
            "Requests whose X-Forwarded-* headers were not believed: FW_TRUST_PROXY is off.",
            self._forwarded_ignored,
        )
