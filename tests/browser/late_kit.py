"""Requests of a page that are held back, so that their responses are late."""

from __future__ import annotations

from contextlib import suppress

from playwright.sync_api import Error, Page, Route

OPERATION = "**/api/method/core.services."


class HeldRequests:
    """Requests that match `pattern`; each waits until it is let go."""

    def __init__(self, page: Page, pattern: str) -> None:
        self._page = page
        self._pattern = pattern
        self.routes: list[Route] = []
        page.route(pattern, self._hold)

    def _hold(self, route: Route) -> None:
        self.routes.append(route)

    def arrive(self, number: int = 1) -> None:
        """Wait for `number` requests in all."""
        while len(self.routes) < number:
            self._page.wait_for_timeout(10)

    def let_go(self) -> None:
        """Send those that wait, and all further ones, to the service."""
        self._page.unroute(self._pattern)
        for route in self.routes:
            with suppress(Error):  # the page has given it up
                route.continue_()
