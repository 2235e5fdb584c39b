"""Small actors of the process: Replayer, ErrorWriter, SubscriptionWatch and StoreProbe.

Replayer carries out bulk replays in batches, with pauses between them, as Sweeper does.
ErrorWriter writes queued defects to the Error Log.

SubscriptionWatch notices changes of Webhooks from outside the service, and can apply them. A
running service does not use a change that was made outside it: by another server of the site, a
command with `--commit`, or raw SQL (B-42). Comparing the subscriptions in use with the stored ones
makes such a change visible. Rows are compared and not a counter of changes, so that raw SQL is
seen too and a save costs nothing more.

StoreProbe reads with a deadline, for readiness checks and `/metrics`. A read of the store cannot be
cancelled once it has begun, and a frozen or unreachable database server blocks it indefinitely: the
actor waits, and its callers leave at the deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Final

from fw_actors.actors.queue_worker import REST_SECONDS, WakeUp
from fw_actors.actors.sweeper import PAUSE_SECONDS, RETRY_SECONDS
from fw_actors.errors import FwError, OverloadedError, is_query_timeout
from fw_actors.ops.error_log import ErrorRecorder
from fw_actors.ops.site import Site
from fw_actors.runtime import (
    Actor,
    ActorError,
    Log,
    MailboxPolicy,
    Message,
    Overflow,
    Ref,
    Request,
    Timer,
    handles,
)
from fw_actors.store import Store, StoreError, Tx
from fw_actors.webhooks.replay import ReplayRun
from fw_actors.webhooks.subscriptions import (
    REFRESH_SECONDS,
    SubscriptionCache,
    stale_webhooks,
)

DEFECT_REASON: Final = "A defect ended the run; see the log and the Error Log."


class Replayer(Actor):
    """Carries out the current bulk replay. Several on one store cost only wasted polls."""

    mailbox = MailboxPolicy(capacity=16, overflow=Overflow.REFUSE)

    def __init__(self, site: Site, log: Log) -> None:
        self._site, self._log = site, log
        self._timer: Timer | None = None
        self._polled_at = -inf

    async def started(self) -> None:
        """Resume a run that a previous process left."""
        self._after(RETRY_SECONDS)

    @handles(WakeUp)
    async def woken_up(self, message: WakeUp) -> None:
        """Carry out one batch; then continue, or sleep until a run begins."""
        message.acknowledge()
        rest = self._polled_at + REST_SECONDS - self.context.time() if message.elsewhere else 0.0
        if rest > 0.0:
            self._after(rest)
            return
        self._polled_at = self.context.time()
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
            if not is_query_timeout(error):
                raise
            reason = error.message
        except FwError as error:  # the user that began the run no longer exists
            reason = error.message
        except Exception as error:
            self._log.error("replay.ended_by_defect", run=run.id, exc_info=error)
            site.errors.note("replay of many", error, run.request_id)
            reason = DEFECT_REASON
        await site.store.write(partial(bulk.give_up, run=run, reason=reason))

    def _after(self, seconds: float) -> None:
        """Keep at most one wake-up of its own pending, however many others arrive."""
        if self._timer is None or not self._timer.pending:
            self._timer = self.context.after(seconds, WakeUp())


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
    async def write(self, message: WakeUp) -> None:
        """Write all queued defects; retry an unavailable store later, not at each wake-up."""
        message.acknowledge()
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
            self._log_stale(stale)
        self.context.after(self._every, CompareSubscriptions())

    def _log_stale(self, stale: tuple[str, ...]) -> None:
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


class ReadSnapshot(Request[Any | None], frozen=True):
    """Request to run `fn` against a snapshot; answered with its result, None on failure."""

    fn: Callable[[Tx], Any]


class StoreProbe(Actor):
    """Reads one snapshot at a time; requests whose callers have left are skipped."""

    mailbox = MailboxPolicy(capacity=64, overflow=Overflow.REFUSE)

    def __init__(self, store: Store, *, reserved: bool = False) -> None:
        """`reserved` is passed to `Store.read`."""
        self._store, self._reserved = store, reserved

    @handles(ReadSnapshot)
    async def read(self, message: ReadSnapshot) -> Any | None:
        """Run the read, however long it takes."""
        try:
            return await self._store.read(message.fn, reserved=self._reserved)
        except (OverloadedError, StoreError):
            return None
        except Exception as defect:  # repeated on each probe, it must not stop the actor
            self.context.log.error("probe.failed", error=self.context.one_line(defect))
            return None


async def read_with_deadline(probe: Ref, fn: Callable[[Tx], Any], seconds: float) -> Any | None:
    """Return the result of `fn` (never None), or None if the store does not answer within
    `seconds`."""
    try:
        return await probe.ask(ReadSnapshot(fn), deadline=seconds)
    except ActorError:
        return None


async def store_answers(probe: Ref, seconds: float) -> bool:
    """Return whether the store's threads answer within `seconds`.

    A refused read counts as an answer: an unreachable database must not stop the process, because
    service resumes when the database is reachable again (O-14).
    """
    try:
        await probe.ask(ReadSnapshot(_nothing), deadline=seconds)
    except ActorError:
        return False
    return True


def _nothing(tx: Tx) -> None:
    """Read nothing: a store that can begin a transaction answers."""
