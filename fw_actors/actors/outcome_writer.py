"""Writes what came of attempts, those that ended meanwhile in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import Final

import trio

from fw_actors.actors.counters import DeliveryMeter
from fw_actors.errors import OverloadedError
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.runtime import (
    Actor,
    Clock,
    Log,
    MailboxPolicy,
    Message,
    Overflow,
    Ref,
    Timer,
    handles,
)
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store import Store, Tx
from fw_actors.webhooks.claims import Due
from fw_actors.webhooks.deliveries import Deliveries, Ended, Judged

MOST_AT_ONCE: Final = 256
ENOUGH: Final = 128  # or a quarter of all places, where that is less: who waits here holds one
GATHER_SECONDS: Final = 0.01
AGAIN_SECONDS: Final = 0.5
DISK_SECONDS: Final = 0.1  # between two waits for the disk


class Settle(Message, frozen=True):
    """An attempt has ended so; write it while its lease holds."""

    due: Due
    ended: Ended


class Settled(Message, frozen=True):
    """For the Dispatcher: so many deliveries are held in memory no longer.

    `next_at`: when the first of those that are tried again is due (ms).
    """

    count: int
    next_at: int | None = None


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
        dispatcher: Ref,
        meter: DeliveryMeter,
        *,
        places: int,
    ) -> None:
        """`meter` is told of each attempt whose outcome was written; `places`: the Dispatcher's."""
        self._store, self._deliveries, self._clock = store, deliveries, clock
        self._log, self._dispatcher, self._meter = log, dispatcher, meter
        self._enough = min(ENOUGH, max(1, places // 4))
        self._waiting: list[Settle] = []
        self._write_waits = False
        self._timer: Timer | None = None
        self._disk_seconds = DISK_SECONDS
        self._on_disk_at = -inf
        self._ahead_of_disk = False

    @handles(Settle)
    def collect(self, message: Settle) -> None:
        """Keep it for the next transaction."""
        self._waiting.append(message)
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
            retries: list[int] = []
            try:
                await self._write_group(group, retries)
            finally:
                self._dispatcher.tell(Settled(len(group), min(retries, default=None)))

    async def _write_group(self, group: Sequence[Settle], retries: list[int]) -> None:
        """Write a group, or each of it alone; when a first retry is due goes into `retries`."""
        try:
            judged, statuses = await self._settled(group)
        except Exception as defect:
            if len(group) == 1:
                self._lose(group[0], repr(defect)[:200])
                return
            # One that can't be written must not hold up the others.
            self._log.warning("delivery.group_split", size=len(group), error=repr(defect)[:200])
            for outcome in group:
                await self._write_group([outcome], retries)
            return
        if judged.next_at is not None:
            retries.append(judged.next_at)
        for outcome, status in zip(group, statuses, strict=True):
            self._tell(outcome, status)

    async def _settled(
        self, group: Sequence[Settle]
    ) -> tuple[Judged, Sequence[DeliveryStatus | None]]:
        """Write a group; a store that can't take it is asked again while a lease holds.

        Raises: OverloadedError when all leases have ended.
        """

        # On this thread: what the store's does in Python, this one waits for.
        judged = self._deliveries.judged([(one.due, one.ended) for one in group])
        while True:
            durable = self.context.time() - self._on_disk_at >= self._disk_seconds
            try:
                statuses = await self._store.write(
                    lambda tx: self._deliveries.settle_all(tx, judged), durable=durable
                )
            except OverloadedError:
                if self._clock.now() >= max(one.due.lease_end for one in group):
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

    def _lose(self, outcome: Settle, error: str) -> None:
        self._log.error("delivery.outcome_lost", delivery=outcome.due.delivery, error=error)

    def _tell(self, outcome: Settle, status: DeliveryStatus | None) -> None:
        due, ended = outcome.due, outcome.ended
        if status is None:
            self._log.warning("delivery.lease_lost", delivery=due.delivery)
            return
        self._measure(due, ended, status)
        # One that arrived is told to those who ask for it: at thousands a second, its line costs
        # more than its way.
        tell = self._log.debug if status is DeliveryStatus.SENT else self._log.info
        tell(
            "delivery.ended",
            delivery=due.delivery,
            webhook=due.job.partition,
            status=str(status),
            attempt=due.attempts + 1,
            response_status=ended.response_status,
            duration_ms=ended.duration_ms,
            error=ended.error or None,
        )

    def _measure(self, due: Due, ended: Ended, status: str) -> None:
        """Count it; the first attempt also tells how long its event had waited to be sent."""
        self._meter.add(status)
        self._meter.took.observe(ended.duration_ms / MS_PER_SECOND)
        if due.attempts == 0 and due.job.deaths == 0:
            began = ended.at - ended.duration_ms
            self._meter.waited.observe((began - due.job.created) / MS_PER_SECOND)


def _nothing(tx: Tx) -> None:
    """Write nothing: a durable write waits for the disk all the same."""
