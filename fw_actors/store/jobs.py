"""The job queue in the database: due jobs, leases, fencing tokens, outcomes.

A job is a row (B-197). It is *due* when `next_at` has passed. A claim sets `next_at` to the lease's
end and writes the holder's token, so that the job of a holder that has died becomes due again by
itself. Every function that ends a lease is fenced by the token: a holder whose lease was lost
writes nothing. (`delete_held` does not check the token; its caller has done so in the same
transaction.) All times are milliseconds.

Every function runs inside `Store.write` (`heads`, `stats` and `leased_after` also inside
`Store.read`).

The module has more than 500 lines because all statements that set or end a lease stand together:
each must keep `next_at` and the token consistent with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Required, TypedDict, Unpack

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Insert,
    Select,
    Subquery,
    Text,
    Update,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    literal_column,
    null,
    or_,
    select,
    update,
)

from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store.schema import JOB
from fw_actors.store.statement import JsonRows, Statement, rows_as_json
from fw_actors.store.transaction import Tx

ERROR_CHARACTERS: Final = 500
"""The maximum length of a stored error; callers cut longer ones."""
RETRY_MS: Final = 20
"""The time after which a claim is repeated that has skipped what another transaction had locked."""


class LeasedJob(msgspec.Struct, frozen=True):
    """A job that one worker holds until its lease ends; a claim returns these columns.

    `attempts` counts the attempts with an outcome, `expired_leases` the consecutive leases that
    expired without one. `lease` is the token by which every outcome is fenced. `created` (ms) is
    the time when the job was written; `trace_context` is that in which it was queued.
    """

    id: int
    queue: str
    partition: str
    subject: str
    function: str = ""
    arguments: str = ""
    user: str = ""
    attempts: int = 0
    expired_leases: int = 0
    lease: str = ""
    created: int = 0
    trace_context: str | None = None


_NEW: Final = insert(JOB).values(
    {
        name: bindparam(name)
        for name in (
            "queue",
            "partition",
            "subject",
            "function",
            "arguments",
            "user",
            "next_at",
            "created",
        )
    }
)
_TRACED: Final = _NEW.values(trace_context=bindparam("trace_context"))
ENQUEUE: Final = Statement(_NEW)
ENQUEUE_TRACED: Final = Statement(_TRACED)
ENQUEUE_NUMBERED: Final = Statement(_TRACED.returning(JOB.c.id))  # +50 % on SQLite


def enqueued(
    queue: ColumnElement[str],
    partition: ColumnElement[str],
    subject: ColumnElement[str],
    now: ColumnElement[int],
) -> Insert:
    """Return the statement that writes a job, due at `now`, for each selected row."""
    return insert(JOB).from_select(
        ["queue", "partition", "subject", "function", "arguments", "user", "next_at", "created"],
        select(queue, partition, subject, *(literal_column("''"),) * 3, now, now),
    )


_GIVEN: Final = JsonRows("given")
ENQUEUE_MANY: Final = Statement(
    enqueued(
        bindparam("queue", type_=Text()),
        _GIVEN.item(0, str),
        _GIVEN.item(1, str),
        bindparam("now", type_=BigInteger()),
    )
)


def heads_of(
    queue: ColumnElement[str], after: ColumnElement[str] | None = None, *of: ColumnElement[bool]
) -> Select[tuple[str, int]]:
    """Select each partition of a queue that has work, with its earliest due time.

    A skip scan: two index seeks for each partition, however many rows are due in it. With a LIMIT,
    those are the first partitions; `after` leaves out the ones up to it. The time is that of the
    earliest job that meets the conditions `of`, null if there is none; the jobs before that one
    are read.
    """
    waiting = and_(JOB.c.queue == queue, JOB.c.next_at.is_not(None))

    def first_partition(*further: ColumnElement[bool]) -> Any:
        return select(func.min(JOB.c.partition)).where(waiting, *further)

    first = first_partition(*(() if after is None else (JOB.c.partition > after,)))
    head = first.cte("head", recursive=True)
    next_partition = first_partition(JOB.c.partition > head.c[0]).correlate(head).scalar_subquery()
    head = head.union_all(select(next_partition).where(head.c[0].is_not(None)))
    earliest = (
        select(func.min(JOB.c.next_at))
        .where(waiting, JOB.c.partition == head.c[0], *of)
        .correlate(head)
        .scalar_subquery()
    )
    return select(head.c[0].label("partition"), earliest.label("next_at")).where(
        head.c[0].is_not(None)
    )


HEADS: Final = Statement(heads_of(bindparam("queue")))


NEXT_DUE: Final = Statement(
    select(func.min(JOB.c.next_at)).where(
        JOB.c.queue == bindparam("queue"),
        JOB.c.partition == bindparam("partition"),
        JOB.c.next_at > bindparam("now"),
    )
)


def _later_than_bound() -> ColumnElement[bool]:
    """Return the condition for the rows of a queue that are due after `latest`: a skip scan like
    that of `heads_of`, for each partition's latest rows."""
    waiting = and_(JOB.c.queue == bindparam("queue"), JOB.c.next_at.is_not(None))
    first = select(func.min(JOB.c.partition)).where(waiting).cte("part", recursive=True)
    next_partition = select(func.min(JOB.c.partition)).where(waiting, JOB.c.partition > first.c[0])
    part = first.union_all(
        select(next_partition.correlate(first).scalar_subquery()).where(first.c[0].is_not(None))
    )
    return and_(
        JOB.c.queue == bindparam("queue"),
        JOB.c.partition.in_(select(part.c[0])),
        JOB.c.next_at > bindparam("latest"),
    )


# Returns its rows: SQLite counts none of a statement that begins with WITH. In no order of ids,
# since it waits for no lock.
_DUE_TOO_LATE: Final = (
    select(JOB.c.id)
    .where(_later_than_bound())
    .limit(bindparam("limit"))
    .with_for_update(skip_locked=True)
)
RESCHEDULE: Final = Statement(
    update(JOB)
    .where(JOB.c.id.in_(_DUE_TOO_LATE))
    .values(next_at=bindparam("now"))
    .returning(JOB.c.id)
)
LEASED_TOO_LONG: Final = Statement(
    select(JOB.c.id).where(_later_than_bound(), JOB.c.lease.is_not(None)).limit(bindparam("limit"))
)


def _lease() -> Update:
    # Materialised, because PostgreSQL could otherwise run it again and take more rows than the
    # limit. Nested, because SQLite counts no rows of a statement that begins with WITH.
    due = (
        select(JOB.c.id)
        .where(JOB.c.queue == bindparam("queue"), JOB.c.partition == bindparam("partition"))
        .where(JOB.c.next_at <= bindparam("now"))
        .order_by(JOB.c.next_at)
        .limit(bindparam("limit"))
        .with_for_update(skip_locked=True)
        .cte("due", nesting=True)
        .prefix_with("MATERIALIZED")
    )
    return (
        update(JOB)
        .where(JOB.c.id.in_(select(due.c.id)))
        .values(
            next_at=bindparam("lease_end"),
            lease=bindparam("token"),
            deaths=JOB.c.deaths + case((JOB.c.lease.is_not(None), 1), else_=0),
        )
    )


LEASE: Final = Statement(_lease())
_COLUMN_OF: Final = {"expired_leases": "deaths"}
"""The columns of the fields of `LeasedJob` that have other names (ADR-216)."""
CLAIM: Final = Statement(
    _lease().returning(*(JOB.c[_COLUMN_OF.get(name, name)] for name in LeasedJob.__struct_fields__))
)


_HELD: Final = and_(JOB.c.id == bindparam("job"), JOB.c.lease == bindparam("token"))
_COUNTED: Final[dict[str, Any]] = {
    "attempts": JOB.c.attempts + 1,
    "deaths": 0,
    "lease": null(),
    "error": bindparam("reason"),
}
RETRY: Final = Statement(update(JOB).where(_HELD).values(next_at=bindparam("at"), **_COUNTED))
FAIL: Final = Statement(update(JOB).where(_HELD).values(next_at=null(), **_COUNTED))
FINISH: Final = Statement(delete(JOB).where(_HELD))
_FINISH_AS: Final = Statement(delete(JOB).where(_HELD).returning(JOB.c.user))
_RELEASED: Final[dict[str, Any]] = {"next_at": bindparam("at"), "lease": null()}
RELEASE: Final = Statement(update(JOB).where(_HELD).values(_RELEASED))
RENEW: Final = Statement(
    update(JOB).where(_HELD).values(next_at=bindparam("at")).returning(JOB.c.user)
)

SETTLED: Final = JsonRows("settled")
"""Rows of `SETTLE_ALL` (job, token, when it is due next, error)."""


def held_of(settled: JsonRows, **columns: ColumnElement[Any]) -> Subquery:
    """Select the jobs of rows (job, token, …) with a valid lease, locked until the commit.

    They are locked by id, the order in which every transaction locks several jobs.

    On PostgreSQL the statement waits for a row that another transaction has locked, and then
    evaluates its new version. If the statement's other tables have no row to join, PostgreSQL may
    skip this subquery and lock nothing. Nested, because SQLite counts no rows of a statement that
    begins with WITH.

    Args:
        columns: taken from the rows, in addition to the job's `subject`. They are materialised, so
            that each is evaluated once however often it is used.
    """
    held = (
        select(JOB.c.subject, *(column.label(name) for name, column in columns.items()))
        .where(JOB.c.id == settled.item(0, int), JOB.c.lease == settled.item(1, str))
        .order_by(JOB.c.id)
        .with_for_update(of=JOB)
        .cte("held", nesting=True)
        .prefix_with("MATERIALIZED")
    )
    return select(held).subquery("settled_held")


LOCK_HELD: Final = Statement(select(held_of(SETTLED).c.subject))
_HELD_IDS: Final = JsonRows("held")
PARTITIONS: Final = Statement(
    select(JOB.c.id, JOB.c.partition).where(
        JOB.c.id.in_(select(_HELD_IDS.whole(int)).select_from(_HELD_IDS.table))
    )
)
DELETE_HELD: Final = Statement(
    delete(JOB).where(JOB.c.id.in_(select(_HELD_IDS.whole(int)).select_from(_HELD_IDS.table)))
)
# Locked by id, as by outcomes, which settle the leases that they have locked.
_STILL_TOO_LONG: Final = (
    select(JOB.c.id)
    .where(
        JOB.c.id.in_(select(_HELD_IDS.whole(int)).select_from(_HELD_IDS.table)),
        JOB.c.next_at > bindparam("latest"),
        JOB.c.lease.is_not(None),
    )
    .order_by(JOB.c.id)
    .with_for_update(skip_locked=True)
)
SHORTEN_LEASES: Final = Statement(
    update(JOB).where(JOB.c.id.in_(_STILL_TOO_LONG)).values(next_at=bindparam("end"))
)
RELEASE_ALL: Final = Statement(
    update(JOB)
    .where(
        JOB.c.id.in_(select(_HELD_IDS.whole(int)).select_from(_HELD_IDS.table)),
        JOB.c.lease == bindparam("token"),
    )
    .values(_RELEASED)
)
SETTLE_ALL: Final = Statement(
    update(JOB)
    .where(JOB.c.id == SETTLED.item(0, int), JOB.c.lease == SETTLED.item(1, str))
    .values({**_COUNTED, "next_at": SETTLED.item(2, int), "error": SETTLED.item(3, str)})
)


def _stats() -> Statement:
    due = JOB.c.next_at <= bindparam("now")
    scheduled = JOB.c.next_at > bindparam("now")
    parked = and_(JOB.c.next_at.is_(None), JOB.c.ordering_key.is_not(None))

    def count(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.coalesce(func.sum(case((condition, literal(1)), else_=literal(0))), 0)

    # An expression, so that SQLite scans the table: through an index on queues it would look up
    # each row, which takes four times as long for a million rows.
    queue = func.coalesce(JOB.c.queue, literal_column("''"))
    return Statement(
        select(
            queue,
            count(due),
            count(or_(and_(scheduled, JOB.c.lease.is_(None)), parked)),
            count(and_(scheduled, JOB.c.lease.is_not(None))),
            count(and_(JOB.c.next_at.is_(None), JOB.c.ordering_key.is_(None))),
            func.min(case((due, JOB.c.next_at))),
        )
        .group_by(queue)
        .order_by(queue)
    )


STATS: Final = _stats()


class Settlement(NamedTuple):
    """The end of a leased job: its next due time (None: never again) and its error."""

    job_id: int
    token: str
    next_at: int | None
    error: str


class QueueHead(NamedTuple):
    """A partition that has work, and when its earliest row is due (or its lease ends)."""

    partition: str
    next_at: int


class QueueStats(NamedTuple):
    """One queue in numbers; `oldest_seconds` is the wait of the oldest ready row."""

    queue: str
    ready: int
    scheduled: int
    leased: int
    failed: int
    oldest_seconds: float


class JobFields(TypedDict, total=False):
    """The fields of a new job; texts that are left out are empty."""

    queue: Required[str]
    partition: str
    subject: str
    function: str
    arguments: str
    user: str
    next_at: int
    """When it is due; left out: now."""
    trace_context: str | None
    """The trace context in which it is queued; left out: none."""


def enqueue(tx: Tx, **job: Unpack[JobFields]) -> None:
    """Write a job."""
    statement, values = enqueuing(tx, **job)
    tx.run(statement, **values)


def enqueuing(tx: Tx, **job: Unpack[JobFields]) -> tuple[Statement, dict[str, Any]]:
    """Return the statement that writes a job, and its parameters."""
    statement = ENQUEUE_TRACED if "trace_context" in job else ENQUEUE
    return statement, {**_BLANK, "next_at": tx.now, "created": tx.now, **job}


def enqueue_many(tx: Tx, queue: str, given: Sequence[tuple[str, str]]) -> None:
    """Write jobs that are due now, each given as its partition and subject."""
    if len(given) == 1:
        enqueue(tx, queue=queue, partition=given[0][0], subject=given[0][1])
    elif given:
        tx.run(ENQUEUE_MANY, queue=queue, given=rows_as_json(given), now=tx.now)


def enqueue_numbered(tx: Tx, **job: Unpack[JobFields]) -> int:
    """Write a job and return its id."""
    blank = {**_BLANK, "next_at": tx.now, "created": tx.now, "trace_context": None}
    number: int = tx.scalar(ENQUEUE_NUMBERED, **{**blank, **job})
    return number


_BLANK: Final = dict.fromkeys(("partition", "subject", "function", "arguments", "user"), "")


def heads(tx: Tx, queue: str) -> list[QueueHead]:
    """Return every partition of `queue` that has work, in order, with its earliest time."""
    return [QueueHead(*row) for row in tx.rows(HEADS, queue=queue)]


def next_due(tx: Tx, queue: str, partition: str) -> int | None:
    """Return the earliest `next_at` in the future of a partition: a due time, or a lease's end."""
    due: int | None = tx.scalar(NEXT_DUE, queue=queue, partition=partition, now=tx.now)
    return due


def next_claim(tx: Tx, queue: str, partition: str) -> int | None:
    """Return the time (ms) of the next claim in a partition, after one that has leased all it saw:
    soon if a job is still due, which is locked by another transaction (PostgreSQL)."""
    due: int | None = tx.scalar(NEXT_DUE, queue=queue, partition=partition, now=-1)
    return tx.now + RETRY_MS if due is not None and due <= tx.now else due


def reschedule(tx: Tx, queue: str, latest: int, limit: int) -> int:
    """Make at most `limit` jobs due whose `next_at` is after `latest`, which only a wrong clock can
    have set.

    A lease that such a clock has set also ends. Returns: the number of rows.
    """
    return tx.run(RESCHEDULE, queue=queue, latest=latest, limit=limit, now=tx.now)


def leased_after(tx: Tx, queue: str, latest: int, limit: int) -> list[int]:
    """Return the ids of at most `limit` jobs whose leases end after `latest`.

    Reads all jobs that are due after `latest`: run it inside `Store.read`, which delays no write.
    """
    return [job for (job,) in tx.rows(LEASED_TOO_LONG, queue=queue, latest=latest, limit=limit)]


def shorten_leases(tx: Tx, held: Sequence[int], latest: int, end: int) -> int:
    """Make the leases of jobs (`held`, by id) that still end after `latest` end at `end` (ms): the
    clock was set back since. Returns: their number."""
    return tx.run(SHORTEN_LEASES, held=rows_as_json(held), latest=latest, end=end)


def claim(
    tx: Tx, queue: str, partition: str, limit: int, lease_ms: int, token: str
) -> list[LeasedJob]:
    """Lease at most `limit` due jobs of one partition to the holder of `token`.

    A row with an expired lease is taken over, which counts as a death. `lease_ms`: the duration of
    the lease in ms, from now.

    Returns: the jobs, oldest id first.
    """
    rows = tx.rows(CLAIM, **_leasing(tx, queue, partition, limit, lease_ms, token))
    return [LeasedJob(*row) for row in sorted(rows)]


def lease(tx: Tx, queue: str, partition: str, limit: int, lease_ms: int, token: str) -> int:
    """Like `claim`, but return only the count; read the rows by token."""
    return tx.run(LEASE, **_leasing(tx, queue, partition, limit, lease_ms, token))


def _leasing(
    tx: Tx, queue: str, partition: str, limit: int, lease_ms: int, token: str
) -> dict[str, int | str]:
    return {
        "queue": queue,
        "partition": partition,
        "now": tx.now,
        "limit": limit,
        "lease_end": tx.now + lease_ms,
        "token": token,
    }


def retry(tx: Tx, job_id: int, token: str, next_at: int, error: str) -> bool:
    """Count an attempt and make the job due again at `next_at`. False when the lease is lost."""
    return tx.run(RETRY, job=job_id, token=token, at=next_at, reason=error) == 1


def finish(tx: Tx, job_id: int, token: str) -> bool:
    """Delete a job that is done. False when the lease is lost."""
    return tx.run(FINISH, job=job_id, token=token) == 1


def finish_as(tx: Tx, job_id: int, token: str) -> str | None:
    """Delete a job that is done, and return its user. None when the lease is lost.

    The user may have been renamed or deleted since the claim, and another account may have its
    name: only the row names the job's own user.
    """
    user: str | None = tx.scalar(_FINISH_AS, job=job_id, token=token)
    return user


def fail(tx: Tx, job_id: int, token: str, error: str) -> bool:
    """Count an attempt and keep the row, which is never due again. False when the lease is lost."""
    return tx.run(FAIL, job=job_id, token=token, reason=error) == 1


def lock_held(tx: Tx, held: Sequence[tuple[int, str]]) -> None:
    """Lock leased jobs (id, token) by id until the transaction ends."""
    tx.rows(LOCK_HELD, settled=rows_as_json(held))


def partitions(tx: Tx, held: Sequence[int]) -> dict[int, str]:
    """Return the present partitions of jobs, by id."""
    return {row[0]: row[1] for row in tx.rows(PARTITIONS, held=rows_as_json(held))}


def delete_held(tx: Tx, held: Sequence[int]) -> None:
    """Delete finished jobs whose leases this transaction has found valid.

    `held`: ids of jobs that a statement with `held_of` has locked in this transaction. No other
    worker can have leased them since, so the tokens are not compared again, which would be half of
    the work.
    """
    if held:
        tx.run(DELETE_HELD, held=rows_as_json(held))


def settle_all(tx: Tx, settled: Sequence[Settlement]) -> int:
    """Apply `retry` or `fail` to many jobs at once; return the number of valid leases."""
    return tx.run(SETTLE_ALL, settled=rows_as_json(settled)) if settled else 0


def renew(tx: Tx, job_id: int, token: str, lease_ms: int) -> str | None:
    """Extend a lease to `lease_ms` from now, and return the job's user as `finish_as` does. None
    when the lease is lost."""
    user: str | None = tx.scalar(RENEW, job=job_id, token=token, at=tx.now + lease_ms)
    return user


def release(tx: Tx, job_id: int, token: str) -> bool:
    """Make the job due at once, with no attempt counted. False when the lease is lost."""
    return tx.run(RELEASE, job=job_id, token=token, at=tx.now) == 1


def release_all(tx: Tx, held: Sequence[int], token: str) -> None:
    """Like `release`, for all jobs that are leased with one token."""
    tx.run(RELEASE_ALL, held=rows_as_json(held), token=token, at=tx.now)


_DUE_COUNT: Final = Statement(
    select(func.count())
    .select_from(JOB)
    .where(JOB.c.queue == bindparam("queue"), JOB.c.next_at <= bindparam("now"))
)


def due_count(tx: Tx, queue: str) -> int:
    """Return the number of due jobs of a queue; reads only an index, unlike `stats`."""
    count: int = tx.scalar(_DUE_COUNT, queue=queue, now=tx.now)
    return count


def stats(tx: Tx) -> list[QueueStats]:
    """Return the numbers of every queue that has rows, by name.

    Ready counts due jobs, including expired leases; scheduled also jobs that wait for earlier ones
    of their ordering key; failed counts jobs kept without further attempts.
    """
    found = []
    for queue, ready, scheduled, leased, failed, oldest in tx.rows(STATS, now=tx.now):
        waiting = 0.0 if oldest is None else (tx.now - oldest) / MS_PER_SECOND
        found.append(QueueStats(queue, ready, scheduled, leased, failed, waiting))
    return found
