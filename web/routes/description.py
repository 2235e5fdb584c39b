"""The route of the OpenAPI document: GET /api/openapi.json (H-105)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from fw_actors.actors.gateway import Gateway
from fw_actors.documents import rest
from web.exchange import Exchange
from web.operations import Authentication, Operation, Route
from web.response import Response, encode

PATH: Final = "/api/openapi.json"


class DescriptionRoutes:
    """The route of the document about all `routes` and itself."""

    def __init__(self, routes: Sequence[Route], site: str, gateway: Gateway) -> None:
        self._described, self._site, self._gateway = routes, site, gateway

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route(PATH, {"GET": Operation(self.document, Authentication.OPTIONAL)})]

    async def document(self, exchange: Exchange) -> Response:
        """Describe every operation as OpenAPI 3.1, and a signed-in user's DocTypes."""
        if exchange.caller is None:
            return Response(self._for_guests)
        from web.openapi import with_documents

        found = await self._gateway.read(exchange.caller, rest.described, exchange.request_id)
        return Response(encode(with_documents(self._generic, found)))

    @cached_property
    def _generic(self) -> dict[str, Any]:
        """Made on first use, so that a start need not wait for it."""
        from web.openapi import describe

        return describe([*self._described, *self.routes()], self._site)

    @cached_property
    def _for_guests(self) -> bytes:
        return encode(self._generic)
