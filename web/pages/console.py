"""The console's page, and its stream of views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from fw_actors.actors.console import Console, require_console
from fw_actors.actors.gateway import Gateway
from web.exchange import Exchange
from web.guard import api_keys_of
from web.operations import Operation, Route
from web.pages.rendering import PageFrame, Rendering, page_frame
from web.response import EventStreams, Response, SendPart, encode, sse_event

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

CHECK_SECONDS: Final = 2.0
"""The interval at which an open stream checks its session or key."""


class ConsolePages:
    """The page of the console, and the stream of its views."""

    def __init__(
        self, gateway: Gateway, console: Console, streams: EventStreams, rendering: Rendering
    ) -> None:
        self._gateway, self._console = gateway, console
        self._streams, self._rendering = streams, rendering

    def routes(self) -> list[Route]:
        """Return the routes."""
        error_page = self._rendering.error_page
        return [
            Route("/app/console", {"GET": Operation(self.page)}, error_page=error_page),
            Route("/app/console/events", {"GET": Operation(self.events)}),
        ]

    async def page(self, exchange: Exchange) -> Response:
        """Show the page; its content comes by the stream."""

        def frame(fw: Fw) -> PageFrame:
            require_console(fw)
            return page_frame(fw, "console")

        shown = await self._gateway.read(exchange.known_caller, frame, exchange.request_id)
        return self._rendering.page("console.html", frame=shown)

    async def events(self, exchange: Exchange) -> Response:
        """Stream the last hour's history, then each new view, while session or key has access."""
        await self._require_access(exchange)

        async def events(send: SendPart) -> None:
            number, checked = 0, trio.current_time()
            await send(sse_event(encode(await self._console.history()), b"history"))
            while True:
                view = await self._console.view(number)
                number = view.number
                if trio.current_time() - checked > CHECK_SECONDS:
                    await self._require_access(exchange)
                    checked = trio.current_time()
                await send(sse_event(encode(view)))

        return self._streams.open(events)

    async def _require_access(self, exchange: Exchange) -> None:
        """Raises: AuthenticationError, PermissionDeniedError."""
        caller, keys = exchange.known_caller, api_keys_of(exchange.request)
        if exchange.sid is not None:
            caller = await self._gateway.authenticate(exchange.sid)
        elif keys:
            caller = await self._gateway.keys.caller(keys[0], exchange.address)
        await self._gateway.read(caller, require_console, exchange.request_id)
