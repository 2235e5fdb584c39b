"""Sends a delivery again: same id, same bytes, fresh attempts.

Source: spec, Webhook Delivery status (replay), Audit events, Errors; interface §7, §8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core.webhook import DEFAULT_MAX_ATTEMPTS
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import Rights
from fw_actors.documents.registry import Registry
from fw_actors.documents.times import iso
from fw_actors.errors import ConflictError, FwError, NotFoundError, PermissionDeniedError
from fw_actors.rules.delivery_outcome import Status
from fw_actors.services.audit import Action, AuditLog
from fw_actors.services.events import QUEUE
from fw_actors.store import Statement, jobs
from fw_actors.store.schema import JOB

FINAL: Final = (Status.SENT.value, Status.FAILED.value)
"""Where a replay begins; the other two are refused."""

_DELIVERY: Final = "Webhook Delivery"
_FORGET_JOB: Final = Statement(
    sa.delete(JOB).where(JOB.c.queue == QUEUE, JOB.c.subject == sa.bindparam("delivery"))
)


class Replayed(msgspec.Struct, frozen=True):
    """A delivery whose fresh attempts have begun."""

    delivery: str
    status: str = Status.QUEUED.value


class Replays:
    """Replays in transactions that are given; `recorded` is called after each commit of one."""

    def __init__(self, registry: Registry, audit: AuditLog, recorded: Callable[[], None]) -> None:
        hooks = registry.tables["Webhook"].table.c
        table = registry.tables[_DELIVERY].table
        d = table.c
        name: sa.BindParameter[Any] = sa.bindparam("key")
        self._audit, self._recorded = audit, recorded
        self._read = Statement(sa.select(d.webhook, d.status).where(d.name == name))
        most = sa.func.coalesce(hooks.max_attempts, DEFAULT_MAX_ATTEMPTS)  # null only by raw SQL
        self._attempts = Statement(sa.select(most).where(hooks.name == name))
        # Compare and set: of two replays at once one begins, and no attempt is run over.
        self._begin = Statement(
            sa.update(table)
            .where(d.name == name, d.status == sa.bindparam("previous"))
            .values(
                status=Status.QUEUED.value,
                attempts=0,
                max_attempts=sa.bindparam("most"),
                next_attempt=sa.bindparam("now"),
                error=sa.null(),
                sent=sa.null(),
                modified=sa.bindparam("now"),
                modified_by=sa.bindparam("user"),
            )
        )

    def replay(self, fw: Fw, delivery: str) -> Replayed | PermissionDeniedError:
        """Begin fresh attempts, and write the Audit Event.

        A user who may not is recorded too, which has to be committed: so that refusal is
        returned, for the caller to raise after the commit.

        Raises: NotFoundError; ConflictError for one that is Queued or Retrying, or whose Webhook
            was deleted. These leave no Audit Event.
        """
        refusal = refusal_of(fw.rights)
        if refusal is not None:
            self._audit.deny(fw, delivery)
            return refusal
        return self._replay(fw, delivery)

    def replay_many(self, fw: Fw, deliveries: Sequence[str]) -> list[Replayed | FwError]:
        """Replay each; one that can't be is answered with why, and holds up no other."""
        told: list[Replayed | FwError] = []
        for delivery in deliveries:
            try:
                with fw.tx.savepoint():
                    told.append(self.replay(fw, delivery))
            except (NotFoundError, ConflictError) as error:
                told.append(error)
        return told

    def find(
        self, fw: Fw, *, webhook: str | None, status: str, since: int | None, limit: int | None
    ) -> list[str]:
        """Return the deliveries of a final status, the oldest event first.

        Args:
            since: milliseconds; only events from then on.

        Raises: PermissionDeniedError.
        """
        filters: list[list[Any]] = [["status", "=", status]]
        if webhook is not None:
            filters.append(["webhook", "=", webhook])
        if since is not None:
            filters.append(["creation", ">=", iso(since)])
        order = "creation asc, name asc"
        return [row["name"] for row in fw.get_list(_DELIVERY, filters, ["name"], order, limit)]

    def _replay(self, fw: Fw, delivery: str) -> Replayed:
        tx = fw.tx
        row = tx.one(self._read, key=delivery)
        if row is None:
            raise NotFoundError(f"There is no Webhook Delivery {delivery[:140]}.")
        webhook, previous = row
        most = tx.scalar(self._attempts, key=webhook)
        if most is None:
            raise ConflictError("The Webhook of this delivery was deleted.")
        if previous not in FINAL or not tx.run(
            self._begin, key=delivery, previous=previous, most=most, now=tx.now, user=fw.user
        ):
            raise ConflictError("This delivery is under way already.")
        tx.run(_FORGET_JOB, delivery=delivery)  # a failed one is kept; a new one has no lease
        jobs.enqueue(tx, queue=QUEUE, partition=webhook, subject=delivery)
        detail = {"webhook": webhook, "previous_status": previous}
        self._audit.record(fw, Action.REPLAY, delivery, detail)
        tx.after_commit(self._recorded)
        return Replayed(delivery)


def refusal_of(rights: Rights) -> PermissionDeniedError | None:
    """Say whether a user may not: "System Manager without access scopes" (spec)."""
    if not rights.manages:
        return PermissionDeniedError("Sending a delivery again takes the role System Manager.")
    if rights.scoped:
        return PermissionDeniedError("Your access scopes don't include Webhook Delivery.")
    return None
