"""Claims: leases of due deliveries within limits, and the leased deliveries.

Webhooks and deliveries of a claim are read as a single row, whatever their number.

Each row that a driver returns makes trio's thread wait for the GIL once more: in a sampling
profiler that thread spent 38 % of its time in `send`, mostly waiting for the GIL; with one row, 22
%. With `packed=False` the same columns are read row by row; tests run with both. The module has
more than 500 lines because both ways share the statements and the forms of their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import BY_DOCUMENT, DEFAULT_TIMEOUT, Webhook
from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.registry import Registry
from fw_actors.documents.tables import valid_number
from fw_actors.errors import ValidationError
from fw_actors.http import Endpoint, Origin, parse_endpoint
from fw_actors.rules.concurrency import ReceiverSlots, startable
from fw_actors.rules.delivery import LEASE_MARGIN_SECONDS
from fw_actors.rules.receivers import NOT_PAUSED, UNTIL_RESUMED
from fw_actors.runtime.clock import MS_PER_SECOND
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
    jobs,
    read_frames,
    rows_as_json,
)
from fw_actors.store.jobs import heads_of
from fw_actors.store.ordered_jobs import held_ordered, leave
from fw_actors.store.schema import JOB
from fw_actors.store.statement import KEPT
from fw_actors.webhooks.events import QUEUE
from fw_actors.webhooks.pacing import PacedClaims, PacedLease

SHORT: Final = 16_384
"""In bytes. Longer payloads are read one by one, so that no value exceeds SQLite's limit."""


class StoredWebhook(msgspec.Struct, frozen=True):
    """A Webhook at the time of an attempt; the secrets are sealed and bound to `row_id`.

    `paused_until` is the end of its pause (ms), or `NOT_PAUSED`. `old_secret` also signs until
    `old_until` (ms). `rate_limit` is in requests a second, 0 for no limit. `ordered`: one delivery
    at a time for each document.
    """

    name: str
    enabled: bool
    url: str
    timeout: int
    secret: str | None
    row_id: str
    paused_until: int = NOT_PAUSED
    old_secret: str | None = None
    old_until: int | None = None
    rate_limit: int = 0
    client_certificate: str | None = None
    ordered: bool = False

    @property
    def paced(self) -> bool:
        """Whether a rate limit or an order restricts the deliveries that may be sent at a time."""
        return self.enabled and (self.rate_limit > 0 or self.ordered)


class LeasedDelivery(msgspec.Struct, frozen=True):
    """A delivery leased by this process: its lease, its payload and its Webhook."""

    job: LeasedJob
    hook: StoredWebhook | None  # None: the Webhook was deleted
    lease_end: int
    delivery: str
    payload: bytes
    attempts: int
    max_attempts: int
    status: str
    ordered: bool = False  # its job has an ordering key
    trace: str = ""  # the trace position of its event, as stored


class Head(NamedTuple):
    """A Webhook with pending deliveries, and the time when the first is due or its lease ends.

    `hook` is None if the Webhook was deleted or nothing is due yet.
    """

    next_at: int
    webhook: str
    hook: StoredWebhook | None


class Lease(NamedTuple):
    """Leased deliveries of one Webhook (None if it was deleted); the lease ends at `ends` (ms)."""

    webhook: str
    hook: StoredWebhook | None
    ends: int


class Leased(NamedTuple):
    """The deliveries leased with one token, as the store returned them.

    `frames` contains the rows with their payloads; `long` has the payloads that are too long for
    it. `orphans` are the jobs whose deliveries were deleted. The rows are decoded
    after the transaction, because trio's thread waits for all Python code in the store's thread.
    `rows` has the rows instead if they were not packed.
    """

    leases: Sequence[Lease]
    token: str
    frames: bytes
    orphans: list[int]
    long: dict[str, str]
    rows: Sequence[tuple[_Row, bytes]] = ()

    def due(self) -> list[LeasedDelivery]:
        """Return the deliveries, lease by lease, each lease in the order of its jobs.

        Raises: StatementError if payloads cannot be matched to deliveries; none must be sent then.
        """
        leases = {lease.webhook: (at, lease) for at, lease in enumerate(self.leases)}
        found = []
        for row, text in chain(self.rows, read_frames(self.frames, _DECODER)):
            if row.delivery is None:
                continue
            payload = text if row.size is not None else self._long_payload(row.delivery)
            at, lease = leases[row.webhook]
            found.append((at, row.key, _due(row, row.delivery, payload, lease, self.token)))
        found.sort()  # job numbers are unique
        return [due for _, _, due in found]

    def _long_payload(self, delivery: str) -> bytes:
        if delivery not in self.long:
            raise StatementError("A payload could not be read; the claim cannot be used.")
        return self.long[delivery].encode()


class _Row(FramedRow):
    """A job, keyed by its number, and its delivery, whose name is None if it was deleted.

    `size` is the size of its payload, None for a long one.
    """

    webhook: str
    deaths: int
    job_attempts: int
    created: int
    delivery: str | None
    attempts: int
    max_attempts: int
    status: str
    ordered: int
    trace: str | None = None


def _due(row: _Row, delivery: str, payload: bytes, lease: Lease, token: str) -> LeasedDelivery:
    webhook, deaths, created = row.webhook, row.deaths, row.created
    return LeasedDelivery(
        LeasedJob(
            row.key, QUEUE, webhook, delivery, "", "", "", row.job_attempts, deaths, token, created
        ),
        lease.hook,
        lease.ends,
        delivery,
        payload,
        row.attempts,
        row.max_attempts,
        row.status,
        bool(row.ordered),
        row.trace or "",
    )


class ClaimedBatch(NamedTuple):
    """The result of one poll of the queue.

    `more`: due rows may remain for which no slot was free. `next_at`: the time (ms) when the next
    row is due.
    """

    leased: Leased | None
    more: bool
    next_at: int | None

    @property
    def due(self) -> list[LeasedDelivery]:
        """The deliveries, decoded at each access: on trio's thread, not in the transaction."""
        return [] if self.leased is None else self.leased.due()


class ClaimLimits(Protocol):
    """Limits how many deliveries of each Webhook a claim leases."""

    def free(self, hook: StoredWebhook | None) -> int:
        """Return how many deliveries of a Webhook may start; None is a deleted Webhook."""

    def take(self, hook: StoredWebhook | None, count: int) -> None:
        """Count leased deliveries."""


class DeliveryClaims:
    """Claims due deliveries of the `webhook` queue, and reads the leased ones."""

    def __init__(self, registry: Registry, *, traced: bool = False, packed: bool = True) -> None:
        """`traced`: also read the trace positions of events. `packed`: read all rows as one."""
        statements = _statements(
            registry.tables["Webhook"].table,
            registry.tables["Webhook Delivery"].table,
            traced,
            packed,
        )
        self._heads, self._hook, self.leased_rows, self._payload = statements
        self._packed = packed
        self._paced = PacedClaims()

    def warm_up_claims(self, tx: Tx) -> None:
        """Run the statements of a claim over no rows."""
        self.heads(tx)
        jobs.lease(tx, QUEUE, "", 0, 0, "")
        jobs.next_due(tx, QUEUE, "")
        self.leased(tx, (), "")

    def claim(self, tx: Tx, limits: ClaimLimits, token: str) -> ClaimedBatch:
        """Lease due deliveries, those of the Webhook that has waited longest first.

        The deliveries of a paused Webhook are not read.

        Args:
            limits: the number of deliveries of each Webhook that may start.
            token: the fencing token of the leases.
        """
        heads = self.heads(tx)
        later = [head.next_at for head in heads if head.next_at > tx.now]
        leases: list[Lease] = []
        more = False
        for head in sorted(head for head in heads if head.next_at <= tx.now):
            hook = head.hook
            if hook is not None and hook.paused_until > tx.now:
                later.append(hook.paused_until)
                continue
            free = limits.free(hook)
            if free <= 0:
                more = True
                continue
            lease_ms = (_timeout(hook) + LEASE_MARGIN_SECONDS) * MS_PER_SECOND
            if hook is not None and hook.paced:
                found = self._paced.lease(tx, hook, free, lease_ms, token)
            else:
                found = _lease(tx, head.webhook, free, lease_ms, token)
            limits.take(hook, found.leased)
            if found.leased:  # else another process claimed them
                leases.append(Lease(head.webhook, hook, tx.now + lease_ms))
            more = more or found.more
            if found.next_at is not None:
                later.append(found.next_at)
        leased = self._without_orphans(tx, self.leased(tx, leases, token)) if leases else None
        return ClaimedBatch(leased, more, min(later, default=None))

    def _without_orphans(self, tx: Tx, leased: Leased) -> Leased:
        """Remove the jobs whose deliveries were deleted."""
        if leased.orphans:
            with_keys = held_ordered(tx, [(job, leased.token) for job in leased.orphans])
            for job in leased.orphans:
                jobs.finish(tx, job, leased.token)
            leave(tx, with_keys)
        return leased

    def heads(self, tx: Tx) -> list[Head]:
        """Return every Webhook with pending deliveries, deleted ones included."""
        found: Any
        if self._packed:
            found = msgspec.json.decode(tx.scalar(self._heads, now=tx.now))
        else:
            found = tx.rows(self._heads, now=tx.now)
        return [
            Head(next_at, webhook, _hook(name, *hook) if name is not None else None)
            for next_at, webhook, name, *hook in found
        ]

    def hook(self, tx: Tx, name: str) -> StoredWebhook | None:
        """Return a Webhook as currently stored, or None."""
        row = tx.one(self._hook, key=name)
        return None if row is None else _hook(name, *row)

    def leased(self, tx: Tx, leases: Sequence[Lease], token: str) -> Leased:
        """Return the deliveries leased with `token`."""
        given = rows_as_json([(one.webhook, one.ends) for one in leases])
        if not self._packed:
            return self._leased_row_by_row(tx, leases, given, token)
        row = tx.one(self.leased_rows, leases=given, token=token)
        assert row is not None  # an aggregate always returns a row
        frames, jobs, deliveries, payloads = row
        leased = Leased(leases, token, frames or b"", [], {})
        if payloads < jobs or deliveries < jobs:
            with suppress(StatementError):  # `due` raises it after the leases are committed
                self._read_rest(tx, leased)
        return leased

    def _leased_row_by_row(self, tx: Tx, leases: Sequence[Lease], given: str, token: str) -> Leased:
        rows: list[tuple[_Row, bytes]] = []
        for key, text, *columns in tx.rows(self.leased_rows, leases=given, token=token):
            payload = text.encode()
            rows.append((_Row(key, len(payload), *columns), payload))
        orphans = [row.key for row, _ in rows if row.delivery is None]
        return Leased(leases, token, b"", orphans, {}, rows)

    def _read_rest(self, tx: Tx, leased: Leased) -> None:
        """Read the long payloads, and find the jobs whose delivery was deleted."""
        for row, _ in list(read_frames(leased.frames, _DECODER)):
            if row.delivery is None:
                leased.orphans.append(row.key)
            elif row.size is None:
                leased.long[row.delivery] = tx.scalar(self._payload, key=row.delivery)


def _lease(tx: Tx, webhook: str, free: int, lease_ms: int, token: str) -> PacedLease:
    """Lease due deliveries of a Webhook without limits."""
    count = jobs.lease(tx, QUEUE, webhook, free, lease_ms, token)
    if count == free:
        return PacedLease(count, more=True)
    return PacedLease(count, next_at=jobs.next_due(tx, QUEUE, webhook))  # of those not due yet


def _number(column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    """Return the number of a column in which SQLite may have text: 0 then."""
    return sa.cast(column, sa.BigInteger)


def _timeout(hook: StoredWebhook | None) -> int:
    return hook.timeout if hook is not None else DEFAULT_TIMEOUT


class _ClaimStatements(NamedTuple):
    heads: Statement
    hook: Statement
    leased_rows: Statement
    payload: Statement


@lru_cache(KEPT)  # a service has three users of claims
def _statements(
    hooks: sa.Table, deliveries: sa.Table, traced: bool, packed: bool
) -> _ClaimStatements:
    head = heads_of(sa.literal(QUEUE)).subquery("head")
    # Raw SQL may have stored anything: one bad row must not stop the claims for all others.
    hook = (
        hooks.c.enabled,
        sa.func.coalesce(hooks.c.url, ""),  # null only if written by raw SQL
        valid_number(Webhook, "timeout"),
        hooks.c.secret,
        hooks.c[ROW_ID],
        sa.case(
            (hooks.c.paused_since.is_(None), NOT_PAUSED),
            else_=sa.func.coalesce(_number(hooks.c.paused_until), UNTIL_RESUMED),
        ),
        hooks.c.old_secret,
        _number(hooks.c.old_secret_until),
        valid_number(Webhook, "rate_limit"),
        hooks.c.client_certificate,
        sa.case((hooks.c.ordering == BY_DOCUMENT, sa.true()), else_=sa.false()),
    )
    of_it = sa.and_(hooks.c.name == head.c.partition, head.c.next_at <= sa.bindparam("now"))
    columns = (head.c.next_at, head.c.partition, hooks.c.name, *hook)
    key: sa.BindParameter[str] = sa.bindparam("key")
    return _ClaimStatements(
        Statement(
            sa.select(*((AllRows(*columns),) if packed else columns)).select_from(
                head.outerjoin(hooks, of_it)
            )
        ),
        Statement(sa.select(*hook).where(hooks.c.name == key)),
        _leased_rows(deliveries, traced=traced, packed=packed),
        Statement(sa.select(deliveries.c.payload).where(deliveries.c.name == key)),
    )


def _leased_rows(deliveries: sa.Table, *, traced: bool, packed: bool) -> Statement:
    """Select the leased jobs with their payloads.

    If packed, as one row: with the payloads that are short, and the numbers of jobs, of deliveries
    and of short payloads.
    """
    job, d = JOB.c, deliveries.c
    given = JsonRows("leases")
    of_lease = sa.and_(  # uses the index of due jobs
        job.queue == QUEUE,
        job.partition == given.item(0, str),
        job.next_at == given.item(1, int),
        job.lease == sa.bindparam("token"),
    )
    payload = sa.func.coalesce(d.payload, "")  # null only if written by raw SQL
    columns = (
        job.partition,
        job.deaths,
        job.attempts,
        job.created,
        d.name,
        sa.func.coalesce(d.attempts, 0),
        sa.func.coalesce(d.max_attempts, 0),
        sa.func.coalesce(d.status, ""),
        sa.case((job.ordering_key.is_not(None), 1), else_=0),
        *((d.trace_context,) if traced else ()),
    )
    # An outer join, although every lease has jobs: for an inner join SQLite would scan all jobs
    # first.
    source = given.table.outerjoin(JOB, of_lease).outerjoin(deliveries, d.name == job.subject)
    if not packed:
        rows = sa.select(job.id, payload, *columns).where(job.id.is_not(None))
        return Statement(rows.select_from(source))
    short = sa.case((Octets(payload) <= SHORT, payload))
    counts = (sa.func.count(), sa.func.count(d.name), sa.func.count(short))
    return Statement(sa.select(FramedRows(job.id, short, *columns), *counts).select_from(source))


def _hook(name: str, enabled: int, *columns: Any) -> StoredWebhook:
    return StoredWebhook(name, bool(enabled), *columns)


_DECODER: Final = msgspec.json.Decoder(_Row)


URLS_KEPT: Final = 1024


class ClaimPlan:
    """Counts down how many attempts may start at each receiver during one claim.

    Used in the store's thread during the claim, and by the Dispatcher afterwards.
    """

    def __init__(
        self,
        receivers: dict[Origin | None, ReceiverSlots],
        free: int,
        slots: int,
        per_receiver: int,
    ) -> None:
        self._known, self._free = receivers, free
        self._slots, self._per_receiver = slots, per_receiver
        self._copies: dict[Origin | None, ReceiverSlots] = {}
        self._targets: dict[StoredWebhook | None, Endpoint | None] = {}

    def free(self, hook: StoredWebhook | None) -> int:
        """Return how many of this Webhook's deliveries may start now."""
        return startable(self._copy(hook), self._free, self._slots)

    def take(self, hook: StoredWebhook | None, count: int) -> None:
        """Count leased deliveries of this Webhook."""
        self._copy(hook).take(count)
        self._free -= count

    def target(self, hook: StoredWebhook | None) -> Endpoint | None:
        """Return the endpoint of this Webhook's deliveries; parsed once for each plan."""
        if hook not in self._targets:
            self._targets[hook] = target_of(hook)
        return self._targets[hook]

    def _copy(self, hook: StoredWebhook | None) -> ReceiverSlots:
        target = self.target(hook)
        origin = target.origin if target is not None else None
        copy = self._copies.get(origin)
        if copy is None:
            known = self._known.get(origin)
            copy = (
                replace(known) if known else new_receiver(origin, self._slots, self._per_receiver)
            )
            self._copies[origin] = copy
        return copy


def new_receiver(origin: Origin | None, slots: int, per_receiver: int) -> ReceiverSlots:
    """Return the slots of a receiver without a state yet; `slots` is the total number of slots.

    If nothing is sent (Webhook deleted or disabled), there is no receiver to protect.
    """
    if origin is None:
        return ReceiverSlots(limit=slots, window=slots)
    return ReceiverSlots(limit=per_receiver)


def target_of(hook: StoredWebhook | None) -> Endpoint | None:
    """Return the endpoint of a Webhook's deliveries; None if nothing is to be sent."""
    if hook is None or not hook.enabled:
        return None
    return _parsed(hook.url, hook.client_certificate or "")


@lru_cache(URLS_KEPT)
def _parsed(url: str, certificate: str) -> Endpoint | None:
    """Return the parsed URL, cached: parsing costs more than the rest of a claim for its
    Webhook."""
    try:
        # The URL was validated when it was written.
        return replace(parse_endpoint(url, development=True), certificate=certificate)
    except ValidationError:
        return None
