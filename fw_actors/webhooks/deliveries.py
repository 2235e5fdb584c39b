"""Deliveries in the store: outcomes of attempts, retries, leases given back.

Rules: `fw_actors.rules.delivery`. Plain functions that run inside a transaction, called by the
Dispatcher (claim), the OutcomeWriter (outcomes) and the DeliveryActor (give back).
"""

from __future__ import annotations

import codecs
from collections.abc import Container, Sequence
from typing import Final, NamedTuple

import msgspec
import sqlalchemy as sa

from fw_actors.documents.registry import Registry
from fw_actors.http import Times
from fw_actors.rules.delivery import (
    MAX_SECONDS,
    Backoff,
    DeliveryStatus,
    Ending,
    Verdict,
    decide,
)
from fw_actors.rules.signing import SignedHeaders
from fw_actors.store import AllRows, JsonRows, Statement, Tx, jobs, rows_as_json
from fw_actors.store.jobs import held_of
from fw_actors.store.ordered_jobs import OrderedJob, held_ordered, leave, next_after
from fw_actors.store.schema import JOB
from fw_actors.webhooks.attempts import NO_ITEM, keep_before_outcomes, shown_url, written_trace
from fw_actors.webhooks.claims import DeliveryClaims, LeasedDelivery
from fw_actors.webhooks.health import Noted, add_tallies, tallies_of
from fw_actors.webhooks.pacing import lock_turns

KEPT_BYTES: Final = 512
_ERROR_CHARACTERS: Final = 500


class AttemptOutcome(msgspec.Struct, frozen=True):
    """The result of an attempt; `error` is empty after a 2xx.

    `wait_seconds` is the receiver's Retry-After, where it is honoured. `times` are None where no
    connection was needed; `address` is that of the receiver; `signed` are the headers that were
    sent, if it came to that.
    """

    ending: Ending
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
the attempt, the others are in the order of `values`."""


def values(ended: AttemptOutcome, verdict: Verdict) -> tuple[int | str | None, ...]:
    """Return the values that an outcome writes, in the order of `COLUMNS` without the trace."""
    body = ended.response_body
    return (
        verdict.status,
        verdict.attempts,
        verdict.next_attempt,
        ended.at,
        ended.response_status,
        None if body is None else readable(body),
        error_of(ended) or None,
        ended.duration_ms,
    )


def error_of(ended: AttemptOutcome) -> str:
    """Return the error as stored: text valid in every store, cut to the column's length."""
    if not ended.error:
        return ""
    return ended.error[:_ERROR_CHARACTERS].replace("\x00", "\ufffd")


def readable(body: bytes) -> str:
    """Return the first 512 bytes as text, cut between characters, invalid bytes replaced."""
    if not body:
        return ""
    cut = len(body) >= KEPT_BYTES
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return decoder.decode(body[:KEPT_BYTES], final=not cut).replace("\x00", "\ufffd")


MAX_DRAINED: Final = 1000
"""The deliveries of a document that follow one that is final, if they need no order any more."""
FINAL_STATUSES: Final = (DeliveryStatus.SENT, DeliveryStatus.FAILED)
_NO_JOB: Final = 0  # job numbers start at 1
_FIRST: Final = 2
"""The index of the first of the columns in a row of `OutcomeBatch`, after job and token."""


class OutcomeBatch(NamedTuple):
    """The outcomes of attempts, ready to be written; made by `outcome_batch`.

    `again`: those of deliveries that were tried before. `tallies` is what they add to their
    Webhooks: the sum of `noted`. `ordered`: those whose jobs have ordering keys, and `drained` the
    jobs among them whose Webhooks need no order any more.
    """

    held: list[tuple[int, str]]
    statuses: list[DeliveryStatus]
    rows: str
    sent: list[tuple[int, str]]
    others: list[jobs.Settlement]
    again: list[tuple[int, str]]
    noted: list[Noted]
    tallies: str
    ordered: list[tuple[int, str]]
    drained: set[int]

    @property
    def next_at(self) -> int | None:
        """The time when the first of the retries is due (ms); 0 where others may be due by now."""
        if self.ordered:
            return 0
        return min((one.next_at for one in self.others if one.next_at is not None), default=None)


class Deliveries(DeliveryClaims):
    """Claims deliveries of the `webhook` queue and writes their outcomes."""

    def __init__(
        self, registry: Registry, backoff: Backoff, worker: str = "", *, traced: bool = False
    ) -> None:
        """`worker` names the process in the records of its attempts; `traced`: as of claims."""
        super().__init__(registry, traced=traced)
        deliveries = registry.tables["Webhook Delivery"].table
        settled = JsonRows("settled")
        self._backoff = backoff
        held = held_of(
            settled,
            **{name: settled.item(at, COLUMNS[name]) for at, name in enumerate(COLUMNS, _FIRST)},
        ).c
        self._settle = Statement(
            sa.update(deliveries)
            .where(deliveries.c.name == held.subject)
            .values(
                {name: held[name] for name in COLUMNS}
                | {
                    "sent": sa.case((held.status == DeliveryStatus.SENT.value, held.last_attempt)),
                    "modified": held.last_attempt,
                    "trace": held.trace.concat(f" {worker or NO_ITEM}"),
                }
            )
        )
        leased = sa.select(JOB.c.id).where(
            JOB.c.id == settled.item(0, int), JOB.c.lease == settled.item(1, str)
        )
        self._lost = Statement(
            sa.select(AllRows(settled.item(0, int), settled.item(1, str)))
            .select_from(settled.table)
            .where(~leased.correlate(settled.table).exists())
        )

    @property
    def longest_wait(self) -> float:
        """The longest wait between two attempts in seconds, whatever a receiver requests."""
        return max(self._backoff.cap, MAX_SECONDS)

    def warm_up(self, tx: Tx) -> None:
        """Run the statements of claims and outcomes over no rows.

        Otherwise the first event after a start waits 10 ms for their compilation.
        """
        self.warm_up_claims(tx)
        jobs.delete_held(tx, (_NO_JOB,))
        self.settle_all(tx, self.outcome_batch(()))

    def outcome_batch(
        self, attempts: Sequence[tuple[LeasedDelivery, AttemptOutcome]]
    ) -> OutcomeBatch:
        """Decide the status of finished attempts, and encode the batch for `settle_all`."""
        ready = OutcomeBatch([], [], "", [], [], [], [], "", [], set())
        rows = []
        for due, ended in attempts:
            verdict = decide(
                ended.ending,
                attempts_before=due.attempts,
                max_attempts=due.max_attempts,
                ended=ended.at,
                backoff=self._backoff,
                at_least=ended.wait_seconds,
            )
            job, token = due.job.id, due.job.lease
            ready.held.append((job, token))
            ready.statuses.append(verdict.status)
            if verdict.status is DeliveryStatus.SENT:
                ready.sent.append((job, token))
            else:
                settled = jobs.Settlement(job, token, verdict.next_attempt, error_of(ended))
                ready.others.append(settled)
            url = "" if due.hook is None else shown_url(due.hook.url)
            trace = written_trace(ended.times, ended.signed, ended.address, url)
            rows.append((job, token, *values(ended, verdict), trace))
            if due.attempts:
                ready.again.append((job, token))
            if due.ordered:
                ready.ordered.append((job, token))
                if due.hook is None or not due.hook.ordered or not due.hook.enabled:
                    ready.drained.add(job)
            ready.noted.append((due.job.partition, verdict.status, ended.at, error_of(ended)))
        return ready._replace(rows=rows_as_json(rows), tallies=tallies_of(ready.noted))

    def settle_all(self, tx: Tx, batch: OutcomeBatch) -> Sequence[DeliveryStatus | None]:
        """Write outcomes: all of them by one statement, on condition of the leases' tokens.

        Returns: the new statuses; None for a lost lease, of which nothing is written.
        """
        statuses: Sequence[DeliveryStatus | None] = batch.statuses
        lost: set[tuple[int, str]] = set()
        with_keys = held_ordered(tx, batch.ordered) if batch.ordered else []
        if batch.again:
            keep_before_outcomes(tx, batch.again)
        if tx.run(self._settle, settled=batch.rows) < len(statuses):
            found = msgspec.json.decode(tx.scalar(self._lost, settled=batch.rows))
            lost = {(job, token) for job, token in found}
            statuses = [
                None if held in lost else status
                for held, status in zip(batch.held, statuses, strict=True)
            ]
        tallies = batch.tallies
        if lost:
            pairs = zip(batch.held, batch.noted, strict=True)
            tallies = tallies_of(noted for held, noted in pairs if held not in lost)
        add_tallies(tx, tallies)
        jobs.delete_held(tx, [held[0] for held in batch.sent if held not in lost])
        if batch.others:
            jobs.settle_all(tx, batch.others)  # fenced by the tokens too
        if with_keys:
            recorded = zip(batch.held, statuses, strict=True)
            final = {held[0] for held, status in recorded if status in FINAL_STATUSES}
            sent = {held[0] for held in batch.sent}  # those jobs are deleted
            _release_followers(
                tx, [job for job in with_keys if job.id in final], sent, batch.drained
            )
        return statuses

    def give_back(self, tx: Tx, due: LeasedDelivery) -> bool:
        """Give a lease back without counting the attempt. Returns False if it was lost before."""
        held = (due.job.id, due.job.lease)
        with_keys = held_ordered(tx, [held]) if due.ordered else []
        given_back = jobs.give_back(tx, *held)
        if with_keys:
            lock_turns(tx, [with_keys[0].partition])
            next_after(tx, with_keys)
        return given_back


def _release_followers(
    tx: Tx, ended: Sequence[OrderedJob], sent: Container[int], drained: Container[int]
) -> None:
    """Have the next deliveries of documents follow those that are final."""
    if ended:
        lock_turns(tx, sorted({job.partition for job in ended}))
        leave(tx, [job for job in ended if job.id not in drained], deleted=sent)
        leave(tx, [job for job in ended if job.id in drained], deleted=sent, most=MAX_DRAINED)
