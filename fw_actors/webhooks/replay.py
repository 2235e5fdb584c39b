"""Replays: of single deliveries, and of all deliveries that match a filter.

Each delivery is replayed independently of others (B-251, O-80).

A run replays all deliveries that match a filter. It is stored as a row, so that it resumes after a
restart; one transaction contains a batch and the progress of the run (B-257). There is one run at a
time (B-258); the newest runs are kept. Each delivery stores its last run, so that outcomes are
counted from the deliveries themselves (O-300).

The module has more than 500 lines because a run and the replays of its batches change together: a
rename, a deletion and a stop must find all statements that may change a run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from enum import StrEnum
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from fw_actors.access.accounts import lock_account_shared
from fw_actors.documents.core import BY_DOCUMENT, Webhook, WebhookDelivery, missing_delivery
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import DocType, Fw
from fw_actors.documents.hooks import DELETION, Observer
from fw_actors.documents.permissions import require_administering
from fw_actors.documents.query import Query, oldest_first
from fw_actors.documents.tables import table_of, valid_number
from fw_actors.errors import (
    BadRequestError,
    ConflictError,
    FwError,
    NotFoundError,
    PermissionDeniedError,
    session_ended,
)
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.rules.delivery import FINAL, DeliveryStatus, wrong_status
from fw_actors.runtime import Entropy
from fw_actors.store import Statement, Tx, jobs
from fw_actors.store.ordered_jobs import enqueue_ordered
from fw_actors.store.schema import BULK_REPLAY
from fw_actors.webhooks.attempts import archive_before_replay, encode_replay
from fw_actors.webhooks.events import DELETE_JOB, QUEUE, ordering_key_of
from fw_actors.webhooks.pacing import lock_deliveries

_OPERATION: Final = "Replaying a delivery"
_DELIVERY: Final = "Webhook Delivery"
_ERASED: Final = "The body of this delivery was erased"
_NOT_AGAIN: Final = "it cannot be sent again."


class Replayed(msgspec.Struct, frozen=True):
    """A delivery whose new attempts have been queued."""

    delivery: str
    status: str = DeliveryStatus.QUEUED.value


_W: Final = table_of(Webhook).table.c
_D: Final = table_of(WebhookDelivery).table.c
_READ: Final = Statement(
    sa.select(_D.webhook, _D.status, _D.erased, _D.reference_doctype, _D.reference_name).where(
        _D.name == sa.bindparam("key")
    )
)
_READ_WEBHOOK: Final = Statement(
    sa.select(
        valid_number(Webhook, "max_attempts"),  # raw SQL may have written anything
        _W.ordering,
        sa.func.coalesce(_W.former_delivery, ""),
    ).where(_W.name == sa.bindparam("key"))
)
_REQUEUE: Final = Statement(
    sa.update(_D.name.table)
    .where(_D.name == sa.bindparam("key"))
    .values(
        status=DeliveryStatus.QUEUED.value,
        attempts=0,
        max_attempts=sa.bindparam("max_attempts"),
        next_attempt=sa.bindparam("now"),
        error=sa.null(),
        sent=sa.null(),
        modified=sa.bindparam("now"),
        modified_by=sa.bindparam("user"),
        replayed=sa.bindparam("replayed"),
        replay_run=sa.bindparam("run"),
    )
)


class Replays:
    """Replays deliveries in the caller's transactions; calls `recorded` after each commit."""

    def __init__(self, audit: AuditLog, recorded: Callable[[], None]) -> None:
        self._audit, self._recorded = audit, recorded

    def replay(
        self, fw: Fw, delivery: str, run: str | None = None
    ) -> Replayed | PermissionDeniedError:
        """Queue new attempts, and write the Audit Event. `run`: the id of the bulk replay, if any.

        The error of a missing permission is returned (see `AuditLog.denial`).

        Raises: NotFoundError; ConflictError if the delivery is Queued or Retrying, or its Webhook
            was deleted, or its body was erased. These write no Audit Event.
        """
        return self._locked_replay(fw, delivery, run, _lock(fw, [delivery]))

    def replay_many(
        self, fw: Fw, deliveries: Sequence[str], run: str | None = None
    ) -> list[Replayed | FwError]:
        """Replay each delivery; the result of a failed one is its error, and the others
        continue."""
        webhooks = _lock(fw, deliveries)
        results: list[Replayed | FwError] = []
        for delivery in deliveries:
            try:
                with fw.tx.savepoint():
                    results.append(self._locked_replay(fw, delivery, run, webhooks))
            except (NotFoundError, ConflictError) as error:
                results.append(error)
        return results

    def find(self, fw: Fw, filters: Sequence[Any], limit: int | None) -> Iterator[str]:
        """Yield the matching deliveries, oldest event first. Raises: PermissionDeniedError."""
        found = oldest_first(fw, _DELIVERY, filters, ["name", "creation"])
        return (row["name"] for row in islice(found, limit))

    def _locked_replay(
        self, fw: Fw, delivery: str, run: str | None, webhooks: Set[str]
    ) -> Replayed | PermissionDeniedError:
        error = self._audit.denial(fw, _OPERATION, delivery)
        return error or self._replay(fw, delivery, run, webhooks)

    def _replay(self, fw: Fw, delivery: str, run: str | None, webhooks: Set[str]) -> Replayed:
        """Replay a locked delivery; `webhooks` are the locked ones."""
        tx = fw.tx
        row = tx.one(_READ, key=delivery)
        if row is None:
            raise missing_delivery(delivery)
        webhook, previous, erased, *reference = row
        # One that is not locked was made after the deletion of the delivery's own Webhook.
        is_current = webhook in webhooks or not tx.locks_rows
        webhook_row = tx.one(_READ_WEBHOOK, key=webhook) if is_current else None
        if (
            webhook_row is None or delivery <= webhook_row[2]
        ):  # or it is of a deleted Webhook of that name
            raise ConflictError("The Webhook of this delivery was deleted.")
        if previous not in FINAL:
            raise ConflictError(wrong_status(previous, FINAL, "replayed"))
        if erased is not None:
            raise ConflictError(f"{_ERASED} at {iso(erased)}; {_NOT_AGAIN}")
        max_attempts, ordering, _ = webhook_row
        archive_before_replay(tx, delivery, max_attempts)
        replayed = encode_replay(fw.user, tx.now)
        tx.run(
            _REQUEUE,
            key=delivery,
            max_attempts=max_attempts,
            now=tx.now,
            user=fw.user,
            replayed=replayed,
            run=run,
        )
        # A failed delivery keeps its job; the new job has no lease.
        tx.run(DELETE_JOB, delivery=delivery)
        if ordering == BY_DOCUMENT:  # after the waiting ones of its document
            enqueue_ordered(tx, QUEUE, [(webhook, delivery, ordering_key_of(*reference))])
        else:
            jobs.enqueue(tx, queue=QUEUE, partition=webhook, subject=delivery)
        detail = {"webhook": webhook, "previous_status": previous}
        self._audit.record(fw, Action.REPLAY, delivery, detail)
        tx.after_commit(self._recorded, once=True)
        return Replayed(delivery)


def _lock(fw: Fw, deliveries: Sequence[str]) -> Set[str]:
    """Lock all that the replays will write; nothing if the user may not replay (B-255).

    Returns: the locked Webhooks.
    """
    return lock_deliveries(fw.tx, deliveries) if fw.rights.administers else frozenset()


REPLAYS: Final = "replays"
"""The argument of `recorded` after a run began."""
KEPT_RUNS: Final = 20
"""The number of runs that are kept, the newest ones."""
MAX_COUNTED_DELIVERIES: Final = 100_000
"""The maximum number of deliveries of a run whose outcomes are counted."""
MAX_COUNTED_IN_LIST: Final = 1_000
"""The same maximum for each run in a list of runs."""
BATCH: Final = 50
_REASONS: Final = 8
_FINISHED: Final = ["status", "in", list(FINAL)]
_ID_BYTES: Final = 12


class ReplayState(StrEnum):
    """The state of a run; all but the first are final."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class ReplayRun(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a run. Times in ms; `total` counts the matching deliveries at the start.

    `filters` as JSON, with what renames have added.
    """

    id: str
    user: str
    request_id: str
    filters: str
    last: str
    """The newest delivery at the start; later ones are not replayed. Empty for a run that its
    caller carries out."""
    cursor: str
    """The last processed delivery; deliveries are processed in the order of their names."""
    state: str
    total: int
    replayed: int
    reasons: str
    """The number of failures per reason, as a JSON object."""
    error: str
    begun: int
    ended: int | None

    @property
    def selection(self) -> list[Any]:
        """The filters as document lists take them."""
        return _split_renamed(json.loads(self.filters))[0]

    @property
    def refused(self) -> dict[str, int]:
        """The number of deliveries that could not be replayed, per reason."""
        counts: dict[str, int] = json.loads(self.reasons)
        return counts


class RunOutcomes(NamedTuple):
    """The outcomes of the deliveries that a run has replayed.

    `gone`: those that were replayed again since, or deleted. `more`: there are more than were
    counted, so that each number is a lower bound; `gone` is 0 then.
    """

    arrived: int
    failed: int
    open: int
    gone: int
    more: bool


class BulkReplays:
    """Carries out runs step by step in the caller's transactions; calls `recorded` after a run
    began."""

    def __init__(
        self, replays: Replays, audit: AuditLog, entropy: Entropy, recorded: Callable[[], None]
    ) -> None:
        self._replays, self._audit = replays, audit
        self._entropy, self._recorded = entropy, recorded

    def begin(self, fw: Fw, filters: Sequence[Any]) -> ReplayRun | PermissionDeniedError:
        """Begin a run over the matching deliveries that are Sent or Failed.

        The error of a missing permission is returned (see `AuditLog.denial`). `filters` are those
        of document lists, at least one.

        Raises: BadRequestError; ConflictError while another run is in progress;
            AuthenticationError if the user has just been deleted or renamed.
        """
        error = self._audit.denial(fw, _OPERATION, _DELIVERY)
        if error is not None:
            return error
        if not filters:
            raise BadRequestError("filters must contain at least one filter.", field="filters")
        if not lock_account_shared(fw.tx, fw.user):
            raise session_ended()
        fw.tx.lock("fw.bulk_replay")
        running = self.running(fw.tx)
        if running is not None:
            raise ConflictError(
                f"A bulk replay started by {running.user} is already in progress; wait until "
                "it ends, or stop it."
            )
        newest = fw.get_list(_DELIVERY, list(filters), ["name"], "name desc", 1)
        last = newest[0]["name"] if newest else ""
        total = fw.count(_DELIVERY, [*filters, _FINISHED])
        run = self._new(fw, filters, total, ReplayState.RUNNING, last)
        _keep(fw.tx, run)
        fw.tx.after_commit(self._recorded, once=True)
        return run

    def begin_foreground(self, fw: Fw, filters: Sequence[Any], total: int) -> ReplayRun:
        """Record a run that the caller carries out itself, with `replay_part`.

        Until it is done it is recorded as stopped, which is true if the caller dies.
        """
        run = self._new(fw, filters, total, ReplayState.STOPPED, "")
        _keep(fw.tx, run)
        return run

    def replay_part(
        self, fw: Fw, run: ReplayRun, deliveries: Sequence[str], *, last: bool
    ) -> list[Replayed | FwError]:
        """Replay a part of the caller's own run; `last`: it is the last part. Return the
        results."""
        results = self._replays.replay_many(fw, deliveries, run.id)
        stored_run = self.find(fw.tx, run.id)
        if stored_run is not None:  # else it is no longer among the newest runs, which are kept
            state = ReplayState.DONE if last else ReplayState.STOPPED
            _count(fw.tx, stored_run, results)
            fw.tx.run(_END_FOREGROUND, id=run.id, how=state.value, at=fw.tx.now)
        return results

    def _new(
        self, fw: Fw, filters: Sequence[Any], total: int, state: ReplayState, last: str
    ) -> ReplayRun:
        return ReplayRun(
            id=self._entropy.bytes(_ID_BYTES).hex(), user=fw.user, request_id=fw.request_id,
            filters=json.dumps(list(filters)), last=last, cursor="", state=state, total=total,
            replayed=0, reasons="{}", error="", begun=fw.tx.now,
            ended=None if state is ReplayState.RUNNING else fw.tx.now,
        )  # fmt: skip

    def last(self, tx: Tx) -> ReplayRun | None:
        """Return the run in progress, or else the last one."""
        return self.running(tx) or next(_runs(tx.rows(_NEWEST, limit=1)), None)

    def running(self, tx: Tx) -> ReplayRun | None:
        """Return the run in progress, or None."""
        return next(_runs(tx.rows(_RUNNING)), None)

    def find(self, tx: Tx, run: str) -> ReplayRun | None:
        """Return a run by its id, or None."""
        return next(_runs(tx.rows(_FIND, id=run)), None)

    def all(self, fw: Fw) -> list[ReplayRun]:
        """Return the runs that are kept, newest first. Raises: PermissionDeniedError."""
        require_administering(fw.rights, _OPERATION)
        return newest_runs(fw.tx)

    def get(self, fw: Fw, run: str) -> ReplayRun:
        """Return a run by its id. Raises: PermissionDeniedError, NotFoundError."""
        require_administering(fw.rights, _OPERATION)
        stored_run = self.find(fw.tx, run)
        if stored_run is None:
            raise NotFoundError(
                f"There is no bulk replay {run[:140]}; the last {KEPT_RUNS} are kept."
            )
        return stored_run

    def progress(self, fw: Fw) -> ReplayRun | None:
        """Return the current or last run. Raises: PermissionDeniedError."""
        require_administering(fw.rights, _OPERATION)
        return self.last(fw.tx)

    def stop(self, fw: Fw) -> ReplayRun | None:
        """End the run after the current batch; does nothing without a run.

        Raises: PermissionDeniedError.
        """
        require_administering(fw.rights, _OPERATION)
        run = self.running(fw.tx)
        if run is not None:
            self._end(fw.tx, run, ReplayState.STOPPED)
        return self.last(fw.tx)

    def batch(self, fw: Fw, run: ReplayRun) -> list[str]:
        """Return the next batch of deliveries.

        Each delivery is returned once: after its replay it is before the cursor, also if it fails
        again.
        """
        return _query(fw, run.filters).names_after(run.cursor, run.last, BATCH)

    def carry_out(self, fw: Fw, run: ReplayRun, deliveries: Sequence[str]) -> None:
        """Replay a batch as the user who began the run, or end the run if the batch is empty.

        Does nothing if the run was stopped, its user or what its filters name was renamed since it
        was read, or another process was faster. If the user has lost the permission, that is
        recorded and ends the run.
        """
        error = self._audit.denial(fw, _OPERATION, _DELIVERY)
        if error is not None:
            self.give_up(fw.tx, run, error.message)
        elif not deliveries:
            self._end(fw.tx, run, ReplayState.DONE)
        else:
            # Before the run, which a rename locks after the deliveries.
            _lock(fw, deliveries)
            if fw.tx.run(_ADVANCE, **_as_read(run), cursor=run.cursor, reached=deliveries[-1]):
                _count(fw.tx, run, self._replays.replay_many(fw, deliveries, run.id))

    def give_up(self, tx: Tx, run: ReplayRun, reason: str) -> None:
        """End a run as failed, unless a rename has changed it since it was read."""
        self._end(tx, run, ReplayState.FAILED, reason)

    def _end(self, tx: Tx, run: ReplayRun, state: ReplayState, reason: str = "") -> None:
        """End a run by its id, because it may have ended and another may have begun meanwhile."""
        tx.run(_END, **_as_read(run), how=state.value, reason=reason, at=tx.now)


def _as_read(run: ReplayRun) -> dict[str, str]:
    """Return the parameters by which a statement changes a run only as it was read."""
    return {"id": run.id, "by": run.user, "selected": run.filters}


class RunRenames(Observer):
    """Updates runs after renames, and ends the run of a deleted User.

    A run must not continue as another account of its user's name. It replays the deliveries that
    matched at its start, also if their Webhook or the document they are about is renamed, and is
    shown on the page of the Webhook.
    """

    events = frozenset({DELETION})

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """After the deletion of a User: end its run as failed."""
        if doc.doctype != "User":
            return
        reason = f"The user {doc.name} was deleted."
        fw.tx.run(_END_OF, by=doc.name, how=ReplayState.FAILED.value, reason=reason, at=fw.tx.now)

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Update the users and the filters of the runs that are kept."""
        if doctype == "User":
            fw.tx.run(_RENAME_USER, old=old, new=new)
        for run, filters in fw.tx.rows(_FILTERS_OF_RUNS):
            if _renamed_filters(filters, doctype, old, new) != filters:
                # Read again: a rename that has just ended may have changed them too (PostgreSQL).
                locked = fw.tx.scalar(_LOCK_RUN, id=run)
                if locked is not None:  # else newer runs have just displaced it
                    renamed = _renamed_filters(locked, doctype, old, new)
                    fw.tx.run(_SET_FILTERS, id=run, filters=renamed)


_WEBHOOK: Final = "webhook"
_REFERENCE_NAME: Final = "reference_name"
_RENAMED: Final = "renamed"
"""The operator of a filter that renames have added: `[field, renamed, documents]`.

`documents` are those whose names in `field` at the start of the run differ: DocType, name then, and
name now.
"""
_COMPARISONS: Final = ("=", "!=", "in", "not in")
"""The operators whose operands are names."""


def _renamed_filters(stored: str, doctype: str, old: str, new: str) -> str:
    """Return filters, as JSON, that select the same deliveries after a rename."""
    filters = json.loads(stored)
    if doctype == "Webhook":
        if _may_be_replaced(filters, _WEBHOOK):
            filters = _with_name_replaced(filters, _WEBHOOK, old, new)
        else:
            filters = _with_renamed_document(filters, _WEBHOOK, doctype, old, new)
    doctypes = _doctypes_of(filters)
    if doctypes == {doctype} and _may_be_replaced(filters, _REFERENCE_NAME):
        filters = _with_name_replaced(filters, _REFERENCE_NAME, old, new)
    elif doctypes is None or doctype in doctypes:
        # The filters may also select documents of other DocTypes with either name.
        filters = _with_renamed_document(filters, _REFERENCE_NAME, doctype, old, new)
    return json.dumps(filters)


def _may_be_replaced(filters: Sequence[Any], field: str) -> bool:
    """Whether no filter compares the names in `field` with what another field may have too."""
    return not any(_compares_names(each, field) and each[0] != field for each in filters)


def _with_name_replaced(filters: list[Any], field: str, old: str, new: str) -> list[Any]:
    return [_renamed_filter(each, old, new) if each[0] == field else each for each in filters]


def _with_renamed_document(
    filters: list[Any], field: str, doctype: str, old: str, new: str
) -> list[Any]:
    """Record the rename of a document that has, or had, a name with which `field` is compared."""
    others, renamed = _split_renamed(filters)
    names: set[str] = set()
    for _, operator, operand in (each for each in others if _compares_names(each, field)):
        names.update(operand if operator in ("in", "not in") else [operand])
    former = {(about, now): then for about, then, now in renamed.get(field, ())}
    first = former.pop((doctype, old), old)
    if first in names or new in names:
        former[doctype, new] = first
    renamed[field] = [[about, then, now] for (about, now), then in former.items()]
    return [*others, *([name, _RENAMED, each] for name, each in renamed.items() if each)]


def _split_renamed(filters: list[Any]) -> tuple[list[Any], dict[str, list[list[str]]]]:
    """Return the filters without those that renames have added, and the documents of these by
    field."""
    others = [each for each in filters if each[1] != _RENAMED]
    return others, {each[0]: each[2] for each in filters if each[1] == _RENAMED}


def _compares_names(each: Sequence[Any], name: str) -> bool:
    """Whether a filter compares the names in a field with others, alone or among other fields."""
    fields, operator, *operands = each
    is_comparison = operator in _COMPARISONS and len(operands) == 1 and operands[0] is not None
    return is_comparison and (name in fields if isinstance(fields, list) else name == fields)


def _query(fw: Fw, stored: str) -> Query:
    """Return the deliveries that the stored filters of a run select."""
    filters, renamed = _split_renamed(json.loads(stored))
    return Query(
        fw,
        fw.documents.registry.meta(_DELIVERY),
        [*filters, _FINISHED],
        ignore_permissions=True,
        compared={field: _former_name(field, documents) for field, documents in renamed.items()},
    )


def _former_name(field: str, documents: Sequence[Sequence[str]]) -> sa.ColumnElement[Any]:
    """Return the names in `field` as they were at the start of the run."""
    if field == _WEBHOOK:
        then = [(_D.webhook == now, first) for _, first, now in documents]
    else:
        then = [
            (sa.and_(_D.reference_doctype == about, _D.reference_name == now), first)
            for about, first, now in documents
        ]
    return sa.case(*then, else_=_D[field])


def _doctypes_of(filters: Sequence[Sequence[Any]]) -> Set[str] | None:
    """Return the DocTypes to which filters restrict the documents; None if they do not."""
    allowed = [
        {operands[0]} if operator == "=" else set(operands[0])
        for field, operator, *operands in filters
        if field == "reference_doctype" and operator in ("=", "in")
    ]
    return set.intersection(*allowed) if allowed else None


def _renamed_filter(each: Sequence[Any], old: str, new: str) -> Sequence[Any]:
    """Return a filter with the new name in place of the old one, if that is its value."""
    field, operator, *operands = each
    if operator in ("=", "!=") and operands == [old]:
        return [field, operator, new]
    if operator in ("in", "not in") and old in operands[0]:
        return [field, operator, [new if value == old else value for value in operands[0]]]
    return each


def newest_runs(tx: Tx) -> list[ReplayRun]:
    """Return the runs that are kept, newest first."""
    return list(_runs(tx.rows(_NEWEST, limit=KEPT_RUNS)))


def outcomes_of(tx: Tx, run: ReplayRun, max_count: int = MAX_COUNTED_DELIVERIES) -> RunOutcomes:
    """Return the outcomes of the deliveries of a run, counting at most `max_count`."""
    rows = tx.rows(_OUTCOMES, run=run.id, limit=max_count + 1)
    counts = {status: int(count) for status, count in rows}
    counted = sum(counts.values())
    arrived, failed = (counts.get(status.value, 0) for status in _ENDED)
    more = counted > max_count
    gone = 0 if more else max(run.replayed - counted, 0)
    return RunOutcomes(arrived, failed, counted - arrived - failed, gone, more)


def _runs(rows: Iterable[Sequence[Any]]) -> Iterator[ReplayRun]:
    for row in rows:
        yield ReplayRun(**dict(zip(ReplayRun.__struct_fields__, row, strict=True)))


def _keep(tx: Tx, run: ReplayRun) -> None:
    """Insert a run, and delete those that are no longer among the newest."""
    tx.run(_BEGIN, **msgspec.structs.asdict(run))
    tx.run(_DELETE_OLD_RUNS)


def _count(tx: Tx, run: ReplayRun, results: Sequence[Replayed | FwError]) -> None:
    """Add the results of a batch to those of `run`."""
    replayed = sum(isinstance(each, Replayed) for each in results)
    reasons = Counter(run.refused)
    for each in results:
        if isinstance(each, FwError):
            reasons[_reason(each, reasons)] += 1
    tx.run(_COUNT, id=run.id, more=replayed, reason=json.dumps(reasons))


def _reason(error: FwError, counts: Counter[str]) -> str:
    """Return the reason of an error; there are few different ones, because none names a delivery
    or a time."""
    reason = "It no longer exists." if isinstance(error, NotFoundError) else error.message
    if reason.startswith(_ERASED):
        reason = f"{_ERASED}; {_NOT_AGAIN}"
    return reason if reason in counts or len(counts) < _REASONS else "Other causes."


_R: Final = BULK_REPLAY.c
_COLUMNS: Final = tuple(_R[name] for name in ReplayRun.__struct_fields__)
_KEPT: Final = BULK_REPLAY.alias("kept")
_BY_AGE: Final = (_R.begun.desc(), _R.id.desc())
_NEWEST: Final = Statement(sa.select(*_COLUMNS).order_by(*_BY_AGE).limit(sa.bindparam("limit")))
_RUNNING: Final = Statement(
    sa.select(*_COLUMNS).where(_R.state == ReplayState.RUNNING.value).limit(1)
)
_FIND: Final = Statement(sa.select(*_COLUMNS).where(_R.id == sa.bindparam("id")))
_DELETE_OLD_RUNS: Final = Statement(
    sa.delete(BULK_REPLAY).where(
        _R.state != ReplayState.RUNNING.value,
        _R.id.not_in(
            sa.select(_KEPT.c.id).order_by(_KEPT.c.begun.desc(), _KEPT.c.id.desc()).limit(KEPT_RUNS)
        ),
    )
)
_BEGIN: Final = Statement(
    sa.insert(BULK_REPLAY).values(
        {name: sa.bindparam(name) for name in ReplayRun.__struct_fields__}
    )
)
_ADVANCE: Final = Statement(
    sa.update(BULK_REPLAY)
    .where(_R.id == sa.bindparam("id"), _R.user == sa.bindparam("by"))
    .where(_R.filters == sa.bindparam("selected"))
    .where(_R.cursor == sa.bindparam("cursor"), _R.state == ReplayState.RUNNING.value)
    .values(cursor=sa.bindparam("reached"))
)
_COUNT: Final = Statement(
    sa.update(BULK_REPLAY)
    .where(_R.id == sa.bindparam("id"))
    .values(replayed=_R.replayed + sa.bindparam("more"), reasons=sa.bindparam("reason"))
)
_ENDING: Final = (
    sa.update(BULK_REPLAY)
    .where(_R.user == sa.bindparam("by"), _R.state == ReplayState.RUNNING.value)
    .values(state=sa.bindparam("how"), error=sa.bindparam("reason"), ended=sa.bindparam("at"))
)
_END: Final = Statement(
    _ENDING.where(_R.id == sa.bindparam("id"), _R.filters == sa.bindparam("selected"))
)
_END_OF: Final = Statement(_ENDING)
_END_FOREGROUND: Final = Statement(
    sa.update(BULK_REPLAY)
    .where(_R.id == sa.bindparam("id"))
    .values(state=sa.bindparam("how"), ended=sa.bindparam("at"))
)
_ENDED: Final = (DeliveryStatus.SENT, DeliveryStatus.FAILED)
_RENAME_USER: Final = Statement(
    sa.update(BULK_REPLAY).where(_R.user == sa.bindparam("old")).values(user=sa.bindparam("new"))
)
_FILTERS_OF_RUNS: Final = Statement(sa.select(_R.id, _R.filters))
_LOCK_RUN: Final = Statement(
    sa.select(_R.filters).where(_R.id == sa.bindparam("id")).with_for_update()
)
_SET_FILTERS: Final = Statement(
    sa.update(BULK_REPLAY)
    .where(_R.id == sa.bindparam("id"))
    .values(filters=sa.bindparam("filters"))
)
_OF_RUN: Final = (
    sa.select(_D.status)
    .where(_D.replay_run == sa.bindparam("run"))
    .limit(sa.bindparam("limit"))
    .subquery()
)
_OUTCOMES: Final = Statement(
    sa.select(_OF_RUN.c.status, sa.func.count()).group_by(_OF_RUN.c.status)
)
