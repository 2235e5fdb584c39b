"""What the service offers, for programs: GET /api/openapi.json (H-105)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from fw_actors.actors.gateway import Gateway
from fw_actors.documents import rest
from web.exchange import Exchange
from web.operations import Operation, Path, Session
from web.response import Answer, encode

PATH: Final = "/api/openapi.json"


class DescriptionRoutes:
    """The path of the document about all `paths` and itself."""

    def __init__(self, paths: Sequence[Path], site: str, gateway: Gateway) -> None:
        self._described, self._site, self._gateway = paths, site, gateway

    def paths(self) -> list[Path]:
        """Return what is served."""
        return [Path(PATH, {"GET": Operation(self.document, Session.OPTIONAL)})]

    async def document(self, exchange: Exchange) -> Answer:
        """Describe every operation as OpenAPI 3.1; to who is signed in, the own DocTypes too."""
        if exchange.caller is None:
            return Answer(self._for_guests)
        from web.openapi import with_documents

        found = await self._gateway.read(exchange.caller, rest.described, exchange.request_id)
        return Answer(encode(with_documents(self._generic, found)))

    @cached_property
    def _generic(self) -> dict[str, Any]:
        """Made when it is first asked for: a start need not wait for it."""
        from web.openapi import described

        return described([*self._described, *self.paths()], self._site)

    @cached_property
    def _for_guests(self) -> bytes:
        return encode(self._generic)
