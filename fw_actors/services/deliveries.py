"""Deliveries in the store: what can start now, and what came of an attempt.

Rules: `fw_actors.rules.delivery_outcome`. Plain functions inside a transaction; who calls them
are the Dispatcher (claim) and the DeliveryActor (settle, give back).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core.webhook import DEFAULT_TIMEOUT
from fw_actors.documents.registry import Registry
from fw_actors.rules.delivery_outcome import (
    LEASE_MARGIN_SECONDS,
    Backoff,
    Status,
    Verdict,
    judge,
)
from fw_actors.rules.retry_after import LONGEST_SECONDS
from fw_actors.services.delivery_endings import COLUMNS, Ended, columns, error_of
from fw_actors.services.delivery_rows import DeliveryRows, Due, Hook, Lease
from fw_actors.services.events import QUEUE
from fw_actors.store import JsonRows, LeasedJob, Statement, Tx, jobs, rows_as_json


class Batch(msgspec.Struct, frozen=True):
    """What one look at the queue gave.

    `more` says that rows may be due which found no place, `next_at` when the next one will be.
    """

    due: list[Due]
    more: bool
    next_at: int | None


class Places(Protocol):
    """Says what may start now, and is told what does."""

    def free(self, hook: Hook | None) -> int:
        """Return how many deliveries of a Webhook may start; None is one that was deleted."""

    def take(self, hook: Hook | None, count: int) -> None:
        """So many of them were leased."""


class Deliveries:
    """The statements over Webhook Delivery, Webhook and the `webhook` queue."""

    def __init__(self, registry: Registry, backoff: Backoff) -> None:
        deliveries = registry.tables["Webhook Delivery"].table
        d = deliveries.c
        name: sa.BindParameter[Any] = sa.bindparam("key")
        self._backoff = backoff
        self._rows = DeliveryRows(registry)
        self._settle = Statement(
            sa.update(deliveries)
            .where(d.name == name)
            .values({n: sa.bindparam(n) for n in COLUMNS})
        )
        ended = JsonRows("ended")
        self._settle_all = Statement(
            sa.update(deliveries)
            .where(d.name == ended.item(0, str))
            .values({n: ended.item(at, COLUMNS[n]) for at, n in enumerate(COLUMNS, 1)})
        )

    @property
    def longest_wait(self) -> float:
        """Seconds: no attempt waits longer for the next one, whatever a receiver asks for."""
        return max(self._backoff.cap, LONGEST_SECONDS)

    def claim(self, tx: Tx, places: Places, token: str) -> Batch:
        """Lease what is due and has a place; the Webhook that waits longest first."""
        heads = jobs.heads(tx, QUEUE)
        ready = sorted((head.next_at, head.partition) for head in heads if head.next_at <= tx.now)
        hooks = self._rows.hooks(tx, [webhook for _, webhook in ready])
        later = [head.next_at for head in heads if head.next_at > tx.now]
        due: list[Due] = []
        more = False
        for _, webhook in ready:
            hook = hooks.get(webhook)
            free = places.free(hook)
            if free <= 0:
                more = True
                continue
            leased = self._lease(tx, webhook, hook, free, token)
            places.take(hook, len(leased))
            due += leased
            if len(leased) == free:
                more = True
            elif (following := jobs.following(tx, QUEUE, webhook)) is not None:
                later.append(following)  # what was due stood before it
        return Batch(due, more, min(later, default=None))

    def _lease(self, tx: Tx, webhook: str, hook: Hook | None, free: int, token: str) -> list[Due]:
        timeout = hook.timeout if hook is not None else DEFAULT_TIMEOUT
        lease_ms = (timeout + LEASE_MARGIN_SECONDS) * 1000
        if not jobs.lease(tx, QUEUE, webhook, free, lease_ms, token):
            return []  # another process has them
        due, swept = self._rows.leased(tx, webhook, Lease(hook, tx.now + lease_ms), token)
        for job in swept:  # what it was to deliver is gone
            jobs.finish(tx, job, token)
        return due

    def hook(self, tx: Tx, name: str) -> Hook | None:
        """Return a Webhook as it is now; None when there is none."""
        return self._rows.hooks(tx, [name]).get(name)

    def settle_all(self, tx: Tx, attempts: Sequence[tuple[Due, Ended]]) -> list[Status | None]:
        """Write many outcomes, each fenced by its lease's token: all in three statements, or one
        by one where one of the leases is lost.

        Returns: the new statuses, None for a lease that is lost.
        """
        verdicts = [self._verdict(due, ended) for due, ended in attempts]
        if len(attempts) > 1:
            with suppress(_LeaseLost), tx.savepoint():
                self._settle_held(tx, attempts, verdicts)
                return [verdict.status for verdict in verdicts]
        return [
            self._settle_one(tx, due, ended, verdict)
            for (due, ended), verdict in zip(attempts, verdicts, strict=True)
        ]

    def settle(self, tx: Tx, due: Due, ended: Ended) -> Status | None:
        """Write an attempt's outcome, fenced by the lease's token.

        Returns: the new status, or None when the lease is lost and nothing was written.
        """
        return self.settle_all(tx, [(due, ended)])[0]

    def _verdict(self, due: Due, ended: Ended) -> Verdict:
        return judge(
            ended.ending,
            attempts_before=due.attempts,
            max_attempts=due.max_attempts,
            ended=ended.at,
            backoff=self._backoff,
            at_least=ended.wait_seconds,
        )

    def _settle_held(
        self, tx: Tx, attempts: Sequence[tuple[Due, Ended]], verdicts: Sequence[Verdict]
    ) -> None:
        """Raises: _LeaseLost, when not all of the leases hold."""
        sent: list[tuple[int, str]] = []
        others: list[jobs.Settlement] = []
        rows = []
        for (due, ended), verdict in zip(attempts, verdicts, strict=True):
            job = due.job
            if verdict.status is Status.SENT:
                sent.append((job.id, job.lease))
            else:
                others.append(
                    jobs.Settlement(job.id, job.lease, verdict.next_attempt, error_of(ended))
                )
            rows.append((due.delivery, *columns(ended, verdict).values()))
        # The fence: it comes first, and holds the jobs' rows until the end of the transaction.
        if jobs.finish_all(tx, sent) + jobs.settle_all(tx, others) != len(attempts):
            raise _LeaseLost
        tx.run(self._settle_all, ended=rows_as_json(rows))

    def _settle_one(self, tx: Tx, due: Due, ended: Ended, verdict: Verdict) -> Status | None:
        if not _settle_job(tx, due.job, verdict.status, verdict.next_attempt, error_of(ended)):
            return None
        tx.run(self._settle, key=due.delivery, **columns(ended, verdict))
        return verdict.status

    def give_back(self, tx: Tx, due: Due) -> bool:
        """Give a lease back; the attempt is not counted. False when it was lost before."""
        return jobs.give_back(tx, due.job.id, due.job.lease)


class _LeaseLost(Exception):
    """Raised when not all of a group's leases hold."""


def _settle_job(
    tx: Tx, job: LeasedJob, status: Status, next_attempt: int | None, error: str
) -> bool:
    """The fence: no row of this lease, no outcome."""
    if next_attempt is not None:
        return jobs.retry(tx, job.id, job.lease, next_attempt, error)
    if status is Status.SENT:
        return jobs.finish(tx, job.id, job.lease)
    return jobs.fail(tx, job.id, job.lease, error)
