"""What a claim reads of Webhooks and deliveries, however many, as one row of JSON.

Each row that a driver hands up takes the interpreter's lock from trio's thread once more. A sampler
saw that thread spend 38 % of its time in `send`, mostly waiting for the lock; so it is 22 %.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final, NamedTuple

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core.webhook import DEFAULT_TIMEOUT
from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.registry import Registry
from fw_actors.services.events import QUEUE
from fw_actors.store import AllRows, LeasedJob, Statement, Tx
from fw_actors.store.job_statements import heads_of
from fw_actors.store.schema import JOB

SHORT: Final = 65_536
"""Characters: a longer payload is read by itself, so that no value outgrows what SQLite takes."""


class Hook(msgspec.Struct, frozen=True):
    """A Webhook at the moment of an attempt; `secret` is sealed, `row_id` what it is bound to."""

    name: str
    enabled: bool
    url: str
    timeout: int
    secret: str | None
    row_id: str


class Due(msgspec.Struct, frozen=True):
    """A delivery in the hands of this process: its lease, its bytes, and where they go."""

    job: LeasedJob
    hook: Hook | None  # None: the Webhook was deleted
    lease_end: int
    delivery: str
    payload: bytes
    attempts: int
    max_attempts: int
    status: str


class Head(NamedTuple):
    """A Webhook that has deliveries to come, and when the first of them is due (or its lease
    ends).

    `hook` is None where the Webhook was deleted, and where nothing is due yet.
    """

    next_at: int
    webhook: str
    hook: Hook | None


class Lease(NamedTuple):
    """Of what name, of which Webhook (None: it was deleted), until when (ms), and its token."""

    webhook: str
    hook: Hook | None
    ends: int
    token: str


class Leased(NamedTuple):
    """Deliveries of one Webhook as the store gave them.

    Nothing is made of them in the transaction: whatever the store's thread does in Python, trio's
    thread waits for.
    """

    lease: Lease
    rows: str
    swept: list[int]
    long: dict[str, str]

    def due(self) -> list[Due]:
        """Return the deliveries, in the order of their jobs."""
        rows = sorted(_DECODER.decode(self.rows), key=_JOB_OF)
        return [self._due(row, row.delivery) for row in rows if row.delivery is not None]

    def _due(self, row: _Row, delivery: str) -> Due:
        webhook, hook, ends, token = self.lease
        payload = row.payload
        if payload is None:
            payload = self.long[delivery]
        job = LeasedJob(
            row.job, QUEUE, webhook, delivery, "", "", "", row.tries, row.deaths, token, row.created
        )
        return Due(
            job, hook, ends, delivery, payload.encode(), row.attempts, row.max_attempts, row.status
        )


class _Row(msgspec.Struct, array_like=True):
    """A job and its delivery, whose name is None when it is gone; a long payload is None too."""

    job: int
    deaths: int
    tries: int
    created: int
    delivery: str | None
    payload: str | None
    attempts: int
    max_attempts: int
    status: str


class DeliveryRows:
    """The statements that read."""

    def __init__(self, registry: Registry) -> None:
        hooks = registry.tables["Webhook"].table
        d = registry.tables["Webhook Delivery"].table.c
        job = JOB.c
        head = heads_of(sa.literal(QUEUE)).subquery("head")
        hook = (
            hooks.c.enabled,
            sa.func.coalesce(hooks.c.url, ""),  # null only by raw SQL, which nothing checks
            sa.func.coalesce(hooks.c.timeout, DEFAULT_TIMEOUT),
            hooks.c.secret,
            hooks.c[ROW_ID],
        )
        of_it = sa.and_(hooks.c.name == head.c.partition, head.c.next_at <= sa.bindparam("now"))
        self._heads = Statement(
            sa.select(AllRows(head.c.next_at, head.c.partition, hooks.c.name, *hook)).select_from(
                head.outerjoin(hooks, of_it)
            )
        )
        key: sa.BindParameter[str] = sa.bindparam("key")
        self._hook = Statement(sa.select(*hook).where(hooks.c.name == key))
        long = sa.func.length(d.payload) > SHORT
        self.leased_rows = Statement(
            sa.select(
                AllRows(
                    job.id,
                    job.deaths,
                    job.attempts,
                    job.created,
                    d.name,
                    sa.case((sa.not_(long), d.payload)),
                    sa.func.coalesce(d.attempts, 0),
                    sa.func.coalesce(d.max_attempts, 0),
                    sa.func.coalesce(d.status, ""),
                ),
                sa.func.count(),
                sa.func.count(d.name),
                sa.func.count(sa.case((long, 1))),
            )
            .select_from(JOB.outerjoin(d.name.table, d.name == job.subject))
            .where(
                job.queue == QUEUE,
                job.partition == sa.bindparam("webhook"),
                job.next_at == sa.bindparam("ends"),  # so that the index of what is due finds it
                job.lease == sa.bindparam("token"),
            )
        )
        self._payload = Statement(sa.select(d.payload).where(d.name == key))

    def heads(self, tx: Tx) -> list[Head]:
        """Return every Webhook that has deliveries to come, those that were deleted as well."""
        found = msgspec.json.decode(tx.scalar(self._heads, now=tx.now))
        return [
            Head(next_at, webhook, _hook(name, *hook) if name is not None else None)
            for next_at, webhook, name, *hook in found
        ]

    def hook(self, tx: Tx, name: str) -> Hook | None:
        """Return a Webhook as it is now; None when there is none."""
        row = tx.one(self._hook, key=name)
        return None if row is None else _hook(name, *row)

    def leased(self, tx: Tx, lease: Lease) -> Leased:
        """Return what was just leased of a Webhook; `swept` are jobs whose delivery is gone."""
        row = tx.one(self.leased_rows, webhook=lease.webhook, ends=lease.ends, token=lease.token)
        assert row is not None  # an aggregate gives a row
        rows, jobs, deliveries, long = row
        leased = Leased(lease, rows, [], {})
        if long or jobs > deliveries:
            for each in _DECODER.decode(rows):
                if each.delivery is None:
                    leased.swept.append(each.job)
                elif each.payload is None:
                    leased.long[each.delivery] = tx.scalar(self._payload, key=each.delivery)
        return leased


def _hook(name: str, enabled: int, url: str, timeout: int, secret: str | None, row_id: str) -> Hook:
    return Hook(name, bool(enabled), url, timeout, secret, row_id)


_DECODER: Final = msgspec.json.Decoder(list[_Row])
_JOB_OF: Final = attrgetter("job")
