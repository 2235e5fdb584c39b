"""What a claim reads of Webhooks and deliveries, however many, as one row of JSON.

Each row that a driver hands up takes the interpreter's lock from trio's thread once more. A sampler
saw that thread spend 38 % of its time in `send`, mostly waiting for the lock; so it is 22 %.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core.webhook import DEFAULT_TIMEOUT
from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.registry import Registry
from fw_actors.services.events import QUEUE
from fw_actors.store import AllRows, JsonRows, LeasedJob, Statement, Tx, rows_as_json
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


class Lease(NamedTuple):
    """What was leased of one Webhook (None: it was deleted); `ends` in ms."""

    hook: Hook | None
    ends: int


class _Leased(msgspec.Struct, array_like=True):
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
        hooks = registry.tables["Webhook"].table.c
        d = registry.tables["Webhook Delivery"].table.c
        job = JOB.c
        named = JsonRows("names")
        self._hooks = Statement(
            sa.select(
                AllRows(
                    hooks.name,
                    hooks.enabled,
                    sa.func.coalesce(hooks.url, ""),  # null only by raw SQL, which nothing checks
                    sa.func.coalesce(hooks.timeout, DEFAULT_TIMEOUT),
                    hooks.secret,
                    hooks[ROW_ID],
                )
            )
            .select_from(named.table)
            .where(hooks.name == named.item(0, str))
        )
        self.leased_rows = Statement(
            sa.select(
                AllRows(
                    job.id,
                    job.deaths,
                    job.attempts,
                    job.created,
                    d.name,
                    sa.case((sa.func.length(d.payload) <= SHORT, d.payload)),
                    sa.func.coalesce(d.attempts, 0),
                    sa.func.coalesce(d.max_attempts, 0),
                    sa.func.coalesce(d.status, ""),
                )
            )
            .select_from(JOB.outerjoin(d.name.table, d.name == job.subject))
            .where(
                job.queue == QUEUE,
                job.partition == sa.bindparam("webhook"),
                job.next_at == sa.bindparam("ends"),  # so that the index of what is due finds it
                job.lease == sa.bindparam("token"),
            )
        )
        self._payload = Statement(sa.select(d.payload).where(d.name == sa.bindparam("key")))

    def hooks(self, tx: Tx, names: Collection[str]) -> dict[str, Hook]:
        """Return Webhooks as they are now, by name; those that are there."""
        if not names:
            return {}
        found = tx.scalar(self._hooks, names=rows_as_json((name,) for name in names))
        return {
            name: Hook(name, bool(enabled), *rest)
            for name, enabled, *rest in msgspec.json.decode(found)
        }

    def leased(self, tx: Tx, webhook: str, lease: Lease, token: str) -> tuple[list[Due], list[int]]:
        """Return what was just leased of a Webhook with `token`, in the order of its jobs; and
        the jobs whose delivery is gone."""
        found = tx.scalar(self.leased_rows, webhook=webhook, ends=lease.ends, token=token)
        rows = sorted(_DECODER.decode(found), key=attrgetter("job"))
        due = [self._due(tx, row, webhook, lease, token) for row in rows if row.delivery]
        return due, [row.job for row in rows if row.delivery is None]

    def _due(self, tx: Tx, row: _Leased, webhook: str, lease: Lease, token: str) -> Due:
        assert row.delivery is not None
        payload = row.payload
        if payload is None:
            payload = tx.scalar(self._payload, key=row.delivery)
        return Due(
            LeasedJob(
                row.job,
                QUEUE,
                webhook,
                row.delivery,
                attempts=row.tries,
                deaths=row.deaths,
                lease=token,
                created=row.created,
            ),
            lease.hook,
            lease.ends,
            row.delivery,
            payload.encode(),
            row.attempts,
            row.max_attempts,
            row.status,
        )


_DECODER: Final = msgspec.json.Decoder(list[_Leased])
