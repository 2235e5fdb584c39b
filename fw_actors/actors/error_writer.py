"""ErrorWriter: writes queued defects to the Error Log."""

from __future__ import annotations

from typing import Final

from fw_actors.actors.queue_worker import WakeUp
from fw_actors.errors import OverloadedError
from fw_actors.ops.error_log import ErrorRecorder
from fw_actors.runtime import Actor, MailboxPolicy, Message, Overflow, handles
from fw_actors.store import Store

UNAVAILABLE_SECONDS: Final = 5.0


class RetryWrite(Message, frozen=True):
    """Retry an unavailable store; at most one is pending."""


class ErrorWriter(Actor):
    """Writes queued defects. A wake-up may be dropped: the one before it writes everything."""

    mailbox = MailboxPolicy(capacity=16, overflow=Overflow.REFUSE)

    def __init__(self, store: Store, errors: ErrorRecorder) -> None:
        self._store, self._errors = store, errors
        self._pending = False

    @handles(WakeUp)
    async def write(self, _message: WakeUp) -> None:
        """Write all queued defects; retry an unavailable store later, not at each wake-up."""
        if self._pending or not self._errors.waits:
            return
        try:
            await self._store.write(self._errors.flush)
        except OverloadedError:
            self._pending = True
            self.context.after(UNAVAILABLE_SECONDS, RetryWrite())

    @handles(RetryWrite)
    async def again(self, _message: RetryWrite) -> None:
        """Write again after the wait."""
        self._pending = False
        await self.write(WakeUp())
