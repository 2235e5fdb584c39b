"""Replay of deliveries, each independently of others (B-251, O-80).

Replays of all that match a filter: `fw_actors.webhooks.bulk_replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import BY_DOCUMENT, DEFAULT_MAX_ATTEMPTS
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import Rights
from fw_actors.documents.registry import Registry
from fw_actors.errors import (
    ConflictError,
    FwError,
    NotFoundError,
    PermissionDeniedError,
)
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.store import Statement, jobs
from fw_actors.store.ordered_jobs import enqueue_ordered
from fw_actors.store.schema import JOB
from fw_actors.webhooks.attempts import keep_before_replay, replayed_by
from fw_actors.webhooks.events import QUEUE, ordering_key_of

FINAL: Final = (DeliveryStatus.SENT.value, DeliveryStatus.FAILED.value)
"""Where a replay begins; the other two are refused."""

_DELIVERY: Final = "Webhook Delivery"
_FORGET_JOB: Final = Statement(
    sa.delete(JOB).where(JOB.c.queue == QUEUE, JOB.c.subject == sa.bindparam("delivery"))
)


class Replayed(msgspec.Struct, frozen=True):
    """A delivery whose new attempts have been queued."""

    delivery: str
    status: str = DeliveryStatus.QUEUED.value


class Replays:
    """Replays deliveries in the caller's transactions; calls `recorded` after each commit."""

    def __init__(self, registry: Registry, audit: AuditLog, recorded: Callable[[], None]) -> None:
        hooks = registry.tables["Webhook"].table.c
        table = registry.tables[_DELIVERY].table
        d = table.c
        name: sa.BindParameter[Any] = sa.bindparam("key")
        self._audit, self._recorded = audit, recorded
        # Locked (PostgreSQL): one of two concurrent replays waits, and finds the status changed.
        self._read = Statement(
            sa.select(d.webhook, d.status, d.erased, d.reference_doctype, d.reference_name)
            .where(d.name == name)
            .with_for_update(key_share=True)
        )
        most = sa.func.coalesce(
            hooks.max_attempts, DEFAULT_MAX_ATTEMPTS
        )  # null only if written by raw SQL
        self._hook = Statement(sa.select(most, hooks.ordering).where(hooks.name == name))
        self._begin = Statement(
            sa.update(table)
            .where(d.name == name)
            .values(
                status=DeliveryStatus.QUEUED.value,
                attempts=0,
                max_attempts=sa.bindparam("most"),
                next_attempt=sa.bindparam("now"),
                error=sa.null(),
                sent=sa.null(),
                modified=sa.bindparam("now"),
                modified_by=sa.bindparam("user"),
                replayed=sa.bindparam("replayed"),
                replay_run=sa.bindparam("run"),
            )
        )

    def replay(
        self, fw: Fw, delivery: str, run: str | None = None
    ) -> Replayed | PermissionDeniedError:
        """Queue new attempts, and write the Audit Event. `run`: the bulk replay that asks for it.

        A missing permission is recorded too, which requires a commit: the error is returned, for
        the caller to raise after the commit.

        Raises: NotFoundError; ConflictError if the delivery is Queued or Retrying, or its Webhook
            was deleted, or its body was erased. These write no Audit Event.
        """
        error = permission_error(fw.rights)
        if error is not None:
            self._audit.deny(fw, delivery)
            return error
        return self._replay(fw, delivery, run)

    def replay_many(
        self, fw: Fw, deliveries: Sequence[str], run: str | None = None
    ) -> list[Replayed | FwError]:
        """Replay each delivery; the result of one that fails is its error, the others go on."""
        results: list[Replayed | FwError] = []
        for delivery in deliveries:
            try:
                with fw.tx.savepoint():
                    results.append(self.replay(fw, delivery, run))
            except (NotFoundError, ConflictError) as error:
                results.append(error)
        return results

    def find(self, fw: Fw, filters: Sequence[Any], limit: int | None) -> list[str]:
        """Return the deliveries that match, oldest event first. Raises: PermissionDeniedError."""
        order = "creation asc, name asc"
        return [row["name"] for row in fw.get_list(_DELIVERY, filters, ["name"], order, limit)]

    def _replay(self, fw: Fw, delivery: str, run: str | None) -> Replayed:
        tx = fw.tx
        row = tx.one(self._read, key=delivery)
        if row is None:
            raise NotFoundError(f"There is no Webhook Delivery {delivery[:140]}.")
        webhook, previous, erased, *reference = row
        hook = tx.one(self._hook, key=webhook)
        if hook is None:
            raise ConflictError("The Webhook of this delivery was deleted.")
        if previous not in FINAL:
            raise ConflictError("This delivery is already in progress.")
        if erased is not None:
            raise ConflictError(
                f"The body of this delivery was erased at {iso(erased)}; it can't be sent again."
            )
        most, ordering = hook
        keep_before_replay(tx, delivery, most)
        by = replayed_by(fw.user, tx.now)
        tx.run(self._begin, key=delivery, most=most, now=tx.now, user=fw.user, replayed=by, run=run)
        # A failed delivery keeps its job; the new job has no lease.
        tx.run(_FORGET_JOB, delivery=delivery)
        if ordering == BY_DOCUMENT:  # after those of its document that wait
            enqueue_ordered(tx, QUEUE, [(webhook, delivery, ordering_key_of(*reference))])
        else:
            jobs.enqueue(tx, queue=QUEUE, partition=webhook, subject=delivery)
        detail = {"webhook": webhook, "previous_status": previous}
        self._audit.record(fw, Action.REPLAY, delivery, detail)
        tx.after_commit(self._recorded)
        return Replayed(delivery)


def permission_error(rights: Rights) -> PermissionDeniedError | None:
    """Return an error unless the user is a System Manager without access scopes (B-255)."""
    if not rights.manages:
        return PermissionDeniedError("Replaying a delivery requires the role System Manager.")
    if rights.scoped:
        return PermissionDeniedError("Your access scopes don't include Webhook Delivery.")
    return None
