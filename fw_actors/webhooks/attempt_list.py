"""The attempts of all deliveries as one list, newest first (O-302, O-303).

The last attempt of a delivery is in the delivery's row, the earlier attempts are in a separate
table; a page merges the newest of both. Indexes find the newest of all attempts, of a Webhook, and
of the failed ones; conditions without an index are applied to the newest 5,000 attempts of each
source. A page begins after the last attempt of the previous page, so that all pages cost the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import WebhookDelivery
from fw_actors.documents.fields import requested_time
from fw_actors.documents.handle import Fw
from fw_actors.documents.query import MAX_SEARCHED_ROWS, ascii_lower
from fw_actors.documents.tables import table_of
from fw_actors.errors import BadRequestError
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.store import Like, Statement, Tx
from fw_actors.store.schema import DELIVERY_ATTEMPT
from fw_actors.webhooks.attempts import AttemptRun, AttemptTrigger, decode_run, trigger_of

MAX_LIMIT: Final = 500
"""The maximum number of attempts in a page."""
_MAX_ERROR_CHARACTERS: Final = 200


class AttemptResult(StrEnum):
    """The results by which attempts are filtered."""

    SENT = "sent"
    FAILED = "failed"


class AttemptFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of a list of attempts; None: any value.

    Args:
        error: a text that the error contains, regardless of the case of ASCII letters.
        since, until: the range of their ends in ms, without `until` itself.
    """

    webhook: str | None = None
    result: AttemptResult | None = None
    response_status: int | None = None
    error: str | None = None
    since: int | None = None
    until: int | None = None


class AttemptCursor(NamedTuple):
    """The position of an attempt in the list, from which a next page continues. `ended` in ms."""

    ended: int
    delivery: str
    position: int

    def __str__(self) -> str:
        return f"{self.ended}.{self.position}.{self.delivery}"


def read_cursor(text: str) -> AttemptCursor:
    """Return the position in a page's `next`, which `str` has encoded. Raises: BadRequestError."""
    ended, _, rest = text.partition(".")
    position, _, delivery = rest.partition(".")
    numbers = (ended, position)
    if not delivery or not all(n.isascii() and n.isdigit() and len(n) <= _DIGITS for n in numbers):
        raise BadRequestError(
            "before must be the value of `next` from an earlier page.", field="before"
        )
    return AttemptCursor(int(ended), delivery, int(position))


def attempt_filter(
    *,
    webhook: str | None = None,
    result: str | None = None,
    code: int | None = None,
    error: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> AttemptFilter:
    """Return the filter for the arguments of a request; None and an empty text set no condition.

    Args:
        webhook: the name of a Webhook.
        result: the value of an AttemptResult.
        code: the status of the response, 100 to 999.
        error: a text that the error contains.
        since, until: times in ISO 8601.

    Raises: BadRequestError.
    """
    if result and result not in list(AttemptResult):
        raise BadRequestError(f"result must be one of {', '.join(AttemptResult)}.", field="result")
    if code is not None and not 100 <= code <= 999:
        raise BadRequestError("responseStatus must be between 100 and 999.", field="responseStatus")
    return AttemptFilter(
        webhook=webhook or None,
        result=AttemptResult(result) if result else None,
        response_status=code,
        error=error or None,
        since=_time(since, "since"),
        until=_time(until, "until"),
    )


def _time(text: str | None, field: str) -> int | None:
    return requested_time(text, field) if text else None


class ListedAttempt(NamedTuple):
    """An attempt in the list. `event`: the event of its delivery. Times in ms."""

    cursor: AttemptCursor
    webhook: str
    event: str
    number: int
    trigger: AttemptTrigger
    run: AttemptRun
    status: str
    response_status: int | None
    error: str | None
    duration_ms: int


class AttemptPage(NamedTuple):
    """A page of the list; `next` is the start of the following page, None at the end.

    `newest_only`: only the newest attempts were searched, and there are more.
    """

    attempts: list[ListedAttempt]
    next: AttemptCursor | None
    newest_only: bool


def attempt_page(
    fw: Fw, filters: AttemptFilter, limit: int, before: AttemptCursor | None = None
) -> AttemptPage:
    """Return the newest matching attempts, after `before`.

    Raises: PermissionDeniedError if the user may not list deliveries; BadRequestError.
    """
    meta = fw.documents.registry.meta("Webhook Delivery")
    fw.rights.require_in_scope(meta)
    fw.rights.require(meta, "list")
    _require_valid(filters, limit)
    tx = fw.tx
    rows: list[tuple[Any, ...]] = []
    newest_only = False
    with tx.searching():
        for source in _sources(filters):
            rows += tx.rows(source.newest(filters, limit + 1, before))
            if source.is_searched(filters):
                count = tx.scalar(source.counted(filters, MAX_SEARCHED_ROWS + 1))
                newest_only = newest_only or int(str(count)) > MAX_SEARCHED_ROWS
    rows.sort(key=lambda row: AttemptCursor(row[0], row[1], row[2]), reverse=True)
    page = rows[:limit]
    attempts = list(_attempts(tx, page))
    following = attempts[-1].cursor if len(rows) > limit else None
    return AttemptPage(attempts, following, newest_only)


def _require_valid(filters: AttemptFilter, limit: int) -> None:
    if not 1 <= limit <= MAX_LIMIT:
        raise BadRequestError(f"limit must be between 1 and {MAX_LIMIT}.", field="limit")
    if filters.error is not None and len(filters.error) > _MAX_ERROR_CHARACTERS:
        raise BadRequestError(
            f"error must have at most {_MAX_ERROR_CHARACTERS} characters.", field="error"
        )


_A: Final = DELIVERY_ATTEMPT.c
_D: Final = table_of(WebhookDelivery).table.c
_DIGITS: Final = 15
_SUCCESS: Final = 2  # 2xx
_IN_ROW: Final = 1 << 30
"""The position of a delivery's last attempt, which is in its row: after all others."""
_EVENTS: Final = Statement(
    sa.select(_D.name, _D.event, _D.creation).where(_D.name.in_(sa.bindparam("n", expanding=True)))
)


@dataclass(frozen=True)
class _Source:
    """A table with attempts, and the columns by which they are found.

    `only`: the condition of a partial index; `by_webhook`: whether an index finds the attempts of a
    Webhook.
    """

    delivery: sa.Column[Any]
    position: sa.ColumnElement[int]
    number: sa.Column[Any]
    columns: Any
    only: tuple[sa.ColumnElement[bool], ...]
    by_webhook: bool

    def newest(
        self, filters: AttemptFilter, limit: int, before: AttemptCursor | None
    ) -> sa.Select[Any]:
        """Return the statement for the newest attempts after `before`."""
        c = self.columns
        select = sa.select(
            c.last_attempt.label("ended"), self.delivery.label("delivery"),
            self.position.label("position"), c.webhook, self.number.label("number"), c.status,
            c.response_status, c.error, c.duration_ms, c.replayed,
        ).where(*self._indexed_conditions(filters))  # fmt: skip
        if before is not None:
            select = select.where(c.last_attempt <= before.ended)
        other_conditions = self._other_conditions(filters)
        order = [c.last_attempt.desc(), self.delivery.desc()]
        if isinstance(self.position, sa.Column):
            order.append(self.position.desc())
        if not other_conditions:
            return _after(select, self, before).order_by(*order).limit(limit)
        some = select.order_by(*order).limit(MAX_SEARCHED_ROWS).subquery("some")
        matches = sa.select(*some.c).where(*(condition(some.c) for condition in other_conditions))
        if before is not None:
            matches = matches.where(
                _is_after(some.c.ended, some.c.delivery, some.c.position, before)
            )
        by_time = [column.desc() for column in (some.c.ended, some.c.delivery, some.c.position)]
        return matches.order_by(*by_time).limit(limit)

    def is_searched(self, filters: AttemptFilter) -> bool:
        """Whether the filter has conditions that no index answers."""
        return bool(self._other_conditions(filters))

    def counted(self, filters: AttemptFilter, max_count: int) -> sa.Select[Any]:
        """Return the statement for the number of attempts to search, at most `max_count`."""
        any_row: sa.Select[Any] = sa.select(sa.literal_column("1")).select_from(
            self.columns.last_attempt.table
        )
        limited = any_row.where(*self._indexed_conditions(filters)).limit(max_count)
        return sa.select(sa.func.count()).select_from(limited.subquery())

    def _indexed_conditions(self, filters: AttemptFilter) -> list[sa.ColumnElement[bool]]:
        c = self.columns
        conditions = [*self.only, c.last_attempt.is_not(None)]
        if filters.webhook is not None and self.by_webhook:
            conditions.append(c.webhook == filters.webhook)
        if filters.since is not None:
            conditions.append(c.last_attempt >= filters.since)
        if filters.until is not None:
            conditions.append(c.last_attempt < filters.until)
        return conditions

    def _other_conditions(self, filters: AttemptFilter) -> list[Any]:
        """Return the conditions that no index answers, as functions of the columns."""
        conditions: list[Any] = []
        if filters.webhook is not None and not self.by_webhook:
            conditions.append(lambda c: c.webhook == filters.webhook)
        if filters.result is not None and not self.only:
            is_error = filters.result is AttemptResult.FAILED
            conditions.append(lambda c: c.error.is_not(None) if is_error else c.error.is_(None))
        if filters.response_status is not None:
            conditions.append(lambda c: c.response_status == filters.response_status)
        if filters.error is not None:
            pattern = filters.error.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            conditions.append(lambda c: Like(c.error, f"%{ascii_lower(pattern)}%"))
        return conditions


_IN_ROW_OF: Final = (_D.name, sa.literal(_IN_ROW), _D.attempts, _D)
_LAST_SENT: Final = _Source(
    *_IN_ROW_OF, only=(_D.status == DeliveryStatus.SENT.value,), by_webhook=False
)
_LAST_FAILED: Final = _Source(*_IN_ROW_OF, only=(_D.error.is_not(None),), by_webhook=True)
_EARLIER: Final = _Source(_A.delivery, _A.position, _A.number, _A, only=(), by_webhook=True)


def _sources(filters: AttemptFilter) -> Iterable[_Source]:
    code = filters.response_status
    was_sent = filters.error is None and (code is None or code // 100 == _SUCCESS)
    if filters.result is not AttemptResult.FAILED and was_sent:
        yield _LAST_SENT
    if filters.result is not AttemptResult.SENT:
        yield _LAST_FAILED
    yield _EARLIER


def _is_after(
    ended: Any, delivery: Any, position: Any, before: AttemptCursor
) -> sa.ColumnElement[bool]:
    same = sa.and_(delivery == before.delivery, position < before.position)
    return sa.or_(ended < before.ended, delivery < before.delivery, same)


def _after(select: sa.Select[Any], source: _Source, before: AttemptCursor | None) -> sa.Select[Any]:
    if before is None:
        return select
    ended = source.columns.last_attempt
    return select.where(_is_after(ended, source.delivery, source.position, before))


def _attempts(tx: Tx, rows: list[tuple[Any, ...]]) -> Iterable[ListedAttempt]:
    names = sorted({row[1] for row in rows})
    events = {name: more for name, *more in tx.rows(_EVENTS, n=names)} if names else {}
    for ended, delivery, position, webhook, number, status, code, error, duration, replayed in rows:
        event, creation = events.get(delivery, ("", ended))
        run = decode_run(creation, replayed)
        yield ListedAttempt(
            AttemptCursor(ended, delivery, position), webhook or "", event or "", number,
            trigger_of(number, run), run, status or "", code, error, duration or 0,
        )  # fmt: skip
