"""Writes noted defects to the Error Log, soon after they were noted."""

from __future__ import annotations

from typing import Final

from fw_actors.actors.queue_worker import WakeUp
from fw_actors.errors import OverloadedError
from fw_actors.ops.error_log import ErrorRecorder
from fw_actors.runtime import Actor, MailboxPolicy, Message, Overflow, handles
from fw_actors.store import Store

AFTER_TROUBLE_SECONDS: Final = 5.0


class RetryWrite(Message, frozen=True):
    """Ask a store that was in trouble again; at most one is under way."""


class ErrorWriter(Actor):
    """See the module. A nudge that finds no room is no loss: one before it does the work."""

    mailbox = MailboxPolicy(capacity=16, overflow=Overflow.REFUSE)

    def __init__(self, store: Store, errors: ErrorRecorder) -> None:
        self._store, self._errors = store, errors
        self._comes = False

    @handles(WakeUp)
    async def write(self, _message: WakeUp) -> None:
        """Write all that waits; a store in trouble is asked again later, not for each nudge."""
        if self._comes or not self._errors.waits:
            return
        try:
            await self._store.write(self._errors.flush)
        except OverloadedError:
            self._comes = True
            self.context.after(AFTER_TROUBLE_SECONDS, RetryWrite())

    @handles(RetryWrite)
    async def again(self, _message: RetryWrite) -> None:
        """The wait is over."""
        self._comes = False
        await self.write(WakeUp())
