"""The store: transactions on the executors of one database, and its statistics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio

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
        """Return the store's statistics."""
        counts = self._counts
        executors = (self._writes, self._reads, self._lookups)
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
