"""Deliveries in the store: what can start now, and what came of an attempt.

Rules: `fw_actors.rules.delivery_outcome`. Plain functions inside a transaction; who calls them
are the Dispatcher (claim) and the DeliveryActor (settle, give back).
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
import sqlalchemy as sa

from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.registry import Registry
from fw_actors.rules.delivery_outcome import (
    LEASE_MARGIN_SECONDS,
    Backoff,
    Ending,
    Status,
    judge,
)
from fw_actors.services.events import QUEUE
from fw_actors.store import LeasedJob, Statement, Tx, jobs

KEPT_BYTES: Final = 512
_ERROR_CHARACTERS: Final = 500
_DEFAULT_TIMEOUT: Final = 10  # of a Webhook that is gone; only the lease needs it


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


class Ended(msgspec.Struct, frozen=True):
    """How an attempt ended; `error` is empty after a 2xx."""

    ending: Ending
    at: int
    duration_ms: int = 0
    response_status: int | None = None
    response_body: bytes | None = None
    error: str = ""


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
        hooks = registry.tables["Webhook"].table.c
        deliveries = registry.tables["Webhook Delivery"].table
        d = deliveries.c
        name: sa.BindParameter[Any] = sa.bindparam("key")
        self._backoff = backoff
        self._hook = Statement(
            sa.select(hooks.enabled, hooks.url, hooks.timeout, hooks.secret, hooks[ROW_ID]).where(
                hooks.name == name
            )
        )
        self._read = Statement(
            sa.select(d.payload, d.attempts, d.max_attempts, d.status).where(d.name == name)
        )
        self._settle = Statement(
            sa.update(deliveries)
            .where(d.name == name)
            .values({n: sa.bindparam(n) for n in _OUTCOME})
        )

    @property
    def longest_wait(self) -> float:
        """Seconds: no attempt waits longer for the next one."""
        return self._backoff.cap

    def claim(self, tx: Tx, places: Places, token: Callable[[], str]) -> Batch:
        """Lease what is due and has a place; the Webhook that waits longest first."""
        due: list[Due] = []
        later: list[int] = []
        more = False
        for head in sorted(jobs.heads(tx, QUEUE), key=lambda head: (head.next_at, head.partition)):
            if head.next_at > tx.now:
                later.append(head.next_at)
                continue
            hook = self._hook_of(tx, head.partition)
            free = places.free(hook)
            if free > 0:
                leased = self._lease(tx, hook, head.partition, free, token())
                places.take(hook, len(leased))
                due += leased
                more = more or len(leased) == free
            else:
                more = True
        return Batch(due, more, min(later, default=None))

    def _hook_of(self, tx: Tx, name: str) -> Hook | None:
        row = tx.one(self._hook, key=name)
        return None if row is None else Hook(name, bool(row[0]), row[1], row[2], row[3], row[4])

    def _lease(self, tx: Tx, hook: Hook | None, webhook: str, free: int, token: str) -> list[Due]:
        timeout = hook.timeout if hook is not None else _DEFAULT_TIMEOUT
        lease_ms = (timeout + LEASE_MARGIN_SECONDS) * 1000
        found = []
        for job in jobs.claim(tx, QUEUE, webhook, free, lease_ms, token):
            row = tx.one(self._read, key=job.subject)
            if row is None:  # swept away; its job has nothing left to do
                jobs.finish(tx, job.id, job.lease)
                continue
            found.append(Due(job, hook, tx.now + lease_ms, job.subject, row[0].encode(), *row[1:]))
        return found

    def settle(self, tx: Tx, due: Due, ended: Ended) -> Status | None:
        """Write an attempt's outcome, fenced by the lease's token.

        Returns: the new status, or None when the lease is lost and nothing was written.
        """
        verdict = judge(
            ended.ending,
            attempts_before=due.attempts,
            max_attempts=due.max_attempts,
            ended=ended.at,
            backoff=self._backoff,
        )
        if not _settle_job(tx, due.job, verdict.status, verdict.next_attempt, ended.error):
            return None
        body = ended.response_body
        tx.run(
            self._settle,
            key=due.delivery,
            status=verdict.status.value,
            attempts=verdict.attempts,
            next_attempt=verdict.next_attempt,
            last_attempt=ended.at,
            response_status=ended.response_status,
            response_body=None if body is None else readable(body),
            error=ended.error[:_ERROR_CHARACTERS] or None,
            duration_ms=ended.duration_ms,
            sent=ended.at if verdict.status is Status.SENT else None,
            modified=ended.at,
        )
        return verdict.status

    def give_back(self, tx: Tx, due: Due) -> bool:
        """Give a lease back; the attempt is not counted. False when it was lost before."""
        return jobs.give_back(tx, due.job.id, due.job.lease)


_OUTCOME: Final = (
    "status",
    "attempts",
    "next_attempt",
    "last_attempt",
    "response_status",
    "response_body",
    "error",
    "duration_ms",
    "sent",
    "modified",
)


def _settle_job(
    tx: Tx, job: LeasedJob, status: Status, next_attempt: int | None, error: str
) -> bool:
    """The fence: no row of this lease, no outcome."""
    if next_attempt is not None:
        return jobs.retry(tx, job.id, job.lease, next_attempt, error)
    if status is Status.SENT:
        return jobs.finish(tx, job.id, job.lease)
    return jobs.fail(tx, job.id, job.lease, error)


def readable(body: bytes) -> str:
    """Return the first 512 bytes as text: no half character at the cut, bad bytes replaced."""
    cut = len(body) >= KEPT_BYTES
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return decoder.decode(body[:KEPT_BYTES], final=not cut).replace("\x00", "\ufffd")
