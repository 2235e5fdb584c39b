"""Jobs of apps, recorded by `fw.enqueue`; operators list, retry and cancel these and mails.

A job of an app is a function that runs later as the same user (D-210). Deliveries of Webhooks are
no part of this: they are listed as documents, and replayed. The operations run in a transaction of
the caller, who must be a System Manager without access scopes. A job that a worker holds is left
to it (O-222).

The module has more than 500 lines because listing and changing jobs share their filters and states.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from types import FunctionType
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from fw_actors.access.accounts import email_of, lock_account_shared
from fw_actors.documents.core import EmailDelivery
from fw_actors.documents.handle import DocType, Fw
from fw_actors.documents.hooks import DELETION, Observer
from fw_actors.documents.permissions import ADMINISTRATOR, GUEST, require_administering
from fw_actors.documents.registry import Whitelisted
from fw_actors.documents.tables import table_of
from fw_actors.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    ValidationError,
    runs_later,
    session_ended,
)
from fw_actors.ops import mail_queue
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.rules import JOBS_LISTED, MAX_JOBS_LISTED
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.store import LeasedJob, Statement, Tx, jobs
from fw_actors.store.schema import JOB
from fw_actors.tracing import Tracer, encode_context

APP_QUEUE: Final = "app"

AppFunction = Callable[..., object]


class UnknownFunctionError(Exception):
    """Raised for a job whose function no longer exists: the app has changed."""


class JobRecorder:
    """Implements `fw.enqueue` for one site."""

    def __init__(self, recorded: Callable[[], None], tracer: Tracer | None = None) -> None:
        """`recorded` is called on trio's thread after each commit that contains a job. With a
        `tracer` jobs keep the trace context in which they were queued (B-429).
        """
        self._recorded, self._tracer = recorded, tracer

    def __call__(self, fw: Fw, function: object, arguments: dict[str, object]) -> int:
        """Record a job in the writer's transaction; return its number.

        Raises: ValidationError if another process cannot import the function by its name, if the
            function does not take the arguments, or if they are not JSON; AuthenticationError if
            the user has just been deleted or renamed.
        """
        path = _path_of(function)
        _validate_call(function, arguments)
        if not lock_account_shared(fw.tx, fw.user):
            raise session_ended()
        tracer = self._tracer
        number = jobs.enqueue_numbered(
            fw.tx,
            queue=APP_QUEUE,
            function=path,
            arguments=_json(arguments),
            user=fw.user,
            trace_context=None if tracer is None else encode_context(tracer.context_of(fw.tx)),
        )
        fw.tx.after_commit(self._recorded, once=True)
        return number


def function_of(job: LeasedJob) -> AppFunction:
    """Return the function that a job names.

    This may import a module: do not call it in a transaction. Raises: UnknownFunctionError.
    """
    return _function_at(job.function)


def _function_at(path: str) -> AppFunction:
    module, _, name = path.rpartition(".")
    try:
        function: object = getattr(importlib.import_module(module), name, None)
    except (Exception, SystemExit) as error:  # an app's top level may raise anything
        raise UnknownFunctionError(
            f"{module} cannot be imported: {type(error).__name__}"
        ) from error
    if not callable(function):
        raise UnknownFunctionError(f"{module} has no function {name}")
    return function


def app_functions(apps: Sequence[str]) -> list[str]:
    """Return the dotted paths of the functions of loaded apps, each in its own module."""
    paths: list[str] = []
    for name, module in list(sys.modules.items()):
        if _is_of(apps, name):
            for attribute, value in vars(module).items():
                if _is_plain(value) and getattr(value, "__module__", None) == name:
                    paths.append(f"{name}.{attribute}")
    return paths


def is_app_function(apps: Sequence[str], path: str) -> bool:
    """Return whether an app has a function, also in a module that it does not import by itself.

    This may import a module: do not call it in a transaction.
    """
    try:
        return _is_of(apps, path.rpartition(".")[0]) and _is_plain(_function_at(path))
    except UnknownFunctionError:
        return False


def _is_of(apps: Sequence[str], module: str) -> bool:
    return any(module == app or module.startswith(f"{app}.") for app in apps)


def arguments_of(job: LeasedJob) -> dict[str, Any]:
    """Return the keyword arguments of a job, as they were recorded."""
    arguments: dict[str, Any] = json.loads(job.arguments)
    return arguments


def _path_of(function: object) -> str:
    """Return the dotted path by which another process imports a function."""
    if not _is_plain(function) or runs_later(inspect.unwrap(function)):  # type: ignore[arg-type]
        raise ValidationError("A job must be a plain function of an app's module.")
    module, name = str(function.__module__), str(function.__name__)  # type: ignore[attr-defined]
    home = sys.modules.get(module)
    if module == "__main__" or getattr(home, name, None) is not function:
        raise ValidationError(
            f"Another process cannot import {module}.{name}: a job must be a function at the top "
            "level of an app's module, under its own name."
        )
    return f"{module}.{name}"


def _is_plain(function: object) -> bool:
    return isinstance(function, FunctionType | Whitelisted)


def _validate_call(function: Any, arguments: dict[str, Any]) -> None:
    try:
        inspect.signature(function).bind(None, **arguments)
    except TypeError as error:
        raise ValidationError(
            f"{function.__name__} cannot be called with these arguments: {error}."
        ) from None


def _json(arguments: dict[str, Any]) -> str:
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationError(f"The arguments of a job must be JSON: {error}.") from None


QUEUES: Final = (APP_QUEUE, mail_queue.QUEUE)
_ACT: Final = "Access to jobs"
MAX_CHANGED_JOBS: Final = 500
"""The maximum number of jobs that one `retry_matching` or `cancel_matching` changes."""


_MOVE_TO_USER: Final = Statement(
    sa.update(JOB)
    .where(JOB.c.queue.in_(QUEUES), JOB.c.user == sa.bindparam("old"))
    .values(user=sa.bindparam("new"))
)


class JobsOfUsers(Observer):
    """Gives jobs and mails the new name of their User, and keeps those of a deleted User from
    another account that is given its name.

    The latter get a name that no account can have, so that they fail like those of a missing user.
    """

    doctypes = frozenset({"User"})
    events = frozenset({DELETION})

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """After the deletion: rename the user of its jobs and mails."""
        fw.tx.run(_MOVE_TO_USER, old=doc.name, new=f"{doc.name}/deleted")

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Rename the user of its jobs and mails; deliveries, which may be a million, have none."""
        fw.tx.run(_MOVE_TO_USER, old=old, new=new)


_MAX_FUNCTIONS: Final = 1000


class JobState(StrEnum):
    """The state of a job, in the words of `fw jobs stats`."""

    READY = "ready"
    """Due: a free worker takes it."""
    SCHEDULED = "scheduled"
    """Waits for its next attempt."""
    LEASED = "leased"
    """A worker runs it."""
    FAILED = "failed"
    """Kept without further attempts."""


class JobFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A selection of jobs; a field left out matches all. `function` is the template of a mail."""

    queue: str | None = None
    state: str | None = None
    function: str | None = None
    user: str | None = None


class ChangedJobs(NamedTuple):
    """The number of jobs that were changed, and the lowest of their ids if there may be more."""

    changed: int
    next: int | None


class JobFacts(msgspec.Struct, frozen=True, rename="camel"):
    """A job, without the values of its arguments. Times in ms.

    `subject` is the Email Delivery of a mail, `due` the next attempt or the lease's end, `error`
    that of the last attempt.
    """

    id: int
    queue: str
    state: JobState
    function: str
    subject: str
    user: str
    attempts: int
    due: int | None
    created: int
    error: str


def state_of(next_at: int | None, lease: str | None, now: int) -> JobState:
    """Return the state of a row; a lease that has expired makes its job due again."""
    if next_at is None:
        return JobState.FAILED
    if next_at <= now:
        return JobState.READY
    return JobState.SCHEDULED if lease is None else JobState.LEASED


_REFUSED_RETRIES: Final = {
    JobState.READY: "is due already; a free worker takes it.",
    JobState.LEASED: "is in progress; wait until this attempt has ended.",
}
_REFUSED_CANCELS: Final = {
    JobState.LEASED: "is in progress; wait until this attempt has ended.",
}


class JobControl:
    """Lists, retries and cancels jobs; each act writes an Audit Event in its transaction."""

    def __init__(self, audit: AuditLog, recorded: Callable[[str], None]) -> None:
        """`recorded` is called on trio's thread with a queue's name after each commit that makes
        its jobs due."""
        self._audit, self._recorded = audit, recorded

    def listed(
        self, fw: Fw, filters: JobFilter, limit: int = JOBS_LISTED, before: int | None = None
    ) -> list[JobFacts]:
        """Return jobs, newest first; only those older than job `before`.

        Costs time with the jobs of the queues of apps and mails, not with deliveries; on SQLite,
        of apps only with those that are newer than the last one returned.

        Args:
            limit: 1 to 500.

        Raises: PermissionDeniedError; BadRequestError for an unknown queue or state, or a limit
            out of range; ValidationError for an empty text.
        """
        require_administering(fw.rights, _ACT)
        if not 1 <= limit <= MAX_JOBS_LISTED:
            raise BadRequestError(f"limit must be between 1 and {MAX_JOBS_LISTED}.", field="limit")
        return _select_jobs(fw.tx, filters, limit, before, lock=False)

    def functions(self, fw: Fw) -> list[str]:
        """Return the functions of jobs and the templates of mails in the queues, at most 1,000.

        Raises: PermissionDeniedError.
        """
        require_administering(fw.rights, _ACT)
        return [str(name) for (name,) in fw.tx.rows(_FUNCTIONS)]

    def job(self, fw: Fw, number: int) -> JobFacts:
        """Return a job. Raises: PermissionDeniedError; NotFoundError."""
        require_administering(fw.rights, _ACT)
        return _job(fw, number, _ONE)

    def retry(self, fw: Fw, number: int) -> JobFacts:
        """Make a job due now; one that has failed gets all its attempts again.

        Raises: PermissionDeniedError; NotFoundError; ConflictError if it is due or in progress.
        """
        return self._change(fw, number, Action.JOB_RETRY, _REFUSED_RETRIES, self._make_due)

    def cancel(self, fw: Fw, number: int) -> JobFacts:
        """Delete a job; a mail is then recorded as failed. Return the deleted job.

        Raises: PermissionDeniedError; NotFoundError; ConflictError if it is in progress.
        """
        return self._change(fw, number, Action.JOB_CANCEL, _REFUSED_CANCELS, self._delete)

    def retry_matching(self, fw: Fw, filters: JobFilter, before: int | None = None) -> ChangedJobs:
        """Retry up to 500 matching jobs that have failed or are scheduled, the newest first.

        A caller repeats it with `before` as the result's `next` until that is None. `before`
        excludes the jobs of earlier calls: one that has failed again matches again.

        Raises: as `listed`; ConflictError when it is repeated after a rename of the user.
        """
        return self._change_many(
            fw, filters, before, Action.JOB_RETRY, _REFUSED_RETRIES, self._make_due
        )

    def cancel_matching(self, fw: Fw, filters: JobFilter, before: int | None = None) -> ChangedJobs:
        """Cancel up to 500 matching jobs that are not in progress; repeat as `retry_matching`.

        Raises: as `retry_matching`.
        """
        return self._change_many(
            fw, filters, before, Action.JOB_CANCEL, _REFUSED_CANCELS, self._delete
        )

    def _change(
        self,
        fw: Fw,
        number: int,
        action: Action,
        refused: dict[JobState, str],
        change: Callable[[Fw, Sequence[JobFacts]], None],
    ) -> JobFacts:
        require_administering(fw.rights, _ACT)
        job = _job(fw, number, _ONE_LOCKED)
        if job.state in refused:
            raise ConflictError(f"Job {number} {refused[job.state]}")
        change(fw, [job])
        detail = {"queue": job.queue, "function": job.function, "previous_state": job.state.value}
        self._audit.record(fw, action, str(number), detail)
        return job

    def _change_many(
        self,
        fw: Fw,
        filters: JobFilter,
        before: int | None,
        action: Action,
        refused: dict[JobState, str],
        change: Callable[[Fw, Sequence[JobFacts]], None],
    ) -> ChangedJobs:
        require_administering(fw.rights, _ACT)
        states = tuple(state for state in JobState if state not in refused)
        exists = filters.user is None or _exists(fw.tx, filters.user)
        limit = MAX_CHANGED_JOBS + 1
        found = _select_jobs(fw.tx, filters, limit, before, lock=True, states=states)
        if not (found or exists or before is None):
            raise ConflictError(
                f"{str(filters.user)[:140]} was renamed or deleted meanwhile; select the remaining "
                "jobs by the new name."
            )
        selected = found[:MAX_CHANGED_JOBS]
        if selected:
            change(fw, selected)
            criteria = {
                name: value for name, value in msgspec.to_builtins(filters).items() if value
            }
            self._audit.record(fw, action, "", {"jobs": len(selected), **criteria})
        return ChangedJobs(len(selected), selected[-1].id if len(found) == limit else None)

    def _make_due(self, fw: Fw, selected: Sequence[JobFacts]) -> None:
        fw.tx.run(_MAKE_DUE, ids=[job.id for job in selected], now=fw.tx.now)
        self._settle_mails(fw, _REQUEUE_MAILS, selected)
        for queue in sorted({job.queue for job in selected}):
            fw.tx.after_commit(partial(self._recorded, queue))

    def _delete(self, fw: Fw, selected: Sequence[JobFacts]) -> None:
        fw.tx.run(_DELETE, ids=[job.id for job in selected])
        reason = {"reason": f"cancelled: by {fw.user}."[: jobs.ERROR_CHARACTERS]}
        self._settle_mails(fw, _FAIL_MAILS, selected, **reason)

    def _settle_mails(
        self, fw: Fw, statement: Statement, selected: Sequence[JobFacts], **values: str
    ) -> None:
        subjects = [job.subject for job in selected if job.queue == mail_queue.QUEUE]
        if subjects:
            fw.tx.run(statement, subjects=subjects, now=fw.tx.now, user=fw.user, **values)


def _exists(tx: Tx, user: str) -> bool:
    """Whether an account has this name now; a rename in progress is waited for, as it moves the
    user's jobs."""
    is_current = lock_account_shared(tx, user)
    return user in (ADMINISTRATOR, GUEST) or (is_current and email_of(tx, user) != "")


_SUBJECTS: Final[sa.BindParameter[Any]] = sa.bindparam("subjects", expanding=True)
_IDS: Final[sa.BindParameter[Any]] = sa.bindparam("ids", expanding=True)
_NOW: Final = sa.bindparam("now", type_=sa.BigInteger())

_MAILS: Final = table_of(EmailDelivery).table
_MODIFIED: Final = {"modified": _NOW, "modified_by": sa.bindparam("user")}
_REQUEUE_MAILS: Final = Statement(
    sa.update(_MAILS)
    .where(_MAILS.c.name.in_(_SUBJECTS), _MAILS.c.status == DeliveryStatus.FAILED.value)
    .values(status=DeliveryStatus.QUEUED.value, attempts=0, **_MODIFIED)
)
_FAIL_MAILS: Final = Statement(
    sa.update(_MAILS)
    .where(_MAILS.c.name.in_(_SUBJECTS))
    .values(status=DeliveryStatus.FAILED.value, error=sa.bindparam("reason"), **_MODIFIED)
)

_J: Final = JOB.c
_COLUMNS: Final = (
    _J.id, _J.queue, _J.next_at, _J.lease, _J.function, _J.subject, _J.user, _J.attempts,
    _J.created, sa.func.coalesce(_J.error, ""),
)  # fmt: skip
_FUNCTIONS: Final = Statement(
    sa.select(_J.function).where(_J.queue.in_(QUEUES)).distinct().limit(_MAX_FUNCTIONS)
)
_OF_ONE: Final = sa.select(*_COLUMNS).where(_J.id == sa.bindparam("number"), _J.queue.in_(QUEUES))
_ONE: Final = Statement(_OF_ONE)
_ONE_LOCKED: Final = Statement(_OF_ONE.with_for_update(key_share=True))
_MAKE_DUE: Final = Statement(
    sa.update(JOB)
    .where(_J.id.in_(_IDS))
    .values(
        attempts=sa.case((_J.next_at.is_(None), 0), else_=_J.attempts),
        next_at=_NOW,
        deaths=0,
        lease=sa.null(),
    )
)
_DELETE: Final = Statement(sa.delete(JOB).where(_J.id.in_(_IDS)))


def _conditions(now: int) -> dict[JobState, sa.ColumnElement[bool]]:
    """Return the state of a job in SQL, as `state_of` does."""
    return {
        JobState.READY: _J.next_at <= now,
        JobState.SCHEDULED: sa.and_(_J.next_at > now, _J.lease.is_(None)),
        JobState.LEASED: sa.and_(_J.next_at > now, _J.lease.is_not(None)),
        JobState.FAILED: _J.next_at.is_(None),
    }


def _job(fw: Fw, number: int, statement: Statement) -> JobFacts:
    row = fw.tx.one(statement, number=number)
    if row is None:
        raise NotFoundError(f"There is no job {number} in the queues app and mail.")
    return _facts(row, fw.tx.now)


def newest_jobs(tx: Tx, limit: int) -> list[JobFacts]:
    """Return the newest jobs of apps and mails, for the console."""
    return _select_jobs(tx, JobFilter(), limit, None, lock=False)


def _select_jobs(
    tx: Tx,
    filters: JobFilter,
    limit: int,
    before: int | None,
    *,
    lock: bool,
    states: Sequence[JobState] = tuple(JobState),
) -> list[JobFacts]:
    for name, value in msgspec.structs.asdict(filters).items():
        if value == "":  # perhaps of an unset variable
            raise ValidationError(f"{name} is empty; leave it out to match all.", field=name)
    if filters.queue and filters.queue not in QUEUES:
        raise BadRequestError("queue must be app or mail.", field="queue")
    if filters.state and filters.state not in list(JobState):
        raise BadRequestError(f"state must be one of {', '.join(JobState)}.", field="state")
    now = tx.now
    conditions = _conditions(now)
    chosen = [state for state in states if filters.state in (None, state)]
    query = sa.select(*_COLUMNS).where(sa.or_(sa.false(), *(conditions[each] for each in chosen)))
    for column, value in ((_J.function, filters.function), (_J.user, filters.user)):
        if value:
            query = query.where(column == value)
    if before is not None:
        query = query.where(_J.id < before)
    if lock:
        query = query.with_for_update(key_share=True, skip_locked=True)
    queues = (filters.queue,) if filters.queue else QUEUES
    found = [
        _facts(row, now)
        for queue in queues
        for row in tx.rows(_newest_of(query, queue, in_index_order=not tx.locks_rows).limit(limit))
    ]
    return sorted(found, key=lambda job: -job.id)[:limit]


def _newest_of(query: sa.Select[Any], queue: str, *, in_index_order: bool) -> sa.Select[Any]:
    """Return a query of one queue, the newest jobs first.

    Jobs of apps have no subject, so that SQLite reads them from the index of subjects in the order
    of their ids (`in_index_order`), and stops at the limit; jobs of other queues, or in PostgreSQL,
    are sorted. The primary key's index would lead past all deliveries; PostgreSQL may choose it
    unless the order is that of an expression.
    """
    if in_index_order and queue == APP_QUEUE:
        return query.where(_J.queue == queue, _J.subject == "").order_by(_J.id.desc())
    return query.where(_J.queue == queue).order_by((_J.id + 0).desc())


def _facts(row: Sequence[Any], now: int) -> JobFacts:
    number, queue, next_at, lease, function, subject, user, attempts, created, error = row
    state = state_of(next_at, lease, now)
    return JobFacts(
        number, queue, state, function, subject, user, attempts, next_at, created, error
    )
