"""What a claim reads of Webhooks and deliveries, however many, as one row.

Each row that a driver hands up takes the interpreter's lock from trio's thread once more. A sampler
saw that thread spend 38 % of its time in `send`, mostly waiting for the lock; so it is 22 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import DEFAULT_TIMEOUT
from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.registry import Registry
from fw_actors.errors import ValidationError
from fw_actors.http import Endpoint, Origin, parse_endpoint
from fw_actors.rules.concurrency import ReceiverSlots, startable
from fw_actors.store import (
    AllRows,
    FramedRow,
    FramedRows,
    JsonRows,
    LeasedJob,
    Octets,
    Statement,
    StatementError,
    Tx,
    read_frames,
    rows_as_json,
)
from fw_actors.store.jobs import heads_of
from fw_actors.store.schema import JOB
from fw_actors.webhooks.events import QUEUE

SHORT: Final = 16_384
"""Bytes: a longer payload is read by itself, so that no value outgrows what SQLite takes."""


class Hook(msgspec.Struct, frozen=True):
    """A Webhook at the moment of an attempt; `secret` is sealed, `row_id` what it is bound to."""

    name: str
    enabled: bool
    url: str
    timeout: int
    secret: str | None
    row_id: str


class LeasedDelivery(msgspec.Struct, frozen=True):
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
    """Some deliveries of one Webhook (None: it was deleted), leased until `ends` (ms)."""

    webhook: str
    hook: Hook | None
    ends: int


class Leased(NamedTuple):
    """What a claim has leased with one token, as the store gave it: `frames` of rows, each with
    its payload, but for those that are `long`.

    Nothing is made of it in the transaction: whatever the store's thread does in Python, trio's
    thread waits for.
    """

    leases: Sequence[Lease]
    token: str
    frames: bytes
    swept: list[int]
    long: dict[str, str]

    def due(self) -> list[LeasedDelivery]:
        """Return the deliveries: lease by lease, those of each in the order of their jobs.

        Raises: StatementError where it is not certain whose each payload is; none may be sent.
        """
        leases = {lease.webhook: (at, lease) for at, lease in enumerate(self.leases)}
        found = []
        for row, text in read_frames(self.frames, _DECODER):
            if row.delivery is None:
                continue
            payload = text if row.size is not None else self._long_payload(row.delivery)
            at, lease = leases[row.webhook]
            found.append((at, row.key, _due(row, row.delivery, payload, lease, self.token)))
        found.sort()  # no two jobs have one number
        return [due for _, _, due in found]

    def _long_payload(self, delivery: str) -> bytes:
        if delivery not in self.long:
            raise StatementError("A payload could not be read; the claim can't be used.")
        return self.long[delivery].encode()


class _Row(FramedRow):
    """A job, whose number is the key, and its delivery, whose name is None when it is gone.

    `size` is that of its payload, None for a long one.
    """

    webhook: str
    deaths: int
    tries: int
    created: int
    delivery: str | None
    attempts: int
    max_attempts: int
    status: str


def _due(row: _Row, delivery: str, payload: bytes, lease: Lease, token: str) -> LeasedDelivery:
    webhook, tries, deaths, created = row.webhook, row.tries, row.deaths, row.created
    return LeasedDelivery(
        LeasedJob(row.key, QUEUE, webhook, delivery, "", "", "", tries, deaths, token, created),
        lease.hook,
        lease.ends,
        delivery,
        payload,
        row.attempts,
        row.max_attempts,
        row.status,
    )


class DeliveryRows:
    """The statements that read."""

    def __init__(self, registry: Registry) -> None:
        hooks = registry.tables["Webhook"].table
        deliveries = registry.tables["Webhook Delivery"].table
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
        self.leased_rows = _leased_rows(deliveries)
        self._payload = Statement(sa.select(deliveries.c.payload).where(deliveries.c.name == key))

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

    def leased(self, tx: Tx, leases: Sequence[Lease], token: str) -> Leased:
        """Return what was just leased with `token`; `swept` are jobs whose delivery is gone."""
        given = rows_as_json((one.webhook, one.ends) for one in leases)
        row = tx.one(self.leased_rows, leases=given, token=token)
        assert row is not None  # an aggregate gives a row
        frames, jobs, deliveries, payloads = row
        leased = Leased(leases, token, frames or b"", [], {})
        if payloads < jobs or deliveries < jobs:
            with suppress(StatementError):  # `due` raises it, once the leases are committed
                self._read_rest(tx, leased)
        return leased

    def _read_rest(self, tx: Tx, leased: Leased) -> None:
        """Read the payloads that are long, and find the jobs whose delivery is gone."""
        for row, _ in list(read_frames(leased.frames, _DECODER)):
            if row.delivery is None:
                leased.swept.append(row.key)
            elif row.size is None:
                leased.long[row.delivery] = tx.scalar(self._payload, key=row.delivery)


def _leased_rows(deliveries: sa.Table) -> Statement:
    """Read what was just leased: jobs with the payloads that are short, and how many there are."""
    job, d = JOB.c, deliveries.c
    given = JsonRows("leases")
    of_lease = sa.and_(  # by the index of what is due
        job.queue == QUEUE,
        job.partition == given.item(0, str),
        job.next_at == given.item(1, int),
        job.lease == sa.bindparam("token"),
    )
    payload = sa.func.coalesce(d.payload, "")  # null only by raw SQL
    short = sa.case((Octets(payload) <= SHORT, payload))
    return Statement(
        sa.select(
            FramedRows(
                job.id,
                short,
                job.partition,
                job.deaths,
                job.attempts,
                job.created,
                d.name,
                sa.func.coalesce(d.attempts, 0),
                sa.func.coalesce(d.max_attempts, 0),
                sa.func.coalesce(d.status, ""),
            ),
            sa.func.count(),
            sa.func.count(d.name),
            sa.func.count(short),
        ).select_from(
            # No lease is without jobs. An inner join SQLite would begin with all jobs.
            given.table.outerjoin(JOB, of_lease).outerjoin(deliveries, d.name == job.subject)
        )
    )


def _hook(name: str, enabled: int, url: str, timeout: int, secret: str | None, row_id: str) -> Hook:
    return Hook(name, bool(enabled), url, timeout, secret, row_id)


_DECODER: Final = msgspec.json.Decoder(_Row)


URLS_KEPT: Final = 1024


class ClaimLimits(Protocol):
    """Limits what a claim leases: the plan of the Dispatcher, or whatever else claims."""

    def free(self, hook: Hook | None) -> int:
        """Return how many deliveries of a Webhook may start; None is one that was deleted."""

    def take(self, hook: Hook | None, count: int) -> None:
        """Count those that were leased."""


class ClaimPlan:
    """How many attempts may start at each receiver, counted down while a claim takes them.

    Used in the store's thread, and after that by the Dispatcher.
    """

    def __init__(
        self,
        receivers: dict[Origin | None, ReceiverSlots],
        free: int,
        places: int,
        per_receiver: int,
    ) -> None:
        self._known, self._free = receivers, free
        self._places, self._per_receiver = places, per_receiver
        self._copies: dict[Origin | None, ReceiverSlots] = {}
        self._targets: dict[Hook | None, Endpoint | None] = {}

    def free(self, hook: Hook | None) -> int:
        """Return how many of this Webhook's deliveries may start now."""
        return startable(self._copy(hook), self._free, self._places)

    def take(self, hook: Hook | None, count: int) -> None:
        """So many were leased."""
        self._copy(hook).take(count)
        self._free -= count

    def target(self, hook: Hook | None) -> Endpoint | None:
        """Return where this Webhook's deliveries go; found out once a look."""
        if hook not in self._targets:
            self._targets[hook] = target_of(hook)
        return self._targets[hook]

    def _copy(self, hook: Hook | None) -> ReceiverSlots:
        target = self.target(hook)
        origin = target.origin if target is not None else None
        copy = self._copies.get(origin)
        if copy is None:
            known = self._known.get(origin)
            copy = (
                replace(known) if known else new_receiver(origin, self._places, self._per_receiver)
            )
            self._copies[origin] = copy
        return copy


def new_receiver(origin: Origin | None, places: int, per_receiver: int) -> ReceiverSlots:
    """Return the places of a receiver that is not known yet; of `places` in all.

    Where nothing is sent (deleted, disabled) nobody has to be spared.
    """
    if origin is None:
        return ReceiverSlots(limit=places, window=places)
    return ReceiverSlots(limit=per_receiver)


def target_of(hook: Hook | None) -> Endpoint | None:
    """Return where a Webhook's deliveries go; None when nothing is to be sent."""
    return _parsed(hook.url) if hook is not None and hook.enabled else None


@lru_cache(URLS_KEPT)
def _parsed(url: str) -> Endpoint | None:
    """Taking a URL apart costs more than what else a look does for its Webhook."""
    try:
        return parse_endpoint(url, development=True)  # judged when it was written
    except ValidationError:
        return None
