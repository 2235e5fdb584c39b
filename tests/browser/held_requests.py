"""Holds back the requests of a page, so that their responses are late, and makes page content."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from playwright.sync_api import Error, Page, Route

from tests.browser.webhook_kit import HEADERS

OPERATION = "**/api/method/core.services."
ORDERS = "/app/Sales%20Order"
ARRIVAL_SECONDS = 60
RUN = {
    "id": "r1",
    "filters": [["status", "=", "Failed"]],
    "user": "admin",
    "replayed": 1,
    "begun": "2026-01-01T00:00:00Z",
    "ended": None,
    "total": 9,
    "done": 1,
    "refused": {},
    "error": "",
    "state": "running",
}
"""A bulk replay in progress."""
JOB = {
    "queue": "app",
    "state": "scheduled",
    "function": "shop.x",
    "error": None,
    "user": None,
    "attempts": 0,
    "due": "2030-01-01T00:00:00Z",
    "created": "2026-01-01T00:00:00Z",
}
"""A job in the console's list, without its id."""
VIEW: dict[str, Any] = {
    "at": 1_760_000_000_000,
    "every": 1.0,
    "rates": {},
    "tree": [],
    "inFlight": 0,
    "processes": [],
    "receivers": [],
    "store": {
        "queues": [],
        "senders": [],
        "pausedWebhooks": [],
        "webhookLabels": {},
        "inFlight": [],
        "upcoming": [],
        "failures": [],
        "failed": [],
        "locks": [],
    },
    "lastDeadLetters": [],
    "deadLetters": 0,
    "traces": [],
}
"""A view of the console in which nothing runs."""
RECEIVER = {
    "origin": "https://x.test:443",
    "inFlight": 0,
    "window": 16,
    "limit": 16,
    "health": "failing",
    "failures": 9,
    "failingSince": 1_760_000_000_000,
    "lastError": "status: the receiver answered 503.",
    "webhooks": 1,
    "waiting": 3,
    "moreWait": False,
    "lastSuccess": None,
}
"""A failing receiver in a view of the console."""


class HeldRequests:
    """Holds back the requests that match `pattern`, until `let_go`."""

    def __init__(self, page: Page, pattern: str) -> None:
        self._page = page
        self._pattern = pattern
        self.routes: list[Route] = []
        page.route(pattern, self._hold)

    def _hold(self, route: Route) -> None:
        self.routes.append(route)

    def arrive(self, number: int = 1) -> None:
        """Wait for `number` requests in all; fail after a minute."""
        end = time.monotonic() + ARRIVAL_SECONDS
        while len(self.routes) < number:
            assert time.monotonic() < end, f"{len(self.routes)} of {number} requests have arrived"
            self._page.wait_for_timeout(10)

    def let_go(self) -> None:
        """Send those that wait, and all further ones, to the service."""
        self._page.unroute(self._pattern)
        for route in self.routes:
            with suppress(Error):  # the page has cancelled it
                route.continue_()


def make_order(page: Page, **fields: Any) -> str:
    """Make an order that is neither packed nor shipped: other tests count those."""
    made = page.request.post("/api/resource/Sales Order", data=fields, headers=HEADERS)
    assert made.ok, made.text()
    name: str = made.json()["data"]["name"]
    return name
