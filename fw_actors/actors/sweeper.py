"""Sweeper, and the sweeps that it runs: they delete expired rows in small batches.

Sweeper runs `core.services.auth.sweep` hourly, and `core.services.webhooks.sweep` and
`core.services.audit.sweep` daily. Each minute it takes a step for a dead receiver, and ends the
overlap of rotated secrets. It is active if the scheduler is on (`ops.scheduler`). It pauses between
batches, so that writers never wait long; two concurrent sweepers do no harm. Every rule holds
without it.

It also corrects times that were stored while the clock was ahead. Without that, locks, throttles,
sessions, links, API keys and pauses would last longer by the time that the clock was ahead, and
notices of failing Webhooks would be late by it.

Rules: O-70, O-71, O-74, B-280, O-87, O-163.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from fw_actors.access import api_keys, attempts, links, sessions
from fw_actors.access.known_origins import delete_unused_addresses, delete_unused_devices
from fw_actors.errors import OverloadedError
from fw_actors.ops import audit
from fw_actors.runtime import Actor, Log, MailboxPolicy, Message, Overflow, handles
from fw_actors.store import Store, Tx
from fw_actors.webhooks import erasure, health, pacing, signing_keys
from fw_actors.webhooks.deliveries import CLOCK_TOLERANCE_MS
from fw_actors.webhooks.erasure import payload_batches
from fw_actors.webhooks.health import drop_old_hours, drop_states_of_deleted

FIRST_AFTER_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 1.0
HOURLY: Final = 3600.0
DAILY: Final = 86_400.0
EACH_MINUTE: Final = 60.0
BATCH: Final = 1000

Batch = Callable[[Tx], int]
"""Deletes at most a batch of records and returns how many; fewer than `BATCH` ends the sweep."""


def auth_batches(lockout_minutes: int) -> tuple[Batch, ...]:
    """Return the steps of `core.services.auth.sweep`: sessions, links, login attempts, and known
    addresses and devices without recent sign-ins."""
    return (
        partial(sessions.delete_expired, limit=BATCH),
        partial(links.delete_expired, limit=BATCH),
        partial(attempts.delete_old, lockout_minutes=lockout_minutes, limit=BATCH),
        partial(delete_unused_addresses, limit=BATCH),
        partial(delete_unused_devices, limit=BATCH),
    )


def webhook_batches(retention_days: int, payload_days: float) -> tuple[Batch, ...]:
    """Return the steps of `core.services.webhooks.sweep`: final deliveries, or only their bodies,
    and counts that are not shown any more. 0 days keeps deliveries, or bodies, for ever."""
    deliveries = partial(erasure.delete_old, retention_days=retention_days, limit=BATCH)
    return (
        *([deliveries] if retention_days else []),
        *payload_batches(payload_days, BATCH),
        partial(drop_old_hours, limit=BATCH),
        partial(drop_states_of_deleted, limit=BATCH),
    )


def audit_batches(retention_days: int) -> tuple[Batch, ...]:
    """Return the step of `core.services.audit.sweep`; 0 days keeps Audit Events for ever."""
    if retention_days == 0:
        return ()
    return (partial(audit.delete_old, retention_days=retention_days, limit=BATCH),)


class ClockCorrection:
    """The step that corrects times that lie ahead: of sign-ins, sessions, links, API keys, and
    pauses and failures of Webhooks (O-163).

    It looks for such rows at its first call, since a clock is often corrected while the service is
    stopped, and after each call at which the clock had been set back.
    """

    def __init__(
        self,
        lockout_minutes: int,
        session_days: int,
        idle_days: int,
        corrected: Callable[[int], None],
    ) -> None:
        """`idle_days` is the policy's `sessionIdleDays`. `corrected` is called with the number of
        rows, after the commit."""
        self._lockout_minutes = lockout_minutes
        self._session_days, self._idle_days = session_days, idle_days
        self._corrected = corrected
        self._pending = True
        self._latest = 0

    def __call__(self, tx: Tx) -> int:
        """Correct a batch of rows of each kind; return how many were corrected."""
        self._pending = self._pending or tx.now < self._latest
        self._latest = tx.now
        if not self._pending:
            return 0
        ahead = tx.now + CLOCK_TOLERANCE_MS
        count = (  # in the order of locks: documents first (B-430)
            api_keys.correct_times(tx, ahead, BATCH)
            + pacing.correct_times(tx, ahead, BATCH)
            + signing_keys.correct_times(tx, ahead, BATCH)
            + attempts.correct_times(tx, ahead, self._lockout_minutes, BATCH)
            + sessions.correct_times(tx, ahead, self._session_days, self._idle_days, BATCH)
            + links.correct_times(tx, ahead, BATCH)
            + health.correct_times(tx, ahead, BATCH)
        )

        def done() -> None:
            self._pending = count > 0  # there may be another batch
            if count:
                self._corrected(count)

        tx.after_commit(done)
        return count


@dataclass(frozen=True)
class Schedule:
    """One sweep: its interval and its steps.

    A step is repeated as long as it returns at least `batch`. `log_end`: log the end of a sweep.
    """

    every_seconds: float
    steps: tuple[Batch, ...]
    batch: int = BATCH
    log_end: bool = True


class Sweep(Message, frozen=True):
    """Continue with step `step` of a sweep that has deleted `deleted` rows so far."""

    name: str
    step: int = 0
    deleted: int = 0


class Sweeper(Actor):
    """Runs the sweeps by their schedules."""

    mailbox = MailboxPolicy(capacity=16, overflow=Overflow.REFUSE)

    def __init__(self, store: Store, log: Log, schedules: Mapping[str, Schedule]) -> None:
        self._store, self._log, self._schedules = store, log, schedules

    async def started(self) -> None:
        """Sweep soon after the start: a process stopped every night would otherwise never sweep."""
        for name in self._schedules:
            self.context.after(FIRST_AFTER_SECONDS, Sweep(name))

    @handles(Sweep)
    async def sweep(self, message: Sweep) -> None:
        """Delete one batch; then continue, or sleep until the next sweep."""
        schedule = self._schedules[message.name]
        if message.step >= len(schedule.steps):
            if schedule.log_end:
                self._log.info("sweep.done", sweep=message.name, deleted=message.deleted)
            self.context.after(schedule.every_seconds, Sweep(message.name))
            return
        try:
            count = await self._store.write(schedule.steps[message.step])
        except OverloadedError:
            self.context.after(RETRY_SECONDS, message)  # repeats the step
            return
        step = message.step if count >= schedule.batch else message.step + 1
        self.context.after(PAUSE_SECONDS, Sweep(message.name, step, message.deleted + count))
