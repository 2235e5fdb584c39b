"""Pauses of Webhooks, and claims for Webhooks with a rate limit or an order.

Pauses are stored in the rows of Webhooks, so that they apply to all processes (B-300 to B-305). A
claim reads them with the Webhook, and only a claim starts an attempt. A pause does not change the
document: an open form can still be saved, and its versions do not show the pause. Therefore a save
keeps the stored pause and not that of the document (`service_columns`).

One process at a time claims for a Webhook with limits: the claim row of the Webhook, in
`fw_webhook_claim`, is locked until the claim is committed. A process that finds it locked does not
wait but tries again soon, so that deliveries of other Webhooks are not delayed. Webhooks without
limits have no claim row (B-310 to B-326).

The locks of transactions that change several deliveries are here too, since they begin with those
of Webhooks (B-430).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import Webhook, WebhookDelivery
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import Fw
from fw_actors.documents.tables import stored_number, table_of
from fw_actors.errors import NotFoundError, PermissionDeniedError, ValidationError
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.rules.receivers import (
    NOT_PAUSED,
    UNTIL_RESUMED,
    RateAllowance,
    pause_end,
    rate_allowance,
)
from fw_actors.runtime.clock import MS_PER_SECOND, SECONDS_PER_DAY
from fw_actors.store import Statement, Tx, jobs, update_of_times_ahead
from fw_actors.store.ordered_jobs import OrderedLease, lease_first
from fw_actors.store.schema import JOB, WEBHOOK_CLAIM
from fw_actors.webhooks.events import QUEUE

if TYPE_CHECKING:
    from fw_actors.webhooks.claims import StoredWebhook


_OPERATION: Final = "Pausing a Webhook"
MAX_PAUSE_SECONDS: Final = 366 * SECONDS_PER_DAY

_TABLE: Final = table_of(Webhook).table
_W: Final = _TABLE.c
_D: Final = table_of(WebhookDelivery).table.c
_NAME: Final[sa.BindParameter[Any]] = sa.bindparam("webhook")
# Cast, because raw SQL may have stored text or bytes (SQLite).
_SINCE, _UNTIL = stored_number(_W.paused_since), stored_number(_W.paused_until)
_READ: Final = Statement(
    sa.select(_SINCE, _UNTIL)
    .where(_W.name == _NAME)
    .with_for_update(key_share=True)  # a concurrent user waits, and sees the change
)
_WRITE: Final = Statement(
    sa.update(_TABLE)
    .where(_W.name == _NAME)
    .values(paused_since=sa.bindparam("since"), paused_until=sa.bindparam("until"))
)
_IS_PAUSED: Final = sa.and_(
    _W.paused_since.is_not(None),
    sa.func.coalesce(_UNTIL, UNTIL_RESUMED) > sa.bindparam("now", type_=sa.BigInteger()),
)
_PAUSED: Final = Statement(
    sa.select(_W.name, _SINCE, _UNTIL).where(_IS_PAUSED).order_by(_SINCE, _W.name)
)


class WebhookPause(msgspec.Struct, frozen=True):
    """Whether a Webhook is paused, since when and until when (ms); `until` None: until resumed."""

    webhook: str
    since: int | None = None
    until: int | None = None

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self.since is not None


class Pauses:
    """Pauses and resumes Webhooks in the caller's transactions.

    `recorded` is called after each commit that resumes a Webhook, because deliveries may be due.
    """

    def __init__(self, audit: AuditLog, recorded: Callable[[], None]) -> None:
        self._audit, self._recorded = audit, recorded

    def pause(
        self, fw: Fw, webhook: str, seconds: int | None
    ) -> WebhookPause | PermissionDeniedError:
        """Pause a Webhook, or change the end of its pause; write the Audit Event.

        The error of a missing permission is returned (see `AuditLog.denial`).

        Args:
            seconds: the duration, 1 to `MAX_PAUSE_SECONDS`; None: until it is resumed.

        Raises: ValidationError; NotFoundError.
        """
        if seconds is not None and not 1 <= seconds <= MAX_PAUSE_SECONDS:
            raise ValidationError(
                f"seconds must be between 1 and {MAX_PAUSE_SECONDS:,} (366 days).", field="seconds"
            )
        error = self._audit.denial(fw, _OPERATION, webhook)
        if error is not None:
            return error
        before = pause_of(fw.tx, webhook)
        until = None if seconds is None else fw.tx.now + seconds * MS_PER_SECOND
        pause = WebhookPause(webhook, before.since or fw.tx.now, until)
        _write(fw.tx, pause)
        detail = {"until": None if until is None else iso(until)}
        self._audit.record(fw, Action.WEBHOOK_PAUSE, webhook, detail)
        return pause

    def resume(self, fw: Fw, webhook: str) -> WebhookPause | PermissionDeniedError:
        """End the pause of a Webhook, if there is one; write the Audit Event.

        The error of a missing permission is returned (see `AuditLog.denial`).

        Raises: NotFoundError.
        """
        error = self._audit.denial(fw, _OPERATION, webhook)
        if error is not None:
            return error
        before = pause_of(fw.tx, webhook)
        if before.since is not None:
            self._audit.record(fw, Action.WEBHOOK_RESUME, webhook, {"since": iso(before.since)})
            fw.tx.after_commit(self._recorded, once=True)
        _write(fw.tx, WebhookPause(webhook))
        return WebhookPause(webhook)


def paused_webhooks(tx: Tx) -> list[WebhookPause]:
    """Return the Webhooks that are paused, also disabled ones, the longest paused first."""
    return [WebhookPause(*row) for row in tx.rows(_PAUSED, now=tx.now)]


def pause_of(tx: Tx, webhook: str) -> WebhookPause:
    """Return the pause of a Webhook; one that has ended is not a pause. Raises: NotFoundError."""
    row = tx.one(_READ, webhook=webhook)
    if row is None:
        raise NotFoundError(f"There is no Webhook {webhook[:140]}.")
    since, until = row
    if pause_end(since, until, tx.now) == NOT_PAUSED:
        return WebhookPause(webhook)
    return WebhookPause(webhook, since, until)


def _write(tx: Tx, pause: WebhookPause) -> None:
    tx.run(_WRITE, webhook=pause.webhook, since=pause.since, until=pause.until)


_AT: Final[sa.BindParameter[Any]] = sa.bindparam("now", type_=sa.BigInteger())
_CORRECT: Final = Statement(
    update_of_times_ahead(_TABLE, _SINCE).values(
        paused_since=_AT, paused_until=_UNTIL - (_SINCE - _AT)
    )
)


def correct_times(tx: Tx, after: int, limit: int) -> int:
    """Correct at most `limit` pauses that began later than `after` (ms); return how many.

    They keep their duration, from now on (O-163).
    """
    return tx.run(_CORRECT, now=tx.now, ahead=after, limit=limit)


MAX_HINTS: Final = 1024

_C: Final = WEBHOOK_CLAIM.c
_WEBHOOK: Final[sa.BindParameter[Any]] = sa.bindparam("webhook")
_LOCK: Final = Statement(
    sa.select(_C.used_until).where(_C.webhook == _WEBHOOK).with_for_update(skip_locked=True)
)
_EXISTS: Final = Statement(sa.select(_C.webhook).where(_C.webhook == _WEBHOOK))
_LOCK_ALL: Final = Statement(
    sa.select(_C.webhook)
    .where(_C.webhook.in_(sa.bindparam("webhooks", expanding=True)))
    .order_by(_C.webhook)
    .with_for_update()
)
_MAKE: Final = Statement(
    sa.insert(WEBHOOK_CLAIM).from_select(
        ["webhook"],
        sa.select(sa.bindparam("webhook", type_=sa.Text()))
        .where(sa.true())
        .suffix_with("ON CONFLICT (webhook) DO NOTHING"),
    )
)
_USE: Final = Statement(
    sa.update(WEBHOOK_CLAIM).where(_C.webhook == _WEBHOOK).values(used_until=sa.bindparam("until"))
)


_NAMES: Final[sa.BindParameter[Any]] = sa.bindparam("names", expanding=True)
_WEBHOOKS_OF: Final = Statement(
    sa.select(_D.webhook).distinct().where(_D.name.in_(_NAMES), _D.webhook.is_not(None))
)
_MAKE_ALL: Final = Statement(
    sa.insert(WEBHOOK_CLAIM).from_select(
        ["webhook"],
        sa.select(JOB.c.partition)
        .distinct()
        .where(JOB.c.queue == QUEUE, JOB.c.subject.in_(_NAMES), JOB.c.ordering_key.is_not(None))
        .order_by(JOB.c.partition)
        .suffix_with("ON CONFLICT (webhook) DO NOTHING"),
    )
)
_LOCK_WEBHOOKS: Final = Statement(
    sa.select(_W.name)
    .where(_W.name.in_(_NAMES))
    .order_by(_W.name)
    .with_for_update(read=True, key_share=True)
)
_LOCK_JOBS: Final = Statement(
    sa.select(JOB.c.id)
    .where(JOB.c.queue == QUEUE, JOB.c.subject.in_(_NAMES))
    .order_by(JOB.c.id)
    .with_for_update()
)
_LOCK_DELIVERIES: Final = Statement(
    sa.select(_D.name).where(_D.name.in_(_NAMES)).order_by(_D.name).with_for_update(key_share=True)
)
_AT_LIMIT: Final = Statement(
    sa.select(sa.func.count()).where(
        _W.rate_limit > 0,
        _W.enabled == 1,
        ~_IS_PAUSED,
        sa.exists().where(
            JOB.c.queue == QUEUE,
            JOB.c.partition == _W.name,
            JOB.c.next_at <= sa.bindparam("now"),
        ),
    )
)


class PacedLease(NamedTuple):
    """The result of a claim for one Webhook.

    `more`: due rows may remain for which no slot was free. `next_at`: the time (ms) of the next
    claim.
    """

    leased: int
    more: bool = False
    next_at: int | None = None


class PacedClaims:
    """Leases deliveries of Webhooks with limits, inside the transactions of claims."""

    def __init__(self) -> None:
        # The time when the next request of a Webhook is allowed; earlier claims need not read its
        # row.
        self._allowed_at: dict[str, int] = {}

    def lease(
        self, tx: Tx, webhook: StoredWebhook, free: int, lease_ms: int, token: str
    ) -> PacedLease:
        """Lease at most `free` due deliveries of a Webhook, and no more than its limits permit."""
        allowed_at = self._allowed_at.get(webhook.name, 0)
        if (
            tx.now < allowed_at <= tx.now + MS_PER_SECOND + jobs.RETRY_MS
        ):  # else the clock was changed
            return PacedLease(0, next_at=allowed_at)
        used_until = lock_claim_row(tx, webhook.name)
        if used_until is None:
            return PacedLease(0, next_at=tx.now + jobs.RETRY_MS)
        allowance, limit = None, free
        if webhook.rate_limit:
            allowance = rate_allowance(webhook.rate_limit, used_until, tx.now)
            limit = min(free, allowance.requests)
        found = OrderedLease(0, unseen=False)
        if limit and webhook.ordered:
            found = lease_first(tx, QUEUE, webhook.name, limit, lease_ms, token)
        elif limit:
            found = OrderedLease(jobs.lease(tx, QUEUE, webhook.name, limit, lease_ms, token), False)
        if allowance is not None and found.leased:
            tx.run(_USE, webhook=webhook.name, until=allowance.used_after(found.leased))
        return self._result(tx, webhook, allowance, found, free)

    def _result(
        self,
        tx: Tx,
        webhook: StoredWebhook,
        allowance: RateAllowance | None,
        lease: OrderedLease,
        free: int,
    ) -> PacedLease:
        """Return the result with the time of the next claim."""
        leased = lease.leased
        if allowance is not None and leased == allowance.requests:
            next_at = allowance.next_at(leased)
            if len(self._allowed_at) >= MAX_HINTS:
                self._allowed_at.clear()
            self._allowed_at[webhook.name] = next_at
            return PacedLease(leased, next_at=next_at)
        if leased == free:
            return PacedLease(leased, more=True)
        if lease.unseen:
            return PacedLease(leased, next_at=tx.now)
        if lease.blocked:
            return PacedLease(leased, next_at=jobs.next_due(tx, QUEUE, webhook.name))
        return PacedLease(leased, next_at=jobs.next_claim(tx, QUEUE, webhook.name))


def lock_claim_row(tx: Tx, webhook: str) -> int | None:
    """Lock the claim row of a Webhook until the transaction ends; create it if it is missing.

    Returns: its `used_until`; None if another transaction has the lock.
    """
    row = tx.one(_LOCK, webhook=webhook)
    if row is not None:
        return int(row[0])
    # The INSERT would wait for a transaction that has changed the row, and two claims that take
    # Webhooks in different orders would deadlock.
    if tx.one(_EXISTS, webhook=webhook) is not None:
        return None
    return 0 if tx.run(_MAKE, webhook=webhook) else None


def lock_claim_rows(tx: Tx, webhooks: Sequence[str]) -> None:
    """Lock the claim rows of Webhooks in order, so that no claim for them runs until the commit."""
    if tx.locks_rows:  # else only one transaction writes anyway
        tx.rows(_LOCK_ALL, webhooks=list(webhooks))


def lock_webhooks_of(tx: Tx, deliveries: Sequence[str]) -> Set[str]:
    """Lock the Webhooks of deliveries against renames until the commit, before a job is locked.

    A concurrent rename would lock the same deliveries in another order, and would leave new jobs
    under the old name. Another rename may precede a lock: then the new name is locked too.

    Returns: the locked Webhooks; a caller that has locked jobs must wait for no other Webhook.
        Nothing is locked if only one transaction writes at a time.
    """
    locked: set[str] = set()
    tried: set[str] = set()
    while tx.locks_rows:
        names = {name for (name,) in tx.rows(_WEBHOOKS_OF, names=list(deliveries))} - tried
        if not names:
            break
        locked |= {name for (name,) in tx.rows(_LOCK_WEBHOOKS, names=sorted(names))}
        tried |= names
    return locked


def lock_claim_rows_of(tx: Tx, deliveries: Sequence[str]) -> None:
    """Lock the Webhooks of deliveries as `lock_webhooks_of`, and then their claim rows.

    Missing ones of ordered deliveries are created: a claim could do so before the caller has locked
    the jobs, and the caller would then have to wait for the row.
    """
    if tx.locks_rows:
        names = list(deliveries)
        lock_webhooks_of(tx, names)
        tx.run(_MAKE_ALL, names=names)
        lock_claim_rows(tx, sorted(name for (name,) in tx.rows(_WEBHOOKS_OF, names=names)))


def lock_deliveries(tx: Tx, deliveries: Sequence[str]) -> Set[str]:
    """Lock deliveries with their Webhooks and jobs, in the order of all transactions (B-430).

    Returns: as `lock_webhooks_of`.
    """
    names = list(deliveries)
    webhooks = lock_webhooks_of(tx, names)
    if tx.locks_rows:
        tx.rows(_LOCK_JOBS, names=names)
        tx.rows(_LOCK_DELIVERIES, names=names)
    return webhooks


def webhooks_at_limit(tx: Tx) -> int:
    """Return the number of Webhooks with a rate limit that have due deliveries, without disabled
    and paused ones."""
    count: int = tx.scalar(_AT_LIMIT, now=tx.now)
    return count
