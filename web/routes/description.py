"""What the interface is, for programs: GET /api/openapi.json (interface §2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from web.envelope import Answer
from web.exchange import Exchange
from web.json_out import encode
from web.operations import Operation, Path, Session

PATH: Final = "/api/openapi.json"


class DescriptionRoutes:
    """The path of the document about all `paths` and itself."""

    def __init__(self, paths: Sequence[Path], site: str) -> None:
        self._described, self._site = paths, site

    def paths(self) -> list[Path]:
        """Return what is served."""
        return [Path(PATH, {"GET": Operation(self.document, Session.IGNORED)})]

    async def document(self, exchange: Exchange) -> Answer:
        """Describe every operation as OpenAPI 3.1."""
        return Answer(self._document)

    @cached_property
    def _document(self) -> bytes:
        """Made when it is first asked for: a start need not wait for it."""
        from web.openapi import described

        return encode(described([*self._described, *self.paths()], self._site))
