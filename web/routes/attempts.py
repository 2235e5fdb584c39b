"""The route of the list of attempts across deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from fw_actors.documents.fields import iso
from fw_actors.errors import BadRequestError
from fw_actors.rules import ATTEMPTS_LISTED
from fw_actors.webhooks.attempt_list import (
    AttemptCursor,
    AttemptPage,
    ListedAttempt,
    attempt_filter,
    attempt_page,
    read_cursor,
)
from web.exchange import Exchange
from web.json_input import read_struct
from web.operations import BodyRule, Operation, Route
from web.response import Response, json_response
from web.response_schemas import AttemptsResponse, ListedAttemptDetails
from web.routes.operations import SERVICES, GatewayRoutes, whole_number


class AttemptsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The body of core.services.webhooks.attempts; times in ISO 8601."""

    webhook: str | None = None
    result: str | None = None
    response_status: int | None = None
    error: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int = ATTEMPTS_LISTED
    before: str | None = None


ATTEMPTS: Final = BodyRule(partial(read_struct, kind=AttemptsRequest), optional=True)
QUERY: Final = frozenset(
    {"webhook", "result", "responseStatus", "error", "since", "until", "limit", "before"}
)


class AttemptRoutes(GatewayRoutes):
    """The route of the list of attempts, by POST and by GET."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        post = Operation(self.attempts, body=ATTEMPTS, response=AttemptsResponse)
        get = Operation(self.attempts, query=QUERY, response=AttemptsResponse)
        return [Route(SERVICES + "webhooks.attempts", {"POST": post, "GET": get})]

    async def attempts(self, exchange: Exchange) -> Response:
        """List attempts of all deliveries, newest first."""
        body = exchange.body
        request = body if isinstance(body, AttemptsRequest) else _from_query(exchange.query)
        filters = attempt_filter(
            webhook=request.webhook, result=request.result, code=request.response_status,
            error=request.error, since=request.since, until=request.until,
        )  # fmt: skip
        before = _cursor(request.before)
        page = await self._read(
            exchange, lambda fw: attempt_page(fw, filters, request.limit, before)
        )
        return json_response(_as_json(page))


def _from_query(query: Mapping[str, str]) -> AttemptsRequest:
    for name in ("responseStatus", "limit"):
        whole_number(query, name)  # msgspec converts "null" to None, and names no field
    try:
        return msgspec.convert(query, AttemptsRequest, strict=False)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"{error}.") from None


def _cursor(text: str | None) -> AttemptCursor | None:
    return read_cursor(text) if text else None


def _as_json(page: AttemptPage) -> AttemptsResponse:
    following = None if page.next is None else str(page.next)
    return AttemptsResponse(list(map(_details, page.attempts)), following, page.newest_only)


def _details(attempt: ListedAttempt) -> ListedAttemptDetails:
    ended = attempt.cursor.ended
    return ListedAttemptDetails(
        delivery=attempt.cursor.delivery,
        webhook=attempt.webhook,
        event=attempt.event,
        number=attempt.number,
        trigger=attempt.trigger.value,
        user=attempt.run.user or None,
        began=iso(ended - attempt.duration_ms),
        ended=iso(ended),
        duration_ms=attempt.duration_ms,
        status=attempt.status,
        response_status=attempt.response_status,
        error=attempt.error,
    )
