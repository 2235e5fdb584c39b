"""The actors that work without a caller: those of sweeps, replays, logs and queues.

Sweeper runs the sweeps: `core.services.auth.sweep` hourly, `core.services.webhooks.sweep` and
`core.services.audit.sweep` daily; and looks for dead receivers each minute. It is active if the
scheduler is on (`ops.scheduler`). A sweep deletes in batches and pauses between them, so that
writers never wait long; two concurrent sweepers do no harm. Replayer carries out bulk replays in
the same way, and ErrorWriter writes queued defects to the Error Log.

SubscriptionWatch notices changes of Webhooks from outside the service, and can apply them. A
running service does not use a change that was made outside it: by another server of the site, a
command with `--commit`, or raw SQL (B-42). Comparing the subscriptions in use with the stored ones
makes such a change visible. Rows are compared and not a counter of changes, so that raw SQL is
seen too and a save costs nothing more.

Mailer sends the messages of the queue `mail` through the transport: ten attempts with the backoff
of deliveries (O-58); a permanent rejection is final (O-59).

AppJobs runs the functions that apps enqueued with `fw.enqueue`, each in a transaction as its user.
The writes of the function and the end of its job are one transaction: either both happen, or
neither and the job is retried (D-211), up to ten attempts (D-210).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

import trio

from fw_actors.actors.queue_worker import REST_SECONDS, JobFailed, QueuePolicy, QueueWorker, WakeUp
from fw_actors.documents.handle import Fw
from fw_actors.documents.hooks import NoteDefect
from fw_actors.errors import QUERY_TIMEOUT, FwError, OverloadedError, refuse_coroutine
from fw_actors.mail import MailFault, MailMessage, Transport
from fw_actors.ops import mail_queue
from fw_actors.ops.error_log import ErrorRecorder
from fw_actors.ops.mail_queue import MailComposer
from fw_actors.ops.queued_jobs import (
    APP_QUEUE,
    AppFunction,
    UnknownFunctionError,
    arguments_of,
    function_of,
)
from fw_actors.ops.site import Site
from fw_actors.ops.sweeps import BATCH, PAUSE_SECONDS, Batch
from fw_actors.rules.delivery import Backoff, Verdict
from fw_actors.rules.safe_output import Scrubber, raised_at
from fw_actors.runtime import Actor, Log, MailboxPolicy, Message, Overflow, handles
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store import LeasedJob, Store, Tx, jobs
from fw_actors.tracing import Span, Tracer, stored_context
from fw_actors.webhooks.replay import ReplayRun
from fw_actors.webhooks.subscriptions import (
    REFRESH_SECONDS,
    SubscriptionCache,
    stale_webhooks,
)

FIRST_AFTER_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 1.0
HOURLY: Final = 3600.0
DAILY: Final = 86_400.0
EACH_MINUTE: Final = 60.0


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
        following = message.step + (count < schedule.batch)
        self.context.after(PAUSE_SECONDS, Sweep(message.name, following, message.deleted + count))


A_DEFECT: Final = "A defect ended the run; see the log and the Error Log."


class Replayer(Actor):
    """Carries out the current bulk replay. Several on one store cost only wasted polls."""

    mailbox = MailboxPolicy(capacity=16, overflow=Overflow.REFUSE)

    def __init__(self, site: Site, log: Log) -> None:
        self._site, self._log = site, log
        self._pending = False
        self._polled_at = -inf

    async def started(self) -> None:
        """Resume a run that a previous process left."""
        self._after(RETRY_SECONDS)

    @handles(WakeUp)
    async def go_on(self, message: WakeUp) -> None:
        """Carry out one batch; then continue, or sleep until a run begins."""
        rest = self._polled_at + REST_SECONDS - self.context.time() if message.elsewhere else 0.0
        if rest > 0.0:
            self._after(rest)
            return
        self._polled_at = self.context.time()
        self._pending = False
        bulk, store = self._site.bulk, self._site.store
        try:
            run = await store.read(bulk.running)
            if run is None:
                return
            await self._batch(run)
        except OverloadedError:
            self._after(RETRY_SECONDS)
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


ERROR_LOG_RETRY_SECONDS: Final = 5.0


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
            self.context.after(ERROR_LOG_RETRY_SECONDS, RetryWrite())

    @handles(RetryWrite)
    async def again(self, _message: RetryWrite) -> None:
        """Write again after the wait."""
        self._pending = False
        await self.write(WakeUp())


WATCH_SECONDS: Final = 10.0
NAMES_LOGGED: Final = 20


class CompareSubscriptions(Message, frozen=True):
    """Compare the subscriptions in use with the stored ones."""


class SubscriptionWatch(Actor):
    """Logs Webhooks that were changed outside the service; with `refresh` it uses them at once.

    One of the processes of a service runs it, since all of them use the same subscriptions.
    """

    mailbox = MailboxPolicy(capacity=4, overflow=Overflow.REFUSE)

    def __init__(self, store: Store, cache: SubscriptionCache, *, refresh: bool) -> None:
        """`refresh` is `ops.subscriptionRefresh`."""
        self._store, self._cache, self._refresh = store, cache, refresh
        self._every = REFRESH_SECONDS if refresh else WATCH_SECONDS
        self._before: tuple[str, ...] = ()
        self._reported: tuple[str, ...] = ()

    async def started(self) -> None:
        """Schedule the first comparison."""
        self.context.after(self._every, CompareSubscriptions())

    @handles(CompareSubscriptions)
    async def compare(self, _message: CompareSubscriptions) -> None:
        """Compare once; retry at the next interval if the store is unavailable."""
        try:
            stale = await stale_webhooks(self._store, self._cache)
            if stale and self._refresh:
                await self._store.write(self._cache.renew_after_commit)
        except OverloadedError:
            pass
        else:
            self._tell(stale)
        self.context.after(self._every, CompareSubscriptions())

    def _tell(self, stale: tuple[str, ...]) -> None:
        """Log the changed Webhooks, once for each set of them.

        A set that is found only once was a save in progress, and is not logged.
        """
        log, names = self.context.log, list(stale[:NAMES_LOGGED])
        if stale and self._refresh:
            log.info("subscriptions.refreshed", webhooks=names, changed=len(stale))
        elif stale == self._before and stale != self._reported:
            self._reported = stale
            if stale:
                log.warning("subscriptions.stale", webhooks=names, changed=len(stale))
        self._before = stale


MAIL_SLOTS: Final = 4
MAIL_SECONDS: Final = 30.0
LEASE_SECONDS: Final = 60.0


class Mailer(QueueWorker):
    """Works on the queue `mail`."""

    # One more than its slots: an actor that is full of work would not take the Drain.
    mailbox = MailboxPolicy(
        capacity=1024, overflow=Overflow.REFUSE, max_work=MAIL_SLOTS + 1, max_timers=4
    )

    def __init__(
        self,
        store: Store,
        composer: MailComposer,
        transport: Transport,
        backoff: Backoff,
        scrubber: Scrubber,
    ) -> None:
        super().__init__(
            store, QueuePolicy(mail_queue.QUEUE, MAIL_SLOTS, LEASE_SECONDS, backoff), scrubber
        )
        self._composer, self._transport = composer, transport

    async def carry_out(self, job: LeasedJob) -> None:
        """Prepare a message, send it, and record it as sent."""
        began = trio.current_time()
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
            raise JobFailed(str(fault), final=fault.final) from None
        if await self.settle(job, lambda tx: self._composer.sent(tx, job)):
            self.context.log.info(
                "mail.ended",
                delivery=job.subject,
                template=job.function,
                attempt=job.attempts + 1,
                duration_ms=round((trio.current_time() - began) * MS_PER_SECOND),
            )

    def _prepare(self, tx: Tx, job: LeasedJob) -> MailMessage | None:
        """Renew the lease first: a worker that lost it must not end the current holder's link."""
        if not jobs.renew(tx, job.id, job.lease, round(LEASE_SECONDS * MS_PER_SECOND)):
            raise JobFailed("worker_lost: the lease had ended.")
        return self._composer.prepare(tx, job)

    def write_failure(self, tx: Tx, job: LeasedJob, verdict: Verdict, error: str) -> bool:
        """Record a failed attempt. See `QueueWorker.write_failure`."""
        return self._composer.failed(tx, job, verdict, error)


APP_JOB_SLOTS: Final = 2  # one runs, the next is ready when it ends

Handle = Callable[[Tx, str, str], Fw]
"""Returns the handle of a user (and a request id) inside a transaction."""


class AppJobs(QueueWorker):
    """Works on the queue of app jobs."""

    # One more than its slots: an actor that is full of work would not take the Drain.
    mailbox = MailboxPolicy(
        capacity=1024, overflow=Overflow.REFUSE, max_work=APP_JOB_SLOTS + 1, max_timers=4
    )

    def __init__(
        self,
        store: Store,
        handle: Handle,
        backoff: Backoff,
        note_defect: NoteDefect,
        scrubber: Scrubber,
        tracer: Tracer | None = None,
    ) -> None:
        """`note_defect` is called with every exception of a function that is not an FwError. With
        a `tracer` a job runs in the trace in which it was queued (B-429).
        """
        super().__init__(
            store, QueuePolicy(APP_QUEUE, APP_JOB_SLOTS, LEASE_SECONDS, backoff), scrubber
        )
        self._handle, self._note_defect, self._tracer = handle, note_defect, tracer

    def begin_span(self, job: LeasedJob) -> Span | None:
        """Return the span of an attempt. See `QueueWorker.begin_span`."""
        context = None if self._tracer is None else stored_context(job.trace_context)
        if self._tracer is None or context is None:
            return None
        span = self._tracer.consumer(job.function, context)
        if span.is_recorded:
            queued_ms = self.context.clock.now() - job.created
            span.note({"fw.job": job.id, "fw.attempt": job.attempts + 1, "fw.queued_ms": queued_ms})
        return span

    async def carry_out(self, job: LeasedJob) -> None:
        """Run the function and finish the job."""
        began = trio.current_time()
        try:
            function = function_of(job)
        except UnknownFunctionError as error:
            raise JobFailed(f"{error}.", kind=type(error).__name__) from None
        try:
            await self._store.write(lambda tx: self._run(tx, job, function))
        except JobFailed as failed:
            if failed.__cause__ is not None:
                self._note_defect(job.function, failed.__cause__, _request_id(job))
            raise
        self.context.log.info(
            "job.done",
            job=job.id,
            request_id=_request_id(job),
            user=job.user,
            function=job.function,
            duration_ms=round((trio.current_time() - began) * MS_PER_SECOND),
        )

    def write_failure(self, tx: Tx, job: LeasedJob, verdict: Verdict, error: str) -> bool:
        """Record a failed attempt. See `QueueWorker.write_failure`."""
        if verdict.next_attempt is None:
            return jobs.fail(tx, job.id, job.lease, error)
        return jobs.retry(tx, job.id, job.lease, verdict.next_attempt, error)

    def _run(self, tx: Tx, job: LeasedJob, function: AppFunction) -> None:
        if not jobs.finish(tx, job.id, job.lease):  # first: nothing is done without the lease
            raise JobFailed("worker_lost: the lease had ended.")
        try:
            handle = self._handle(tx, job.user, _request_id(job))
            refuse_coroutine(job.function, function(handle, **arguments_of(job)))
        except OverloadedError:
            raise  # the transaction itself may have failed
        except FwError as error:
            raise JobFailed(f"{type(error).__name__}: {error}") from None
        except (Exception, SystemExit) as error:
            text = self._scrubber.scrub(str(error))  # may contain anything the app put into it
            raise JobFailed(f"{raised_at(error)}: {text}", kind=type(error).__name__) from error


def _request_id(job: LeasedJob) -> str:
    return f"job-{job.id}"
