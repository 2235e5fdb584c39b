"""Carries out the replay of many, batch after batch, for as long as there is one to carry out."""

from __future__ import annotations

from functools import partial
from typing import Final

from fw_actors.actors.queue_worker import WakeUp
from fw_actors.errors import QUERY_TIMEOUT, FwError, OverloadedError
from fw_actors.ops.site import Site
from fw_actors.runtime import Actor, Log, MailboxPolicy, Overflow, handles
from fw_actors.webhooks.replay import ReplayRun

PAUSE_SECONDS: Final = 0.05
AFTER_TROUBLE_SECONDS: Final = 1.0
A_DEFECT: Final = "A defect ended it; the log and the Error Log tell which."


class Replayer(Actor):
    """See the module. Several on one store hold each other up by no more than a wasted look."""

    mailbox = MailboxPolicy(capacity=16, overflow=Overflow.REFUSE)

    def __init__(self, site: Site, log: Log) -> None:
        self._site, self._log = site, log
        self._comes = False

    async def started(self) -> None:
        """Go on with what a process before this one has left."""
        self._after(AFTER_TROUBLE_SECONDS)

    @handles(WakeUp)
    async def go_on(self, _message: WakeUp) -> None:
        """Carry out one batch; then come again, or rest until a run is begun."""
        self._comes = False
        bulk, store = self._site.bulk, self._site.store
        try:
            run = await store.read(bulk.running)
            if run is None:
                return
            await self._batch(run)
        except OverloadedError:
            self._after(AFTER_TROUBLE_SECONDS)
        else:
            self._after(PAUSE_SECONDS)

    async def _batch(self, run: ReplayRun) -> None:
        """What it can't go on with ends a run, or it would fail again and again."""
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
            why = error.message  # it would take as long the next time
        except FwError as error:  # the account that began it has gone
            why = error.message
        except Exception as error:
            self._log.error("replay.ended_by_defect", run=run.id, exc_info=error)
            site.errors.note("replay of many", error, run.request_id)
            why = A_DEFECT
        await site.store.write(partial(bulk.give_up, run=run, why=why))

    def _after(self, seconds: float) -> None:
        """Have one nudge of its own under way, however many come from outside."""
        if not self._comes:
            self._comes = True
            self.context.after(seconds, WakeUp())
