"""OutcomeWriter: records the outcomes of attempts, many in one transaction, and answers each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import Final, NamedTuple

from fw_actors.actors.queue_worker import UNAVAILABLE_SECONDS, write_patiently
from fw_actors.errors import OverloadedError
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.runtime import (
    Actor,
    Clock,
    Log,
    MailboxPolicy,
    Message,
    Overflow,
    PendingReply,
    Request,
    Timer,
    handles,
)
from fw_actors.store import Store, Tx
from fw_actors.webhooks.claims import LeasedDelivery
from fw_actors.webhooks.deliveries import AttemptOutcome, Deliveries, OutcomeBatch

MAX_BATCH: Final = 256
BATCH_SIZE: Final = 128  # or a quarter of all slots if less: each waiting outcome holds a slot
BATCH_SECONDS: Final = 0.01
ORDERED_BATCH_SECONDS: Final = 0.002  # the next delivery of a document waits for the outcome
FLUSH_INTERVAL_SECONDS: Final = 0.1  # the minimum interval between disk syncs


class Recorded(NamedTuple):
    """The recorded outcome of an attempt.

    `status` is None if nothing was written: `error` is the reason, or empty if the lease was lost
    because another process has the delivery. `next_at` (ms) is when the first retry of the same
    batch is due.
    """

    status: DeliveryStatus | None
    next_at: int | None = None
    error: str = ""


class Record(Request[Recorded], frozen=True):
    """Request to record the outcome of an attempt while its lease is valid."""

    leased: LeasedDelivery
    outcome: AttemptOutcome


Waiting = tuple[Record, PendingReply[Recorded]]


class Write(Message, frozen=True):
    """Write the collected outcomes; at most one is pending, and at most one timer."""

    timed: bool = False


class Flush(Message, frozen=True):
    """Flush the written outcomes to disk."""


class OutcomeWriter(Actor):
    """Collects outcomes while the store writes earlier ones, and writes them together.

    Under load writes are flushed to disk ten times a second rather than per batch, because claims
    would wait for each flush as well. If a power failure loses outcomes of that interval, their
    attempts count as interrupted and are repeated. A kill loses nothing that was written.

    The Dispatcher's slots bound the mailbox. A stop writes all outcomes; those that cannot be
    written lose their leases, and their deliveries are sent once more.
    """

    mailbox = MailboxPolicy(capacity=8192, overflow=Overflow.WAIT)

    def __init__(
        self, store: Store, deliveries: Deliveries, clock: Clock, log: Log, *, slots: int
    ) -> None:
        """`slots` is the maximum of deliveries in flight (`ops.deliveryConcurrency`)."""
        self._store, self._deliveries, self._clock, self._log = store, deliveries, clock, log
        self._batch_size = min(BATCH_SIZE, max(1, slots // 4))
        self._waiting: list[Waiting] = []
        self._write_pending = False
        self._timer: Timer | None = None
        self._written_at = -inf
        self._flush_interval = FLUSH_INTERVAL_SECONDS
        self._flushed_at = -inf
        self._has_unflushed = False

    async def started(self) -> None:
        """Keep the actor's own address, which each batch uses."""
        self._tell_self = self.context.ref.tell

    @handles(Record)
    def collect(self, message: Record) -> PendingReply[Recorded]:
        """Keep the outcome for the next transaction, after which it is answered.

        The first one after a pause is written at once, together with those in the mailbox.
        """
        reply: PendingReply[Recorded] = self.context.keep_reply()
        self._waiting.append((message, reply))
        if self._write_pending:
            return reply
        # Each commit occupies the store's thread, for which a claim may wait.
        seconds = ORDERED_BATCH_SECONDS if message.leased.ordered else BATCH_SECONDS
        is_full = len(self._waiting) >= self._batch_size
        if is_full or (self._timer is None and self._has_paused(seconds)):
            self._write_pending = self._tell_self(Write())
        elif self._timer is None:
            self._timer = self.context.after(seconds, Write(timed=True))
        return reply

    @handles(Write)
    async def write(self, message: Write) -> None:
        """Write the collected outcomes; after a timer, collect those in the mailbox first.

        Messages of timers alternate with those of the mailbox: if each write took longer than the
        timer, each group would have two outcomes.
        """
        if not message.timed:
            self._write_pending = False
            if self._timer is not None:
                self._timer.cancel()
        self._timer = None
        if message.timed and not self._write_pending:
            self._write_pending = self._tell_self(Write())
        if not self._write_pending:
            await self._write_all()

    @handles(Flush)
    async def flush(self, message: Flush) -> None:
        """Flush to disk, unless a batch has done so meanwhile."""
        if not self._has_unflushed:
            return
        try:
            await self._store.write(_nothing)
        except OverloadedError:
            self.context.after(UNAVAILABLE_SECONDS, Flush())
        else:
            self._record_write(durable=True)

    async def stopping(self) -> None:
        """Write the outcomes that arrived after the mailbox had closed."""
        self._flush_interval = 0.0
        await self._write_all()
        if self._has_unflushed:
            with suppress(OverloadedError):
                await self._store.write(_nothing)

    async def _write_all(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            await self._write_group(group)

    async def _write_group(self, group: Sequence[Waiting]) -> None:
        """Write a batch, or its outcomes one by one if that fails; answer all of them."""
        try:
            batch, statuses = await self._settle_group(group)
        except Exception as defect:
            if len(group) == 1:
                group[0][1].answer(Recorded(None, error=repr(defect)[:200]))
                return
            # One that cannot be written must not block the others.
            self._log.warning("delivery.group_split", size=len(group), error=repr(defect)[:200])
            for each in group:
                await self._write_group([each])
            return
        next_at = batch.next_at
        for (_, reply), status in zip(group, statuses, strict=True):
            reply.answer(Recorded(status, next_at))

    async def _settle_group(
        self, group: Sequence[Waiting]
    ) -> tuple[OutcomeBatch, Sequence[DeliveryStatus | None]]:
        """Write a group; retry while the store is unavailable and a lease is valid.

        Raises: OverloadedError if all leases have ended.
        """

        # On this thread, which would wait for Python code in the store's thread anyway.
        batch = self._deliveries.outcome_batch([(one.leased, one.outcome) for one, _ in group])

        async def write() -> Sequence[DeliveryStatus | None]:
            durable = self.context.time() - self._flushed_at >= self._flush_interval
            statuses = await self._store.write(
                lambda tx: self._deliveries.settle_all(tx, batch), durable=durable
            )
            self._record_write(durable=durable)
            return statuses

        statuses = await write_patiently(
            write, lambda: self._clock.now() >= max(one.leased.lease_end for one, _ in group)
        )
        return batch, statuses

    def _has_paused(self, seconds: float) -> bool:
        return self.context.time() - self._written_at >= seconds

    def _record_write(self, *, durable: bool) -> None:
        self._written_at = self.context.time()
        if durable:
            self._flushed_at = self._written_at
        elif not self._has_unflushed:
            self.context.after(FLUSH_INTERVAL_SECONDS, Flush())
        self._has_unflushed = not durable


def _nothing(tx: Tx) -> None:
    """Write nothing: a durable write still flushes to disk."""
