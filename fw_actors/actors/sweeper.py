"""Runs the sweeps: `core.services.auth.sweep` hourly, `core.services.webhooks.sweep` and
`core.services.audit.sweep` daily; and looks for dead receivers each minute.

Active if the scheduler is on (`ops.scheduler`). A sweep deletes in batches and pauses between them,
so that writers never wait long; two concurrent sweepers do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fw_actors.errors import OverloadedError
from fw_actors.ops.sweeps import BATCH, Batch
from fw_actors.runtime import Actor, Log, MailboxPolicy, Message, Overflow, handles
from fw_actors.store import Store

FIRST_AFTER_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.05
UNAVAILABLE_SECONDS: Final = 1.0
HOURLY: Final = 3600.0
DAILY: Final = 86_400.0
EACH_MINUTE: Final = 60.0


@dataclass(frozen=True)
class Schedule:
    """One sweep: its interval and its steps.

    A step is repeated as long as it returns at least `batch`. A `quiet` sweep logs no end.
    """

    every_seconds: float
    steps: tuple[Batch, ...]
    batch: int = BATCH
    quiet: bool = False


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
            if not schedule.quiet:
                self._log.info("sweep.done", sweep=message.name, deleted=message.deleted)
            self.context.after(schedule.every_seconds, Sweep(message.name))
            return
        try:
            count = await self._store.write(schedule.steps[message.step])
        except OverloadedError:
            self.context.after(UNAVAILABLE_SECONDS, message)  # repeats the step
            return
        following = message.step + (count < schedule.batch)
        self.context.after(PAUSE_SECONDS, Sweep(message.name, following, message.deleted + count))
