"""The page of attempts of all deliveries, with results, times and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from fw_actors.documents.fields import iso
from fw_actors.errors import BadRequestError
from fw_actors.webhooks.attempt_list import (
    AttemptResult,
    ListedAttempt,
    attempt_filter,
    attempt_page,
    read_cursor,
)
from fw_actors.webhooks.attempts import trigger_in_words
from fw_actors.webhooks.health import labels_of
from web.exchange import Exchange
from web.operations import Operation, Route
from web.pages.framing import FramedPages
from web.pages.listing import BAD, FROM, GOOD, PAGE_SIZE, UNTIL, WARN, FilterChoice, ListCell
from web.pages.rendering import document_path
from web.pages.webhooks import DELIVERY, WEBHOOK, choices_of, webhook_labels
from web.pages.wording import sentence
from web.response import Response

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

ATTEMPTS: Final = "/app/attempts"
CURRENT: Final = "Attempts"
BEFORE: Final = "_before"
PARAMETERS: Final = frozenset({"webhook", "result", "code", "error", FROM, UNTIL, BEFORE})
_TONES: Final[Mapping[str, str]] = {"Sent": GOOD, "Retrying": WARN, "Failed": BAD}
_RESULTS: Final = ((AttemptResult.FAILED, "Failed"), (AttemptResult.SENT, "Sent"))


@dataclass(frozen=True)
class ShownAttempt:
    """A row of the page; `result` is the response's status or the kind of the error."""

    path: str
    delivery: str
    event: str
    webhook: str
    webhook_path: str
    result: ListCell
    error: str
    title: str
    ended: str
    duration_ms: int


class AttemptPages(FramedPages):
    """The page with the attempts of all deliveries."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return self._routes({ATTEMPTS: Operation(self.page, query=PARAMETERS)})

    async def page(self, exchange: Exchange) -> Response:
        """Show a page of the list."""
        query = exchange.query
        return await self._page(
            exchange, "attempts.html", CURRENT, lambda fw: attempts_view(fw, query)
        )


def attempts_view(fw: Fw, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the template's variables. Raises: BadRequestError, PermissionDeniedError."""
    webhook, result, code = query.get("webhook", ""), query.get("result", ""), query.get("code", "")
    filters = attempt_filter(
        webhook=webhook, result=result, code=_number(code), error=query.get("error", "").strip(),
        since=query.get(FROM), until=query.get(UNTIL),
    )  # fmt: skip
    before = query.get(BEFORE, "")
    page = attempt_page(fw, filters, PAGE_SIZE, read_cursor(before) if before else None)
    kept = {key: value for key, value in query.items() if value and key != BEFORE}
    labels = labels_of(fw.tx, {each.webhook for each in page.attempts})
    older = {**kept, BEFORE: str(page.next)}
    return {
        "path": ATTEMPTS,
        "webhook": webhook,
        "webhooks": choices_of(webhook_labels(fw), webhook),
        "results": [FilterChoice(each.value, label, each == result) for each, label in _RESULTS],
        "code": code,
        "error": query.get("error", ""),
        "begins": query.get(FROM, ""),
        "ends": query.get(UNTIL, ""),
        "filtered": bool(kept),
        "attempts": [_shown(each, labels) for each in page.attempts],
        "newest_only": page.newest_only,
        "newest": f"{ATTEMPTS}?{urlencode(kept)}" if before else "",
        "older": f"{ATTEMPTS}?{urlencode(older)}" if page.next else "",
    }


def _number(code: str) -> int | None:
    if not code:
        return None
    if not (code.isascii() and code.isdigit() and len(code) <= 3):
        raise BadRequestError("The response must be an HTTP status such as 503.", field="code")
    return int(code)


def _shown(attempt: ListedAttempt, labels: Mapping[str, str]) -> ShownAttempt:
    cursor = attempt.cursor
    trigger = trigger_in_words(attempt.trigger, attempt.error, attempt.run.user)
    kind = (attempt.error or "").partition(":")[0].replace("_", " ")
    text = str(attempt.response_status) if attempt.response_status is not None else kind
    return ShownAttempt(
        path=document_path(DELIVERY, cursor.delivery),
        delivery=cursor.delivery,
        event=attempt.event,
        webhook=labels.get(attempt.webhook, attempt.webhook),
        webhook_path=document_path(WEBHOOK, attempt.webhook) if attempt.webhook in labels else "",
        result=ListCell("badge", text or attempt.status, _TONES.get(attempt.status, WARN)),
        error=sentence(attempt.error),
        title=f"{attempt.number}, {trigger}",
        ended=iso(cursor.ended),
        duration_ms=attempt.duration_ms,
    )
