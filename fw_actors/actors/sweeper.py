"""Sweeper, and the sweeps that it runs: they delete expired rows in small batches.

Sweeper runs `core.services.auth.sweep` hourly, and `core.services.webhooks.sweep` and
`core.services.audit.sweep` daily. Each minute it takes a step for a dead receiver, and ends the
overlap of rotated secrets. It is active if the scheduler is on (`ops.scheduler`). It pauses between
batches, so that writers never wait long; two concurrent sweepers do no harm. Every rule holds
without it.

It also corrects times that were stored while the clock was ahead. Without that, locks, throttles,
sessions and links would last longer by the time that the clock was ahead.

Rules: O-70, O-71, O-74, B-280, O-87, O-163.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access.attempts import KNOWN_DAYS
from fw_actors.access.sessions import DEVICE_DAYS
from fw_actors.documents.registry import Registry
from fw_actors.errors import OverloadedError
from fw_actors.rules.delivery import FINAL
from fw_actors.rules.lockout import ADDRESS_WINDOW_MS, RECOVERY_MAIL_WINDOW_MS
from fw_actors.runtime import Actor, Log, MailboxPolicy, Message, Overflow, handles
from fw_actors.runtime.clock import MS_PER_DAY, MS_PER_MINUTE
from fw_actors.store import Statement, Store, Tx
from fw_actors.store.schema import JOB, KNOWN_ADDRESS, KNOWN_DEVICE, LOGIN_ATTEMPT, SESSION, TOKEN
from fw_actors.webhooks.attempts import delete_attempts
from fw_actors.webhooks.events import DELETE_JOB, QUEUE
from fw_actors.webhooks.health import drop_old_hours, drop_states_of_deleted

FIRST_AFTER_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 1.0
HOURLY: Final = 3600.0
DAILY: Final = 86_400.0
EACH_MINUTE: Final = 60.0
BATCH: Final = 1000
_BEFORE: Final[sa.BindParameter[Any]] = sa.bindparam("before")

Batch = Callable[[Tx], int]
"""Deletes at most a batch of records and returns how many; fewer than `BATCH` ends the sweep."""


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


def _known(table: sa.Table, days: int) -> Batch:
    """Return the step for addresses or devices that were not seen for `days`.

    Many users may share a key (an office, a browser in the network of a mobile provider).
    """
    user, key, seen = table.c.user, table.c.key, table.c.seen
    old = sa.select(user, key).where(seen <= _BEFORE).order_by(seen).limit(BATCH)
    find = Statement(old.with_for_update(skip_locked=True))
    delete = Statement(
        sa.delete(table).where(user == sa.bindparam("of"), key == sa.bindparam("its_key"))
    )

    def batch(tx: Tx) -> int:
        rows = tx.rows(find, before=tx.now - days * MS_PER_DAY)
        if rows:
            tx.run_many(delete, [{"of": user, "its_key": key} for user, key in rows])
        return len(rows)

    return batch


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
        _known(KNOWN_ADDRESS, KNOWN_DAYS),
        _known(KNOWN_DEVICE, DEVICE_DAYS),
    )


def webhook_batches(registry: Registry, retention_days: int) -> tuple[Batch, ...]:
    """Return the step of `core.services.webhooks.sweep` for Sent and Failed deliveries by their
    last attempt, with the jobs of failed ones; 0 days keeps them for ever."""
    if retention_days == 0:
        return ()
    table = registry.tables["Webhook Delivery"].table
    names: sa.BindParameter[Any] = sa.bindparam("names", expanding=True)
    old = sa.and_(table.c.status.in_(FINAL), table.c.last_attempt <= _BEFORE)
    find = Statement(sa.select(table.c.name).where(old).limit(BATCH))
    jobs = sa.select(JOB.c.subject).where(JOB.c.queue == QUEUE, JOB.c.subject.in_(names))
    with_job, lock_jobs = Statement(jobs), Statement(jobs.with_for_update(skip_locked=True))
    # Checked again: otherwise a concurrent replay would be deleted.
    lock = Statement(
        sa.select(table.c.name)
        .where(table.c.name.in_(names), old.self_group().is_(sa.true()))
        .with_for_update(skip_locked=True)
    )
    delete = Statement(sa.delete(table).where(table.c.name == sa.bindparam("delivery")))

    def locked(tx: Tx, found: Sequence[str], before: int) -> list[str]:
        """Lock jobs, and then deliveries (B-430); leave out those that others have locked.

        The jobs are locked too, because the batch would wait for them with locked deliveries.
        """
        waiting = {name for (name,) in tx.rows(with_job, names=found)}
        waiting -= {name for (name,) in tx.rows(lock_jobs, names=found)}
        free = [name for name in found if name not in waiting]
        return [name for (name,) in tx.rows(lock, names=free, before=before)]

    def batch(tx: Tx) -> int:
        before = tx.now - retention_days * MS_PER_DAY
        found = [name for (name,) in tx.rows(find, before=before)]
        if found and tx.locks_rows:
            found = locked(tx, found, before)
        if found:
            given = [{"delivery": name} for name in found]
            tx.run_many(DELETE_JOB, given)
            tx.run_many(delete, given)
            delete_attempts(tx, found)
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
    delete = Statement(sa.delete(table).where(table.c.name == sa.bindparam("event")))

    def batch(tx: Tx) -> int:
        names = tx.rows(find, before=tx.now - retention_days * MS_PER_DAY)
        if names:
            tx.run_many(delete, [{"event": name} for (name,) in names])
        return len(names)

    return (batch,)


MAX_AHEAD_MS: Final = 5 * MS_PER_MINUTE
"""A time that is further ahead was stored before the clock was set back. The clocks of nodes must
differ by less."""
_AHEAD: Final = sa.bindparam("ahead", type_=sa.BigInteger())
_NOW: Final = sa.bindparam("now", type_=sa.BigInteger())


def _ahead(
    table: sa.Table, written: sa.ColumnElement[int], *further: sa.ColumnElement[bool]
) -> sa.Update:
    key = next(iter(table.primary_key.columns))
    found = sa.select(key).where(written > _AHEAD, *further).limit(BATCH)
    # Locked (PostgreSQL): a row is corrected once, also if two processes notice it.
    return sa.update(table).where(key.in_(found.with_for_update(skip_locked=True)))


def _earlier(column: sa.ColumnElement[int], most: sa.ColumnElement[int]) -> sa.Case[int]:
    return sa.case((column > most, most), else_=column)


_ATTEMPTS_AHEAD: Final = Statement(
    _ahead(LOGIN_ATTEMPT, LOGIN_ATTEMPT.c.at).values(
        at=_NOW,
        until=_earlier(LOGIN_ATTEMPT.c.until, sa.bindparam("latest", type_=sa.BigInteger())),
    )
)
_SESSIONS_AHEAD: Final = Statement(
    _ahead(
        SESSION,
        SESSION.c.created,
        # By the index: only sessions that last longer than any that begins now.
        SESSION.c.expires > sa.bindparam("latest", type_=sa.BigInteger()),
    ).values(
        created=_NOW,
        last_seen=_earlier(SESSION.c.last_seen, _NOW),
        expires=SESSION.c.expires - (SESSION.c.created - _NOW),
    )
)
_LINKS_AHEAD: Final = Statement(
    _ahead(TOKEN, TOKEN.c.created, TOKEN.c.expires > _AHEAD).values(
        created=_NOW, expires=TOKEN.c.expires - (TOKEN.c.created - _NOW)
    )
)


class ClockCorrection:
    """The step that corrects times of sign-ins, sessions and links that lie ahead (O-163).

    An attempt counts as made now, and a lock ends at the latest when one that starts now would.
    Sessions and links keep their duration from now on. It looks for such rows at its first call,
    since a clock is often corrected while the service is stopped, and after each call at which the
    clock had been set back.
    """

    def __init__(
        self, lockout_minutes: int, session_days: int, corrected: Callable[[int], None]
    ) -> None:
        """`corrected` is called with the number of rows, after the commit."""
        self._lock_ms = lockout_minutes * MS_PER_MINUTE
        self._session_ms = session_days * MS_PER_DAY
        self._corrected = corrected
        self._pending = True
        self._latest = 0

    def __call__(self, tx: Tx) -> int:
        """Correct a batch of rows of each kind; return how many were corrected."""
        self._pending = self._pending or tx.now < self._latest
        self._latest = tx.now
        if not self._pending:
            return 0
        times = {"now": tx.now, "ahead": tx.now + MAX_AHEAD_MS}
        count = (
            tx.run(_ATTEMPTS_AHEAD, latest=tx.now + self._lock_ms, **times)
            + tx.run(_SESSIONS_AHEAD, latest=tx.now + self._session_ms, **times)
            + tx.run(_LINKS_AHEAD, **times)
        )

        def done() -> None:
            self._pending = count > 0  # there may be another batch
            if count:
                self._corrected(count)

        tx.after_commit(done)
        return count


@dataclass(frozen=True)
class Schedule:
    """One sweep: its interval and its steps.

    A step is repeated as long as it returns at least `batch`. `log_end`: log the end of a sweep.
    """

    every_seconds: float
    steps: tuple[Batch, ...]
    batch: int = BATCH
    log_end: bool = True


class Sweep(Message, frozen=True):
    """Continue with step `step` of a sweep that has deleted `deleted` rows so far."""

    name: str
    step: int = 0
    deleted: int = 0


class Sweeper(Actor):
    """Runs the sweeps by their schedules."""

    mailbox = MailboxPolicy(capacity=16, overflow=Overflow.REFUSE)

    def __init__(self, store: Store, log: Log, schedules: Mapping[str, Schedule]) -> None:
        self._store, self._log, self._schedules = store, log, schedules

    async def started(self) -> None:
        """Sweep soon after the start: a process stopped every night would otherwise never sweep."""
        for name in self._schedules:
            self.context.after(FIRST_AFTER_SECONDS, Sweep(name))

    @handles(Sweep)
    async def sweep(self, message: Sweep) -> None:
        """Delete one batch; then continue, or sleep until the next sweep."""
        schedule = self._schedules[message.name]
        if message.step >= len(schedule.steps):
            if schedule.log_end:
                self._log.info("sweep.done", sweep=message.name, deleted=message.deleted)
            self.context.after(schedule.every_seconds, Sweep(message.name))
            return
        try:
            count = await self._store.write(schedule.steps[message.step])
        except OverloadedError:
            self.context.after(RETRY_SECONDS, message)  # repeats the step
            return
        following = message.step + (count < schedule.batch)
        self.context.after(PAUSE_SECONDS, Sweep(message.name, following, message.deleted + count))
