"""Replayer: carries out bulk replays, batch by batch."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Final

from fw_actors.actors.queue_worker import REST_SECONDS, WakeUp
from fw_actors.errors import QUERY_TIMEOUT, FwError, OverloadedError
from fw_actors.ops.site import Site
from fw_actors.runtime import Actor, Log, MailboxPolicy, Overflow, handles
from fw_actors.webhooks.bulk_replay import ReplayRun

PAUSE_SECONDS: Final = 0.05
UNAVAILABLE_SECONDS: Final = 1.0
A_DEFECT: Final = "A defect ended the run; see the log and the Error Log."


class Replayer(Actor):
    """Carries out the current bulk replay. Several on one store cost only wasted polls."""

    mailbox = MailboxPolicy(capacity=16, overflow=Overflow.REFUSE)

    def __init__(self, site: Site, log: Log) -> None:
        self._site, self._log = site, log
        self._pending = False
        self._looked_at = -inf

    async def started(self) -> None:
        """Resume a run that a previous process left."""
        self._after(UNAVAILABLE_SECONDS)

    @handles(WakeUp)
    async def go_on(self, message: WakeUp) -> None:
        """Carry out one batch; then continue, or sleep until a run begins."""
        rest = self._looked_at + REST_SECONDS - self.context.time() if message.elsewhere else 0.0
        if rest > 0.0:
            self._after(rest)
            return
        self._looked_at = self.context.time()
        self._pending = False
        bulk, store = self._site.bulk, self._site.store
        try:
            run = await store.read(bulk.running)
            if run is None:
                return
            await self._batch(run)
        except OverloadedError:
            self._after(UNAVAILABLE_SECONDS)
        else:
            self._after(PAUSE_SECONDS)

    async def _batch(self, run: ReplayRun) -> None:
        """Carry out one batch; a permanent error ends the run instead of repeating."""
        site, bulk = self._site, self._site.bulk
        try:
            deliveries = await site.read(run.user, lambda fw: bulk.batch(fw, run))
            await site.write(
                run.user, lambda fw: bulk.carry_out(fw, run, deliveries), run.request_id
            )
            return
        except OverloadedError as error:
            if error.extra.get("reason") != QUERY_TIMEOUT:
                raise
            reason = error.message  # it would take as long the next time
        except FwError as error:  # the user that began the run no longer exists
            reason = error.message
        except Exception as error:
            self._log.error("replay.ended_by_defect", run=run.id, exc_info=error)
            site.errors.note("replay of many", error, run.request_id)
            reason = A_DEFECT
        await site.store.write(partial(bulk.give_up, run=run, reason=reason))

    def _after(self, seconds: float) -> None:
        """Keep at most one wake-up of its own pending, however many others arrive."""
        if not self._pending:
            self._pending = True
            self.context.after(seconds, WakeUp())
