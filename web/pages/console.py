"""The console's page, and the stream of views that it lives on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from fw_actors.actors.console import Console
from fw_actors.actors.gateway import Gateway
from fw_actors.errors import PermissionDeniedError
from web.exchange import Exchange
from web.guard import api_key_of
from web.operations import Operation, Path
from web.pages.rendering import Rendering, Shell, shell
from web.response import Answer, EventStreams, SendPart, encode, event

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

CHECK_SECONDS: Final = 30.0
"""How often an open stream asks whether its session may still see it."""


class ConsolePages:
    """The paths of this module, over one gateway and the console of the process."""

    def __init__(
        self, gateway: Gateway, console: Console, streams: EventStreams, rendering: Rendering
    ) -> None:
        self._gateway, self._console = gateway, console
        self._streams, self._rendering = streams, rendering

    def paths(self) -> list[Path]:
        """Return what is served."""
        refuse = self._rendering.refuse
        return [
            Path("/app/console", {"GET": Operation(self.page)}, refuse=refuse),
            Path("/app/console/events", {"GET": Operation(self.events)}),
        ]

    async def page(self, exchange: Exchange) -> Answer:
        """Show the page; what is on it comes by the stream."""

        def frame(fw: Fw) -> Shell:
            refuse_who_manages_nothing(fw)
            return shell(fw, "console")

        shown = await self._gateway.read(exchange.known_caller, frame, exchange.request_id)
        return self._rendering.page("console.html", frame=shown)

    async def events(self, exchange: Exchange) -> Answer:
        """Send a view as soon as there is a new one, for as long as session or key may see it."""
        await self._may_still_see(exchange)

        async def events(send: SendPart) -> None:
            number, checked = 0, trio.current_time()
            while True:
                view = await self._console.view(number)
                number = view.number
                if trio.current_time() - checked > CHECK_SECONDS:
                    await self._may_still_see(exchange)
                    checked = trio.current_time()
                await send(event(encode(view)))

        return self._streams.answer(events)

    async def _may_still_see(self, exchange: Exchange) -> None:
        """Raises: AuthenticationError, PermissionDeniedError."""
        caller, key = exchange.known_caller, api_key_of(exchange.request)
        if exchange.sid is not None:
            caller = await self._gateway.authenticate(exchange.sid)
        elif key is not None:
            caller = await self._gateway.keys.caller(key, exchange.address)
        await self._gateway.read(caller, refuse_who_manages_nothing, exchange.request_id)


def refuse_who_manages_nothing(fw: Fw) -> None:
    """Raises: PermissionDeniedError for all but System Managers without access scopes."""
    if not fw.rights.administers:
        raise PermissionDeniedError("The console is for System Managers without access scopes.")
