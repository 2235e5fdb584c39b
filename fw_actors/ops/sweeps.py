"""Housekeeping: deletes expired rows in small batches. Every rule holds without it.

Rules: O-70, O-71, O-74, B-280, O-87.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access.attempts import KNOWN_DAYS
from fw_actors.access.sessions import DEVICE_DAYS
from fw_actors.documents.registry import Registry
from fw_actors.rules.delivery import FINAL
from fw_actors.rules.lockout import ADDRESS_WINDOW_MS, RECOVERY_MAIL_WINDOW_MS
from fw_actors.runtime.clock import MS_PER_DAY, MS_PER_MINUTE
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import JOB, KNOWN_ADDRESS, KNOWN_DEVICE, LOGIN_ATTEMPT, SESSION, TOKEN
from fw_actors.webhooks.attempts import forget_attempts
from fw_actors.webhooks.events import QUEUE
from fw_actors.webhooks.health import drop_old_hours, drop_states_of_deleted

BATCH: Final = 1000
PAUSE_SECONDS: Final = 0.05
"""Between two batches: it keeps the waits of other writers short."""
_BEFORE: Final[sa.BindParameter[Any]] = sa.bindparam("before")

Batch = Callable[[Tx], int]
"""Deletes at most a batch of rows and returns how many; fewer than `BATCH` ends the sweep."""


def _oldest(
    table: sa.Table, column: sa.ColumnElement[int], *further: sa.ColumnElement[bool]
) -> Statement:
    key = next(iter(table.primary_key.columns))
    old = sa.select(key).where(column <= _BEFORE, *further).order_by(column).limit(BATCH)
    return Statement(sa.delete(table).where(key.in_(old.scalar_subquery())))


_SESSIONS: Final = _oldest(SESSION, SESSION.c.expires)
_TOKENS: Final = _oldest(TOKEN, TOKEN.c.expires)
_LOCK_IS_OVER: Final = sa.or_(
    LOGIN_ATTEMPT.c.until.is_(None), LOGIN_ATTEMPT.c.until <= sa.bindparam("now")
)
_ATTEMPTS: Final = _oldest(LOGIN_ATTEMPT, LOGIN_ATTEMPT.c.at, _LOCK_IS_OVER)


def _oldest_known(table: sa.Table) -> Statement:
    old = sa.select(table.c.key).where(table.c.seen <= _BEFORE)
    first = old.order_by(table.c.seen).limit(BATCH).scalar_subquery()
    return Statement(sa.delete(table).where(table.c.seen <= _BEFORE, table.c.key.in_(first)))


_ADDRESSES: Final = _oldest_known(KNOWN_ADDRESS)
_DEVICES: Final = _oldest_known(KNOWN_DEVICE)


def auth_batches(lockout_minutes: int) -> tuple[Batch, ...]:
    """Return the steps of `core.services.auth.sweep`: sessions, tokens, login attempts and known
    addresses and devices without recent sign-ins.

    An attempt may count for two windows after it was made. One that holds a lock stays until the
    lock ends, which a policy with longer lockouts may have set.
    """
    kept = max(2 * lockout_minutes * MS_PER_MINUTE, ADDRESS_WINDOW_MS, RECOVERY_MAIL_WINDOW_MS)
    return (
        lambda tx: tx.run(_SESSIONS, before=tx.now),
        lambda tx: tx.run(_TOKENS, before=tx.now),
        lambda tx: tx.run(_ATTEMPTS, before=tx.now - kept, now=tx.now),
        lambda tx: tx.run(_ADDRESSES, before=tx.now - KNOWN_DAYS * MS_PER_DAY),
        lambda tx: tx.run(_DEVICES, before=tx.now - DEVICE_DAYS * MS_PER_DAY),
    )


def webhook_batches(registry: Registry, retention_days: int) -> tuple[Batch, ...]:
    """Return the step of `core.services.webhooks.sweep` for Sent and Failed deliveries by their
    last attempt, with the jobs of failed ones; 0 days keeps them for ever."""
    if retention_days == 0:
        return ()
    table = registry.tables["Webhook Delivery"].table
    old = (
        sa.select(table.c.name)
        .where(table.c.status.in_(FINAL), table.c.last_attempt <= _BEFORE)
        .limit(BATCH)
        # Locked (PostgreSQL): otherwise a concurrent replay would be deleted.
        .with_for_update(skip_locked=True)
    )
    find = Statement(old)
    forget_job = Statement(
        sa.delete(JOB).where(JOB.c.queue == QUEUE, JOB.c.subject == sa.bindparam("delivery"))
    )
    forget = Statement(sa.delete(table).where(table.c.name == sa.bindparam("delivery")))

    def batch(tx: Tx) -> int:
        names = tx.rows(find, before=tx.now - retention_days * MS_PER_DAY)
        found = [{"delivery": name} for (name,) in names]
        if found:
            tx.run_many(forget_job, found)
            tx.run_many(forget, found)
            forget_attempts(tx, [name for (name,) in names])
        return len(found)

    return (batch,)


def count_batches() -> tuple[Batch, ...]:
    """Return the steps of `core.services.webhooks.sweep` for counts that are not shown any more."""
    return (partial(drop_old_hours, most=BATCH), partial(drop_states_of_deleted, most=BATCH))


def audit_batches(registry: Registry, retention_days: int) -> tuple[Batch, ...]:
    """Return the step of `core.services.audit.sweep`: the oldest Audit Events; 0 days keeps them
    for ever."""
    if retention_days == 0:
        return ()
    table = registry.tables["Audit Event"].table
    old = (
        sa.select(table.c.name)
        .where(table.c.creation <= _BEFORE)
        .order_by(table.c.creation)
        .limit(BATCH)
        .with_for_update(skip_locked=True)  # two sweepers (PostgreSQL) get different rows
    )
    find = Statement(old)
    # By name: PostgreSQL joins the result of a subquery with a whole table of 100,000 rows.
    forget = Statement(sa.delete(table).where(table.c.name == sa.bindparam("event")))

    def batch(tx: Tx) -> int:
        names = tx.rows(find, before=tx.now - retention_days * MS_PER_DAY)
        if names:
            tx.run_many(forget, [{"event": name} for (name,) in names])
        return len(names)

    return (batch,)
