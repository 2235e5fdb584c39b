"""Replays of all deliveries that match a filter: begun, carried out in batches, looked at, stopped.

Source: spec, Webhook Delivery status (replay) and Audit events, for each delivery as if it were
replayed alone. A run is a row: it goes on after a restart, and a batch and how far the run has
come with it are one transaction. There is one run at a time; the last one stays to be looked at.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.documents.handle import Fw
from fw_actors.documents.query import Query
from fw_actors.errors import BadRequestError, ConflictError, FwError, PermissionDeniedError
from fw_actors.runtime import Entropy
from fw_actors.services.audit import AuditLog
from fw_actors.services.replay import FINAL, Replayed, Replays, refusal_of
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import BULK_REPLAY

QUEUE: Final = "replays"
"""What `recorded` is told when a run was begun."""
BATCH: Final = 50
_DELIVERY: Final = "Webhook Delivery"
_REASONS: Final = 8
_FINISHED: Final = ["status", "in", list(FINAL)]
_ID_BYTES: Final = 12


class RunState(StrEnum):
    """Where a run is; all but the first are ends."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class Run(msgspec.Struct, frozen=True, kw_only=True):
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

    def begin(self, fw: Fw, filters: Sequence[Any]) -> Run | PermissionDeniedError:
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
        run = Run(
            id=self._entropy.bytes(_ID_BYTES).hex(), user=fw.user, request_id=fw.request_id,
            filters=json.dumps(list(filters)), last=last, cursor="", state=RunState.RUNNING,
            total=fw.count(_DELIVERY, [*filters, _FINISHED]), replayed=0, reasons="{}",
            error="", begun=fw.tx.now, ended=None,
        )  # fmt: skip
        fw.tx.run(_FORGET)
        fw.tx.run(_BEGIN, **msgspec.structs.asdict(run))
        fw.tx.after_commit(self._recorded)
        return run

    def last(self, tx: Tx) -> Run | None:
        """Return the run that is on, or else the last one."""
        row = tx.one(_LAST)
        return None if row is None else Run(**dict(zip(Run.__struct_fields__, row, strict=True)))

    def running(self, tx: Tx) -> Run | None:
        """Return the run that is on."""
        run = self.last(tx)
        return run if run is not None and run.state == RunState.RUNNING else None

    def progress(self, fw: Fw) -> Run | None:
        """Return how far it has come. Raises: PermissionDeniedError."""
        _require(fw)
        return self.last(fw.tx)

    def stop(self, fw: Fw) -> Run | None:
        """Let the run end after the batch in hand; no difference without one.

        Raises: PermissionDeniedError.
        """
        _require(fw)
        run = self.running(fw.tx)
        if run is not None:
            self._end(fw.tx, run, RunState.STOPPED)
        return self.last(fw.tx)

    def batch(self, fw: Fw, run: Run) -> list[str]:
        """Return the deliveries whose turn is next.

        Each comes up once: one that fails anew lies behind the cursor by then.
        """
        meta = fw.documents.registry.meta(_DELIVERY)
        wanted = Query(fw, meta, [*json.loads(run.filters), _FINISHED], ignore_permissions=True)
        return wanted.names_after(run.cursor, run.last, BATCH)

    def carry_out(self, fw: Fw, run: Run, deliveries: Sequence[str]) -> None:
        """Replay a batch as the user who began, or end the run when it is empty.

        Nothing happens when the run was stopped, or another process was faster. Who may not any
        more is recorded, and ends the run.
        """
        refusal = refusal_of(fw.rights)
        if refusal is not None:
            self._audit.deny(fw, _DELIVERY)
            self.give_up(fw.tx, run, refusal.message)
        elif not deliveries:
            self._end(fw.tx, run, RunState.DONE)
        elif fw.tx.run(_ADVANCE, id=run.id, cursor=run.cursor, reached=deliveries[-1]):
            told = self._replays.replay_many(fw, deliveries)
            replayed = sum(isinstance(each, Replayed) for each in told)
            reasons = Counter(run.refused)
            for each in told:
                if isinstance(each, FwError):
                    reasons[_reason(each, reasons)] += 1
            fw.tx.run(_COUNT, id=run.id, more=replayed, why=json.dumps(reasons))

    def give_up(self, tx: Tx, run: Run, why: str) -> None:
        """End a run as failed."""
        self._end(tx, run, RunState.FAILED, why)

    def _end(self, tx: Tx, run: Run, state: RunState, why: str = "") -> None:
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
_COLUMNS: Final = tuple(_R[name] for name in Run.__struct_fields__)
_LAST: Final = Statement(sa.select(*_COLUMNS).order_by(_R.begun.desc()).limit(1))
_FORGET: Final = Statement(sa.delete(BULK_REPLAY))
_BEGIN: Final = Statement(
    sa.insert(BULK_REPLAY).values({name: sa.bindparam(name) for name in Run.__struct_fields__})
)
_ADVANCE: Final = Statement(
    sa.update(BULK_REPLAY)
    .where(_R.id == sa.bindparam("id"), _R.cursor == sa.bindparam("cursor"))
    .where(_R.state == RunState.RUNNING.value)
    .values(cursor=sa.bindparam("reached"))
)
_COUNT: Final = Statement(
    sa.update(BULK_REPLAY)
    .where(_R.id == sa.bindparam("id"))
    .values(replayed=_R.replayed + sa.bindparam("more"), reasons=sa.bindparam("why"))
)
_END: Final = Statement(
    sa.update(BULK_REPLAY)
    .where(_R.id == sa.bindparam("id"), _R.state == RunState.RUNNING.value)
    .values(state=sa.bindparam("how"), error=sa.bindparam("why"), ended=sa.bindparam("at"))
)
