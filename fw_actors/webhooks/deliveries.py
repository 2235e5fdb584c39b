"""Deliveries in the store: outcomes of attempts, retries, released leases, renames.

Rules: `fw_actors.rules.delivery`. The methods that take a `tx` run inside a transaction. The
Dispatcher calls `claim` (see `claims`), the OutcomeWriter writes outcomes, and the Dispatcher and
the DeliveryActor call `release`.

On PostgreSQL every transaction locks rows in the same order, so that there are no deadlocks
(B-430): documents and Webhooks, claim rows of Webhooks (`fw_webhook_claim`) by name, jobs by id,
deliveries by name, counts of Webhooks. A claim and a sweep do not wait for locks: they skip locked
rows. A rename of a Webhook locks its deliveries in no order, because there may be a million, so
transactions that lock several deliveries first lock their Webhooks (`lock_webhooks_of`).

The module has more than 500 lines because outcomes, releases and renames must keep this one order.
"""

from __future__ import annotations

import codecs
from collections.abc import Container, Iterator, Sequence, Set
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import BY_DOCUMENT, Webhook, WebhookDelivery
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import DocType, Fw
from fw_actors.documents.hooks import Observer
from fw_actors.documents.tables import table_of
from fw_actors.errors import DuplicateError
from fw_actors.http import Times
from fw_actors.rules.delivery import (
    FINAL,
    MAX_RETRY_AFTER_SECONDS,
    Backoff,
    DeliveryStatus,
    OutcomeKind,
    Transition,
    next_transition,
)
from fw_actors.rules.signing import SignedHeaders
from fw_actors.runtime.clock import MS_PER_MINUTE
from fw_actors.store import AllRows, JsonRows, Statement, Tx, jobs, rows_as_json
from fw_actors.store.jobs import held_of
from fw_actors.store.ordered_jobs import OrderedJob, held_ordered, leave, next_after
from fw_actors.store.schema import DELIVERY_ATTEMPT, JOB
from fw_actors.store.statement import STATEMENT_CACHE_SIZE
from fw_actors.webhooks.attempts import (
    NO_ITEM,
    encode_trace,
    keep_before_outcomes,
    url_without_query,
)
from fw_actors.webhooks.claims import DeliveryClaims, LeasedDelivery
from fw_actors.webhooks.events import QUEUE, ordering_key_of
from fw_actors.webhooks.health import CountedOutcome, add_tallies, tallies_of
from fw_actors.webhooks.pacing import lock_claim_rows
from fw_actors.webhooks.subscriptions import SubscriptionCache

KEPT_BYTES: Final = 512


class AttemptOutcome(msgspec.Struct, frozen=True):
    """The result of an attempt; `error` is empty after a 2xx.

    `wait_seconds` is the receiver's Retry-After, if it is honoured. `times` are None if there was
    no connection; `address` is the receiver's; `signed` has the headers that were sent, if any.
    """

    kind: OutcomeKind
    at: int
    duration_ms: int = 0
    response_status: int | None = None
    response_body: bytes | None = None
    error: str = ""
    wait_seconds: float = 0.0
    times: Times | None = None
    address: str = ""
    signed: SignedHeaders = ()


COLUMNS: Final[dict[str, type]] = {
    "status": str,
    "attempts": int,
    "next_attempt": int,
    "last_attempt": int,
    "response_status": int,
    "response_body": str,
    "error": str,
    "duration_ms": int,
    "trace": str,
}
"""The columns that an outcome writes; `sent` and `modified` follow. The last one is the trace of
the attempt, the others are in the order of `outcome_values`."""


def outcome_values(
    outcome: AttemptOutcome, transition: Transition, error: str
) -> tuple[int | str | None, ...]:
    """Return the values that an outcome writes, in the order of `COLUMNS` without the trace.

    `error` is that of `stored_error`.
    """
    body = outcome.response_body
    return (
        transition.status,
        transition.attempts,
        transition.next_attempt,
        outcome.at,
        outcome.response_status,
        None if body is None else body_as_text(body),
        error or None,
        outcome.duration_ms,
    )


def stored_error(outcome: AttemptOutcome) -> str:
    """Return the error as stored: text valid in both databases, cut to the column's length."""
    if not outcome.error:
        return ""
    return outcome.error[: jobs.ERROR_CHARACTERS].replace("\x00", "\ufffd")


def body_as_text(body: bytes) -> str:
    """Return the first 512 bytes as text: cut between characters, with invalid bytes replaced."""
    if not body:
        return ""
    cut = len(body) >= KEPT_BYTES
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return decoder.decode(body[:KEPT_BYTES], final=not cut).replace("\x00", "\ufffd")


MAX_DRAINED: Final = 1000
"""The maximum number of a document's deliveries that one final delivery makes due, if their Webhook
no longer orders them."""
_NO_JOB: Final = 0  # job numbers start at 1
_FIRST: Final = 2
"""The index of the first of the columns in a row of `OutcomeBatch`, after job and token."""


class OutcomeBatch(NamedTuple):
    """The outcomes of attempts, ready to be written; made by `outcome_batch`.

    A lease is the number of a job with its token.

    Attributes:
        leases, statuses, rows: of all attempts: their leases, the new statuses, and the columns of
            their deliveries as JSON.
        sent: the leases of those that the receivers accepted, whose jobs are deleted.
        unsent: how the jobs of the others continue.
        reattempted: the leases of deliveries with earlier attempts, whose records are kept.
        counted, tallies: what the outcomes add to the counts of their Webhooks, one by one and as a
            sum in JSON; empty if they are not counted.
        job_of_webhook: a job of each counted Webhook and the Webhook's id at the lease, as JSON.
        ordered, ordered_webhooks: the leases of jobs with ordering keys, and their Webhooks.
        drained: the jobs among them whose Webhooks no longer order deliveries.
    """

    leases: list[tuple[int, str]]
    statuses: list[DeliveryStatus]
    rows: str
    sent: list[tuple[int, str]]
    unsent: list[jobs.Settlement]
    reattempted: list[tuple[int, str]]
    counted: list[CountedOutcome]
    tallies: str
    job_of_webhook: str
    ordered: list[tuple[int, str]]
    ordered_webhooks: set[str]
    drained: set[int]

    @property
    def next_at(self) -> int | None:
        """The time (ms) when the first retry is due; 0 if later deliveries may be due already."""
        if self.ordered:
            return 0
        return min((one.next_at for one in self.unsent if one.next_at is not None), default=None)


class Deliveries(DeliveryClaims):
    """Claims deliveries of the `webhook` queue and writes their outcomes."""

    def __init__(
        self,
        backoff: Backoff,
        worker: str = "",
        *,
        traced: bool = False,
        packed: bool = True,
    ) -> None:
        """`worker` names the process in recorded attempts; the others are of `DeliveryClaims`."""
        super().__init__(traced=traced, packed=packed)
        self._backoff = backoff
        self._settle, self._lost = _statements(worker or NO_ITEM)

    @property
    def max_wait_seconds(self) -> float:
        """The longest wait between two attempts in seconds, whatever a receiver requests."""
        return max(self._backoff.cap, MAX_RETRY_AFTER_SECONDS)

    def warm_up(self, tx: Tx) -> None:
        """Run the statements of claims and outcomes over no rows.

        Otherwise the first event after a start waits 10 ms for their compilation.
        """
        self.warm_up_claims(tx)
        jobs.delete_held(tx, (_NO_JOB,))
        self.settle_all(tx, self.outcome_batch(()))

    def outcome_batch(
        self, attempts: Sequence[tuple[LeasedDelivery, AttemptOutcome]], *, counted: bool = True
    ) -> OutcomeBatch:
        """Determine the status after each finished attempt, and encode the batch for
        `settle_all`. `counted`: as outcomes of their Webhooks (B-240)."""
        batch = OutcomeBatch([], [], "", [], [], [], [], "", "", [], set(), set())
        rows = []
        # By name and row: a name may pass to another Webhook.
        jobs_by_name: dict[tuple[str, str], int] = {}
        for leased, outcome in attempts:
            job, token, error = leased.job.id, leased.job.lease, stored_error(outcome)
            transition = next_transition(
                outcome.kind,
                attempts_before=leased.attempts,
                max_attempts=leased.max_attempts,
                ended=outcome.at,
                backoff=self._backoff,
                at_least=outcome.wait_seconds,
            )
            batch.leases.append((job, token))
            batch.statuses.append(transition.status)
            if transition.status is DeliveryStatus.SENT:
                batch.sent.append((job, token))
            else:
                batch.unsent.append(jobs.Settlement(job, token, transition.next_attempt, error))
            url = "" if leased.stored is None else url_without_query(leased.stored.url)
            trace = encode_trace(outcome.times, outcome.signed, outcome.address, url)
            rows.append((job, token, *outcome_values(outcome, transition, error), trace))
            if leased.attempts:
                batch.reattempted.append((job, token))
            if leased.ordered:
                batch.ordered.append((job, token))
                batch.ordered_webhooks.add(leased.job.partition)
                if leased.stored is None or not leased.stored.ordered or not leased.stored.enabled:
                    batch.drained.add(job)
            if counted:
                batch.counted.append((leased.job.partition, transition.status, outcome.at, error))
                row_id = "" if leased.stored is None else leased.stored.row_id
                jobs_by_name[leased.job.partition, row_id] = job
        names_of_jobs = [(job, webhook) for (webhook, _), job in jobs_by_name.items()]
        return batch._replace(
            rows=rows_as_json(rows),
            job_of_webhook=rows_as_json(names_of_jobs),
            tallies=tallies_of(batch.counted),
        )

    def settle_all(self, tx: Tx, batch: OutcomeBatch) -> Sequence[DeliveryStatus | None]:
        """Write all outcomes by one statement, each only if the job still has the lease's token.

        Returns: the new statuses; None for a lost lease, whose outcome is not written.
        """
        tx.limit_pauses()  # the outcomes of other nodes for these Webhooks wait
        statuses: Sequence[DeliveryStatus | None] = batch.statuses
        lost: set[tuple[int, str]] = set()
        ordered_jobs = (
            _lock_with_claim_rows(tx, batch.ordered, batch.ordered_webhooks)
            if batch.ordered
            else []
        )
        if 0 < len(batch.reattempted) < len(batch.leases):
            jobs.lock_held(tx, batch.leases)  # all by id: `reattempted` alone would be first
        if batch.reattempted:
            keep_before_outcomes(tx, batch.reattempted)
        if tx.run(self._settle, settled=batch.rows) < len(statuses):
            lost_rows = msgspec.json.decode(tx.scalar(self._lost, settled=batch.rows))
            lost = {(job, token) for job, token in lost_rows}
            statuses = [
                None if lease in lost else status
                for lease, status in zip(batch.leases, statuses, strict=True)
            ]
        counted = not lost and add_tallies(tx, batch.tallies, batch.job_of_webhook)
        if batch.counted and not counted:
            add_tallies(tx, tallies_of(_counted_by_new_names(tx, batch, lost)))
        jobs.delete_held(tx, [lease[0] for lease in batch.sent if lease not in lost])
        if batch.unsent:
            jobs.settle_all(tx, batch.unsent)  # fenced by the tokens too
        if ordered_jobs:
            lease_statuses = zip(batch.leases, statuses, strict=True)
            final = {lease[0] for lease, status in lease_statuses if status in FINAL}
            sent = {lease[0] for lease in batch.sent}  # those jobs are deleted
            _release_followers(
                tx, [job for job in ordered_jobs if job.id in final], sent, batch.drained
            )
        return statuses

    def release(self, tx: Tx, leased: LeasedDelivery) -> bool:
        """Release a lease without counting the attempt. Returns False if it was lost before."""
        lease = (leased.job.id, leased.job.lease)
        ordered_jobs = (
            _lock_with_claim_rows(tx, [lease], {leased.job.partition}) if leased.ordered else []
        )
        released = jobs.release(tx, *lease)
        if ordered_jobs:
            next_after(tx, ordered_jobs)
        return released


_DELIVERIES: Final = table_of(WebhookDelivery).table
_D: Final = _DELIVERIES.c


@lru_cache(STATEMENT_CACHE_SIZE)
def _statements(worker: str) -> tuple[Statement, Statement]:
    """Return the statement that writes outcomes, and the one that finds lost leases."""
    settled = JsonRows("settled")
    held = held_of(
        settled,
        **{name: settled.item(at, COLUMNS[name]) for at, name in enumerate(COLUMNS, _FIRST)},
    ).c
    settle = Statement(
        sa.update(_DELIVERIES)
        .where(_D.name == held.subject)
        .values(
            {name: held[name] for name in COLUMNS}
            | {
                "sent": sa.case((held.status == DeliveryStatus.SENT.value, held.last_attempt)),
                "modified": held.last_attempt,
                "trace": held.trace.concat(f" {worker}"),
            }
        )
    )
    leased = sa.select(JOB.c.id).where(
        JOB.c.id == settled.item(0, int), JOB.c.lease == settled.item(1, str)
    )
    lost = Statement(
        sa.select(AllRows(settled.item(0, int), settled.item(1, str)))
        .select_from(settled.table)
        .where(~leased.correlate(settled.table).exists())
    )
    return settle, lost


def _lock_with_claim_rows(
    tx: Tx, leases: Sequence[tuple[int, str]], webhooks: Set[str]
) -> list[OrderedJob]:
    """Lock the claim rows of Webhooks, and return the leased jobs that have ordering keys.

    `webhooks`: their names when the jobs were leased. Claim rows are locked before jobs (see
    above), except that of a Webhook that was renamed meanwhile.
    """
    lock_claim_rows(tx, sorted(webhooks))
    ordered_jobs = held_ordered(tx, leases)
    renamed = {job.partition for job in ordered_jobs} - webhooks
    if renamed:
        lock_claim_rows(tx, sorted(renamed))
    return ordered_jobs


def _counted_by_new_names(
    tx: Tx, batch: OutcomeBatch, lost: Container[tuple[int, str]]
) -> Iterator[CountedOutcome]:
    """Yield the outcomes for the counts of their Webhooks, which may have been renamed since the
    leases; without those of lost leases."""
    names = jobs.partitions(tx, [job for job, _ in batch.leases])
    for lease, (_, status, at, error) in zip(batch.leases, batch.counted, strict=True):
        if lease not in lost:
            yield names[lease[0]], status, at, error


def _release_followers(
    tx: Tx, final_jobs: Sequence[OrderedJob], sent: Container[int], drained: Container[int]
) -> None:
    """Make the next deliveries of documents due after those that are final."""
    if final_jobs:
        leave(tx, [job for job in final_jobs if job.id not in drained], deleted=sent)
        leave(tx, [job for job in final_jobs if job.id in drained], deleted=sent, limit=MAX_DRAINED)


_W: Final = table_of(Webhook).table.c
_OLD: Final[sa.BindParameter[Any]] = sa.bindparam("old")
_NEW: Final[sa.BindParameter[Any]] = sa.bindparam("new")


def _counted(locked: sa.Select[Any]) -> Statement:
    """Return the statement that locks rows and returns only their number, not up to a million
    ids."""
    return Statement(sa.select(sa.func.count()).select_from(locked.subquery()))


_MOVE_JOBS: Final = Statement(
    sa.update(JOB).where(JOB.c.queue == QUEUE, JOB.c.partition == _OLD).values(partition=_NEW)
)
# Locked by id and before the deliveries, in the same order as by outcomes.
_LOCK_JOBS: Final = _counted(
    sa.select(JOB.c.id)
    .where(JOB.c.queue == QUEUE, JOB.c.partition == _OLD)
    .order_by(JOB.c.id)
    .with_for_update()
)
_MOVE_ATTEMPTS: Final = Statement(
    sa.update(DELIVERY_ATTEMPT).where(DELIVERY_ATTEMPT.c.webhook == _OLD).values(webhook=_NEW)
)


_WAITING: Final = Statement(
    sa.select(JOB.c.id)
    .where(
        JOB.c.queue == QUEUE, JOB.c.partition == sa.bindparam("name"), JOB.c.next_at.is_not(None)
    )
    .limit(1)
)


CLOCK_TOLERANCE_MS: Final = 5 * MS_PER_MINUTE
"""A time that is further ahead was stored before the clock was set back. The clocks of nodes must
differ by less."""


_LAST: Final = (
    sa.select(_D.name)
    .where(_D.webhook == sa.bindparam("key"))
    .order_by(_D.creation.desc(), _D.name.desc())
    .limit(1)
)
_CREATION_OF_LAST: Final = Statement(_LAST.with_only_columns(_D.creation))
_MARK_FORMER: Final = Statement(
    sa.update(_W.name.table)
    .where(_W.name == sa.bindparam("key"))
    .values(former_delivery=sa.func.coalesce(_LAST.scalar_subquery(), ""))
)


class NamesOfDeletedWebhooks(Observer):
    """Keeps a new Webhook from getting the deliveries of a deleted one of the same name.

    Those that wait keep the name taken (B-30); those that have ended are marked as the deleted
    one's (B-253), by the last of them. That mark would include deliveries of the new Webhook if the
    last one was recorded while the clock was ahead, so such a one keeps the name taken as well.
    """

    doctypes = frozenset({"Webhook"})
    events = frozenset({"on_insert"})

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Refuse a name for which deliveries wait. Raises: DuplicateError."""
        if fw.tx.one(_WAITING, name=doc.name) is not None:
            raise DuplicateError(
                f"{doc.name} is the name of a deleted Webhook whose deliveries still wait. "
                "Choose another name, or wait until they have ended.",
                field="name",
            )
        last = fw.tx.scalar(_CREATION_OF_LAST, key=doc.name)
        if last is not None and last > fw.tx.now + CLOCK_TOLERANCE_MS:
            raise DuplicateError(
                f"{doc.name} is the name of a deleted Webhook that has a delivery dated "
                f"{iso(last)}, because the clock was ahead. Choose another name.",
                field="name",
            )

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Mark the deliveries that have the name already."""
        fw.tx.run(_MARK_FORMER, key=doc.name)


_IS_REFERENCE: Final = sa.and_(
    _D.reference_doctype == sa.bindparam("doctype"), _D.reference_name == _OLD
)
_MOVE_REFERENCES: Final = Statement(
    sa.update(_D.name.table).where(_IS_REFERENCE).values(reference_name=_NEW)
)
_MOVE_DELIVERIES: Final = Statement(
    sa.update(_D.name.table).where(_D.webhook == _OLD).values(webhook=_NEW)
)
_HAS_KEY: Final = sa.and_(
    JOB.c.ordering_key == sa.bindparam("before"), JOB.c.ordering_key.is_not(None)
)
# Parked deliveries become due, so that claims see them with those of the new key.
_MOVE_KEY: Final = Statement(
    sa.update(JOB)
    .where(JOB.c.partition.in_(sa.select(_W.name).where(_W.ordering == BY_DOCUMENT)), _HAS_KEY)
    .values(
        ordering_key=sa.bindparam("ordering_key"),
        next_at=sa.func.coalesce(JOB.c.next_at, sa.bindparam("now")),
    )
)
_WEBHOOKS_WITH_KEY: Final = Statement(
    sa.select(_W.name).where(
        _W.ordering == BY_DOCUMENT, sa.exists().where(JOB.c.partition == _W.name, _HAS_KEY)
    )
)
_LOCK_JOBS_OF_REFERENCE: Final = _counted(
    sa.select(JOB.c.id)
    .join_from(_D.name.table, JOB, sa.and_(JOB.c.queue == QUEUE, JOB.c.subject == _D.name))
    .where(_IS_REFERENCE)
    .order_by(JOB.c.id)
    .with_for_update(of=JOB)
)
_LOCK_REFERENCES: Final = _counted(
    sa.select(_D.name).where(_IS_REFERENCE).order_by(_D.name).with_for_update(key_share=True)
)
_FIRST_OF_NEW_NAME: Final = Statement(sa.select(_D.name).where(_D.webhook == _NEW).limit(1))


class DeliveryRenames(Observer):
    """Updates deliveries and jobs when a document or a Webhook is renamed (B-30, B-184)."""

    def __init__(self, subscriptions: SubscriptionCache) -> None:
        self._subscriptions = subscriptions

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Update the deliveries of a renamed document or Webhook.

        Raises: DuplicateError if the new name of a Webhook has deliveries of a deleted Webhook,
            which must not pass to another Webhook.
        """
        before, now = ordering_key_of(doctype, old), fw.tx.now
        webhooks = {name for (name,) in fw.tx.rows(_WEBHOOKS_WITH_KEY, before=before)}
        if doctype == "Webhook":
            webhooks.add(old)
        if webhooks:
            lock_claim_rows(fw.tx, sorted(webhooks))
        # Else only one transaction writes anyway, and SQLite would read all jobs in their order.
        if fw.tx.locks_rows:
            _lock_renamed(fw.tx, doctype, old)
        key = ordering_key_of(doctype, new)
        fw.tx.run(_MOVE_KEY, before=before, ordering_key=key, now=now)
        fw.tx.run(_MOVE_REFERENCES, doctype=doctype, old=old, new=new)
        if doctype == "Webhook":
            if fw.tx.one(_FIRST_OF_NEW_NAME, new=new) is not None:
                raise DuplicateError(
                    f"{new} is the name of a deleted Webhook with deliveries. Choose another name.",
                    field="name",
                )
            fw.tx.run(_MOVE_DELIVERIES, old=old, new=new)
            fw.tx.run(_MOVE_JOBS, old=old, new=new)
            fw.tx.run(_MOVE_ATTEMPTS, old=old, new=new)
            self._subscriptions.renew_after_commit(fw.tx)


def _lock_renamed(tx: Tx, doctype: str, old: str) -> None:
    """Lock the jobs and deliveries of a renamed document in the order of B-430."""
    if doctype == "Webhook":
        tx.scalar(_LOCK_JOBS, old=old)
    tx.scalar(_LOCK_JOBS_OF_REFERENCE, doctype=doctype, old=old)
    tx.scalar(_LOCK_REFERENCES, doctype=doctype, old=old)
