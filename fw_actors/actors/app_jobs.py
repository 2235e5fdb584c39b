"""AppJobs: runs the functions that apps enqueued with `fw.enqueue`, as their users.

Each runs in a transaction. The writes of the function and the end of its job are one transaction:
either both happen, or neither and the job is retried (D-211), up to ten attempts (D-210).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from fw_actors.access.accounts import lock_account_shared
from fw_actors.actors.metrics import Counter
from fw_actors.actors.queue_worker import JobFailed, QueuePolicy, QueueWorker, worker_mailbox
from fw_actors.documents.handle import Fw
from fw_actors.documents.hooks import RecordDefect
from fw_actors.errors import FwError, is_store_refusal, refuse_coroutine
from fw_actors.ops.queued_jobs import (
    APP_QUEUE,
    AppFunction,
    UnknownFunctionError,
    arguments_of,
    function_of,
)
from fw_actors.rules.delivery import Backoff, Transition
from fw_actors.rules.safe_output import Scrubber, app_frame, raised_at, text_of
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store import LeasedJob, Store, Tx, jobs
from fw_actors.tracing import Tracer

LEASE_SECONDS: Final = 60.0
APP_JOB_SLOTS: Final = 2  # one runs, the next is ready when it ends

UserFwFactory = Callable[[Tx, str, str], Fw]
"""Returns the handle of a user (and a request id) inside a transaction."""


class AppJobs(QueueWorker):
    """Works on the queue of app jobs."""

    mailbox = worker_mailbox(APP_JOB_SLOTS)

    def __init__(
        self,
        store: Store,
        handle: UserFwFactory,
        backoff: Backoff,
        record_defect: RecordDefect,
        scrubber: Scrubber,
        tracer: Tracer | None = None,
        counted: Counter | None = None,
    ) -> None:
        """`record_defect` is called with every exception of a function that is not an FwError.

        The others are as in `QueueWorker`.
        """
        super().__init__(
            store,
            QueuePolicy(APP_QUEUE, APP_JOB_SLOTS, LEASE_SECONDS, backoff),
            scrubber,
            tracer,
            counted,
        )
        self._handle, self._record_defect = handle, record_defect

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
                self._record_defect(job.function, failed.__cause__, _request_id(job))
            raise
        self.context.log.info(
            "job.done",
            job=job.id,
            request_id=_request_id(job),
            user=job.user,
            function=job.function,
            duration_ms=round((trio.current_time() - began) * MS_PER_SECOND),
        )

    def write_failure(self, tx: Tx, job: LeasedJob, transition: Transition, error: str) -> bool:
        """Record a failed attempt. See `QueueWorker.write_failure`."""
        if transition.next_attempt is None:
            return jobs.fail(tx, job.id, job.lease, error)
        return jobs.retry(tx, job.id, job.lease, transition.next_attempt, error)

    def _run(self, tx: Tx, job: LeasedJob, function: AppFunction) -> None:
        # Before its jobs, as its deletion and its rename do (B-430).
        lock_account_shared(tx, job.user)
        user = jobs.finish_as(tx, job.id, job.lease)  # first: nothing is done without the lease
        if user is None:
            raise JobFailed("worker_lost: the lease had ended.")
        try:
            handle = self._handle(tx, user, _request_id(job))
            refuse_coroutine(job.function, function(handle, **arguments_of(job)))
        except FwError as error:
            if is_store_refusal(error):
                raise  # of the transaction: not an attempt
            raise JobFailed(f"{_refused_at(error)}: {error}") from None
        except BaseException as error:  # KeyboardInterrupt too would end the process
            text = self._scrubber.scrub(text_of(error))  # may contain anything the app put into it
            raise JobFailed(f"{raised_at(error)}: {text}", kind=type(error).__name__) from error


def _refused_at(error: FwError) -> str:
    """Return the type of a refusal, with the line of the app that it passed through, if any."""
    return type(error).__name__ if app_frame(error) is None else raised_at(error)


def _request_id(job: LeasedJob) -> str:
    return f"job-{job.id}"
