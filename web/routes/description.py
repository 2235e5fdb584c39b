"""The route of the OpenAPI document: GET /api/openapi.json (H-105)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from fw_actors.actors.gateway import Gateway
from fw_actors.documents import rest
from web.exchange import Exchange
from web.operations import Authentication, Operation, Route
from web.response import Response, encode
from web.settings import Settings

PATH: Final = "/api/openapi.json"


class DescriptionRoutes:
    """The route of the document about all `routes` and itself."""

    def __init__(self, routes: Sequence[Route], settings: Settings, gateway: Gateway) -> None:
        self._described, self._settings, self._gateway = routes, settings, gateway
        self._making = trio.Lock()
        self._generic: Mapping[str, Any] | None = None
        self._for_guests = b""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route(PATH, {"GET": Operation(self.document, Authentication.OPTIONAL)})]

    async def document(self, exchange: Exchange) -> Response:
        """Describe every operation as OpenAPI 3.1, and a signed-in user's DocTypes."""
        generic = await self._generic_document()
        if exchange.caller is None:
            return Response(self._for_guests)
        doctypes = await self._gateway.read(
            exchange.caller, rest.describe_doctypes, exchange.request_id
        )
        return Response(await trio.to_thread.run_sync(_encoded_with, generic, doctypes))

    async def _generic_document(self) -> Mapping[str, Any]:
        """Return the description of the operations, without DocTypes.

        It is made on first use, so that a start need not wait for it, and in a thread, because it
        takes a few tenths of a second.
        """
        async with self._making:
            if self._generic is None:
                document = await trio.to_thread.run_sync(self._describe)
                self._generic, self._for_guests = document, encode(document)
            return self._generic

    def _describe(self) -> dict[str, Any]:
        from web import openapi  # imports quart-schema

        routes = [*self._described, *self.routes()]
        return openapi.describe(routes, self._settings.name, self._settings.url)


def _encoded_with(generic: Mapping[str, Any], doctypes: Sequence[rest.DocTypeDescription]) -> bytes:
    from web import openapi

    return encode(openapi.with_documents(generic, doctypes))
