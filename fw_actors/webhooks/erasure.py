"""Erases the contents of deliveries, and deletes old deliveries whole.

An erasure removes the body that was sent and the receivers' responses. The delivery stays on
record, with its attempts and Audit Events; the body cannot be sent again (B-360 to B-364). Only
final deliveries are erased, because one in progress still needs its body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import WebhookDelivery, missing_delivery
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import require_administering
from fw_actors.documents.tables import table_of
from fw_actors.errors import ConflictError, PermissionDeniedError, ValidationError
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.rules.delivery import FINAL, DeliveryStatus, wrong_status
from fw_actors.runtime.clock import MS_PER_DAY, MS_PER_HOUR
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import JOB, META
from fw_actors.webhooks.attempts import delete_attempts, delete_responses
from fw_actors.webhooks.events import DELETE_JOB, QUEUE
from fw_actors.webhooks.pacing import lock_webhooks_of

MAX_ERASED_DELIVERIES: Final = 100
"""The maximum number of deliveries that one call of `erase_many` erases."""
MAX_ERASABLE_DELIVERIES: Final = 20_000
"""The maximum number of deliveries that one call of `erasable` returns."""
_OPERATION: Final = "Erasing a delivery"
_TABLE: Final = table_of(WebhookDelivery).table
_D: Final = _TABLE.c
_ERASABLE: Final = sa.and_(_D.status.in_(FINAL), _D.erased.is_(None))
_READ: Final = Statement(
    sa.select(_D.webhook, _D.status, _D.erased)
    .where(_D.name == sa.bindparam("delivery"))
    .with_for_update(key_share=True)  # PostgreSQL: a concurrent replay waits
)
_LOCK: Final = Statement(
    sa.select(_D.name, _D.webhook)
    .where(
        _D.name.in_(sa.bindparam("names", expanding=True)),
        _ERASABLE.self_group().is_(sa.true()),  # one expression: no index of states is used
    )
    .order_by(_D.name)
    .with_for_update(key_share=True)
)
_ERASE: Final = Statement(
    sa.update(_TABLE)
    .where(_D.name == sa.bindparam("delivery"), _ERASABLE)
    .values(
        payload=sa.null(), response_body=sa.null(), erased=sa.bindparam("at"),
        modified=_D.modified + 1,
    )
)  # fmt: skip


def erase(fw: Fw, audit: AuditLog, delivery: str) -> str | PermissionDeniedError:
    """Erase one delivery's body and responses; return the time of the erasure (ISO 8601), or of an
    earlier one.

    The error of a missing permission is returned (see `AuditLog.denial`).

    Raises: NotFoundError; ConflictError for a delivery that has not ended.
    """
    error = audit.denial(fw, _OPERATION, delivery)
    if error is not None:
        return error
    row = fw.tx.one(_READ, delivery=delivery)
    if row is None:
        raise missing_delivery(delivery)
    webhook, status, erased = row
    if status not in FINAL:
        raise ConflictError(wrong_status(status, FINAL, "erased"))
    if erased is None:
        erase_all(fw.tx, [delivery])
        audit.record(fw, Action.ERASE, delivery, {"webhook": webhook})
        return iso(fw.tx.now)
    return iso(erased)


def erasable(
    fw: Fw,
    *,
    webhook: str | None = None,
    reference: tuple[str, str] | None = None,
    until: int | None = None,
) -> list[str]:
    """Return final deliveries that match all given conditions, for `erase_many`, by name.

    At most `MAX_ERASABLE_DELIVERIES`; after their erasure the next call returns others. Pages are
    large and in no order of the database: erased deliveries stay on record, and each further page
    would read them, or sort all matches, again.

    Args:
        reference: DocType and name of the document that the events are about.
        until: only deliveries whose last attempt was earlier, in ms.

    Raises: PermissionDeniedError; ValidationError without a condition.
    """
    require_administering(fw.rights, _OPERATION)
    if webhook is None and reference is None and until is None:
        raise ValidationError(
            "Select the deliveries to erase: by webhook, reference or until.", field="webhook"
        )
    conditions = [_ERASABLE]
    if webhook is not None:
        conditions.append(_D.webhook == webhook)
    if reference is not None:
        conditions += [_D.reference_doctype == reference[0], _D.reference_name == reference[1]]
    if until is not None:
        conditions.append(_D.last_attempt < until)
    selected = sa.select(_D.name).where(*conditions).limit(MAX_ERASABLE_DELIVERIES)
    return sorted(name for (name,) in fw.tx.rows(selected))


def erase_many(fw: Fw, audit: AuditLog, deliveries: Sequence[str]) -> list[str]:
    """Erase deliveries, at most `MAX_ERASED_DELIVERIES`; return those that are still final and not
    erased.

    Raises: PermissionDeniedError.
    """
    require_administering(fw.rights, _OPERATION)
    names = list(deliveries[:MAX_ERASED_DELIVERIES])
    lock_webhooks_of(fw.tx, names)
    rows = fw.tx.rows(_LOCK, names=names)
    erase_all(fw.tx, [name for name, _ in rows])
    for name, webhook in rows:
        audit.record(fw, Action.ERASE, name, {"webhook": webhook})
    return [name for name, _ in rows]


def erase_all(tx: Tx, deliveries: Sequence[str]) -> None:
    """Erase bodies and responses of deliveries, except of those that were replayed meanwhile."""
    if deliveries:
        tx.run_many(_ERASE, [{"delivery": name, "at": tx.now} for name in deliveries])
        delete_responses(tx, deliveries)


_BEFORE: Final[sa.BindParameter[Any]] = sa.bindparam("before")
_NAMES: Final[sa.BindParameter[Any]] = sa.bindparam("names", expanding=True)
_OLD: Final = sa.and_(_D.status.in_(FINAL), _D.last_attempt <= _BEFORE)
_FIND_OLD: Final = Statement(
    sa.select(_D.name)
    .where(_OLD)
    .limit(sa.bindparam("limit"))
    .with_for_update(skip_locked=True)  # PostgreSQL: else a concurrent replay would be deleted
)
_JOBS: Final = sa.select(JOB.c.subject).where(JOB.c.queue == QUEUE, JOB.c.subject.in_(_NAMES))
_WITH_JOB: Final = Statement(_JOBS)
_LOCK_JOBS: Final = Statement(_JOBS.with_for_update(skip_locked=True))
_DELETE: Final = Statement(sa.delete(_TABLE).where(_D.name == sa.bindparam("delivery")))


def delete_old(tx: Tx, retention_days: int, limit: int) -> int:
    """Delete at most `limit` final deliveries `retention_days` after their last attempt, with the
    jobs of failed ones (B-280). Returns how many were deleted.

    Those that others have locked, or whose jobs they have, are left out, and further ones deleted
    in their place: fewer than `limit` would end the sweep until the next day.
    """
    before = tx.now - retention_days * MS_PER_DAY
    left_out: set[str] = set()
    deleted = 0
    while deleted < limit and len(left_out) < limit:
        rows = tx.rows(_FIND_OLD, before=before, limit=limit - deleted + len(left_out))
        names = [name for (name,) in rows if name not in left_out]
        locked = _with_locked_job(tx, names) if names and tx.locks_rows else set()
        _delete(tx, [name for name in names if name not in locked])
        deleted += len(names) - len(locked)
        left_out |= locked
        if not locked:
            break
    return deleted


def _with_locked_job(tx: Tx, names: Sequence[str]) -> set[str]:
    """Lock the jobs of deliveries; return the deliveries whose jobs others have locked.

    Nothing is waited for, so that the order of locks (B-430) does not matter.
    """
    locked = {name for (name,) in tx.rows(_WITH_JOB, names=names)}
    return locked - {name for (name,) in tx.rows(_LOCK_JOBS, names=names)}


def _delete(tx: Tx, names: Sequence[str]) -> None:
    """Delete deliveries with their jobs and attempts."""
    if names:
        parameters = [{"delivery": name} for name in names]
        tx.run_many(DELETE_JOB, parameters)
        tx.run_many(_DELETE, parameters)
        delete_attempts(tx, names)


_META_KEY: Final = "payload_sweep"
_AGAIN_MS: Final = MS_PER_HOUR
"""A row that is locked for so long is missed by two passes, and so by the sweep."""
_GET: Final = Statement(sa.select(META.c.value).where(META.c.key == sa.bindparam("name")))
_PUT: Final = Statement(
    sa.insert(META).from_select(
        ["key", "value"],
        sa.select(sa.bindparam("name", type_=sa.Text()), sa.bindparam("content", type_=sa.Text()))
        .where(sa.true())  # else SQLite parses ON as that of a join
        .suffix_with("ON CONFLICT (key) DO UPDATE SET value = excluded.value"),
    )
)


class _SweepProgress(msgspec.Struct, frozen=True):
    """The progress of erasing the deliveries of one status, by their last attempts (ms).

    `start` is where the next pass begins, `reached` where the last one ended, and `moved` the time
    when `start` was changed.
    """

    start: int = 0
    reached: int = 0
    moved: int = 0

    def after(self, position: int, now: int) -> _SweepProgress:
        """Return the state after a pass that has read up to `position`."""
        reached = max(self.reached, position)
        if now - self.moved < _AGAIN_MS:
            return _SweepProgress(self.start, reached, self.moved)
        return _SweepProgress(self.reached, reached, now)


class PayloadSweep:
    """Erases the deliveries of one final status `days` after their last attempt.

    Erased deliveries stay on record. So that their number does not matter, a pass begins where the
    last one has ended, which is stored. (A replay moves a delivery after that position.) It reads
    the part of the last pass again, because locked rows are skipped and their transaction may have
    been rolled back (PostgreSQL). After the clock was set back it begins with the oldest delivery.
    """

    def __init__(self, status: DeliveryStatus, days: float, batch: int) -> None:
        self._days, self._batch, self._name = days, batch, f"{_META_KEY}.{status.value}"
        self._position: int | None = None  # in this pass; None before its first batch
        self._next = Statement(
            sa.select(_D.name, _D.last_attempt)
            .where(
                _D.status == status.value,
                _D.last_attempt >= sa.bindparam("begin"),
                _D.last_attempt <= sa.bindparam("before"),
                _D.erased.is_(None),
            )
            .order_by(_D.last_attempt)
            .limit(batch)
            .with_for_update(skip_locked=True)
        )

    def __call__(self, tx: Tx) -> int:
        """Erase the next batch; return the number of erased deliveries."""
        before = tx.now - round(self._days * MS_PER_DAY)
        progress = self._progress(tx)
        begin = progress.start if self._position is None else self._position
        rows: list[tuple[Any, ...]] = tx.rows(self._next, begin=begin, before=before)
        erase_all(tx, [name for name, _ in rows])
        last = rows[-1][1] if rows else begin
        if len(rows) < self._batch:  # the pass has ended
            after = progress.after(last, tx.now)
            if after != progress:
                tx.run(_PUT, name=self._name, content=msgspec.json.encode(after).decode())
            tx.after_commit(lambda: self._set_position(None))
        else:
            tx.after_commit(lambda: self._set_position(last))
        return len(rows)

    def _progress(self, tx: Tx) -> _SweepProgress:
        """Return how far earlier passes came; nowhere if the clock was set back since."""
        stored = tx.scalar(_GET, name=self._name)
        progress = (
            _SweepProgress() if stored is None else msgspec.json.decode(stored, type=_SweepProgress)
        )
        return progress if progress.moved <= tx.now else _SweepProgress()

    def _set_position(self, position: int | None) -> None:
        self._position = position


def payload_batches(days: float, batch: int) -> tuple[PayloadSweep, ...]:
    """Return the steps of `core.services.webhooks.sweep` for bodies; 0 days keeps them."""
    if days == 0:
        return ()
    return tuple(
        PayloadSweep(status, days, batch) for status in (DeliveryStatus.SENT, DeliveryStatus.FAILED)
    )
