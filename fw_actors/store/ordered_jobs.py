"""Ordered jobs: the jobs of one ordering key run one at a time, in order.

A job may have an ordering key within its partition. The first job of a key is the one that was
begun (leased or attempted), or else the one with the lowest id. A claim leases only the first job
of a key. A due job that is not the first is *parked*: its `next_at` is null, so that later claims
do not read it. When a job has ended, the next one of its key becomes due.

A key with jobs always has one that is not parked: a job is parked only behind another one, and a
job that was begun is never parked. Therefore a claim must not park while another transaction ends a
job of the key or moves it to another key: the callers of all these functions hold a lock of the
partition, which they take before they lock a job.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    and_,
    bindparam,
    case,
    exists,
    func,
    insert,
    literal_column,
    not_,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.types import Text

from fw_actors.store.schema import JOB
from fw_actors.store.statement import SQLITE, JsonRows, Statement, rows_as_json
from fw_actors.store.transaction import Tx

WINDOW: Final = 256
"""The number of due jobs that one statement examines."""
WINDOWS: Final = 4
"""The number of windows that one claim examines, so that its duration is bounded."""

_GIVEN: Final = JsonRows("given")
_IDS: Final = JsonRows("ids")
_NOW: Final[ColumnElement[int]] = bindparam("now", type_=BigInteger())

_ENQUEUE: Final = Statement(
    insert(JOB).from_select(
        ["queue", "partition", "subject", "ordering_key", "next_at", "created"],
        select(
            bindparam("queue", type_=Text()),
            *(_GIVEN.item(at, str) for at in range(3)),
            _NOW,
            _NOW,
        ).select_from(_GIVEN.table),
    )
)


def _begun(job: FromClause) -> ColumnElement[bool]:
    """Return the condition of the index `fw_job_begun`."""
    return or_(job.c.lease.is_not(None), job.c.attempts > literal_column("0"))


def _due_statement() -> Statement:
    other = JOB.alias("other")
    same = and_(
        other.c.partition == JOB.c.partition,
        other.c.ordering_key == JOB.c.ordering_key,
        other.c.ordering_key.is_not(None),
    )
    in_flight = and_(other.c.lease.is_not(None), other.c.next_at > _NOW)
    behind_begun = (
        select(other.c.id)
        .where(
            same,
            _begun(other),
            other.c.id != JOB.c.id,
            # Two jobs of a key are begun after a rename has merged two keys.
            or_(in_flight, not_(_begun(JOB)), other.c.id < JOB.c.id),
        )
        # Without statistics SQLite would use the index of all jobs with keys, however many wait.
        .with_hint(other, "INDEXED BY fw_job_begun", SQLITE)
        .exists()
    )
    behind_earlier = exists().where(same, other.c.id < JOB.c.id)
    first = or_(
        JOB.c.ordering_key.is_(None),
        not_(or_(behind_begun, and_(not_(_begun(JOB)), behind_earlier))),
    )
    return Statement(
        select(
            JOB.c.id,
            case((first, 1), else_=0),
            case((_begun(JOB), 1), else_=0),
        )
        .where(JOB.c.queue == bindparam("queue"), JOB.c.partition == bindparam("partition"))
        .where(JOB.c.next_at <= _NOW)
        .order_by(JOB.c.next_at)
        .limit(WINDOW)
        .with_for_update(of=JOB, skip_locked=True)
    )


_DUE: Final = _due_statement()
_THESE: Final = JOB.c.id.in_(select(_IDS.whole(int)).select_from(_IDS.table))
_LEASE: Final = Statement(
    update(JOB)
    .where(_THESE)
    .values(
        next_at=bindparam("lease_end"),
        lease=bindparam("token"),
        deaths=JOB.c.deaths + case((JOB.c.lease.is_not(None), 1), else_=0),
    )
)
_PARK: Final = Statement(update(JOB).where(_THESE).values(next_at=null()))
_LEAVE: Final = Statement(update(JOB).where(_THESE).values(ordering_key=null()))
# Not a join with the tokens: SQLite would read all leased jobs for each of them.
_HELD: Final = Statement(
    select(JOB.c.id, JOB.c.partition, JOB.c.ordering_key, JOB.c.lease).where(
        _THESE, JOB.c.ordering_key.is_not(None)
    )
)
_NEXT: Final = JOB.alias("next")
_RELEASE: Final = Statement(
    update(JOB)
    .where(
        JOB.c.id.in_(
            select(
                select(func.min(_NEXT.c.id))
                .where(
                    _NEXT.c.partition == _GIVEN.item(0, str),
                    _NEXT.c.ordering_key == _GIVEN.item(1, str),
                    _NEXT.c.ordering_key.is_not(None),
                    _NEXT.c.next_at.is_(None),
                )
                .correlate(_GIVEN.table)
                .scalar_subquery()
            ).select_from(_GIVEN.table)
        )
    )
    .values(next_at=_NOW)
)
_OF_KEY: Final = and_(
    JOB.c.partition == bindparam("partition"), JOB.c.ordering_key == bindparam("ordering_key"),
    JOB.c.ordering_key.is_not(None),
)  # fmt: skip
_RELEASE_MANY: Final = Statement(
    update(JOB)
    .where(
        JOB.c.id.in_(
            select(JOB.c.id)
            .where(_OF_KEY, JOB.c.next_at.is_(None))
            .order_by(JOB.c.id)
            .limit(bindparam("limit"))
        )
    )
    .values(next_at=_NOW)
)
_FIRST: Final = Statement(
    select(JOB.c.subject).where(_OF_KEY, JOB.c.next_at.is_not(None)).order_by(JOB.c.id).limit(1)
)
_PARKED: Final = Statement(
    select(func.count()).select_from(
        select(JOB.c.id)
        .where(JOB.c.partition == bindparam("partition"), JOB.c.ordering_key.is_not(None))
        .where(JOB.c.next_at.is_(None))
        .limit(bindparam("limit"))
        .subquery()
    )
)


class OrderedJob(NamedTuple):
    """A job with an ordering key, which is unique within its partition."""

    id: int
    partition: str
    ordering_key: str


class OrderedLease(NamedTuple):
    """The number of leased jobs, and whether due jobs remain that were not examined.

    `blocked`: due jobs remain that wait for another one of their key, although they were begun.
    """

    leased: int
    unseen: bool
    blocked: bool = False


def enqueue_ordered(tx: Tx, queue: str, given: Sequence[tuple[str, str, str | None]]) -> None:
    """Write jobs that are due now, in their order; each as its partition, subject and key."""
    tx.run(_ENQUEUE, queue=queue, given=rows_as_json(given), now=tx.now)


def lease_first(
    tx: Tx, queue: str, partition: str, limit: int, lease_ms: int, token: str
) -> OrderedLease:
    """Like `jobs.lease`, but only the first job of each key; due jobs behind it are parked."""
    leased = 0
    for _ in range(WINDOWS):
        if leased == limit:
            break
        due = tx.rows(_DUE, queue=queue, partition=partition, now=tx.now)
        chosen = [job for job, first, _ in due if first][: limit - leased]
        behind = [job for job, first, begun in due if not first and not begun]
        if chosen:
            end = tx.now + lease_ms
            tx.run(_LEASE, ids=rows_as_json(chosen), lease_end=end, token=token)
        if behind:
            tx.run(_PARK, ids=rows_as_json(behind))
        leased += len(chosen)
        if len(due) < WINDOW or not (chosen or behind):
            return OrderedLease(leased, unseen=False, blocked=len(due) > len(chosen) + len(behind))
    return OrderedLease(leased, unseen=True)


def held_ordered(tx: Tx, held: Iterable[tuple[int, str]]) -> list[OrderedJob]:
    """Return the leased jobs (id, token) that have a key.

    Call it before the jobs are settled, because a job that ends loses its key. The caller holds the
    locks of their partitions, so that no other transaction takes over a lease or moves a key
    meanwhile.
    """
    tokens = dict(held)
    return [
        OrderedJob(number, partition, key)
        for number, partition, key, lease in tx.rows(_HELD, ids=rows_as_json(list(tokens)))
        if lease == tokens[number]
    ]


def leave(
    tx: Tx, ended: Sequence[OrderedJob], *, deleted: Container[int] = (), limit: int = 1
) -> int:
    """Remove the keys of ended jobs, and make the next jobs due, at most `limit` of each key.

    `deleted`: the ids of those jobs whose rows were deleted already.

    Returns: the number of jobs that became due.
    """
    if not ended:
        return 0
    kept = [each.id for each in ended if each.id not in deleted]
    if kept:
        tx.run(_LEAVE, ids=rows_as_json(kept))
    given = sorted({(each.partition, each.ordering_key) for each in ended})
    if limit == 1:
        return tx.run(_RELEASE, given=rows_as_json(given), now=tx.now)
    return sum(
        tx.run(_RELEASE_MANY, partition=partition, ordering_key=key, limit=limit, now=tx.now)
        for partition, key in given
    )


def next_after(tx: Tx, released: Sequence[OrderedJob]) -> None:
    """For each key whose begun job was released, make the first job due."""
    if released:
        given = sorted({(each.partition, each.ordering_key) for each in released})
        tx.run(_RELEASE, given=rows_as_json(given), now=tx.now)


def first_of(tx: Tx, partition: str, ordering_key: str) -> str | None:
    """Return the subject of the job for which the parked jobs of a key wait."""
    subject: str | None = tx.scalar(_FIRST, partition=partition, ordering_key=ordering_key)
    return subject


def count_parked(tx: Tx, partition: str, limit: int) -> int:
    """Return the number of parked jobs of a partition, at most `limit`."""
    count: int = tx.scalar(_PARKED, partition=partition, limit=limit)
    return count
