"""QueueWorker: leases the due jobs of one queue and runs a few at a time.

The row is the queue: jobs that are due and unleased are found by a poll of the store, at least once
a second and when the next one is due; a wake-up only makes the poll come sooner. `Mailer` and
`AppJobs` say what a job is. The Dispatcher polls by the same schedule. Rules: B-197, D-210, O-58.

A next attempt further away than the cap and five minutes is due now, logged once (B-198).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

import trio
from outcome import Error, Outcome

from fw_actors.errors import OverloadedError
from fw_actors.rules.delivery import MOST_DEATHS_IN_A_ROW, Backoff, Ending, Verdict, decide
from fw_actors.rules.redaction import Scrubber, raised_at
from fw_actors.rules.tokens import record_id
from fw_actors.runtime import Actor, Context, Log, Message, Timer, handles
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store import LeasedJob, Store, Tx, jobs

MOST_TRIES: Final = 10


class JobFailed(Exception):
    """Raised for a failed attempt; the text is the job's error. `final`: retries can't help."""

    def __init__(self, error: str, *, final: bool = False) -> None:
        super().__init__(error)
        self.final = final


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How a queue is worked on: `places` jobs at once, each leased for `lease_seconds`."""

    queue: str
    places: int
    lease_seconds: float
    backoff: Backoff


def verdict_on(failure: JobFailed, job: LeasedJob, ended: int, backoff: Backoff) -> Verdict:
    """Return what a try that failed at `ended` (ms) makes of its job."""
    return decide(
        Ending.REFUSED if failure.final else Ending.TRANSIENT,
        attempts_before=job.attempts,
        max_attempts=MOST_TRIES,
        ended=ended,
        backoff=backoff,
    )


EVERY_SECONDS: Final = 60.0
MARGIN_SECONDS: Final = 300.0


class ClockSkewRepair:
    """Makes jobs due that a wrong clock has put too far away (B-198).

    It searches one queue at the first call, once a minute, and when the clock has gone back.
    """

    def __init__(self, queue: str, cap_seconds: float) -> None:
        """`cap_seconds`: the longest wait between two tries; leases are shorter than the margin."""
        self._queue, self._far_ms = queue, round((cap_seconds + MARGIN_SECONDS) * MS_PER_SECOND)
        self._next = -inf
        self._latest = 0

    async def run(self, store: Store, log: Log, now: int) -> None:
        """Search the queue when it is time to; `now` in ms of the clock.

        Raises: OverloadedError.
        """
        went_back, self._latest = now < self._latest, now
        if trio.current_time() < self._next and not went_back:
            return
        self._next = -inf  # until it has been done
        count = await store.write(
            lambda tx: jobs.reschedule(tx, self._queue, tx.now + self._far_ms)
        )
        self._next = trio.current_time() + EVERY_SECONDS
        if count:
            log.warning("queue.recalled", queue=self._queue, jobs=count)


class WakeUp(Message, frozen=True):
    """Sent after a commit that may have made jobs due: poll early.

    A lost wake-up does no harm: queues are polled once a second anyway.
    """


LONGEST_SLEEP_SECONDS: Final = 1.0
SHORTEST_SLEEP_SECONDS: Final = 0.05
AFTER_TROUBLE_SECONDS: Final = 0.5
SETTLE_SECONDS: Final = 5.0
ERROR_CHARACTERS: Final = 500
_TOKEN_BYTES: Final = 12


class Poll(Message, frozen=True):
    """Poll the queue now."""


class PollSchedule:
    """When an actor polls its queue: at most one `Poll` is in its mailbox, and one timer runs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.pending = False
        """Whether a `Poll` waits in the mailbox."""
        self._timer: Timer | None = None
        self._next = inf  # when the timer ends, on trio's clock

    def begin(self) -> None:
        """Note that a poll begins: it makes those planned needless."""
        self.pending = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._next = inf

    def soon(self) -> None:
        """Poll after the messages that are in the mailbox; many calls make one poll."""
        if not self.pending:
            self.pending = self._context.ref.tell(Poll())

    def after(self, seconds: float) -> None:
        """Poll in so many seconds instead of when it was planned."""
        if self.pending:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._context.after(seconds, WakeUp())
        self._next = self._context.time() + seconds

    def within(self, seconds: float) -> None:
        """Poll in so many seconds, unless a poll is planned before that."""
        seconds = max(0.0, seconds)
        if self._context.time() + seconds < self._next:
            self.after(seconds)


class Drain(Message, frozen=True):
    """Lease nothing more; what is in hand may take `seconds`, then it is given back."""

    seconds: float


class JobEnded(Message, frozen=True):
    """A job has ended, and its slot is free. `defect`: the error in our own code, if any."""

    job: int
    defect: str | None


class QueueWorker(Actor, ABC):
    """Leases and runs the jobs of one queue.

    A job ends in one of three ways: done, failed (and retried, ten attempts in all), or given back
    unattempted.
    """

    def __init__(self, store: Store, policy: QueuePolicy, scrubber: Scrubber) -> None:
        """`scrubber` removes the site's secrets from what is told and written of a failed try."""
        self._store, self._policy, self._scrubber = store, policy, scrubber
        self._free = policy.places
        self._repair = ClockSkewRepair(policy.queue, policy.backoff.cap)
        self._scopes: set[trio.CancelScope] = set()
        self._cut_off = inf

    @abstractmethod
    async def carry_out(self, job: LeasedJob) -> None:
        """Do the job and settle it. Raises: JobFailed; OverloadedError when it was not tried."""

    @abstractmethod
    def write_failure(self, tx: Tx, job: LeasedJob, verdict: Verdict, error: str) -> bool:
        """Write what a failed try makes of the job. False when the lease is lost."""

    async def started(self) -> None:
        """Poll at once: there may be work from before."""
        self._polls = PollSchedule(self.context)
        self._poll_soon()

    @handles(WakeUp)
    def woken_up(self, message: WakeUp) -> None:
        """Poll soon."""
        self._poll_soon()

    @handles(Drain)
    def drain(self, message: Drain) -> None:
        """Begin nothing more, and set an end to what is in hand."""
        self._cut_off = trio.current_time() + message.seconds
        for scope in self._scopes:
            scope.deadline = self._cut_off

    @handles(JobEnded)
    def job_ended(self, message: JobEnded) -> None:
        """A slot is free again."""
        self._free += 1
        if message.defect is not None:  # its lease ends by itself
            self.context.log.error("job.defect", job=message.job, error=message.defect)
        self._poll_soon()

    @handles(Poll)
    async def poll(self, message: Poll) -> None:
        """Lease the jobs that can start now, start them, and sleep until the next is due."""
        self._polls.begin()
        if not self._free or self._draining:
            return  # the next slot that is free polls again
        try:
            await self._repair.run(self._store, self.context.log, self.context.clock.now())
            due_in = await self._seconds_until_due()
            if due_in <= 0.0:
                for job in await self._store.write(self._claim):
                    self._start(job)
                due_in = await self._seconds_until_due()
        except OverloadedError:
            due_in = AFTER_TROUBLE_SECONDS
        if self._free:
            self._polls.after(min(LONGEST_SLEEP_SECONDS, max(SHORTEST_SLEEP_SECONDS, due_in)))

    def describe(self) -> dict[str, object]:
        """What the console shows."""
        return {"queue": self._policy.queue, "free": self._free, "places": self._policy.places}

    @property
    def _draining(self) -> bool:
        return self._cut_off < inf

    async def settle(self, job: LeasedJob, write: Callable[[Tx], bool]) -> bool:
        """Write an outcome, whatever is cancelled meanwhile: what is done must not be done again.

        Returns: whether it was written; False when the lease was lost, or the store took nothing
            for a while. The job is tried again then, once its lease has ended.
        """
        with trio.move_on_after(SETTLE_SECONDS, shield=True):
            while True:
                try:
                    held = await self._store.write(write)
                except OverloadedError:
                    await trio.sleep(AFTER_TROUBLE_SECONDS)
                    continue
                if not held:
                    self._warn("job.lease_lost", job)
                return held
        self._warn("job.outcome_lost", job)
        return False

    async def _seconds_until_due(self) -> float:
        """A read, so that an idle queue costs no write."""
        queue = self._policy.queue
        # Reserved: a search that waits for a reader must not hold up mails.
        heads = await self._store.read(lambda tx: jobs.heads(tx, queue), reserved=True)
        first = min((head.next_at for head in heads), default=None)
        return inf if first is None else (first - self.context.clock.now()) / MS_PER_SECOND

    def _claim(self, tx: Tx) -> list[LeasedJob]:
        """Runs in the store's thread; what waits longest first."""
        policy = self._policy
        leased: list[LeasedJob] = []
        for head in sorted(jobs.heads(tx, policy.queue), key=lambda head: head.next_at):
            free = self._free - len(leased)
            if head.next_at > tx.now or not free:
                break
            lease_ms = round(policy.lease_seconds * MS_PER_SECOND)
            token = record_id(self.context.entropy.bytes(_TOKEN_BYTES))
            leased += jobs.claim(tx, policy.queue, head.partition, free, lease_ms, token)
        return leased

    def _start(self, job: LeasedJob) -> None:
        self._free -= 1
        self.context.work(self._hold, job, then=lambda outcome: JobEnded(job.id, _defect(outcome)))

    async def _hold(self, job: LeasedJob) -> None:
        """One job from its lease to its end."""
        # Not by the job's id: one that outlives its lease may be in hand twice.
        self._scopes.add(scope := trio.CancelScope(deadline=self._cut_off))
        failure: JobFailed | None = None
        try:
            with scope:
                failure = await self._try(job)
            if scope.cancelled_caught:
                await self._give_back(job)
        except trio.Cancelled:
            await self._give_back(job)
            raise
        except OverloadedError:  # the store can't take it now: that was no try
            try:
                await trio.sleep(AFTER_TROUBLE_SECONDS)
            finally:
                await self._give_back(job)
        finally:
            self._scopes.remove(scope)
        if failure is not None:
            await self._fail(job, failure)

    async def _try(self, job: LeasedJob) -> JobFailed | None:
        try:
            if job.deaths > MOST_DEATHS_IN_A_ROW:
                return JobFailed("worker_lost: its workers died, one after another.")
            await self.carry_out(job)
        except JobFailed as failure:
            return failure
        except OverloadedError:
            raise
        except Exception as defect:  # a defect of ours is a counted failure, never a loop
            self.context.log.error("job.defect", job=job.id, error=raised_at(defect))
            return JobFailed("internal: the try failed inside the service; its log says more.")
        return None

    async def _fail(self, job: LeasedJob, failure: JobFailed) -> None:
        now = self.context.clock.now()
        verdict = verdict_on(failure, job, now, self._policy.backoff)
        error = self._scrubber.scrub_known(str(failure))[:ERROR_CHARACTERS]
        if await self.settle(job, lambda tx: self.write_failure(tx, job, verdict, error)):
            self._warn("job.failed", job, attempt=verdict.attempts, error=error)

    async def _give_back(self, job: LeasedJob) -> None:
        await self.settle(job, lambda tx: jobs.give_back(tx, job.id, job.lease))

    def _warn(self, event: str, job: LeasedJob, **facts: object) -> None:
        self.context.log.warning(event, queue=job.queue, job=job.id, function=job.function, **facts)

    def _poll_soon(self) -> None:
        if not self._draining:
            self._polls.soon()


def _defect(outcome: Outcome[None]) -> str | None:
    return raised_at(outcome.error) if isinstance(outcome, Error) else None
