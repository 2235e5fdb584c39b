"""The state of Webhooks by their outcomes: consecutive failures, and counts by the hour.

Each batch of outcomes updates two small tables, so that reading a state costs the same for any
number of deliveries (B-240 to B-243).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from fw_actors.documents.core import Webhook
from fw_actors.documents.handle import DocType, Fw
from fw_actors.documents.hooks import Observer
from fw_actors.documents.tables import stored_number, table_of
from fw_actors.errors import ValidationError
from fw_actors.http import parse_endpoint
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.rules.findings import ServiceState
from fw_actors.rules.receivers import FAILURES, NOT_PAUSED, pause_end
from fw_actors.runtime.clock import MS_PER_DAY, MS_PER_HOUR
from fw_actors.store import JsonRows, Statement, Tx, earlier, rows_as_json
from fw_actors.store.ordered_jobs import count_parked
from fw_actors.store.schema import JOB, WEBHOOK_CLAIM, WEBHOOK_HEALTH, WEBHOOK_HOUR
from fw_actors.webhooks.events import QUEUE

KEPT_DAYS: Final = 8
"""The days for which the counts of an hour are kept: a week, and the day on which it began."""
MAX_WAITING_DELIVERIES: Final = 1000
"""The maximum number of waiting deliveries of a Webhook that are counted."""


CountedOutcome = tuple[str, DeliveryStatus, int, str]
"""An outcome for the counts of its Webhook: the Webhook's id, status, time (ms), and error, which
is empty after a success."""


def tallies_of(outcomes: Iterable[CountedOutcome]) -> str:
    """Return the counts that a batch of outcomes adds to each Webhook, as the parameter of
    `add_tallies`.
    """
    rows: dict[str, list[Any]] = {}
    success, retrying = DeliveryStatus.SENT, DeliveryStatus.RETRYING
    for webhook, status, at, error in outcomes:
        row = rows.get(webhook)
        if row is None:
            row = rows[webhook] = [webhook, 0, 0, 0, None, 0, None, None, None]
        if status is success:
            row[1] += 1
            row[4], row[5], row[6] = at, 0, None
            continue
        row[2 if status is retrying else 3] += 1
        row[5] += 1
        row[6] = row[6] or at
        row[7], row[8] = error, at
    # Sorted, so that two processes lock the rows of Webhooks in the same order.
    return rows_as_json([rows[webhook] for webhook in sorted(rows)])


_T: Final = JsonRows("tallies")
_LEASED: Final = JsonRows("leased")
_NAME_OF_JOB: Final = sa.select(JOB.c.partition).where(JOB.c.id == _LEASED.item(0, int))
# Not a join: SQLite would read all jobs.
_RENAMED: Final = (
    sa.exists()
    .select_from(_LEASED.table)
    .where(_NAME_OF_JOB.correlate(_LEASED.table).scalar_subquery() != _LEASED.item(1, str))
)
_HOUR: Final = WEBHOOK_HOUR.c
_ADD_COUNTS: Final = Statement(
    sa.insert(WEBHOOK_HOUR).from_select(
        ["webhook", "hour", "sent", "retried", "failed"],
        sa.select(
            _T.item(0, str),
            sa.bindparam("hour", type_=sa.BigInteger()),
            *(_T.item(at, int) for at in (1, 2, 3)),
        )
        .select_from(_T.table)
        .where(~_RENAMED)
        .suffix_with(
            "ON CONFLICT (webhook, hour) DO UPDATE SET sent = fw_webhook_hour.sent + excluded.sent,"
            " retried = fw_webhook_hour.retried + excluded.retried,"
            " failed = fw_webhook_hour.failed + excluded.failed"
        ),
    )
)
_ADD_HEALTH: Final = Statement(
    sa.insert(WEBHOOK_HEALTH).from_select(
        ["webhook", "last_success", "failures", "failing_since", "last_error", "last_failure"],
        sa.select(
            _T.item(0, str), _T.item(4, int), _T.item(5, int), _T.item(6, int), _T.item(7, str),
            _T.item(8, int),
        )
        .select_from(_T.table)
        .where(sa.true())  # else SQLite parses ON as that of a join
        .suffix_with(
            "ON CONFLICT (webhook) DO UPDATE SET"
            " failures = excluded.failures + CASE WHEN excluded.last_success IS NULL"
            " THEN fw_webhook_health.failures ELSE 0 END,"
            " failing_since = CASE WHEN excluded.last_success IS NULL"
            " AND fw_webhook_health.failures > 0 THEN fw_webhook_health.failing_since"
            " ELSE excluded.failing_since END,"
            " last_error = COALESCE(excluded.last_error, fw_webhook_health.last_error),"
            " last_failure = COALESCE(excluded.last_failure, fw_webhook_health.last_failure),"
            " last_success = COALESCE(excluded.last_success, fw_webhook_health.last_success)"
        ),
    )
)  # fmt: skip


_NONE: Final = rows_as_json(())


def add_tallies(tx: Tx, tallies: str, leased: str = _NONE) -> bool:
    """Count a batch of outcomes for their Webhooks, unless one of these was renamed meanwhile.

    `leased`: rows of a job of each Webhook and the Webhook's id when that job was leased.

    Returns: whether they were counted.
    """
    hour = tx.now - tx.now % MS_PER_HOUR
    added = tx.run(_ADD_COUNTS, tallies=tallies, leased=leased, hour=hour)
    if not added and tallies != _NONE:
        return False
    tx.run(_ADD_HEALTH, tallies=tallies)
    return True


class WebhookState(StrEnum):
    """The state of a Webhook, as shown to operators and used in filters."""

    WORKING = "working"
    UNTRIED = "untried"
    SLOW = "slow"
    FAILING = "failing"
    PAUSED = "paused"
    DISABLED = "disabled"


class OutcomeCounts(NamedTuple):
    """Outcomes in a period: deliveries that were sent, attempts that will be retried, and
    deliveries that have failed."""

    sent: int = 0
    failed: int = 0
    retried: int = 0

    @property
    def rate(self) -> float | None:
        """The share of ended deliveries that were sent, 0 to 1; None without any."""
        ended = self.sent + self.failed
        return self.sent / ended if ended else None


class WebhookHealth(NamedTuple):
    """A Webhook and its state. Times in ms; periods are the last whole hours and the current one.

    `waiting` is at most `MAX_WAITING_DELIVERIES`; `oldest` is the time when the delivery that is
    due first was recorded. `paused_since` and `paused_until` describe the pause of the Webhook
    itself: both are None without a pause, and `paused_until` is None for a pause without an end.
    """

    name: str
    label: str
    state: WebhookState
    failures: int
    failing_since: int | None
    last_error: str
    last_success: int | None
    hour: OutcomeCounts
    day: OutcomeCounts
    week: OutcomeCounts
    waiting: int
    oldest: int | None
    paused_since: int | None = None
    paused_until: int | None = None


_W: Final = table_of(Webhook).table.c
_HEALTH: Final = WEBHOOK_HEALTH.c
_NAMES: Final[sa.BindParameter[Any]] = sa.bindparam("names", expanding=True)
_NAMES_AT_ONCE: Final = 500  # each is a parameter, of which SQLite takes 32,766 in a statement
_WEBHOOKS: Final = (
    sa.select(
        _W.name, _W.title, _W.url, _W.enabled, _HEALTH.failures, _HEALTH.failing_since,
        _HEALTH.last_error, _HEALTH.last_success,
        stored_number(_W.paused_since), stored_number(_W.paused_until),
    )
    .select_from(_W.name.table.outerjoin(WEBHOOK_HEALTH, _HEALTH.webhook == _W.name))
)  # fmt: skip
_THESE: Final = Statement(_WEBHOOKS.where(_W.name.in_(_NAMES)))
_FAILING: Final = Statement(
    _WEBHOOKS.where(_HEALTH.failures >= FAILURES, _W.enabled == 1)
    .order_by(_HEALTH.failing_since)
    .limit(sa.bindparam("limit"))
)


def _since(name: str) -> tuple[sa.ColumnElement[int], ...]:
    after = _HOUR.hour >= sa.bindparam(name, type_=sa.BigInteger())
    columns = (_HOUR.sent, _HOUR.failed, _HOUR.retried)
    return tuple(sa.func.coalesce(sa.func.sum(sa.case((after, c), else_=0)), 0) for c in columns)


_IS_PAST: Final = _HOUR.hour <= sa.bindparam("now", type_=sa.BigInteger())
"""Whether an hour has begun: counts may have been written while the clock was ahead."""
_COUNTS: Final = Statement(
    sa.select(_HOUR.webhook, *_since("hour"), *_since("day"), *_since("week"))
    .where(_HOUR.webhook.in_(_NAMES), _HOUR.hour >= sa.bindparam("week"), _IS_PAST)
    .group_by(_HOUR.webhook)
)
_ALL_OF_A_DAY: Final = Statement(
    sa.select(
        *(sa.func.coalesce(sa.func.sum(c), 0) for c in (_HOUR.sent, _HOUR.failed, _HOUR.retried))
    ).where(_HOUR.hour >= sa.bindparam("day"), _IS_PAST)
)
_HOURS: Final = Statement(
    sa.select(_HOUR.hour, _HOUR.sent, _HOUR.failed, _HOUR.retried)
    .where(_HOUR.webhook == sa.bindparam("webhook"), _HOUR.hour >= sa.bindparam("since"))
    .order_by(_HOUR.hour)
)
_DUE: Final = sa.and_(
    JOB.c.queue == QUEUE, JOB.c.partition == sa.bindparam("webhook"), JOB.c.next_at.is_not(None)
)
_WAITING: Final = Statement(
    sa.select(sa.func.count()).select_from(
        sa.select(JOB.c.next_at).where(_DUE).limit(MAX_WAITING_DELIVERIES).subquery()
    )
)
_OLDEST: Final = Statement(sa.select(JOB.c.created).where(_DUE).order_by(JOB.c.next_at).limit(1))


def waiting_deliveries(tx: Tx, webhook: str) -> int:
    """Return the number of deliveries of a Webhook that wait or are in progress, up to
    `MAX_WAITING_DELIVERIES`."""
    due: int = tx.scalar(_WAITING, webhook=webhook)
    return min(MAX_WAITING_DELIVERIES, due + count_parked(tx, webhook, MAX_WAITING_DELIVERIES))


def health_of(tx: Tx, names: Sequence[str], service: ServiceState) -> dict[str, WebhookHealth]:
    """Return the state of Webhooks by name; names without a Webhook are left out."""
    found: dict[str, WebhookHealth] = {}
    for first in range(0, len(names), _NAMES_AT_ONCE):
        webhooks = tx.rows(_THESE, names=list(names[first : first + _NAMES_AT_ONCE]))
        found.update((each.name, each) for each in _with_counts(tx, webhooks, service))
    return found


def failing_webhooks(tx: Tx, service: ServiceState, limit: int) -> list[WebhookHealth]:
    """Return enabled Webhooks whose last attempts failed, those that fail longest first."""
    return list(_with_counts(tx, tx.rows(_FAILING, limit=limit), service))


def counts_of_a_day(tx: Tx) -> OutcomeCounts:
    """Return the outcomes of all Webhooks in the last 24 hours."""
    row = tx.one(_ALL_OF_A_DAY, day=_hours_ago(tx, 24), now=tx.now)
    return OutcomeCounts() if row is None else OutcomeCounts(*map(int, row))


def counts_by_hour(tx: Tx, webhook: str, hours: int) -> list[tuple[int, OutcomeCounts]]:
    """Return the outcomes of a Webhook in each of the last hours, the oldest first."""
    first = _hours_ago(tx, hours - 1)
    rows = tx.rows(_HOURS, webhook=webhook, since=first)
    counts_of_hour = {hour: OutcomeCounts(*counts) for hour, *counts in rows}
    all_hours = range(first, first + hours * MS_PER_HOUR, MS_PER_HOUR)
    return [(hour, counts_of_hour.get(hour, OutcomeCounts())) for hour in all_hours]


def label_of_webhook(title: str | None, url: str | None) -> str:
    """Return the label of a Webhook for people: its title, or else host and path of its URL."""
    if title:
        return str(title)
    try:
        return parse_endpoint(url or "", development=True).display.partition("://")[2]
    except ValidationError:  # written by raw SQL
        return str(url or "")


def public_label(title: str | None, url: str | None) -> str:
    """Return the label of a Webhook in mails and events: without the path, which may contain a
    token."""
    return title or label_of_webhook(None, url).partition("/")[0]


def receiver_of(url: str | None) -> str:
    """Return the receiver of a Webhook's URL as `https://host:port`; empty for an invalid URL."""
    try:
        return str(parse_endpoint(url or "", development=True).origin)
    except ValidationError:  # written by raw SQL
        return ""


_URLS: Final = Statement(sa.select(_W.name, _W.url))


def receivers_of(tx: Tx) -> dict[str, str]:
    """Return the receiver of each Webhook by name."""
    return {str(name): receiver_of(url) for name, url in tx.rows(_URLS)}


_CALLED: Final = Statement(sa.select(_W.name, _W.title, _W.url).where(_W.name.in_(_NAMES)))


def labels_of(tx: Tx, names: Iterable[str]) -> dict[str, str]:
    """Return the labels of Webhooks by name; names without a Webhook are left out."""
    distinct = sorted(set(names))
    rows = tx.rows(_CALLED, names=distinct) if distinct else []
    return {name: label_of_webhook(title, url) for name, title, url in rows}


def _with_counts(
    tx: Tx, webhooks: Sequence[tuple[Any, ...]], service: ServiceState
) -> Iterable[WebhookHealth]:
    if not webhooks:
        return
    periods = {name: _hours_ago(tx, hours) for name, hours in _PERIODS.items()}
    rows = tx.rows(_COUNTS, names=[row[0] for row in webhooks], now=tx.now, **periods)
    counts = {name: tuple(map(int, numbers)) for name, *numbers in rows}
    for name, title, url, enabled, failures, failing, error, success, since, until in webhooks:
        paused = pause_end(since, until, tx.now) != NOT_PAUSED
        receiver_health = service.health.get(receiver_of(url), "")
        numbers = counts.get(name, (0,) * 9)
        yield WebhookHealth(
            name=name,
            label=label_of_webhook(title, url),
            state=_state(paused, bool(enabled), failures or 0, success, receiver_health),
            failures=failures or 0,
            failing_since=failing,
            last_error=error or "",
            last_success=success,
            hour=OutcomeCounts(*numbers[:3]),
            day=OutcomeCounts(*numbers[3:6]),
            week=OutcomeCounts(*numbers[6:]),
            waiting=waiting_deliveries(tx, name),
            oldest=tx.scalar(_OLDEST, webhook=name),
            paused_since=since if paused else None,
            paused_until=until if paused else None,
        )


_PERIODS: Final = {"hour": 1, "day": 24, "week": 7 * 24}


def _hours_ago(tx: Tx, hours: int) -> int:
    return tx.now - tx.now % MS_PER_HOUR - hours * MS_PER_HOUR


def _state(
    paused: bool, enabled: bool, failures: int, success: int | None, receiver_health: str
) -> WebhookState:
    if paused:  # also of a disabled one, whose deliveries wait too (B-301)
        return WebhookState.PAUSED
    if not enabled:  # its deliveries fail, also while its receiver is paused
        return WebhookState.DISABLED
    if receiver_health == "paused":
        return WebhookState.PAUSED
    if failures >= FAILURES:
        return WebhookState.FAILING
    if receiver_health == "slow":
        return WebhookState.SLOW
    return WebhookState.UNTRIED if success is None and not failures else WebhookState.WORKING


_OLD: Final[sa.BindParameter[Any]] = sa.bindparam("old")
_NEW: Final[sa.BindParameter[Any]] = sa.bindparam("new")
_TABLES: Final = (WEBHOOK_CLAIM, WEBHOOK_HOUR, WEBHOOK_HEALTH)  # in the order of locks
_MOVES: Final = tuple(
    Statement(sa.update(table).where(table.c.webhook == _OLD).values(webhook=_NEW))
    for table in _TABLES
)
_DELETIONS: Final = tuple(
    Statement(sa.delete(table).where(table.c.webhook == _OLD)) for table in _TABLES
)
_OLDEST_HOURS: Final = Statement(
    sa.select(_HOUR.webhook, _HOUR.hour)
    .where(_HOUR.hour <= sa.bindparam("before"))
    .limit(sa.bindparam("limit"))
)
_DROP_HOUR: Final = Statement(
    sa.delete(WEBHOOK_HOUR).where(
        _HOUR.webhook == sa.bindparam("of"), _HOUR.hour == sa.bindparam("at")
    )
)


_OF_NO_WEBHOOK: Final = Statement(
    sa.union(
        *(
            sa.select(table.c.webhook).where(
                ~sa.select(_W.name).where(_W.name == table.c.webhook).exists()
            )
            for table in (WEBHOOK_HEALTH, WEBHOOK_CLAIM)
        )
    ).limit(sa.bindparam("limit"))
)


class HealthRenames(Observer):
    """Moves the counts of a renamed Webhook to its new name, and deletes those of a deleted one."""

    doctypes = frozenset({"Webhook"})
    events = frozenset({"on_insert"})

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Delete counts that deliveries of a deleted Webhook of the same name have left."""
        _delete_counts(fw.tx, str(doc.name))

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Move the counts of a Webhook to its new name."""
        _delete_counts(fw.tx, new)  # counts of a Webhook that raw SQL deleted
        for statement in _MOVES:
            fw.tx.run(statement, old=old, new=new)

    def deleting(self, fw: Fw, doc: DocType) -> None:
        """Delete the counts of a Webhook."""
        _delete_counts(fw.tx, str(doc.name))


def _delete_counts(tx: Tx, *webhooks: str) -> None:
    """Delete the counts of Webhooks, in the order in which outcomes lock them (B-430)."""
    for statement in _DELETIONS:
        for webhook in sorted(webhooks):
            tx.run(statement, old=webhook)


def drop_old_hours(tx: Tx, limit: int) -> int:
    """Delete at most `limit` counts that are no longer shown; return how many were deleted."""
    rows = sorted(tx.rows(_OLDEST_HOURS, before=tx.now - KEPT_DAYS * MS_PER_DAY, limit=limit))
    if rows:
        tx.run_many(_DROP_HOUR, [{"of": webhook, "at": hour} for webhook, hour in rows])
    return len(rows)


def drop_states_of_deleted(tx: Tx, limit: int) -> int:
    """Delete the state and counts of at most `limit` missing Webhooks; return their number.

    Such rows exist because deliveries in progress at the deletion of their Webhook write them
    again.
    """
    rows = tx.rows(_OF_NO_WEBHOOK, limit=limit)
    _delete_counts(tx, *(webhook for (webhook,) in rows))
    return len(rows)


_AHEAD: Final[sa.BindParameter[Any]] = sa.bindparam("ahead", type_=sa.BigInteger())
_AT: Final[sa.BindParameter[Any]] = sa.bindparam("now", type_=sa.BigInteger())
_FAILED_FOR: Final = sa.case(
    (_HEALTH.last_failure > _HEALTH.failing_since, _HEALTH.last_failure - _HEALTH.failing_since),
    else_=0,
)
_SINCE: Final = sa.case(
    (_HEALTH.failing_since > _AHEAD, _AT - _FAILED_FOR), else_=_HEALTH.failing_since
)
_IS_AHEAD: Final = sa.or_(
    *(each > _AHEAD for each in (_HEALTH.failing_since, _HEALTH.last_failure, _HEALTH.last_success))
)
_CORRECT: Final = Statement(
    sa.update(WEBHOOK_HEALTH)
    .where(
        _HEALTH.webhook.in_(  # locked in the order of outcomes
            sa.select(_HEALTH.webhook)
            .where(_IS_AHEAD)
            .order_by(_HEALTH.webhook)
            .limit(sa.bindparam("limit"))
            .with_for_update()
        )
    )
    .values(
        failing_since=_SINCE,
        noticed=sa.case((_HEALTH.noticed == _HEALTH.failing_since, _SINCE), else_=_HEALTH.noticed),
        disabled=sa.case(
            (_HEALTH.disabled == _HEALTH.failing_since, _SINCE), else_=_HEALTH.disabled
        ),
        last_failure=earlier(_HEALTH.last_failure, _AT),
        last_success=earlier(_HEALTH.last_success, _AT),
    )
)


def correct_times(tx: Tx, after: int, limit: int) -> int:
    """Correct the failures and successes of at most `limit` Webhooks that are later than `after`
    (ms); return how many.

    A failure period keeps its duration up to now, and the actions that were taken for it (O-163).
    """
    return tx.run(_CORRECT, now=tx.now, ahead=after, limit=limit)
