"""The store: transactions on the executors of one database, its statistics, and users' shares."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from fw_actors.errors import OverloadedError
from fw_actors.runtime.clock import Clock
from fw_actors.store.executor import EngineCounts, Executors
from fw_actors.store.transaction import Tx
from fw_actors.tracing import Tracer

if TYPE_CHECKING:
    from fw_actors.store.trio_sqlite import CommitNotices

T = TypeVar("T")

MAX_WAITING_WRITES: Final = 4096
MAX_WAITING_READS: Final = 1024
LOCK_SECONDS: Final = 3.0
"""The time for which a call waits for a lock that another process holds."""
MIGRATION_LOCK_SECONDS: Final = 30

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoreStatistics:
    """Counters of a store since it was opened, for `/metrics` and the console."""

    waiting_writes: int
    """Calls of `write` not answered yet; more than `max_waiting_writes` are refused."""
    waiting_reads: int
    """Calls of `read` not answered yet. More than `max_waiting_reads` are refused; reserved reads
    are counted separately."""
    max_waiting_writes: int
    max_waiting_reads: int
    commits: int
    """Commits; each answers a group of one or more calls of `write`."""
    committed: int
    """Calls of `write` whose function returned and is committed."""
    rolled_back: int
    """Calls of `write` whose function raised; only its changes were undone."""
    refused: int
    """Calls of `write` answered 503: the queue or disk was full, the database locked, …"""
    skipped: int
    """Calls cancelled before their function began."""
    reads: int
    """Calls of `read` whose function ran."""
    largest_group: int
    external_commits: int
    """The number of noticed commits of other processes."""
    longest_write_seconds: float
    """How long the longest `write` that runs now has taken so far; 0 if none runs."""
    longest_read_seconds: float
    """The same of `read`, reserved reads included."""


class Listeners:
    """Callbacks for commits of other processes; called on trio's thread."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[], None]] = {}

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Add a callback; return the function that removes it."""
        key = object()
        self._callbacks[key] = callback

        def end() -> None:
            self._callbacks.pop(key, None)

        return end

    def notify(self) -> None:
        """Call all callbacks, in the order in which they were added."""
        for callback in tuple(self._callbacks.values()):
            try:
                callback()
            except Exception:
                _log.exception("a listener for commits of other processes failed")


class Store:
    """Transactions for the service. All methods are called on trio's thread.

    Args:
        clock: gives `Tx.now`.
        executors: run the functions; closed with the store.
        listeners: called for commits of other processes.
        counts: of the engines, each written by its own thread.
        poll: checks at once whether another process has committed.
        max_waiting_writes, max_waiting_reads: the limits of the executors, for the statistics.
        readers, writers: the numbers of reads, beside the reserved ones, and of writes that run at
            once.
        notices: notifies other processes of commits; None if the database does, or nothing does.
    """

    def __init__(
        self,
        clock: Clock,
        executors: Executors,
        listeners: Listeners,
        counts: Sequence[EngineCounts],
        *,
        poll: Callable[[], None],
        max_waiting_writes: int,
        max_waiting_reads: int,
        readers: int,
        writers: int,
        notices: CommitNotices | None = None,
    ) -> None:
        self.readers, self.writers = readers, writers
        self._clock = clock
        self._writes, self._reads, self._lookups, self._closed = executors
        self._listeners, self._counts = listeners, tuple(counts)
        self._poll, self._notices = poll, notices
        self._max_writes, self._max_reads = max_waiting_writes, max_waiting_reads
        self._notice_pending = False
        self.tracer: Tracer | None = None
        """Adds transactions to the traces of their callers; None: tracing is off."""

    async def write(self, fn: Callable[[Tx], T], *, durable: bool = True) -> T:
        """Run `fn` in its own transaction and return its result once it is durable.

        `fn` is a short synchronous function, without hashing, DNS or HTTP. It runs in another
        thread, at most once, and in the order of the calls. If it raises, its changes are undone
        and the exception is raised here.

        Without `durable` the result is returned after the commit, before the disk has it. Every
        process sees the commit, and it survives the death of every process, but a power failure may
        undo it until a later durable write returns, even one without changes (on PostgreSQL: or
        until the WAL writer has run). Use it for work that may be repeated, such as a lease.

        A call that is cancelled before `fn` has begun is withdrawn and changes nothing. Once `fn`
        has begun, the call waits for it and its commit: the result is returned, and the
        cancellation is delivered at the caller's next checkpoint.

        Raises: OverloadedError when too many calls wait or the database cannot write (locked by
            another process, full disk, I/O error). Nothing was changed then, unless the disk failed
            during the commit itself; only a later read can tell.
        """
        if self.tracer is not None:
            execute = partial(self._writes.execute, now=self._clock.now(), durable=durable)
            return await self.tracer.transaction("write", execute, fn)
        result: T = await self._writes.execute(fn, self._clock.now(), durable=durable)
        return result

    async def read(self, fn: Callable[[Tx], T], *, reserved: bool = False) -> T:
        """Run `fn` against one snapshot, in parallel with writers, and return its result.

        It sees every write that was answered before the call. A call that is cancelled before `fn`
        has begun is withdrawn; later its statement is interrupted, and the caller gets the
        cancellation.

        `reserved`: run it on a thread that never runs searches. For short reads by key that must
        not wait behind searches: sessions, sign-in attempts, readiness. PostgreSQL gives them no
        snapshot: each statement sees what is committed when it runs.

        Raises: OverloadedError when too many calls wait, when the call has waited or `fn` has run
            longer than the time limit of a query (`extra.reason` is set for the latter), or when
            the database cannot be read.
        """
        executor = self._lookups if reserved else self._reads
        if self.tracer is not None:
            execute = partial(executor.execute, now=self._clock.now())
            return await self.tracer.transaction("read", execute, fn)
        result: T = await executor.execute(fn, self._clock.now())
        return result

    def on_external_commit(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` on trio's thread when another process has committed.

        It is called within about a second, or at once if the other process calls `notify_others`.
        One call may stand for several commits, and a call may come without a commit.

        Returns: a function that removes the callback.
        """
        if self._notices is not None:
            self._notices.listen()
        return self._listeners.add(callback)

    def notify_others(self) -> None:
        """Notify the processes that wait for commits of others.

        Several calls in one run of trio's loop send one notice.
        """
        if self._notices is not None and not self._notice_pending:
            self._notice_pending = True  # each call of run_sync_soon costs a system call
            trio.lowlevel.current_trio_token().run_sync_soon(self._notify)

    def _notify(self) -> None:
        self._notice_pending = False
        if self._notices is not None:
            self._notices.send()

    def poll(self) -> None:
        """Check at once for commits of other processes, instead of within a second."""
        self._poll()

    def statistics(self) -> StoreStatistics:
        """Return the store's statistics, and log the calls that have run for too long.

        Another call would log them too, but a site without users may make none.
        """
        counts = self._counts
        executors = (self._writes, self._reads, self._lookups)
        for executor in executors:
            executor.report_slow()
        return StoreStatistics(
            waiting_writes=self._writes.waiting,
            waiting_reads=self._reads.waiting + self._lookups.waiting,
            max_waiting_writes=self._max_writes,
            max_waiting_reads=self._max_reads,
            commits=sum(each.commits for each in counts),
            committed=sum(each.committed for each in counts),
            rolled_back=sum(each.rolled_back for each in counts),
            refused=sum(each.refused for each in counts) + self._writes.refused,
            skipped=sum(executor.skipped for executor in executors),
            reads=sum(each.reads for each in counts),
            largest_group=max(each.largest_group for each in counts),
            external_commits=sum(each.external_commits for each in counts),
            longest_write_seconds=self._writes.longest_seconds,
            longest_read_seconds=max(self._reads.longest_seconds, self._lookups.longest_seconds),
        )

    async def close(self) -> None:
        """Answer the waiting calls, then close the connections, writers last."""
        await self._lookups.close()
        await self._reads.close()
        await self._writes.close()
        if self._closed is not None:
            self._closed()
        if self._notices is not None:
            self._notices.close()


MAX_USER_SHARES: Final = 1_000
"""The number of users from which those without a running call are forgotten, slow ones too."""


class _CallDeferred(Exception):
    """Raised by a call that has not begun because the calls of its user are slow by now."""


class _UserShare:
    """The calls of one user; `is_slow` and `slow_calls` are set in the threads that run them."""

    __slots__ = ("calls", "is_slow", "limiter", "slow_at", "slow_calls", "slow_calls_seen")

    def __init__(self) -> None:
        self.calls = 0
        self.is_slow = False
        self.slow_calls = self.slow_calls_seen = 0
        self.slow_at = -inf  # trio's time when one ended
        self.limiter: trio.CapacityLimiter | None = None

    def timed(self, fn: Callable[[Tx], T], slow_seconds: float, tx: Tx) -> T:
        """Run `fn` in a thread of the store, and record whether it takes `slow_seconds`."""
        began = time.perf_counter()
        try:
            return fn(tx)
        finally:
            if time.perf_counter() - began - tx.waited_seconds > slow_seconds:
                self.slow_calls += 1
                self.is_slow = True

    def timed_unless_slow(self, fn: Callable[[Tx], T], slow_seconds: float, tx: Tx) -> T:
        """Run `fn` as `timed` does. Raises: _CallDeferred, at once."""
        if self.is_slow:
            raise _CallDeferred
        return self.timed(fn, slow_seconds, tx)


class UserShares:
    """Limits the calls of a user that are in the store at once, while they are slow.

    Otherwise the searches of one user could hold all readers, and every other read would wait until
    it is refused; and a write would wait for all the slow ones that one user has sent before it.
    Short calls are not limited: reads would take twice as long one after the other, and writes
    could not share a commit.
    """

    def __init__(
        self,
        threads: int,
        slow_seconds: float,
        slow_user_seconds: float,
        max_wait_seconds: float,
        refusal: str,
    ) -> None:
        """Args:
        threads: those of the store that run the calls; one is left to the other users, if there
            are several.
        slow_seconds: a call that takes longer is slow.
        slow_user_seconds: the time after a slow call for which the calls of its user are limited.
        max_wait_seconds: a call that has waited longer for its user's share is refused.
        refusal: the message of that refusal.
        """
        self._at_once = max(1, threads - 1)
        self._slow_seconds, self._slow_user_seconds = slow_seconds, slow_user_seconds
        self._max_wait_seconds, self._refusal = max_wait_seconds, refusal
        self._shares: dict[str, _UserShare] = {}

    def __len__(self) -> int:
        return len(self._shares)

    async def run(
        self, execute: Callable[[Callable[[Tx], T]], Awaitable[T]], user: str, fn: Callable[[Tx], T]
    ) -> T:
        """Run `fn` by `execute`, which is `Store.read` or `Store.write`, within the user's share.

        Raises: what `execute` raises; OverloadedError if the user's share was not free in time.
        """
        share = self._share_of(user)
        share.calls += 1
        try:
            if not share.is_slow:
                with suppress(_CallDeferred):
                    return await execute(partial(share.timed_unless_slow, fn, self._slow_seconds))
            return await self._limited(execute, share, fn)
        finally:
            self._end_call(user, share)

    async def _limited(
        self,
        execute: Callable[[Callable[[Tx], T]], Awaitable[T]],
        share: _UserShare,
        fn: Callable[[Tx], T],
    ) -> T:
        if share.limiter is None:
            share.limiter = trio.CapacityLimiter(self._at_once)
        with trio.move_on_after(self._max_wait_seconds) as scope:
            await share.limiter.acquire()
        if scope.cancelled_caught:
            raise OverloadedError(self._refusal)
        try:
            return await execute(partial(share.timed, fn, self._slow_seconds))
        finally:
            share.limiter.release()

    def _share_of(self, user: str) -> _UserShare:
        share = self._shares.get(user)
        if share is None:
            if len(self._shares) >= MAX_USER_SHARES:
                self._shares = {name: each for name, each in self._shares.items() if each.calls}
            share = self._shares[user] = _UserShare()
        elif (
            share.is_slow
            and share.slow_calls == share.slow_calls_seen  # else one is being committed
            and trio.current_time() > share.slow_at + self._slow_user_seconds
        ):
            share.is_slow = False
        return share

    def _end_call(self, user: str, share: _UserShare) -> None:
        share.calls -= 1
        if share.slow_calls != share.slow_calls_seen:
            share.slow_calls_seen, share.slow_at = share.slow_calls, trio.current_time()
            share.is_slow = True
        elif not share.calls and not share.is_slow:
            del self._shares[user]
