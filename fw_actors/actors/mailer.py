"""Mailer: sends the messages of the queue `mail` through the configured transport.

A message gets ten attempts with the backoff of deliveries (O-58); a permanent rejection is final
(O-59).
"""

from __future__ import annotations

from typing import Final

import msgspec
import trio

from fw_actors.access.accounts import lock_account
from fw_actors.access.links import revoke
from fw_actors.actors.metrics import Counter
from fw_actors.actors.queue_worker import JobFailed, QueuePolicy, QueueWorker, worker_mailbox
from fw_actors.mail import MailFault, MailMessage, Transport
from fw_actors.ops import mail_queue
from fw_actors.ops.mail_queue import MailComposer
from fw_actors.rules.delivery import Backoff, Transition
from fw_actors.rules.safe_output import Scrubber
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store import LeasedJob, Store, Tx, jobs
from fw_actors.tracing import Tracer

MAIL_SLOTS: Final = 4
MAIL_SECONDS: Final = 30.0
LEASE_SECONDS: Final = 60.0


class Mailer(QueueWorker):
    """Works on the queue `mail`."""

    mailbox = worker_mailbox(MAIL_SLOTS)

    def __init__(
        self,
        store: Store,
        composer: MailComposer,
        transport: Transport,
        backoff: Backoff,
        scrubber: Scrubber,
        tracer: Tracer | None = None,
        counted: Counter | None = None,
    ) -> None:
        """`scrubber`, `tracer` and `counted`: as in `QueueWorker`."""
        policy = QueuePolicy(mail_queue.QUEUE, MAIL_SLOTS, LEASE_SECONDS, backoff)
        super().__init__(store, policy, scrubber, tracer, counted)
        self._composer, self._transport = composer, transport

    def span_name(self, job: LeasedJob) -> str:
        """Return the name of the span of an attempt, which contains the template."""
        return f"mail {job.function}"

    async def carry_out(self, job: LeasedJob) -> None:
        """Prepare a message, send it, and record it as sent."""
        began = trio.current_time()
        message: MailMessage | None = None
        try:
            message = await self._store.write(lambda tx: self._prepare(tx, job))
            if message is None:
                return
            with trio.fail_after(MAIL_SECONDS):
                await self._transport.send(message)
        except trio.TooSlowError:
            raise JobFailed(
                f"timeout: the message was not accepted within {MAIL_SECONDS:g} s."
            ) from None
        except MailFault as fault:
            if fault.final and message is not None:
                await self._end_link(message)
            raise JobFailed(str(fault), final=fault.final) from None
        if await self.settle(job, lambda tx: self._composer.sent(tx, job)):
            self.context.log.info(
                "mail.ended",
                delivery=job.subject,
                template=job.function,
                attempt=job.attempts + 1,
                duration_ms=round((trio.current_time() - began) * MS_PER_SECOND),
            )

    async def _end_link(self, message: MailMessage) -> None:
        """End the link of a message that was refused for good (A-197): a server may have kept or
        forwarded the refused message, and its recipient expects none."""
        link = message.link
        if link is not None:
            await self._store.write(lambda tx: revoke(tx, link))

    def _prepare(self, tx: Tx, job: LeasedJob) -> MailMessage | None:
        """Renew the lease first: a worker that lost it must not end the current holder's link."""
        lock_account(tx, job.user)  # before its jobs, as its deletion and its rename do (B-430)
        user = jobs.renew(tx, job.id, job.lease, round(LEASE_SECONDS * MS_PER_SECOND))
        if user is None:
            raise JobFailed("worker_lost: the lease had ended.")
        return self._composer.prepare(tx, msgspec.structs.replace(job, user=user))

    def write_failure(self, tx: Tx, job: LeasedJob, transition: Transition, error: str) -> bool:
        """Record a failed attempt. See `QueueWorker.write_failure`."""
        return self._composer.failed(tx, job, transition, error)
