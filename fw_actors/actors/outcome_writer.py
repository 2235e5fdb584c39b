"""OutcomeWriter: records the outcomes of attempts, many in one transaction, and answers each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import Final, NamedTuple

import trio

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

MOST_AT_ONCE: Final = 256
ENOUGH: Final = 128  # or a quarter of all places, where that is less: who waits here holds one
GATHER_SECONDS: Final = 0.01
AGAIN_SECONDS: Final = 0.5
DISK_SECONDS: Final = 0.1  # between two waits for the disk


class Recorded(NamedTuple):
    """The outcome of an attempt as it stands in the store.

    `status` is None when nothing was written: `error` says why, or is empty when the lease was
    lost, because another process has the delivery. `next_at`: when the first retry among those
    recorded together is due (ms).
    """

    status: DeliveryStatus | None
    next_at: int | None = None
    error: str = ""


class Record(Request[Recorded], frozen=True):
    """An attempt has ended so; record it while its lease holds."""

    due: LeasedDelivery
    ended: AttemptOutcome


Waiting = tuple[Record, PendingReply[Recorded]]


class Write(Message, frozen=True):
    """Write what has come; at most one is under way."""


class WaitForDisk(Message, frozen=True):
    """See that the disk has what was written."""


class OutcomeWriter(Actor):
    """Collects outcomes while the store writes those before, and writes them together.

    Under load the disk is waited for ten times a second, not for each group, since all claims
    would wait as well. An outcome that a power failure takes back within that time is one of an
    attempt cut off: it is sent again. A kill takes nothing back that was written.

    What is in the mailbox is bounded by the Dispatcher's places. At a stop all of it is written;
    what can't be written is dropped with its lease, and is sent once more.
    """

    mailbox = MailboxPolicy(capacity=8192, overflow=Overflow.WAIT)

    def __init__(
        self,
        store: Store,
        deliveries: Deliveries,
        clock: Clock,
        log: Log,
        *,
        places: int,
    ) -> None:
        """`places`: how many deliveries are in flight at most (`ops.deliveryConcurrency`)."""
        self._store, self._deliveries, self._clock, self._log = store, deliveries, clock, log
        self._enough = min(ENOUGH, max(1, places // 4))
        self._waiting: list[Waiting] = []
        self._write_waits = False
        self._timer: Timer | None = None
        self._disk_seconds = DISK_SECONDS
        self._on_disk_at = -inf
        self._ahead_of_disk = False

    @handles(Record)
    def collect(self, message: Record) -> None:
        """Keep the outcome for the next transaction; the answer comes after it."""
        self._waiting.append((message, self.context.keep_reply()))
        if self._write_waits:
            return
        if len(self._waiting) >= self._enough:
            self._write_waits = self.context.ref.tell(Write())
        elif self._timer is None:
            # Each commit takes the store's thread from a claim that may wait for it.
            self._timer = self.context.after(GATHER_SECONDS, Write())

    @handles(Write)
    async def write(self, message: Write) -> None:
        """Write what was collected."""
        self._write_waits = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._write_all()

    @handles(WaitForDisk)
    async def wait_for_disk(self, message: WaitForDisk) -> None:
        """Wait for the disk, unless a group did so meanwhile."""
        if not self._ahead_of_disk:
            return
        try:
            await self._store.write(_nothing)
        except OverloadedError:
            self.context.after(AGAIN_SECONDS, WaitForDisk())
        else:
            self._written(durable=True)

    async def stopping(self) -> None:
        """Write what came after the mailbox closed to our own messages."""
        self._disk_seconds = 0.0
        await self._write_all()
        if self._ahead_of_disk:
            with suppress(OverloadedError):
                await self._store.write(_nothing)

    async def _write_all(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            await self._write_group(group)

    async def _write_group(self, group: Sequence[Waiting]) -> None:
        """Write a group, or each of it alone where that fails; answer all of it."""
        try:
            judged, statuses = await self._settled(group)
        except Exception as defect:
            if len(group) == 1:
                group[0][1].answer(Recorded(None, error=repr(defect)[:200]))
                return
            # One that can't be written must not hold up the others.
            self._log.warning("delivery.group_split", size=len(group), error=repr(defect)[:200])
            for each in group:
                await self._write_group([each])
            return
        next_at = judged.next_at
        for (_, reply), status in zip(group, statuses, strict=True):
            reply.answer(Recorded(status, next_at))

    async def _settled(
        self, group: Sequence[Waiting]
    ) -> tuple[OutcomeBatch, Sequence[DeliveryStatus | None]]:
        """Write a group; a store that can't take it is asked again while a lease holds.

        Raises: OverloadedError when all leases have ended.
        """

        # On this thread: what the store's does in Python, this one waits for.
        judged = self._deliveries.judged([(one.due, one.ended) for one, _ in group])
        while True:
            durable = self.context.time() - self._on_disk_at >= self._disk_seconds
            try:
                statuses = await self._store.write(
                    lambda tx: self._deliveries.settle_all(tx, judged), durable=durable
                )
            except OverloadedError:
                if self._clock.now() >= max(one.due.lease_end for one, _ in group):
                    raise
                await trio.sleep(AGAIN_SECONDS)
            else:
                self._written(durable=durable)
                return judged, statuses

    def _written(self, *, durable: bool) -> None:
        if durable:
            self._on_disk_at = self.context.time()
        elif not self._ahead_of_disk:
            self.context.after(DISK_SECONDS, WaitForDisk())
        self._ahead_of_disk = not durable


def _nothing(tx: Tx) -> None:
    """Write nothing: a durable write waits for the disk all the same."""
