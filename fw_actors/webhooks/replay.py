"""Replay of one delivery, and of all that match a filter.

Each delivery is replayed as if it were alone (B-251, O-80). A run is a row: it goes
on after a restart, and a batch and how far the run has come with it are one transaction
(B-257). There is one run at a time (B-258); the last one stays to be looked at.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import DEFAULT_MAX_ATTEMPTS
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import Rights
from fw_actors.documents.query import Query
from fw_actors.documents.registry import Registry
from fw_actors.documents.special_fields import iso
from fw_actors.errors import (
    BadRequestError,
    ConflictError,
    FwError,
    NotFoundError,
    PermissionDeniedError,
)
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.runtime import Entropy
from fw_actors.store import Statement, Tx, jobs
from fw_actors.store.schema import BULK_REPLAY, JOB
from fw_actors.webhooks.events import QUEUE

FINAL: Final = (DeliveryStatus.SENT.value, DeliveryStatus.FAILED.value)
"""Where a replay begins; the other two are refused."""

_DELIVERY: Final = "Webhook Delivery"
_FORGET_JOB: Final = Statement(
    sa.delete(JOB).where(JOB.c.queue == QUEUE, JOB.c.subject == sa.bindparam("delivery"))
)


class Replayed(msgspec.Struct, frozen=True):
    """A delivery whose fresh attempts have begun."""

    delivery: str
    status: str = DeliveryStatus.QUEUED.value


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
                status=DeliveryStatus.QUEUED.value,
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
    """Say whether a user may not: it takes a System Manager without access scopes (B-255)."""
    if not rights.manages:
        return PermissionDeniedError("Sending a delivery again takes the role System Manager.")
    if rights.scoped:
        return PermissionDeniedError("Your access scopes don't include Webhook Delivery.")
    return None


REPLAYS: Final = "replays"
"""What `recorded` is told when a run was begun."""
BATCH: Final = 50
_REASONS: Final = 8
_FINISHED: Final = ["status", "in", list(FINAL)]
_ID_BYTES: Final = 12


class ReplayState(StrEnum):
    """Where a run is; all but the first are ends."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class ReplayRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as its row is. Times in ms; `total` is how many matched when it was begun."""

    id: str
    user: str
    request_id: str
    filters: str
    last: str
    """The newest delivery there was: what is recorded later is not touched."""
    cursor: str
    """The last one whose turn has come; they come in the order of their names."""
    state: str
    total: int
    replayed: int
    reasons: str
    """How many were refused, by why: a JSON object."""
    error: str
    begun: int
    ended: int | None

    @property
    def refused(self) -> dict[str, int]:
        """How many could not be replayed, by why."""
        found: dict[str, int] = json.loads(self.reasons)
        return found


class BulkReplays:
    """The steps, each in a transaction that is given; `recorded` is called after the first's."""

    def __init__(
        self, replays: Replays, audit: AuditLog, entropy: Entropy, recorded: Callable[[], None]
    ) -> None:
        self._replays, self._audit = replays, audit
        self._entropy, self._recorded = entropy, recorded

    def begin(self, fw: Fw, filters: Sequence[Any]) -> ReplayRun | PermissionDeniedError:
        """Begin a run over the deliveries that match, Sent and Failed ones alone.

        As with `Replays.replay`, who may not is recorded, and the refusal returned to be raised
        after the commit. `filters` are those of the list of documents, at least one.

        Raises: BadRequestError; ConflictError while another run is on.
        """
        refusal = refusal_of(fw.rights)
        if refusal is not None:
            self._audit.deny(fw, _DELIVERY)
            return refusal
        if not filters:
            raise BadRequestError("Name at least one filter; all is too many.", field="filters")
        fw.tx.lock("fw.bulk_replay")
        before = self.running(fw.tx)
        if before is not None:
            raise ConflictError(f"A replay of many, begun by {before.user}, is under way already.")
        newest = fw.get_list(_DELIVERY, list(filters), ["name"], "name desc", 1)
        last = newest[0]["name"] if newest else ""
        run = ReplayRun(
            id=self._entropy.bytes(_ID_BYTES).hex(), user=fw.user, request_id=fw.request_id,
            filters=json.dumps(list(filters)), last=last, cursor="", state=ReplayState.RUNNING,
            total=fw.count(_DELIVERY, [*filters, _FINISHED]), replayed=0, reasons="{}",
            error="", begun=fw.tx.now, ended=None,
        )  # fmt: skip
        fw.tx.run(_FORGET)
        fw.tx.run(_BEGIN, **msgspec.structs.asdict(run))
        fw.tx.after_commit(self._recorded)
        return run

    def last(self, tx: Tx) -> ReplayRun | None:
        """Return the run that is on, or else the last one."""
        row = tx.one(_LAST)
        return (
            None
            if row is None
            else ReplayRun(**dict(zip(ReplayRun.__struct_fields__, row, strict=True)))
        )

    def running(self, tx: Tx) -> ReplayRun | None:
        """Return the run that is on."""
        run = self.last(tx)
        return run if run is not None and run.state == ReplayState.RUNNING else None

    def progress(self, fw: Fw) -> ReplayRun | None:
        """Return how far it has come. Raises: PermissionDeniedError."""
        _require(fw)
        return self.last(fw.tx)

    def stop(self, fw: Fw) -> ReplayRun | None:
        """Let the run end after the batch in hand; no difference without one.

        Raises: PermissionDeniedError.
        """
        _require(fw)
        run = self.running(fw.tx)
        if run is not None:
            self._end(fw.tx, run, ReplayState.STOPPED)
        return self.last(fw.tx)

    def batch(self, fw: Fw, run: ReplayRun) -> list[str]:
        """Return the deliveries whose turn is next.

        Each comes up once: one that fails anew lies behind the cursor by then.
        """
        meta = fw.documents.registry.meta(_DELIVERY)
        wanted = Query(fw, meta, [*json.loads(run.filters), _FINISHED], ignore_permissions=True)
        return wanted.names_after(run.cursor, run.last, BATCH)

    def carry_out(self, fw: Fw, run: ReplayRun, deliveries: Sequence[str]) -> None:
        """Replay a batch as the user who began, or end the run when it is empty.

        Nothing happens when the run was stopped, or another process was faster. Who may not any
        more is recorded, and ends the run.
        """
        refusal = refusal_of(fw.rights)
        if refusal is not None:
            self._audit.deny(fw, _DELIVERY)
            self.give_up(fw.tx, run, refusal.message)
        elif not deliveries:
            self._end(fw.tx, run, ReplayState.DONE)
        elif fw.tx.run(_ADVANCE, id=run.id, cursor=run.cursor, reached=deliveries[-1]):
            told = self._replays.replay_many(fw, deliveries)
            replayed = sum(isinstance(each, Replayed) for each in told)
            reasons = Counter(run.refused)
            for each in told:
                if isinstance(each, FwError):
                    reasons[_reason(each, reasons)] += 1
            fw.tx.run(_COUNT, id=run.id, more=replayed, why=json.dumps(reasons))

    def give_up(self, tx: Tx, run: ReplayRun, why: str) -> None:
        """End a run as failed."""
        self._end(tx, run, ReplayState.FAILED, why)

    def _end(self, tx: Tx, run: ReplayRun, state: ReplayState, why: str = "") -> None:
        """By its id: meanwhile it may have ended, and another one begun."""
        tx.run(_END, id=run.id, how=state.value, why=why, at=tx.now)


def _require(fw: Fw) -> None:
    refusal = refusal_of(fw.rights)
    if refusal is not None:
        raise refusal


def _reason(error: FwError, known: Counter[str]) -> str:
    """Return why, as one of few sentences: those of conflicts name no delivery."""
    why = error.message if isinstance(error, ConflictError) else "It is not there any more."
    return why if why in known or len(known) < _REASONS else "For another reason."


_R: Final = BULK_REPLAY.c
_COLUMNS: Final = tuple(_R[name] for name in ReplayRun.__struct_fields__)
_LAST: Final = Statement(sa.select(*_COLUMNS).order_by(_R.begun.desc()).limit(1))
_FORGET: Final = Statement(sa.delete(BULK_REPLAY))
_BEGIN: Final = Statement(
    sa.insert(BULK_REPLAY).values(
        {name: sa.bindparam(name) for name in ReplayRun.__struct_fields__}
    )
)
_ADVANCE: Final = Statement(
    sa.update(BULK_REPLAY)
    .where(_R.id == sa.bindparam("id"), _R.cursor == sa.bindparam("cursor"))
    .where(_R.state == ReplayState.RUNNING.value)
    .values(cursor=sa.bindparam("reached"))
)
_COUNT: Final = Statement(
    sa.update(BULK_REPLAY)
    .where(_R.id == sa.bindparam("id"))
    .values(replayed=_R.replayed + sa.bindparam("more"), reasons=sa.bindparam("why"))
)
_END: Final = Statement(
    sa.update(BULK_REPLAY)
    .where(_R.id == sa.bindparam("id"), _R.state == ReplayState.RUNNING.value)
    .values(state=sa.bindparam("how"), error=sa.bindparam("why"), ended=sa.bindparam("at"))
)
