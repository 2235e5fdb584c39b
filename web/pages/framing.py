"""Pages within the frame of the desk: the menu is shown next to pages and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fw_actors.actors.gateway import Gateway
from fw_actors.errors import BadRequestError, FwError, NotFoundError, PermissionDeniedError
from web.exchange import Exchange
from web.guard import MAX_SID_CHARACTERS, session_ids
from web.operations import Operation, Route
from web.pages.history import HistoryEntry, deletion
from web.pages.rendering import PageFrame, Rendering, accepts_pages, page_frame
from web.response import Response, error_in

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

FRAMED: Final = (NotFoundError, PermissionDeniedError, BadRequestError)
"""Errors that are shown within the frame; others may prevent the frame from being read."""


class FramedPages:
    """Base class of pages within the frame, over one gateway."""

    def __init__(self, gateway: Gateway, rendering: Rendering) -> None:
        self._gateway, self._rendering = gateway, rendering

    def _routes(self, operations: Mapping[str, Operation]) -> list[Route]:
        """Return the routes of operations by their paths."""
        error_page = self._rendering.error_page
        return [
            Route(rule, {"GET": self._framed(each)}, error_page=error_page)
            for rule, each in operations.items()
        ]

    async def _page(
        self, exchange: Exchange, template: str, current: str, view: Callable[[Fw], dict[str, Any]]
    ) -> Response:
        """Render the values that `view` reads from one snapshot, within the frame.

        The page is rendered where its values are read: a document with thousands of rows takes a
        second, for which all other requests would wait.
        """

        def render(fw: Fw) -> Response:
            return self._rendering.page(template, **view(fw), frame=page_frame(fw, current))

        return await self._gateway.read(exchange.known_caller, render, exchange.request_id)

    def _framed(self, operation: Operation) -> Operation:
        """Return the operation with its errors within the frame, for signed-in users."""

        async def handle(exchange: Exchange) -> Response:
            try:
                return await operation.handle(exchange)
            except (Exception, BaseExceptionGroup) as error:
                expected = error_in(error)
                if not isinstance(expected, FRAMED) or not accepts_pages(exchange):
                    raise
                return await self._framed_error(exchange, expected)

        return replace(operation, handle=handle)

    async def _framed_error(self, exchange: Exchange, error: FwError) -> Response:
        arguments = exchange.request.view_args or {}
        is_missing_document = isinstance(error, NotFoundError) and {"doctype", "name"} <= set(
            arguments
        )

        def both(fw: Fw) -> tuple[HistoryEntry | None, PageFrame]:
            deleted = (
                deletion(fw, arguments["doctype"], arguments["name"])
                if is_missing_document
                else None
            )
            return deleted, page_frame(fw, str(arguments.get("doctype", "")))

        deleted, frame = await self._gateway.read(exchange.known_caller, both, exchange.request_id)
        return self._rendering.framed_error_page(exchange, error, frame, deleted)


class UnknownPaths(FramedPages):
    """Answers browsers at paths that no route has."""

    async def error_page(self, exchange: Exchange, error: FwError) -> Response | None:
        """Return the error within the frame; None for guests.

        No operation has read the session, so it is read here; an invalid session counts as none.
        """
        request = exchange.request
        if request.method not in ("GET", "HEAD") or not accepts_pages(exchange):
            return None
        sids = session_ids(request.headers.getlist("Cookie"))
        if len(sids) != 1 or len(sids[0]) > MAX_SID_CHARACTERS:
            return None
        try:
            exchange.caller = await self._gateway.authenticate(sids[0])
            return await self._framed_error(exchange, error)
        except FwError:
            exchange.caller = None
            return None
