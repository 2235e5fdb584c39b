"""Cancels deliveries that wait: they become Failed, and nothing more is sent (B-365 to B-368).

A cancellation takes the delivery's job as a claim does, and writes an outcome as a sender does.
Therefore it excludes attempts in progress, is recorded with the attempts, and makes the next
delivery of an ordered document due.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from fw_actors.documents.core import WebhookDelivery, missing_delivery
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import require_administering
from fw_actors.documents.tables import table_of
from fw_actors.errors import ConflictError, PermissionDeniedError, ValidationError
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.rules.delivery import (
    FINAL,
    WAITING,
    Backoff,
    DeliveryStatus,
    OutcomeKind,
    error_of_cancellation,
    wrong_status,
)
from fw_actors.runtime import Entropy
from fw_actors.store import LeasedJob, Statement, Tx
from fw_actors.store.schema import JOB
from fw_actors.webhooks.claims import LeasedDelivery
from fw_actors.webhooks.deliveries import AttemptOutcome, Deliveries
from fw_actors.webhooks.events import QUEUE
from fw_actors.webhooks.pacing import lock_claim_rows_of

MAX_EXAMINED_DELIVERIES: Final = 100
"""The maximum number of deliveries that one transaction of `cancel_matching` examines."""
_OPERATION: Final = "Cancelling a delivery"
_NO_BACKOFF: Final = Backoff(0.0, 0.0)  # a cancelled delivery is not retried
_TOKEN_BYTES: Final = 16
_D: Final = table_of(WebhookDelivery).table.c
_STATUS: Final = Statement(sa.select(_D.status).where(_D.name == sa.bindparam("delivery")))
# The end of a delivery's lease. A scalar for each delivery, because PostgreSQL would turn EXISTS
# into a join with all jobs that are due later.
_LEASE_END: Final = (
    sa.select(sa.func.max(JOB.c.next_at))
    .where(JOB.c.queue == QUEUE, JOB.c.subject == _D.name, JOB.c.lease.is_not(None))
    .correlate(table_of(WebhookDelivery).table)
    .scalar_subquery()
)
_IN_FLIGHT: Final = sa.func.coalesce(_LEASE_END, 0) > sa.bindparam("now")
_NAMES: Final[sa.BindParameter[Any]] = sa.bindparam("names", expanding=True)
# Locked by id, the order in which every transaction locks several jobs (see `deliveries`).
_FREE: Final = (
    sa.select(JOB.c.id)
    .where(
        JOB.c.queue == QUEUE,
        JOB.c.subject.in_(_NAMES),
        sa.or_(JOB.c.next_at.is_not(None), JOB.c.ordering_key.is_not(None)),  # else it has ended
        sa.or_(JOB.c.lease.is_(None), JOB.c.next_at <= sa.bindparam("now")),
    )
    .order_by(JOB.c.id)
    .with_for_update()
)
_TAKE: Final = Statement(
    sa.update(JOB)
    .where(JOB.c.id.in_(_FREE))
    .values(lease=sa.bindparam("token"))
    .returning(JOB.c.id, JOB.c.partition, JOB.c.subject, JOB.c.ordering_key)
)
_READ: Final = Statement(
    sa.select(
        _D.name,
        sa.func.coalesce(_D.attempts, 0),
        sa.func.coalesce(_D.max_attempts, 0),
        _D.status,
    ).where(_D.name.in_(_NAMES))
)


class CancelledDeliveries(NamedTuple):
    """The result of one step of `Cancellations.cancel_matching`.

    `more`: further ones may wait. `in_flight`: the number of those that are being sent, counted at
    the last step only.
    """

    cancelled: list[str]
    in_flight: int
    more: bool


class Cancellations:
    """Cancels waiting deliveries in the caller's transactions; calls `recorded` after commits."""

    def __init__(self, audit: AuditLog, entropy: Entropy, recorded: Callable[[], None]) -> None:
        self._deliveries = Deliveries(_NO_BACKOFF)
        self._audit, self._entropy, self._recorded = audit, entropy, recorded

    def cancel(self, fw: Fw, delivery: str) -> DeliveryStatus | PermissionDeniedError:
        """Cancel one delivery; return its new status.

        The error of a missing permission is returned (see `AuditLog.denial`).

        Raises: NotFoundError; ConflictError for a delivery that has ended or is being sent.
        """
        error = self._audit.denial(fw, _OPERATION, delivery)
        if error is not None:
            return error
        status = fw.tx.scalar(_STATUS, delivery=delivery)
        if status is None:
            raise missing_delivery(delivery)
        if status not in FINAL and self._cancel(fw, [delivery]):
            return DeliveryStatus.FAILED
        status = fw.tx.scalar(_STATUS, delivery=delivery) or status
        if status in FINAL:
            raise ConflictError(wrong_status(status, WAITING, "cancelled"))
        raise ConflictError("This delivery is being sent. If the attempt fails, you can cancel it.")

    def cancel_matching(
        self,
        fw: Fw,
        *,
        webhook: str | None = None,
        reference: tuple[str, str] | None = None,
    ) -> CancelledDeliveries:
        """Cancel the waiting deliveries that match, at most `MAX_EXAMINED_DELIVERIES`.

        Args:
            reference: DocType and name of the document that the events are about.

        Raises: PermissionDeniedError; ValidationError without a condition.
        """
        require_administering(fw.rights, _OPERATION)
        if webhook is None and reference is None:
            raise ValidationError(
                "Select the deliveries to cancel: by webhook, by reference or by both.",
                field="webhook",
            )
        conditions: list[sa.ColumnElement[bool]] = [_D.status.in_(WAITING)]
        if webhook is not None:
            conditions.append(_D.webhook == webhook)
        if reference is not None:
            conditions += [_D.reference_doctype == reference[0], _D.reference_name == reference[1]]
        # In no order: sorting a million would be repeated in each step.
        rows = fw.tx.rows(
            sa.select(_D.name).where(*conditions, ~_IN_FLIGHT).limit(MAX_EXAMINED_DELIVERIES),
            now=fw.tx.now,
        )
        cancelled = self._cancel(fw, [name for (name,) in rows])
        if len(rows) == MAX_EXAMINED_DELIVERIES:
            return CancelledDeliveries(cancelled, 0, more=True)
        count = sa.select(sa.func.count()).where(*conditions, _IN_FLIGHT)
        return CancelledDeliveries(cancelled, fw.tx.scalar(count, now=fw.tx.now), more=False)

    def _cancel(self, fw: Fw, names: Sequence[str]) -> list[str]:
        """Cancel deliveries that are not leased; return their names."""
        tx = fw.tx
        lock_claim_rows_of(tx, names)
        leased = self._lease(tx, names)
        if not leased:
            return []
        error = error_of_cancellation(fw.user)
        outcome = AttemptOutcome(OutcomeKind.CANCELLED, tx.now, error=error)
        # Not counted, because it says nothing about the receiver.
        batch = self._deliveries.outcome_batch(
            [(delivery, outcome) for delivery in leased], counted=False
        )
        self._deliveries.settle_all(tx, batch)
        for delivery in leased:
            detail = {"webhook": delivery.job.partition, "previous_status": delivery.status}
            self._audit.record(fw, Action.CANCEL_DELIVERY, delivery.delivery, detail)
        # The next deliveries of ordered documents are due.
        tx.after_commit(self._recorded, once=True)
        return [delivery.delivery for delivery in leased]

    def _lease(self, tx: Tx, names: Sequence[str]) -> list[LeasedDelivery]:
        """Lease the jobs of waiting deliveries that no worker holds."""
        token = self._entropy.bytes(_TOKEN_BYTES).hex()
        jobs = tx.rows(_TAKE, names=list(names), token=token, now=tx.now)
        subjects = [subject for _, _, subject, _ in jobs]
        columns = {row[0]: row[1:] for row in tx.rows(_READ, names=subjects)}
        webhooks = {
            webhook: self._deliveries.stored_webhook(tx, webhook)
            for webhook in {webhook for _, webhook, _, _ in jobs}
        }
        deliveries = []
        for number, webhook, name, ordering_key in sorted(jobs, key=itemgetter(0)):
            if name in columns:  # else deleted meanwhile
                attempts, max_attempts, status = columns[name]
                deliveries.append(
                    LeasedDelivery(
                        job=LeasedJob(number, QUEUE, webhook, name, lease=token),
                        stored=webhooks[webhook],
                        lease_end=tx.now,
                        delivery=name,
                        payload=b"",
                        attempts=attempts,
                        max_attempts=max_attempts,
                        status=status,
                        ordered=ordering_key is not None,
                    )
                )
        return deliveries
