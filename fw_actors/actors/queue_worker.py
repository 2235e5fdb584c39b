"""QueueWorker: leases the due jobs of one queue and runs a few at a time.

The rows are the queue: a poll of the store, at least once a second and when the next job is due,
finds jobs that are due and unleased; a wake-up only makes the next poll earlier. `Mailer` and
`AppJobs` define their jobs. The Dispatcher uses the same poll schedule. Rules: B-197, D-210, O-58.

A next attempt that is further away than the backoff's cap plus five minutes is due now, and logged
once (B-198).

The module has more than 500 lines because the schedule of polls, wake-ups and the repair after a
clock skew, which the Dispatcher uses too, stand beside the worker whose polls they define.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final, TypeVar

import trio
from outcome import Error, Outcome

from fw_actors.actors.metrics import Counter
from fw_actors.errors import OverloadedError
from fw_actors.rules.delivery import (
    DEFECT_ERROR,
    MAX_EXPIRED_LEASES,
    WORKER_LOST_ERROR,
    Backoff,
    OutcomeKind,
    Transition,
    next_transition,
)
from fw_actors.rules.identifiers import record_id
from fw_actors.rules.safe_output import Scrubber, raised_at, storable
from fw_actors.runtime import (
    Actor,
    Context,
    Entropy,
    Log,
    MailboxPolicy,
    Message,
    Overflow,
    Ref,
    Timer,
    handles,
)
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store import LeasedJob, Store, Tx, jobs
from fw_actors.tracing import Span, Tracer, decode_context, in_trace

MAX_ATTEMPTS: Final = 10

DONE: Final = "done"
RETRYING: Final = "retrying"
FAILED: Final = "failed"
ATTEMPT_OUTCOMES: Final = (DONE, RETRYING, FAILED)
"""What an attempt of a mail or job leads to; `failed` is permanent."""

T = TypeVar("T")


class JobFailed(Exception):
    """Raised for a failed attempt; the text is the job's error.

    `final`: do not retry. `kind` is the kind of error for a span, in which the text may not be;
    without one, the word before the text's colon.
    """

    def __init__(self, error: str, *, final: bool = False, kind: str = "") -> None:
        super().__init__(error)
        before, colon, _ = error.partition(":")
        self.kind = kind or (before if colon and before.isidentifier() else "failed")
        self.final = final


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The limits of a queue: `slots` jobs at once, each leased for `lease_seconds`."""

    queue: str
    slots: int
    lease_seconds: float
    backoff: Backoff


def transition_after_failure(
    failure: JobFailed, job: LeasedJob, ended: int, backoff: Backoff
) -> Transition:
    """Return the result for a job of an attempt that failed at `ended` (ms)."""
    return next_transition(
        OutcomeKind.REFUSED if failure.final else OutcomeKind.TRANSIENT,
        attempts_before=job.attempts,
        max_attempts=MAX_ATTEMPTS,
        ended=ended,
        backoff=backoff,
    )


REPAIR_SECONDS: Final = 60.0
REPAIR_MARGIN_SECONDS: Final = 300.0
REPAIRED_AT_ONCE: Final = 1000
"""The maximum number of jobs that one transaction of a repair changes; the others follow at the
next polls."""


class ClockSkewRepair:
    """Makes jobs due that a wrong clock has scheduled too far ahead (B-198).

    Scans one queue at the first call, once a minute, and after the clock was set back. If it was
    set back by more than the margin, and at the first call, because a clock is often corrected
    while the service is stopped, also ends leases that would last longer by that time: their
    holders may have died (O-33). They last for the longest lease from then on, because an attempt
    may be in progress.
    """

    def __init__(self, queue: str, cap_seconds: float, lease_seconds: float) -> None:
        """`cap_seconds`: the longest wait for an attempt; `lease_seconds`: the longest lease, which
        is shorter than the margin."""
        self._queue = queue
        self._margin_ms = round(REPAIR_MARGIN_SECONDS * MS_PER_SECOND)
        self._horizon_ms = round(cap_seconds * MS_PER_SECOND) + self._margin_ms
        self._lease_ms = round(lease_seconds * MS_PER_SECOND)
        self._next = -inf
        self._latest = 0
        self._leases_ahead = True
        self._count = 0

    async def run(self, store: Store, log: Log, now: int) -> None:
        """Scan the queue if a scan is due, and correct a batch; `now` is in ms of the clock.

        Raises: OverloadedError.
        """
        back, self._latest = self._latest - now, now
        if trio.current_time() < self._next and back <= 0:
            return
        self._next = -inf  # until it has been done
        self._leases_ahead = self._leases_ahead or back > self._margin_ms
        moved = await store.write(self._reschedule)
        self._count += moved
        if moved < REPAIRED_AT_ONCE and self._leases_ahead:
            moved = await self._shorten_leases(store)
            self._count += moved
        if moved == REPAIRED_AT_ONCE:
            return
        self._next = trio.current_time() + REPAIR_SECONDS
        if self._count:
            log.warning("queue.rescheduled", queue=self._queue, jobs=self._count)
            self._count = 0

    def _reschedule(self, tx: Tx) -> int:
        return jobs.reschedule(tx, self._queue, tx.now + self._horizon_ms, REPAIRED_AT_ONCE)

    async def _shorten_leases(self, store: Store) -> int:
        """Shorten the leases that a read finds: it reads all waiting jobs, and a write would delay
        all others. A refused read is repeated at the next scan, so that polls continue."""
        try:
            held = await store.read(self._leased_too_long)
        except OverloadedError:
            return 0
        count = await store.write(partial(self._shorten, held=held)) if held else 0
        self._leases_ahead = len(held) == REPAIRED_AT_ONCE
        return count

    def _leased_too_long(self, tx: Tx) -> list[int]:
        latest = tx.now + self._lease_ms + self._margin_ms
        return jobs.leased_after(tx, self._queue, latest, REPAIRED_AT_ONCE)

    def _shorten(self, tx: Tx, held: Sequence[int]) -> int:
        end = tx.now + self._lease_ms
        return jobs.shorten_leases(tx, held, end + self._margin_ms, end)


def _nothing() -> None:
    """Do nothing when a wake-up is handled."""


class WakeUp(Message, frozen=True):
    """Sent after a commit that may have made jobs due: poll early.

    A lost wake-up does no harm: queues are polled once a second anyway. `elsewhere`: the commit was
    another process's, and its work may be that of another queue. A handler calls `acknowledge`
    before it polls.
    """

    elsewhere: bool = False
    acknowledge: Callable[[], None] = _nothing


MAX_SLEEP_SECONDS: Final = 1.0


class Waker:
    """Wakes up a worker, with at most one wake-up in its mailbox however many commits there are.

    The instance that should have handled a wake-up may have ended: after a second another one is
    sent.
    """

    def __init__(self, worker: Ref, *, elsewhere: bool = False) -> None:
        """`elsewhere`: as in `WakeUp`."""
        self._tell = worker.tell
        self._wake_up = WakeUp(elsewhere, self._acknowledge)
        self._waits_until = -inf

    def __call__(self) -> bool:
        """Wake up the worker, unless a wake-up waits for it. Returns False if there is none."""
        now = trio.current_time()
        if now >= self._waits_until:
            if not self._tell(self._wake_up):
                return False
            self._waits_until = now + MAX_SLEEP_SECONDS
        return True

    def _acknowledge(self) -> None:
        self._waits_until = -inf


class QueueWakeUps:
    """Wakes up the worker of a queue after each commit that holds a job, and counts these."""

    def __init__(self, recorded: Counter, workers: Mapping[str, Ref], store: Store) -> None:
        """`recorded` counts by queue; `workers` are by queue, too."""
        self._recorded, self._store = recorded, store
        self._wakers = {queue: Waker(worker) for queue, worker in workers.items()}

    def __call__(self, queue: str) -> None:
        """Count a commit with a job of `queue`, and wake up its worker.

        If there is none, as while this process stops, other processes are notified of the commit.
        """
        if not self._wakers[queue]():
            self._store.notify_others()
        self._recorded.add(queue)


MIN_SLEEP_SECONDS: Final = 0.05
EARLY_SECONDS: Final = 0.001
"""A timer that fires so little before its time is not set again: sums of times are rounded."""
REST_SECONDS: Final = 0.05
"""The minimum time between polls caused by external commits, of which there may be hundreds a
second.
"""
UNAVAILABLE_SECONDS: Final = 0.5
SETTLE_SECONDS: Final = 5.0
_TOKEN_BYTES: Final = 12


class Poll(Message, frozen=True):
    """Poll the queue now."""


class PollTimer(Message, frozen=True):
    """The timer of a `PollSchedule` has fired; the poll that it was set for may be put off."""


class PollSchedule:
    """Schedules the polls of an actor: at most one `Poll` in its mailbox, and one timer.

    Most polls put the next one off by a second. The timer stays then, and is set again for the rest
    when it fires.

    A poll is planned for new work (a job that comes due, or one of a lost wake-up), or because a
    slot comes free or another process has sent a notice.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tell = context.ref.tell
        self.pending = False
        """Whether a `Poll` is in the mailbox."""
        self._timer: Timer | None = None
        self._fires = inf  # when the timer fires at the earliest, on trio's clock
        self._next = inf  # when the next poll is planned
        self.for_new_work = True
        """Whether the planned poll is for new work."""

    def begin(self) -> None:
        """Record the start of a poll, which cancels planned ones."""
        self.pending = False
        self._next = inf

    def soon(self) -> None:
        """Poll after the messages in the mailbox; many calls make one poll."""
        if not self.pending:
            self.pending = self._tell(Poll())

    def after(self, seconds: float, *, for_new_work: bool = True) -> None:
        """Poll in this many seconds, replacing any planned poll."""
        if self.pending:
            return
        self._next, self.for_new_work = self._context.time() + seconds, for_new_work
        if self._timer is None or self._fires > self._next:
            self._set_timer(seconds)

    def is_due(self) -> bool:
        """Return whether to poll, now that the timer has fired; otherwise set it for the rest."""
        self._timer = None
        rest = self._next - self._context.time()
        if rest <= EARLY_SECONDS:
            return True
        if rest < inf:
            self._set_timer(rest)
        return False

    def within(self, seconds: float, *, for_new_work: bool = True) -> None:
        """Poll in this many seconds unless an earlier poll is planned."""
        seconds = max(0.0, seconds)
        if self._context.time() + seconds < self._next:
            self.after(seconds, for_new_work=for_new_work)

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires = self._context.time() + seconds
        self._timer = self._context.after(seconds, PollTimer())


class UnclaimedWorkNotifier:
    """Notifies the other processes of the machine of new work for which this one has no slot.

    Only new work causes a notice, and a notice of another process is not new work. Otherwise
    processes without a free slot would wake each other without end. A database that
    announces each commit itself needs no notice.
    """

    def __init__(self, store: Store, context: Context, polls: PollSchedule) -> None:
        self._store, self._context, self._polls = store, context, polls
        self._is_new = False
        self._notified_at = -inf

    def new_work(self) -> None:
        """Note that there may be new work, until a poll leaves none."""
        self._is_new = True

    def polled(self, remains: bool) -> None:
        """Notify if a poll has left due work (`remains`) that may be new."""
        self._is_new = self._is_new and remains
        if not self._is_new:
            return
        now = self._context.time()
        rest = self._notified_at + REST_SECONDS - now
        if rest > 0.0:
            self._polls.within(rest)  # which notifies, if the work still remains
            return
        self._is_new, self._notified_at = False, now
        self._store.notify_others()


def new_lease_token(entropy: Entropy) -> str:
    """Return the token of a new lease, which no other lease has."""
    return record_id(entropy.bytes(_TOKEN_BYTES))


async def write_patiently(
    write: Callable[[], Awaitable[T]], should_give_up: Callable[[], bool]
) -> T:
    """Repeat a write while the store is unavailable.

    Raises: OverloadedError once `should_give_up` returns True.
    """
    while True:
        try:
            return await write()
        except OverloadedError:
            if should_give_up():
                raise
        await trio.sleep(UNAVAILABLE_SECONDS)


class Drain(Message, frozen=True):
    """Stop leasing; jobs in progress have `seconds` to finish and are then released."""

    seconds: float


class JobEnded(Message, frozen=True):
    """A job has ended and its slot is free. `defect` is the error in this code, if any."""

    job: int
    defect: str | None


def worker_mailbox(slots: int) -> MailboxPolicy:
    """Return the mailbox policy of a queue worker that runs `slots` jobs at once.

    It allows one more work than slots, because an actor with the maximum of work handles no
    messages, and would not handle the Drain.
    """
    return MailboxPolicy(capacity=1024, overflow=Overflow.REFUSE, max_work=slots + 1, max_timers=4)


class QueueWorker(Actor, ABC):
    """Leases and runs the jobs of one queue.

    A job ends in one of three ways: done, failed (and retried, ten attempts in all), or released
    unattempted.
    """

    def __init__(
        self,
        store: Store,
        policy: QueuePolicy,
        scrubber: Scrubber,
        tracer: Tracer | None = None,
        counted: Counter | None = None,
    ) -> None:
        """`scrubber` removes the site's secrets from the logged and stored errors. With a `tracer`
        each attempt runs in the trace in which its job was queued (B-429). `counted` counts the
        attempts by `ATTEMPT_OUTCOMES`, over all instances.
        """
        self._store, self._policy, self._scrubber, self._tracer = store, policy, scrubber, tracer
        self._counted = counted or Counter(ATTEMPT_OUTCOMES)
        self._free = policy.slots
        self._repair = ClockSkewRepair(policy.queue, policy.backoff.cap, policy.lease_seconds)
        self._scopes: set[trio.CancelScope] = set()
        self._drain_deadline = inf
        self._polled_at = -inf

    @abstractmethod
    async def carry_out(self, job: LeasedJob) -> None:
        """Do the job and settle it. Raises: JobFailed; OverloadedError if it was not attempted."""

    @abstractmethod
    def write_failure(self, tx: Tx, job: LeasedJob, transition: Transition, error: str) -> bool:
        """Write the result of a failed attempt. Returns False if the lease is lost."""

    def span_name(self, job: LeasedJob) -> str:
        """Return the name of the span of an attempt."""
        return job.function

    async def started(self) -> None:
        """Poll at once: there may be jobs from before the start."""
        self._polls = PollSchedule(self.context)
        self._unclaimed = UnclaimedWorkNotifier(self._store, self.context, self._polls)
        self._poll_soon()

    @handles(WakeUp)
    def woken_up(self, message: WakeUp) -> None:
        """Poll soon."""
        message.acknowledge()
        if not message.elsewhere:
            self._unclaimed.new_work()
            if self._draining:
                self._store.notify_others()
        rest = self._polled_at + REST_SECONDS - self.context.time() if message.elsewhere else 0.0
        if rest <= 0.0:
            self._poll_soon()
        elif not self._draining:
            self._polls.within(rest, for_new_work=False)

    @handles(PollTimer)
    def timer_fired(self, _message: PollTimer) -> None:
        """Poll, unless the poll was put off."""
        if self._polls.is_due():
            if self._polls.for_new_work:
                self._unclaimed.new_work()
            self._poll_soon()

    @handles(Drain)
    def drain(self, message: Drain) -> None:
        """Start no more jobs, and limit the time of those in progress."""
        self._drain_deadline = trio.current_time() + message.seconds
        self._store.notify_others()  # of jobs that this one would have leased
        for scope in self._scopes:
            scope.deadline = self._drain_deadline

    @handles(JobEnded)
    def job_ended(self, message: JobEnded) -> None:
        """Free a slot."""
        self._free += 1
        if message.defect is not None:  # its lease expires
            self.context.log.error("job.defect", job=message.job, error=message.defect)
        self._poll_soon()

    @handles(Poll)
    async def poll(self, message: Poll) -> None:
        """Lease the jobs that can start now, start them, and sleep until the next is due."""
        self._polls.begin()
        self._polled_at = self.context.time()
        if not self._free or self._draining:
            self._unclaimed.polled(True)
            return  # the next free slot polls again
        try:
            await self._repair.run(self._store, self.context.log, self.context.clock.now())
            due_in = await self._seconds_until_due()
            if due_in <= 0.0:
                for job in await self._store.write(self._claim):
                    self._start(job)
                due_in = await self._seconds_until_due()
        except OverloadedError:
            due_in = UNAVAILABLE_SECONDS
        if self._free:
            self._polls.after(min(MAX_SLEEP_SECONDS, max(MIN_SLEEP_SECONDS, due_in)))
        self._unclaimed.polled(not self._free and due_in <= 0.0)

    def describe(self) -> dict[str, object]:
        """Return the console's facts."""
        return {"queue": self._policy.queue, "free": self._free, "slots": self._policy.slots}

    @property
    def _draining(self) -> bool:
        return self._drain_deadline < inf

    async def settle(self, job: LeasedJob, write: Callable[[Tx], bool]) -> bool:
        """Write an outcome, shielded from cancellation, so that a finished job is not repeated.

        Returns: whether it was written; False if the lease was lost or the store was unavailable
            for a while. The job is then attempted again when its lease has ended.
        """
        with trio.move_on_after(SETTLE_SECONDS, shield=True):
            was_written = await write_patiently(lambda: self._store.write(write), lambda: False)
            if not was_written:
                self._warn("job.lease_lost", job)
            return was_written
        self._warn("job.outcome_lost", job)
        return False

    async def _seconds_until_due(self) -> float:
        """Return the time until the next job; by a read, so that an idle queue costs no write."""
        queue = self._policy.queue
        # Reserved: a query that waits for a reader must not delay mails.
        heads = await self._store.read(lambda tx: jobs.heads(tx, queue), reserved=True)
        first = min((head.next_at for head in heads), default=None)
        return inf if first is None else (first - self.context.clock.now()) / MS_PER_SECOND

    def _claim(self, tx: Tx) -> list[LeasedJob]:
        """Lease due jobs, longest wait first; runs in the store's thread."""
        tx.limit_pauses()  # claims of other nodes are repeated as long as they skip locked rows
        policy = self._policy
        leased: list[LeasedJob] = []
        for head in sorted(jobs.heads(tx, policy.queue), key=lambda head: head.next_at):
            free = self._free - len(leased)
            if head.next_at > tx.now or not free:
                break
            lease_ms = round(policy.lease_seconds * MS_PER_SECOND)
            token = new_lease_token(self.context.entropy)
            leased += jobs.claim(tx, policy.queue, head.partition, free, lease_ms, token)
        return leased

    def _start(self, job: LeasedJob) -> None:
        self._free -= 1
        self.context.work(
            self._process, job, then=lambda outcome: JobEnded(job.id, _defect(outcome))
        )

    async def _process(self, job: LeasedJob) -> None:
        span = self._begin_span(job)
        with nullcontext() if span is None else in_trace(span.context):
            error = "cancelled"
            try:
                error = await self._process_leased(job)
            finally:
                if span is not None:
                    span.end(error)

    def _begin_span(self, job: LeasedJob) -> Span | None:
        """Return the span of an attempt, in whose trace it runs; None if it is in no trace."""
        context = None if self._tracer is None else decode_context(job.trace_context)
        if self._tracer is None or context is None:
            return None
        span = self._tracer.consumer(self.span_name(job), context)
        if span.is_recorded:
            queued_ms = self.context.clock.now() - job.created
            span.note({"fw.job": job.id, "fw.attempt": job.attempts + 1, "fw.queued_ms": queued_ms})
        return span

    async def _process_leased(self, job: LeasedJob) -> str:
        """Process one job from its lease to its end; return the kind of its error, else nothing."""
        # Not keyed by the job's id: a job that outlives its lease may be processed twice at once.
        self._scopes.add(scope := trio.CancelScope(deadline=self._drain_deadline))
        failure: JobFailed | None = None
        try:
            with scope:
                failure = await self._attempt(job)
            if scope.cancelled_caught:
                await self._release(job)
                return "cancelled"
        except trio.Cancelled:
            await self._release(job)
            raise
        except OverloadedError as error:  # the store is unavailable: not an attempt
            try:
                await trio.sleep(UNAVAILABLE_SECONDS)
            finally:
                await self._release(job)
            return type(error).__name__
        finally:
            self._scopes.remove(scope)
        if failure is None:
            self._counted.add(DONE)
            return ""
        await self._fail(job, failure)
        return failure.kind

    async def _attempt(self, job: LeasedJob) -> JobFailed | None:
        try:
            if job.expired_leases > MAX_EXPIRED_LEASES:
                return JobFailed(WORKER_LOST_ERROR)
            await self.carry_out(job)
        except JobFailed as failure:
            return failure
        except OverloadedError:
            raise
        except Exception as defect:  # counted as a failure, so that it cannot loop
            self.context.log.error("job.defect", job=job.id, error=raised_at(defect))
            return JobFailed(DEFECT_ERROR)
        return None

    async def _fail(self, job: LeasedJob, failure: JobFailed) -> None:
        now = self.context.clock.now()
        transition = transition_after_failure(failure, job, now, self._policy.backoff)
        error = storable(self._scrubber.scrub_known(str(failure)))[: jobs.ERROR_CHARACTERS]
        if await self.settle(job, lambda tx: self.write_failure(tx, job, transition, error)):
            self._counted.add(FAILED if transition.next_attempt is None else RETRYING)
            self._warn("job.failed", job, attempt=transition.attempts, error=error)

    async def _release(self, job: LeasedJob) -> None:
        if await self.settle(job, lambda tx: jobs.release(tx, job.id, job.lease)):
            self._store.notify_others()  # this one may be stopping

    def _warn(self, event: str, job: LeasedJob, **facts: object) -> None:
        self.context.log.warning(event, queue=job.queue, job=job.id, function=job.function, **facts)

    def _poll_soon(self) -> None:
        if not self._draining:
            self._polls.soon()


def _defect(outcome: Outcome[None]) -> str | None:
    return raised_at(outcome.error) if isinstance(outcome, Error) else None
