"""The SQL of `fw_actors.store.jobs`, written once for both databases."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Select,
    Subquery,
    Update,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    null,
    select,
    update,
)

from fw_actors.store.json_rows import JsonRows
from fw_actors.store.schema import JOB
from fw_actors.store.statement import Statement

LEASED_FIELDS: Final = (
    "id",
    "queue",
    "partition",
    "subject",
    "function",
    "arguments",
    "user",
    "attempts",
    "deaths",
    "lease",
    "created",
)
"""The columns that a claim returns, in the order of `LeasedJob`'s fields."""

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
ENQUEUE: Final = Statement(_NEW)
ENQUEUE_NUMBERED: Final = Statement(_NEW.returning(JOB.c.id))  # half as dear again on SQLite


def heads_of(queue: ColumnElement[str]) -> Select[tuple[str, int]]:
    """Every partition of a queue that has work, with its earliest time.

    A skip scan: one index seek for each partition, however many rows are due in it.
    """
    waiting = and_(JOB.c.queue == queue, JOB.c.next_at.is_not(None))

    def first_partition(*further: ColumnElement[bool]) -> Any:
        return select(func.min(JOB.c.partition)).where(waiting, *further)

    head = first_partition().cte("head", recursive=True)
    following = first_partition(JOB.c.partition > head.c[0]).correlate(head).scalar_subquery()
    head = head.union_all(select(following).where(head.c[0].is_not(None)))
    earliest = (
        select(func.min(JOB.c.next_at))
        .where(waiting, JOB.c.partition == head.c[0])
        .correlate(head)
        .scalar_subquery()
    )
    return select(head.c[0].label("partition"), earliest.label("next_at")).where(
        head.c[0].is_not(None)
    )


HEADS: Final = Statement(heads_of(bindparam("queue")))


FOLLOWING: Final = Statement(
    select(func.min(JOB.c.next_at)).where(
        JOB.c.queue == bindparam("queue"),
        JOB.c.partition == bindparam("partition"),
        JOB.c.next_at > bindparam("now"),
    )
)


def _recall() -> Statement:
    """The same skip scan, for each partition's latest row; nothing is written where none is far."""
    waiting = and_(JOB.c.queue == bindparam("queue"), JOB.c.next_at.is_not(None))
    first = select(func.min(JOB.c.partition)).where(waiting).cte("part", recursive=True)
    following = select(func.min(JOB.c.partition)).where(waiting, JOB.c.partition > first.c[0])
    part = first.union_all(
        select(following.correlate(first).scalar_subquery()).where(first.c[0].is_not(None))
    )
    return Statement(
        update(JOB)
        .where(JOB.c.queue == bindparam("queue"), JOB.c.partition.in_(select(part.c[0])))
        .where(JOB.c.next_at > bindparam("latest"))
        .values(next_at=bindparam("now"))
        .returning(JOB.c.id)  # SQLite counts no rows of a statement that begins with WITH
    )


RECALL: Final = _recall()


def _lease() -> Update:
    # Materialised, or PostgreSQL may run it again and take more rows than the limit. Nested, or
    # the statement begins with WITH, and SQLite counts no rows of it.
    due = (
        select(JOB.c.id)
        .where(JOB.c.queue == bindparam("queue"), JOB.c.partition == bindparam("partition"))
        .where(JOB.c.next_at <= bindparam("now"))
        .order_by(JOB.c.next_at)
        .limit(bindparam("places"))
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
CLAIM: Final = Statement(_lease().returning(*(JOB.c[name] for name in LEASED_FIELDS)))


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
GIVE_BACK: Final = Statement(update(JOB).where(_HELD).values(next_at=bindparam("at"), lease=null()))
RENEW: Final = Statement(update(JOB).where(_HELD).values(next_at=bindparam("at")))

SETTLED: Final = JsonRows("settled")
"""Rows of `SETTLE_ALL` (job, token, when it is due next, error)."""


def held_of(settled: JsonRows, **columns: ColumnElement[Any]) -> Subquery:
    """The jobs of rows (job, token, …) whose lease holds, locked to the transaction's end.

    On PostgreSQL a row that another transaction has locked is waited for, and judged as it is by
    then; where the statement has nothing to join, no row may be read or locked. Nested, or the
    statement begins with WITH, and SQLite counts no rows of it.

    Args:
        columns: taken from the rows beside the job's `subject`. Materialised, so that each item
            is looked for once however often it is used.
    """
    held = (
        select(JOB.c.subject, *(column.label(name) for name, column in columns.items()))
        .where(JOB.c.id == settled.item(0, int), JOB.c.lease == settled.item(1, str))
        .with_for_update(of=JOB)
        .cte("held", nesting=True)
        .prefix_with("MATERIALIZED")
    )
    return select(held).subquery("settled_held")


_HELD_IDS: Final = JsonRows("held")
DELETE_HELD: Final = Statement(
    delete(JOB).where(JOB.c.id.in_(select(_HELD_IDS.whole(int)).select_from(_HELD_IDS.table)))
)
SETTLE_ALL: Final = Statement(
    update(JOB)
    .where(JOB.c.id == SETTLED.item(0, int), JOB.c.lease == SETTLED.item(1, str))
    .values(
        {
            **_COUNTED,
            "next_at": SETTLED.item(2, int),
            "error": SETTLED.item(3, str),
        }
    )
)


def _stats() -> Statement:
    come = JOB.c.next_at <= bindparam("now")
    to_come = JOB.c.next_at > bindparam("now")

    def count(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.coalesce(func.sum(case((condition, literal(1)), else_=literal(0))), 0)

    return Statement(
        select(
            JOB.c.queue,
            count(come),
            count(and_(to_come, JOB.c.lease.is_(None))),
            count(and_(to_come, JOB.c.lease.is_not(None))),
            count(JOB.c.next_at.is_(None)),
            func.min(case((come, JOB.c.next_at))),
        )
        .group_by(JOB.c.queue)
        .order_by(JOB.c.queue)
    )


STATS: Final = _stats()
