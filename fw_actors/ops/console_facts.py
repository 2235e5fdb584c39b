"""The stored facts that the console shows: queues, lockouts, receivers, deliveries, failures, jobs.

In the console a receiver is an origin, to which several Webhooks may point. Receivers are read from
the small table of outcomes and from bounded counts, and deliveries by their indexes. Only the
statistics of queues read all jobs.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.access.attempts import IDENTIFIER as IDENTIFIER_KIND
from fw_actors.access.attempts import counter_key, shown_key
from fw_actors.documents.core import MAX_TIMEOUT, Webhook, WebhookDelivery
from fw_actors.documents.tables import table_of
from fw_actors.ops import mail_queue, queued_jobs
from fw_actors.ops.queued_jobs import JobFacts, newest_jobs
from fw_actors.rules.delivery import LEASE_MARGIN_SECONDS, DeliveryStatus
from fw_actors.runtime.clock import MS_PER_HOUR, MS_PER_SECOND
from fw_actors.store import QueueStats, Statement, Tx, jobs
from fw_actors.store.jobs import heads_of
from fw_actors.store.schema import IDENTIFIER, JOB, LOGIN_ATTEMPT, WEBHOOK_HEALTH
from fw_actors.webhooks import events
from fw_actors.webhooks.attempts import decode_trace
from fw_actors.webhooks.events import QUEUE
from fw_actors.webhooks.health import (
    MAX_WAITING_DELIVERIES,
    label_of_webhook,
    receiver_of,
    waiting_deliveries,
)
from fw_actors.webhooks.pacing import WebhookPause, paused_webhooks

MAX_LOCKS: Final = 50
MAX_IDENTIFIERS: Final = 2_000
MAX_DELIVERIES: Final = 20
MAX_FAILED: Final = 20
MAX_PAUSED: Final = 20
MAX_GROUPED: Final = 10_000
"""The latest failures that are grouped by Webhook and cause."""
MAX_GROUPS: Final = 100
MAX_JOBS: Final = 50
ATTEMPTS_READ: Final = 200
"""The number of latest deliveries of each status that show which processes send."""
_SENDING_MS: Final = MS_PER_HOUR


class Lock(msgspec.Struct, frozen=True):
    """An active lockout. `account` is the account of the identifier, empty if there is none.

    Typed text is never stored; only the identifiers of accounts can be compared with `key`.
    """

    key: str
    account: str
    identifier: str
    until: int


class QueuedDelivery(msgspec.Struct, frozen=True):
    """A delivery that is leased (`at` is the lease's end) or waits for its next attempt (`at`)."""

    delivery: str
    webhook: str
    event: str
    status: str
    attempts: int
    at: int


class FailedDelivery(msgspec.Struct, frozen=True):
    """A delivery that has failed permanently; `at` is its last attempt."""

    delivery: str
    webhook: str
    event: str
    error: str
    at: int


class FailureGroup(msgspec.Struct, frozen=True, rename="camel"):
    """Deliveries of one Webhook that have failed for one cause; `first` and `last` attempt in ms.

    `label` is the Webhook's title, or its URL without secrets.
    """

    webhook: str
    label: str
    error: str
    deliveries: int
    first: int
    last: int


MAX_WEBHOOKS: Final = 200
"""The maximum number of Webhooks that are read, those with most consecutive failures first."""


class StoredReceiver(msgspec.Struct, frozen=True, rename="camel"):
    """The stored facts about a receiver. Times in ms.

    `waiting` counts at most 1,000 deliveries of each of its `webhooks`; beyond that `more_wait` is
    set. `failures` is the highest number of consecutive failures among the Webhooks.
    """

    origin: str
    webhooks: int
    waiting: int
    more_wait: bool
    failures: int
    failing_since: int | None
    last_error: str
    last_success: int | None


_W: Final = table_of(Webhook).table.c
_HEALTH: Final = WEBHOOK_HEALTH.c
_FAILURES: Final = sa.func.coalesce(_HEALTH.failures, 0)
_WEBHOOKS: Final = Statement(
    sa.select(
        _W.name,
        _W.url,
        _FAILURES,
        _HEALTH.failing_since,
        sa.func.coalesce(_HEALTH.last_error, ""),
        _HEALTH.last_success,
    )
    .select_from(_W.name.table.outerjoin(WEBHOOK_HEALTH, _HEALTH.webhook == _W.name))
    .where(_W.enabled == 1)
    .order_by(_FAILURES.desc(), _W.name)
    .limit(MAX_WEBHOOKS)
)


def stored_receivers(tx: Tx) -> list[StoredReceiver]:
    """Return the receivers of enabled Webhooks, by origin."""
    by_origin: dict[str, StoredReceiver] = {}
    for name, url, failures, since, error, success in tx.rows(_WEBHOOKS):
        origin = receiver_of(url)
        if not origin:
            continue
        waiting = waiting_deliveries(tx, name)
        receiver = StoredReceiver(
            origin=origin,
            webhooks=1,
            waiting=waiting,
            more_wait=waiting >= MAX_WAITING_DELIVERIES,
            failures=failures,
            failing_since=since if failures else None,
            last_error=error if failures else "",
            last_success=success,
        )
        merged = by_origin.get(origin)
        by_origin[origin] = receiver if merged is None else _merge_receivers(merged, receiver)
    return [by_origin[origin] for origin in sorted(by_origin)]


def _merge_receivers(first: StoredReceiver, second: StoredReceiver) -> StoredReceiver:
    worst = max(first, second, key=lambda each: each.failures)
    return StoredReceiver(
        origin=first.origin,
        webhooks=first.webhooks + second.webhooks,
        waiting=first.waiting + second.waiting,
        more_wait=first.more_wait or second.more_wait,
        failures=worst.failures,
        failing_since=worst.failing_since,
        last_error=worst.last_error,
        last_success=max(
            (each for each in (first.last_success, second.last_success) if each is not None),
            default=None,
        ),
    )


class SendingProcess(msgspec.Struct, frozen=True, rename="camel"):
    """A process that has sent deliveries in the last hour, as `host:process number`.

    `attempts` counts those among the latest 600 deliveries; `last` is the latest one (ms).
    """

    name: str
    attempts: int
    last: int


class StoreFacts(msgspec.Struct, frozen=True, rename="camel"):
    """All facts, from one snapshot."""

    queues: list[jobs.QueueStats]
    locks: list[Lock]
    in_flight: list[QueuedDelivery]
    upcoming: list[QueuedDelivery]
    failed: list[FailedDelivery]
    """The latest failures, newest first."""
    stale_webhooks: list[str] = []
    """Webhooks that were changed outside the service, which does not use the change."""
    paused_webhooks: list[WebhookPause] = []
    """Paused Webhooks, also disabled ones, at most 20, the longest pause first."""
    failures: list[FailureGroup] = []
    """The latest 10,000 failures in at most 100 groups, the largest group first."""
    receivers: list[StoredReceiver] = []
    jobs: list[JobFacts] = []
    """The newest jobs of apps and mails."""
    webhook_labels: dict[str, str] = {}
    """The label of each Webhook in these lists, by name: its title, or its URL without secrets."""
    senders: list[SendingProcess] = []
    """Processes of the site, also on other hosts, that appear in recorded attempts."""


_D: Final = table_of(WebhookDelivery).table.c
_IS_FAILURE: Final = sa.and_(_D.status == DeliveryStatus.FAILED.value, _D.last_attempt.is_not(None))
_FAILED: Final = Statement(
    sa.select(_D.name, _D.webhook, _D.event, sa.func.coalesce(_D.error, ""), _D.last_attempt)
    .where(_IS_FAILURE)
    .order_by(_D.last_attempt.desc())  # by the index; of one moment, in any order
    .limit(MAX_FAILED)
)
_LABELS: Final = Statement(
    sa.select(_W.name, _W.title, _W.url).where(
        _W.name.in_(sa.bindparam("webhooks", expanding=True))
    )
)
_SENT_BY: Final = Statement(
    sa.select(_D.trace, _D.last_attempt)
    .where(
        _D.status == sa.bindparam("status"),
        _D.last_attempt > sa.bindparam("since", type_=sa.BigInteger()),
    )
    .order_by(_D.last_attempt.desc())
    .limit(ATTEMPTS_READ)
)
_QUEUED: Final = Statement(
    sa.select(_D.name, _D.webhook, _D.event, _D.status, _D.attempts).where(
        _D.name == sa.bindparam("delivery")
    )
)


def _failures_by_error() -> Statement:
    """Group the latest failed deliveries by Webhook and error, the largest groups first."""
    recent = (
        sa.select(_D.webhook, sa.func.coalesce(_D.error, "").label("error"), _D.last_attempt)
        .where(_IS_FAILURE)
        .order_by(_D.last_attempt.desc())
        .limit(MAX_GROUPED)
        .subquery("recent")
    )
    count = sa.func.count()
    grouped = (
        sa.select(
            recent.c.webhook,
            recent.c.error,
            count.label("deliveries"),
            sa.func.min(recent.c.last_attempt).label("first"),
            sa.func.max(recent.c.last_attempt).label("last"),
        )
        .group_by(recent.c.webhook, recent.c.error)
        .order_by(count.desc(), recent.c.webhook, recent.c.error)
        .limit(MAX_GROUPS)
        .subquery("grouped")
    )
    g = grouped.c
    return Statement(
        sa.select(g.webhook, _W.title, _W.url, g.error, g.deliveries, g.first, g.last)
        .select_from(grouped.outerjoin(_W.name.table, _W.name == g.webhook))
        .order_by(g.deliveries.desc(), g.webhook, g.error)
    )


_GROUPS: Final = _failures_by_error()
_NOW: Final[sa.BindParameter[Any]] = sa.bindparam("now")
_MAX_LEASE_MS: Final = (MAX_TIMEOUT + LEASE_MARGIN_SECONDS) * MS_PER_SECOND
_WAITS: Final = JOB.c.lease.is_(None)
_IS_LEASED: Final = sa.and_(
    JOB.c.lease.is_not(None),
    JOB.c.next_at > _NOW,
    JOB.c.next_at <= sa.bindparam("latest", type_=sa.BigInteger()),
)


class FirstDeliveries:
    """Reads the first deliveries that are leased, or that wait.

    No index has all deliveries in the order of their times, and there may be a million. The first
    ones are among those that come first in their Webhook, each of which is read by its index, and
    in the Webhooks whose first one is early.
    """

    def __init__(self, *, leased: bool) -> None:
        self._leased = leased
        condition = _IS_LEASED if leased else _WAITS
        head = heads_of(sa.literal(QUEUE), None, condition).subquery("head")
        self._webhooks = Statement(
            sa.select(head.c.partition)
            .where(head.c.next_at.is_not(None))
            .order_by(head.c.next_at, head.c.partition)
            .limit(MAX_DELIVERIES)
        )
        self._jobs = Statement(
            sa.select(JOB.c.next_at, JOB.c.id, JOB.c.subject)
            .where(JOB.c.queue == QUEUE, JOB.c.partition == sa.bindparam("webhook"))
            .where(JOB.c.next_at.is_not(None), condition)
            .order_by(JOB.c.next_at, JOB.c.id)
            .limit(MAX_DELIVERIES)
        )

    def read(self, tx: Tx) -> list[QueuedDelivery]:
        """Return at most `MAX_DELIVERIES` deliveries, the earliest first."""
        times = {"now": tx.now, "latest": tx.now + _MAX_LEASE_MS} if self._leased else {}
        jobs_found: list[tuple[int, int, str]] = []
        for (webhook,) in tx.rows(self._webhooks, **times):
            jobs_found += [tuple(row) for row in tx.rows(self._jobs, webhook=webhook, **times)]
        return [
            QueuedDelivery(*(*row, at))
            for at, _, name in sorted(jobs_found)[:MAX_DELIVERIES]
            for row in tx.rows(_QUEUED, delivery=name)
        ]


_IN_FLIGHT: Final = FirstDeliveries(leased=True)
_UPCOMING: Final = FirstDeliveries(leased=False)


class ConsoleFacts:
    """Reads the console's facts from the tables of one site."""

    def __init__(self, installation_key: bytes) -> None:
        self._key = installation_key

    def read(self, tx: Tx) -> StoreFacts:
        """Return the current facts."""
        in_flight, upcoming = _IN_FLIGHT.read(tx), _UPCOMING.read(tx)
        failed = [FailedDelivery(*row) for row in tx.rows(_FAILED)]
        paused = paused_webhooks(tx)[:MAX_PAUSED]
        named = {each.webhook for each in (*in_flight, *upcoming)}
        named |= {each.webhook for each in failed} | {each.webhook for each in paused}
        return StoreFacts(
            queues=jobs.stats(tx),
            locks=self._locks(tx),
            in_flight=in_flight,
            upcoming=upcoming,
            failed=failed,
            paused_webhooks=paused,
            webhook_labels={
                name: label_of_webhook(title, url) or name
                for name, title, url in tx.rows(_LABELS, webhooks=sorted(named))
            },
            failures=self._failures(tx),
            receivers=stored_receivers(tx),
            jobs=newest_jobs(tx, MAX_JOBS),
            senders=self._senders(tx),
        )

    def _failures(self, tx: Tx) -> list[FailureGroup]:
        return [
            FailureGroup(
                webhook, label_of_webhook(title, url) if url else webhook, error, count, first, last
            )
            for webhook, title, url, error, count, first, last in tx.rows(_GROUPS)
        ]

    def _senders(self, tx: Tx) -> list[SendingProcess]:
        senders: dict[str, SendingProcess] = {}
        for status in (DeliveryStatus.SENT, DeliveryStatus.RETRYING, DeliveryStatus.FAILED):
            for trace, at in tx.rows(_SENT_BY, status=status.value, since=tx.now - _SENDING_MS):
                name = decode_trace(trace).worker
                if name:
                    sender = senders.get(name) or SendingProcess(name, 0, 0)
                    senders[name] = SendingProcess(name, sender.attempts + 1, max(sender.last, at))
        return sorted(senders.values(), key=lambda each: (-each.last, each.name))

    def _locks(self, tx: Tx) -> list[Lock]:
        rows = tx.rows(_LOCKED, now=tx.now)
        identifiers = self._identifiers(tx) if rows else {}
        return [self._lock(bytes(key), until, identifiers) for key, until in rows]

    def _lock(self, key: bytes, until: int, identifiers: dict[bytes, tuple[str, str]]) -> Lock:
        identifier, account = identifiers.get(key, ("", ""))
        return Lock(shown_key(key), account, identifier, until)

    def _identifiers(self, tx: Tx) -> dict[bytes, tuple[str, str]]:
        """Return identifier and account of each counter, by its key."""
        return {
            counter_key(self._key, IDENTIFIER_KIND, identifier): (identifier, user)
            for identifier, user in tx.rows(_KNOWN)
        }


_T: Final = LOGIN_ATTEMPT.c
# Not grouped by the column itself: SQLite would then read all counters in the order of its index.
_LOCKED_KEY: Final = sa.func.coalesce(_T.key, _T.key)
_LOCKED: Final = Statement(
    sa.select(_LOCKED_KEY, sa.func.max(_T.until))
    .where(_T.until > _NOW)
    .group_by(_LOCKED_KEY)
    .order_by(sa.func.max(_T.until).desc())
    .limit(MAX_LOCKS)
)
_KNOWN: Final = Statement(
    sa.select(IDENTIFIER.c.key, IDENTIFIER.c.user).order_by(IDENTIFIER.c.key).limit(MAX_IDENTIFIERS)
)


QUEUES: Final = (events.QUEUE, mail_queue.QUEUE, queued_jobs.APP_QUEUE)
"""Shown even if empty (C-118)."""
_LOCKED_COUNT: Final = Statement(
    sa.select(sa.func.count(LOGIN_ATTEMPT.c.key.distinct())).where(LOGIN_ATTEMPT.c.until > _NOW)
)


def longest_waits(tx: Tx) -> dict[str, float]:
    """Return the wait in seconds of the oldest due job of each built-in queue.

    Deliveries of paused Webhooks do not count: a planned wait must hide no other one, and cause no
    alert. Reads an index alone, so that it takes no longer with millions of jobs.
    """
    paused = {each.webhook for each in paused_webhooks(tx)}
    waits = {}
    for queue in QUEUES:
        heads = jobs.heads(tx, queue)
        times = (head.next_at for head in heads if queue != QUEUE or head.partition not in paused)
        waits[queue] = max(0, tx.now - min(times, default=tx.now)) / MS_PER_SECOND
    return waits


def queues(tx: Tx) -> list[QueueStats]:
    """Return the statistics of every queue, empty ones included."""
    by_queue = {row.queue: row for row in jobs.stats(tx)}
    names = [*QUEUES, *(name for name in by_queue if name not in QUEUES)]
    return [by_queue.get(name) or QueueStats(name, 0, 0, 0, 0, 0.0) for name in names]


def locked_identifiers(tx: Tx) -> int:
    """Return the number of locked identifiers."""
    count: int = tx.scalar(_LOCKED_COUNT, now=tx.now)
    return count
