"""Claims: leases of due deliveries within limits, and the leased deliveries.

Webhooks and deliveries of a claim are read as a single row, whatever their number.

Each row that a driver returns makes trio's thread wait for the GIL once more: in a sampling
profiler that thread spent 38 % of its time in `send`, mostly waiting for the GIL; with one row,
22 %. With `packed=False` the same columns are read row by row; tests run with both. The module has
more than 500 lines because a claim is planned, leased and read by the same limits, in both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import BY_DOCUMENT, DEFAULT_TIMEOUT, Webhook, WebhookDelivery
from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.tables import stored_number, table_of, valid_number
from fw_actors.errors import ValidationError
from fw_actors.http import Endpoint, Origin, parse_endpoint
from fw_actors.rules.delivery import LEASE_MARGIN_SECONDS
from fw_actors.rules.receivers import (
    NOT_PAUSED,
    RESERVE,
    UNTIL_RESUMED,
    ReceiverSlots,
    fair_shares,
    startable,
)
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store import (
    AllRows,
    FramedRow,
    FramedRows,
    JsonRows,
    LeasedJob,
    Octets,
    PlainText,
    Statement,
    StatementError,
    TextBytes,
    Tx,
    jobs,
    read_frames,
    rows_as_json,
)
from fw_actors.store.jobs import heads_of
from fw_actors.store.ordered_jobs import held_ordered, leave, next_after
from fw_actors.store.schema import JOB
from fw_actors.store.statement import STATEMENT_CACHE_SIZE
from fw_actors.webhooks.events import QUEUE
from fw_actors.webhooks.pacing import PacedClaims, PacedLease, lock_claim_rows

MAX_INLINE_BYTES: Final = 16_384
"""In bytes. Longer payloads are read one by one, so that no value exceeds SQLite's limit."""
MAX_READ_BYTES: Final = 16 * 1024 * 1024
"""In bytes. A claim that has read so many of long payloads reads no further one, since other
writers wait for it."""
MAX_BYTES_IN_FLIGHT: Final = 64 * 1024 * 1024
"""In bytes. A claim reads no further long payload while so many are in flight in its process."""


WEBHOOKS_PER_READ: Final = 64
"""The number of Webhooks that a claim reads with one statement."""


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
    def rate_limited_or_ordered(self) -> bool:
        """Whether a rate limit or an order restricts the deliveries that may be sent at a time."""
        return self.enabled and (self.rate_limit > 0 or self.ordered)


class LeasedDelivery(msgspec.Struct, frozen=True):
    """A delivery leased by this process: its lease, its payload and its Webhook."""

    job: LeasedJob
    stored: StoredWebhook | None  # None: the Webhook was deleted
    lease_end: int
    delivery: str
    payload: bytes
    attempts: int
    max_attempts: int
    status: str
    ordered: bool = False  # its job has an ordering key
    trace: str = ""  # the trace context of its event, as stored


class Head(NamedTuple):
    """A Webhook with pending deliveries, and the time when the first is due or its lease ends.

    `stored` is None if the Webhook was deleted or nothing is due yet, or if it was not read.
    """

    next_at: int
    webhook: str
    stored: StoredWebhook | None = None
    is_read: bool = True


class Lease(NamedTuple):
    """The `leased` deliveries of one Webhook (None if it was deleted), until `ends` (ms)."""

    webhook: str
    stored: StoredWebhook | None
    ends: int
    leased: int


class Leased(NamedTuple):
    """The deliveries leased with one token, as the store returned them.

    The rows are decoded after the transaction, because trio's thread waits for all Python code in
    the store's thread.

    Args:
        frames: the packed rows with their payloads.
        orphans: the jobs whose deliveries were deleted.
        long: payloads that are too long for `frames`, by delivery.
        rows: the rows if they were not packed, otherwise empty.
        returned: jobs that were released because their payloads had too many bytes to be read,
            with their Webhooks.
    """

    leases: Sequence[Lease]
    token: str
    frames: bytes
    orphans: list[int]
    long: dict[str, bytes]
    rows: Sequence[tuple[_Row, bytes]] = ()
    returned: Mapping[int, str] = MappingProxyType({})

    def all_rows(self) -> Iterator[tuple[_Row, bytes]]:
        """Yield each row with its payload, empty for a long one. Raises: StatementError."""
        return chain(self.rows, read_frames(self.frames, _DECODER))

    def deliveries(self) -> list[LeasedDelivery]:
        """Return the deliveries, lease by lease, each lease in the order of its jobs.

        Raises: StatementError if payloads cannot be matched to deliveries; none must be sent then.
        """
        leases = {lease.webhook: (position, lease) for position, lease in enumerate(self.leases)}
        found = []
        for row, text in self.all_rows():
            if row.delivery is None or row.key in self.returned:
                continue
            payload = text if row.size is not None else self._long_payload(row.delivery)
            position, lease = leases[row.webhook]
            found.append((position, row.key, _due(row, row.delivery, payload, lease, self.token)))
        found.sort()  # job numbers are unique
        return [leased for _, _, leased in found]

    def _long_payload(self, delivery: str) -> bytes:
        if delivery not in self.long:
            raise StatementError("A payload could not be read; the claim cannot be used.")
        return self.long[delivery]


class _Row(FramedRow):
    """A job, keyed by its number, and its delivery, whose name is None if it was deleted.

    `size` is the size of its payload, None for a long one.
    """

    webhook: str
    expired_leases: int
    job_attempts: int
    created: int
    delivery: str | None
    attempts: int
    max_attempts: int
    status: str
    ordered: int
    trace: str | None = None


def _due(row: _Row, delivery: str, payload: bytes, lease: Lease, token: str) -> LeasedDelivery:
    webhook, expired_leases, created = row.webhook, row.expired_leases, row.created
    return LeasedDelivery(
        LeasedJob(
            row.key,
            QUEUE,
            webhook,
            delivery,
            "",
            "",
            "",
            row.job_attempts,
            expired_leases,
            token,
            created,
        ),
        lease.stored,
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
    def deliveries(self) -> list[LeasedDelivery]:
        """The deliveries, decoded at each access: on trio's thread, not in the transaction."""
        return [] if self.leased is None else self.leased.deliveries()


class Turn(NamedTuple):
    """The number of the last claim that has leased deliveries of a Webhook, and the number of
    deliveries that all claims have leased."""

    claim: int = 0
    leased: int = 0


NO_TURN: Final = Turn()


class ClaimLimits(Protocol):
    """Limits how many deliveries of each Webhook a claim leases, and the bytes that it reads."""

    @property
    def exhausted(self) -> bool:
        """Whether no further delivery may start, of any Webhook."""

    def turn(self, webhook: str) -> Turn:
        """Return the turn of a Webhook; claims serve the Webhook with the smallest turn first."""

    def free(self, stored: StoredWebhook | None) -> int:
        """Return how many deliveries of a Webhook may start; None is a deleted Webhook."""

    def shares(self, heads: Sequence[Head]) -> Mapping[str, int]:
        """Return how many deliveries each of these Webhooks may start before the others have had
        their share; without those that share with none."""

    def take(self, stored: StoredWebhook | None, count: int) -> None:
        """Count leased deliveries."""

    def may_read(self, stored: StoredWebhook) -> bool:
        """Return whether another long payload may be read, of any length."""

    def count_bytes(self, size: int) -> None:
        """Count the bytes of a long payload."""


class DeliveryClaims:
    """Claims due deliveries of the `webhook` queue, and reads the leased ones."""

    def __init__(self, *, traced: bool = False, packed: bool = True) -> None:
        """`traced`: also read the trace contexts of events. `packed`: read all rows as one."""
        self._statements = _statements(traced, packed)
        self.leased_rows = self._statements.leased_rows
        self._traced, self._packed = traced, packed
        self._paced = PacedClaims()

    @cached_property
    def row_by_row(self) -> DeliveryClaims:
        """Claims the same deliveries without packed rows."""
        return DeliveryClaims(traced=self._traced, packed=False)

    def warm_up_claims(self, tx: Tx) -> None:
        """Run the statements of a claim over no rows."""
        self.heads(tx)
        self._heads_after(tx, "")
        self._webhooks(tx, ())
        jobs.lease(tx, QUEUE, "", 0, 0, "")
        jobs.next_due(tx, QUEUE, "")
        self.leased(tx, (), "")

    def claim(self, tx: Tx, limits: ClaimLimits, token: str) -> ClaimedBatch:
        """Lease due deliveries within the limits.

        Webhooks take turns, so that the backlog of some delays no event of others for long. Of
        those that one claim has served, the one with the fewest deliveries so far comes first, and
        then the one that has waited longest. The due deliveries of a paused Webhook are not read,
        whatever their number.

        Args:
            limits: the number of deliveries of each Webhook that may start.
            token: the fencing token of the leases.
        """
        tx.limit_pauses()  # claims of other nodes are repeated as long as they skip locked rows
        heads = self.heads(tx)
        due = [head for head in heads if head.next_at <= tx.now]
        due.sort(key=lambda head: (limits.turn(head.webhook), head))
        claim = _OpenClaim(tx, limits, self._paced, token)
        for part in self._read(tx, due, limits):
            claim.lease_from(part)
        next_times = [head.next_at for head in heads if head.next_at > tx.now] + claim.next_times
        more = claim.more or (limits.exhausted and bool(due))
        leased = None
        if claim.leases:
            leases = list(claim.leases.values())
            leased = self._without_orphans(tx, self.leased(tx, leases, token, limits))
            release_all(tx, sorted(leased.returned), token)
            more = more or bool(leased.returned)
        return ClaimedBatch(leased, more, min(next_times, default=None))

    def release_claim(self, tx: Tx, leased: Leased) -> None:
        """Release all leases of a claim, whose rows cannot be read, without counting attempts."""
        leases = rows_as_json([(lease.webhook, lease.ends) for lease in leased.leases])
        lock_claim_rows(tx, sorted(lease.webhook for lease in leased.leases))
        rows = tx.rows(_JOBS_OF, leases=leases, token=leased.token)
        release_all(tx, [job for (job,) in rows if job is not None], leased.token)

    def _without_orphans(self, tx: Tx, leased: Leased) -> Leased:
        """Remove the jobs whose deliveries were deleted."""
        if leased.orphans:
            ordered_jobs = held_ordered(tx, [(job, leased.token) for job in leased.orphans])
            for job in leased.orphans:
                jobs.finish(tx, job, leased.token)
            leave(tx, ordered_jobs)
        return leased

    def heads(self, tx: Tx) -> list[Head]:
        """Return every Webhook with pending deliveries, deleted ones included.

        Only the first of them are read, because a claim has slots for a few of thousands.
        """
        heads = [
            Head(next_at, webhook, _stored_webhook(name, *read) if name is not None else None)
            for next_at, webhook, name, *read in self._rows(tx, self._statements.heads, now=tx.now)
        ]
        if len(heads) == WEBHOOKS_PER_READ:
            heads += self._heads_after(tx, max(head.webhook for head in heads))
        return heads

    def _heads_after(self, tx: Tx, webhook: str) -> list[Head]:
        rows = self._rows(tx, self._statements.heads_after, after=webhook)
        return [Head(next_at, webhook, is_read=False) for next_at, webhook in rows]

    def _read(self, tx: Tx, heads: Sequence[Head], limits: ClaimLimits) -> Iterator[Sequence[Head]]:
        """Yield heads with their Webhooks, which are read some at a time, while slots are free."""
        for start in range(0, len(heads), WEBHOOKS_PER_READ):
            if limits.exhausted:
                return
            part = heads[start : start + WEBHOOKS_PER_READ]
            unread = [head.webhook for head in part if not head.is_read]
            if unread:
                webhooks = self._webhooks(tx, unread)
                part = [
                    head if head.is_read else head._replace(stored=webhooks.get(head.webhook))
                    for head in part
                ]
            yield part

    def _webhooks(self, tx: Tx, names: Sequence[str]) -> dict[str, StoredWebhook]:
        rows = self._rows(tx, self._statements.webhooks, names=rows_as_json(names))
        return {name: _stored_webhook(name, *read) for name, *read in rows}

    def _rows(self, tx: Tx, statement: Statement, **parameters: Any) -> Any:
        """Return the rows of a statement, which are packed as one unless `packed` was False."""
        if not self._packed:
            return tx.rows(statement, **parameters)
        packed: bytes = tx.scalar(statement, **parameters)
        try:
            return msgspec.json.decode(packed)
        except UnicodeDecodeError:  # raw SQL has stored a text that is not UTF-8 (SQLite)
            return msgspec.json.decode(packed.decode(errors="replace"))

    def stored_webhook(self, tx: Tx, name: str) -> StoredWebhook | None:
        """Return a Webhook as currently stored, or None."""
        row = tx.one(self._statements.webhook, key=name)
        return None if row is None else _stored_webhook(name, *row)

    def leased(
        self, tx: Tx, leases: Sequence[Lease], token: str, limits: ClaimLimits | None = None
    ) -> Leased:
        """Return the deliveries leased with `token`; `limits` restricts their long payloads."""
        leases_json = rows_as_json([(one.webhook, one.ends) for one in leases])
        if not self._packed:
            rows = [
                (_Row(key, None if payload is None else len(payload), *columns), payload or b"")
                for key, payload, *columns in tx.rows(
                    self.leased_rows, leases=leases_json, token=token
                )
            ]
            return self._read_rest(tx, Leased(leases, token, b"", [], {}, rows), limits)
        row = tx.one(self.leased_rows, leases=leases_json, token=token)
        assert row is not None  # an aggregate always returns a row
        frames, job_count, delivery_count, payload_count = row
        leased = Leased(leases, token, frames or b"", [], {})
        if payload_count < job_count or delivery_count < job_count:
            with suppress(StatementError):  # `deliveries` raises it after the leases are committed
                return self._read_rest(tx, leased, limits)
        return leased

    def _read_rest(self, tx: Tx, leased: Leased, limits: ClaimLimits | None) -> Leased:
        """Read the long payloads that are to be sent, in the order of the leases as far as the
        limits permit, and find the jobs whose delivery was deleted."""
        leases = {lease.webhook: (at, lease.stored) for at, lease in enumerate(leased.leases)}
        rows = [row for row, _ in leased.all_rows() if row.delivery is None or row.size is None]
        returned: dict[int, str] = {}
        for row in sorted(rows, key=lambda row: (leases[row.webhook][0], row.key)):
            stored = leases[row.webhook][1]
            if row.delivery is None:
                leased.orphans.append(row.key)
            elif stored is None or not stored.enabled:
                leased.long[row.delivery] = b""  # nothing is sent
            elif limits is None or limits.may_read(stored):
                payload = tx.scalar(self._statements.payload, key=row.delivery) or b""
                leased.long[row.delivery] = payload
                if limits is not None:
                    limits.count_bytes(len(payload))
            else:
                returned[row.key] = row.webhook
        return leased._replace(returned=returned)


class _OpenClaim:
    """A claim in its transaction: leases deliveries of one Webhook after the other.

    `leases` are by Webhook. `more`: see `ClaimedBatch`. `next_times` (ms): when more will be due.
    """

    def __init__(self, tx: Tx, limits: ClaimLimits, paced: PacedClaims, token: str) -> None:
        self._tx, self._limits, self._paced, self._token = tx, limits, paced, token
        self.leases: dict[str, Lease] = {}
        self.more = False
        self.next_times: list[int] = []

    def lease_from(self, heads: Sequence[Head]) -> None:
        """Lease due deliveries of these Webhooks, except of those that are paused.

        Those of one receiver share its slots (B-237). Slots that some do not need, or that cannot
        be divided, are left to the others in a second pass.
        """
        ready: list[Head] = []
        for head in heads:
            if head.stored is not None and head.stored.paused_until > self._tx.now:
                self.next_times.append(head.stored.paused_until)
            else:
                ready.append(head)
        shares = self._limits.shares(ready)
        restricted: list[Head] = []
        for head in ready:
            free = self._limits.free(head.stored)
            share = min(free, shares.get(head.webhook, free))
            has_more = self._lease(head, share)
            if has_more and share < free:
                restricted.append(head)
            else:
                self.more = self.more or has_more
        for head in restricted:
            has_more = self._lease(head, self._limits.free(head.stored))
            self.more = self.more or has_more

    def _lease(self, head: Head, count: int) -> bool:
        """Lease at most `count` deliveries of a Webhook; return whether more may be due."""
        if count <= 0:
            return True
        tx, stored = self._tx, head.stored
        lease_ms = (_timeout(stored) + LEASE_MARGIN_SECONDS) * MS_PER_SECOND
        if stored is not None and stored.rate_limited_or_ordered:
            result = self._paced.lease(tx, stored, count, lease_ms, self._token)
        else:
            result = _lease(tx, head.webhook, count, lease_ms, self._token)
        self._limits.take(stored, result.leased)
        if result.leased:  # else another process claimed them
            count = result.leased
            if head.webhook in self.leases:
                count += self.leases[head.webhook].leased
            self.leases[head.webhook] = Lease(head.webhook, stored, tx.now + lease_ms, count)
        if result.next_at is not None:
            self.next_times.append(result.next_at)
        return result.more


def _lease(tx: Tx, webhook: str, free: int, lease_ms: int, token: str) -> PacedLease:
    """Lease due deliveries of a Webhook without limits."""
    count = jobs.lease(tx, QUEUE, webhook, free, lease_ms, token)
    if count == free:
        return PacedLease(count, more=True)
    return PacedLease(count, next_at=jobs.next_claim(tx, QUEUE, webhook))


def release_all(tx: Tx, job_ids: Sequence[int], token: str) -> None:
    """Release leases of one token without counting attempts."""
    if job_ids:
        ordered_jobs = held_ordered(tx, [(job, token) for job in job_ids])
        jobs.release_all(tx, job_ids, token)
        next_after(tx, ordered_jobs)


def _timeout(stored: StoredWebhook | None) -> int:
    return stored.timeout if stored is not None else DEFAULT_TIMEOUT


class _ClaimStatements(NamedTuple):
    heads: Statement
    heads_after: Statement
    webhooks: Statement
    webhook: Statement
    leased_rows: Statement
    payload: Statement


_WEBHOOKS: Final = table_of(Webhook).table
_W: Final = _WEBHOOKS.c
_DELIVERIES: Final = table_of(WebhookDelivery).table
_D: Final = _DELIVERIES.c


@lru_cache(STATEMENT_CACHE_SIZE)  # by the Dispatcher, trials and cancellations
def _statements(traced: bool, packed: bool) -> _ClaimStatements:
    head = heads_of(sa.literal(QUEUE)).limit(WEBHOOKS_PER_READ).subquery("head")
    other = heads_of(sa.literal(QUEUE), sa.bindparam("after", type_=sa.Text())).subquery("other")
    names = JsonRows("names")
    # Raw SQL may have stored anything: one bad row must not stop the claims for all others.
    read = (
        stored_number(_W.enabled),
        sa.func.coalesce(PlainText(_W.url), ""),
        valid_number(Webhook, "timeout"),
        PlainText(_W.secret),
        sa.func.coalesce(PlainText(_W[ROW_ID]), ""),
        sa.case(
            (_W.paused_since.is_(None), NOT_PAUSED),
            else_=sa.func.coalesce(stored_number(_W.paused_until), UNTIL_RESUMED),
        ),
        PlainText(_W.old_secret),
        stored_number(_W.old_secret_until),
        valid_number(Webhook, "rate_limit"),
        PlainText(_W.client_certificate),
        sa.case((_W.ordering == BY_DOCUMENT, sa.true()), else_=sa.false()),
    )
    is_its_webhook = sa.and_(_W.name == head.c.partition, head.c.next_at <= sa.bindparam("now"))
    key: sa.BindParameter[str] = sa.bindparam("key")

    def packable(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
        return sa.select(*((TextBytes(AllRows(*columns)),) if packed else columns))

    return _ClaimStatements(
        Statement(
            packable(head.c.next_at, head.c.partition, _W.name, *read).select_from(
                head.outerjoin(_WEBHOOKS, is_its_webhook)
            )
        ),
        Statement(packable(other.c.next_at, other.c.partition).select_from(other)),
        Statement(
            packable(_W.name, *read).where(
                _W.name.in_(sa.select(names.whole(str)).select_from(names.table))
            )
        ),
        Statement(sa.select(*read).where(_W.name == key)),
        _leased_rows(traced=traced, packed=packed),
        Statement(sa.select(TextBytes(_D.payload)).where(_D.name == key)),
    )


_LEASES: Final = JsonRows("leases")
# An outer join, although every lease has jobs: for an inner join SQLite would scan all jobs first.
_OF_LEASES: Final = _LEASES.table.outerjoin(
    JOB,
    sa.and_(  # uses the index of due jobs
        JOB.c.queue == QUEUE,
        JOB.c.partition == _LEASES.item(0, str),
        JOB.c.next_at == _LEASES.item(1, int),
        JOB.c.lease == sa.bindparam("token"),
    ),
)
_JOBS_OF: Final = Statement(sa.select(JOB.c.id).select_from(_OF_LEASES))


def _leased_rows(*, traced: bool, packed: bool) -> Statement:
    """Select the leased jobs with their payloads.

    If packed, as one row: with the payloads that are short, and the numbers of jobs, of deliveries
    and of short payloads.
    """
    job = JOB.c
    payload = sa.func.coalesce(_D.payload, "")  # null only if written by raw SQL
    columns = (
        job.partition,
        job.deaths,
        job.attempts,
        job.created,
        _D.name,
        sa.func.coalesce(stored_number(_D.attempts), 0),
        sa.func.coalesce(stored_number(_D.max_attempts), 0),
        sa.func.coalesce(PlainText(_D.status), ""),
        sa.case((job.ordering_key.is_not(None), 1), else_=0),
        *((PlainText(_D.trace_context),) if traced else ()),
    )
    source = _OF_LEASES.outerjoin(_DELIVERIES, _D.name == job.subject)
    short = sa.case((Octets(payload) <= MAX_INLINE_BYTES, payload))
    if not packed:
        rows = sa.select(job.id, TextBytes(short), *columns).where(job.id.is_not(None))
        return Statement(rows.select_from(source))
    counts = (sa.func.count(), sa.func.count(_D.name), sa.func.count(short))
    return Statement(sa.select(FramedRows(job.id, short, *columns), *counts).select_from(source))


def _stored_webhook(name: str, enabled: int, *columns: Any) -> StoredWebhook:
    return StoredWebhook(name, bool(enabled), *columns)


_DECODER: Final = msgspec.json.Decoder(_Row)


URL_CACHE_SIZE: Final = 1024


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
        bytes_in_flight: int = 0,
        turns: Mapping[str, Turn] = MappingProxyType({}),
        deferred: Set[str] = frozenset(),
        in_flight: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`bytes_in_flight`: those of long payloads. `turns`: by Webhook. `deferred`: Webhooks
        without further deliveries. `in_flight`: the attempts of each Webhook that have not ended;
        may change meanwhile."""
        self._known, self._free, self._turns = receivers, free, turns
        self._in_flight = in_flight
        self._deferred = deferred
        self._slots, self._per_receiver = slots, per_receiver
        self._bytes_in_flight, self._bytes_read = bytes_in_flight, 0
        self._copies: dict[Origin | None, ReceiverSlots] = {}
        self._targets: dict[StoredWebhook | None, Endpoint | None] = {}

    @property
    def left(self) -> int:
        """The number of slots that the claim has left free."""
        return self._free

    @property
    def exhausted(self) -> bool:
        """Whether no slot is free."""
        return self._free <= 0

    def free(self, stored: StoredWebhook | None) -> int:
        """Return how many of this Webhook's deliveries may start now."""
        if stored is not None and stored.name in self._deferred:
            return 0
        return startable(self._copy(stored), self._free, self._slots)

    def shares(self, heads: Sequence[Head]) -> Mapping[str, int]:
        """Return the shares of Webhooks that have one receiver, as `ClaimLimits.shares`."""
        by_receiver: dict[Origin, list[Head]] = {}
        for head in heads:
            target = self.target(head.stored)
            if target is not None and head.webhook not in self._deferred:
                by_receiver.setdefault(target.origin, []).append(head)
        found: dict[str, int] = {}
        for sharing in by_receiver.values():
            if len(sharing) > 1:
                in_flight = {head.webhook: self._in_flight.get(head.webhook, 0) for head in sharing}
                found |= fair_shares(self.free(sharing[0].stored), in_flight)
        return found

    def take(self, stored: StoredWebhook | None, count: int) -> None:
        """Count leased deliveries of this Webhook."""
        self._copy(stored).take(count)
        self._free -= count

    def turn(self, webhook: str) -> Turn:
        """Return the turn of a Webhook."""
        return self._turns.get(webhook, NO_TURN)

    def may_read(self, stored: StoredWebhook) -> bool:
        """Return whether a long payload may be read. Slow receivers may not take the last quarter
        of the bytes, as of all slots."""
        max_held = MAX_BYTES_IN_FLIGHT - (
            MAX_BYTES_IN_FLIGHT // RESERVE if self._copy(stored).slow else 0
        )
        return (
            self._bytes_read < MAX_READ_BYTES
            and self._bytes_in_flight + self._bytes_read < max_held
        )

    def count_bytes(self, size: int) -> None:
        """Count the bytes of a long payload."""
        self._bytes_read += size

    @property
    def bytes_in_flight(self) -> int:
        """The bytes of long payloads in flight, with those that the claim has read."""
        return self._bytes_in_flight + self._bytes_read

    @property
    def read_limit_reached(self) -> bool:
        """Whether the next claim may read further long payloads, and this one may not."""
        return (
            self._bytes_read >= MAX_READ_BYTES
            and self._bytes_in_flight + self._bytes_read < MAX_BYTES_IN_FLIGHT
        )

    def target(self, stored: StoredWebhook | None) -> Endpoint | None:
        """Return the endpoint of this Webhook's deliveries; parsed once for each plan."""
        if stored not in self._targets:
            self._targets[stored] = target_of(stored)
        return self._targets[stored]

    def _copy(self, stored: StoredWebhook | None) -> ReceiverSlots:
        target = self.target(stored)
        origin = target.origin if target is not None else None
        copy = self._copies.get(origin)
        if copy is None:
            current = self._known.get(origin)
            copy = (
                replace(current)
                if current
                else new_receiver(origin, self._slots, self._per_receiver)
            )
            self._copies[origin] = copy
        return copy


def new_receiver(origin: Origin | None, slots: int, per_receiver: int) -> ReceiverSlots:
    """Return the slots of a receiver without a state yet; `slots` is the total number of slots.

    If nothing is sent (Webhook deleted or disabled), there is no receiver to protect. But a million
    such deliveries must not delay those that are sent.
    """
    if origin is None:
        return ReceiverSlots(limit=slots, window=slots, yields=True)
    return ReceiverSlots(limit=per_receiver)


def target_of(stored: StoredWebhook | None) -> Endpoint | None:
    """Return the endpoint of a Webhook's deliveries; None if nothing is to be sent."""
    if stored is None or not stored.enabled:
        return None
    return _parsed(stored.url, stored.client_certificate or "")


@lru_cache(URL_CACHE_SIZE)
def _parsed(url: str, certificate: str) -> Endpoint | None:
    """Return the parsed URL, cached: parsing costs more than the rest of a claim for its
    Webhook."""
    try:
        # The URL was validated when it was written.
        return replace(parse_endpoint(url, development=True), certificate=certificate)
    except ValidationError:
        return None
