"""The store on SQLite: one writer with group commit, a few readers of snapshots."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

import outcome

from fw_actors.runtime.clock import Clock, Entropy
from fw_actors.store.executor import (
    EngineCounts,
    Executor,
    InlineExecutor,
    Pull,
    SerialisingLock,
    ThreadExecutor,
    WorkItem,
    open_in_thread,
    run_alone,
)
from fw_actors.store.migrations import migrate
from fw_actors.store.query_limits import QueryLimit, QueryWatch
from fw_actors.store.sqlite_connection import (
    SqliteConnection,
    make_file,
    open_error,
    overloaded,
)
from fw_actors.store.sqlite_transaction import SqliteTx
from fw_actors.store.store import Listeners, Store

MAX_WAITING_WRITES: Final = 4096
MAX_WAITING_READS: Final = 1024
READER_THREADS: Final = 2
LOOKUP_THREADS: Final = 1
BUSY_SECONDS: Final = 3.0
MIGRATION_BUSY_SECONDS: Final = 30.0


@asynccontextmanager
async def open_sqlite(
    path: Path,
    *,
    clock: Clock,
    entropy: Entropy,
    inline: bool = False,
    max_waiting_writes: int = MAX_WAITING_WRITES,
    max_waiting_reads: int = MAX_WAITING_READS,
    reader_threads: int = READER_THREADS,
    busy_seconds: float = BUSY_SECONDS,
    query_seconds: float | None = None,
) -> AsyncIterator[Store]:
    """Open the database at `path`, make or migrate its tables, and close it at the end.

    Folder and file are made when they are missing, readable by their owner alone. Leaving the
    block answers the calls that wait and refuses further ones.

    Args:
        clock: gives `Tx.now`.
        entropy: makes the installation's key in a new database.
        inline: run every call on the caller's task, after a checkpoint, without threads and
            without waiting for the disk: for deterministic tests, where nothing must outlive
            the machine. Commits of other processes are noticed in `poll` alone.
        max_waiting_writes, max_waiting_reads: calls that may wait; more raise OverloadedError.
        busy_seconds: how long a group of writes waits for another process's transaction.
        query_seconds: how long a read, or a search inside a write, may take; None: without end.
            Inline calls are not interrupted.

    Raises: ConfigurationError when the file can't be opened, is no database, or is newer than
        this program; OverloadedError when another process keeps it locked.
    """
    opening = partial(
        _open,
        path,
        now=clock.now(),
        entropy=entropy,
        readers=1 if inline else reader_threads + LOOKUP_THREADS,
        durable=not inline,
        busy_seconds=busy_seconds,
        query_seconds=query_seconds,
    )
    engines = opening() if inline else await open_in_thread(opening, _Engines.close)
    store = _store(
        clock, engines, max_waiting_writes, max_waiting_reads, query_seconds, inline=inline
    )
    try:
        yield store
    finally:
        await store.close()


@dataclass(frozen=True)
class _Engines:
    writer: GroupCommit
    readers: tuple[SnapshotReads, ...]
    limits: tuple[QueryLimit, ...]

    def close(self) -> None:
        """Close the connections; no thread serves them yet."""
        for reader in self.readers:
            reader.close()
        self.writer.close()


def _open(
    path: Path,
    *,
    now: int,
    entropy: Entropy,
    readers: int,
    durable: bool,
    busy_seconds: float,
    query_seconds: float | None,
) -> _Engines:
    make_file(path)
    opened: list[SqliteConnection] = []
    connect = partial(SqliteConnection, path, query_seconds=query_seconds)
    try:
        connection = connect(busy_seconds=MIGRATION_BUSY_SECONDS, durable=durable)
        opened.append(connection)
        writer = GroupCommit(connection)
        run_alone(writer, lambda tx: migrate(tx, entropy), now)
        connection.wait_for_locks(busy_seconds)
        while len(opened) <= readers:
            opened.append(connect(busy_seconds=busy_seconds, writable=False))
        readings = tuple(SnapshotReads(reader) for reader in opened[1:])
        return _Engines(writer, readings, tuple(each.limit for each in opened))
    except BaseException as error:
        for connection in opened:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise open_error(path, error) from error
        raise


def _store(
    clock: Clock,
    engines: _Engines,
    max_writes: int,
    max_reads: int,
    query_seconds: float | None,
    *,
    inline: bool,
) -> Store:
    listeners = Listeners()
    writes: Executor
    reads: Executor
    lookups: Executor
    closed: Callable[[], None] | None = None
    if inline:
        writes = InlineExecutor(engines.writer, listeners.notify)
        reads = lookups = InlineExecutor(engines.readers[0])
    else:
        watch = QueryWatch(engines.limits, query_seconds)
        closed = watch.close
        read_executor = partial(
            ThreadExecutor,
            capacity=max_reads,
            serialising=SerialisingLock(SNAPSHOT_SECONDS),
            longest_wait=inf if query_seconds is None else query_seconds,
            abandoned=watch.check_now,
        )
        writes = ThreadExecutor("fw-writer", [engines.writer], max_writes, listeners.notify)
        reads = read_executor("fw-reader", engines.readers[LOOKUP_THREADS:])
        lookups = read_executor("fw-lookup", engines.readers[:LOOKUP_THREADS])
    return Store(
        clock,
        writes,
        reads,
        lookups,
        listeners,
        [engines.writer.counts, *(reader.counts for reader in engines.readers)],
        poll=writes.poll,
        max_waiting_writes=max_writes,
        max_waiting_reads=max_reads,
        closed=closed,
    )


MAX_MEMBERS: Final = 512
MAX_SECONDS: Final = 0.025

_log: Final = logging.getLogger(__name__)


class _GroupLost(Exception):
    """Raised when the group's transaction is lost: no member may be reported as committed."""


class GroupCommit:
    """The engine of the writer.

    Each member but the first runs in a savepoint, so that one that raises is undone alone. The
    first needs none: when it raises there is nothing else to keep, the transaction is rolled
    back, and the next group begins with whoever waits. A group that waits for the disk takes in
    what arrives while it runs, up to `MAX_MEMBERS` calls and `MAX_SECONDS`; another one has those
    alone who waited at its beginning (`ThreadExecutor`).
    """

    def __init__(self, connection: SqliteConnection) -> None:
        self.counts = EngineCounts()
        self._connection = connection
        self._version = connection.data_version()

    def run(self, pull: Pull) -> list[WorkItem]:
        """Run one group and make it durable. See `Engine.run`."""
        taken: list[WorkItem] = []
        try:
            self._run(pull, taken)
        except BaseException as error:  # a defect here must not leave callers waiting for ever
            _log.exception("a group of writes failed")
            self._refuse([item for item in taken if item.begun or item.begin()], error)
        return taken

    def poll(self) -> bool:
        """Return whether another process has committed; commits on this connection don't count."""
        try:
            version = self._connection.data_version()
        except Exception as error:  # also MemoryError, which must not end the thread
            _log.warning("could not look for commits of other processes: %s", error)
            return False
        changed = version != self._version
        self._version = version
        self.counts.external_commits += changed
        return changed

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _run(self, pull: Pull, taken: list[WorkItem]) -> None:
        self._roll_back()
        first = pull()
        if first is None:
            return
        taken.append(first)
        try:
            self._connection.wait_for_disk(first.durable)
            self._connection.begin()
        except sqlite3.Error as error:
            self._refuse_waiting(pull, taken, error)
            return
        members: list[WorkItem] = []
        try:
            still_open = self._run_members(first, pull, taken, members)
            if still_open:
                self._connection.commit()
        except (_GroupLost, sqlite3.Error) as error:
            self._refuse(members, error.__cause__ if isinstance(error, _GroupLost) else error)
            return
        self._count(members, committed=still_open)

    def _run_members(
        self, first: WorkItem, pull: Pull, taken: list[WorkItem], members: list[WorkItem]
    ) -> bool:
        """Run items until none waits; return whether there is a transaction to commit."""
        deadline = time.monotonic() + MAX_SECONDS
        item: WorkItem | None = first
        while item is not None:
            if item.begin():  # else it was cancelled while it waited
                members.append(item)
                if len(members) > 1:
                    self._run_further(item)
                elif not self._run_first(item):
                    return False
            full = len(taken) >= MAX_MEMBERS or time.monotonic() > deadline
            item = None if full else pull()
            if item is not None:
                taken.append(item)
        return True

    def _run_first(self, item: WorkItem) -> bool:
        if self._succeeds(item):
            return True
        self._connection.execute("ROLLBACK")
        return False

    def _run_further(self, item: WorkItem) -> None:
        self._connection.execute("SAVEPOINT member")
        if not self._succeeds(item):
            self._connection.execute("ROLLBACK TO member")
            self._connection.note_rollback()
        self._connection.execute("RELEASE member")

    def _succeeds(self, item: WorkItem) -> bool:
        """Run the function once and keep what came of it.

        Raises: _GroupLost when SQLite ended the transaction by itself (full disk, I/O error, no
            memory). The work of earlier members is gone then, so they can't be told otherwise,
            and a later one would write without a transaction.
        """
        tx = SqliteTx(self._connection, item.now)
        try:
            item.answer = outcome.Value(item.fn(tx))
        except BaseException as error:
            item.answer = outcome.Error(error)
        tx.end()
        if not self._connection.in_transaction:
            raise _GroupLost from tx.failure
        if isinstance(item.answer, outcome.Error):
            return False
        item.callbacks = tx.callbacks
        return True

    def _refuse_waiting(self, pull: Pull, taken: list[WorkItem], error: sqlite3.Error) -> None:
        """Refuse all waiting items: each has waited for the lock as long as the first."""
        while (item := pull()) is not None:
            taken.append(item)
        self._refuse([item for item in taken if item.begin()], error)

    def _refuse(self, members: list[WorkItem], error: BaseException | None) -> None:
        for item in members:
            item.refuse(overloaded(error))
        self.counts.refused += len(members)
        self._roll_back()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(Exception):  # tried again before the next group begins
                self._connection.execute("ROLLBACK")

    def _count(self, members: list[WorkItem], *, committed: bool) -> None:
        counts = self.counts
        if not members:
            return
        failed = sum(isinstance(item.answer, outcome.Error) for item in members)
        counts.rolled_back += failed
        counts.committed += len(members) - failed
        counts.commits += committed
        counts.largest_group = max(counts.largest_group, len(members))


MAX_READS: Final = 32
SNAPSHOT_SECONDS: Final = 0.002


class SnapshotReads:
    """The engine of a reader.

    A few reads that wait are served together, because each way back to trio's thread costs
    more than a short read; a long one is answered at once. Those that were asked for before the
    snapshot of the first began share it: each statement, BEGIN and ROLLBACK too, takes the
    interpreter's lock from trio's thread.
    """

    def __init__(self, connection: SqliteConnection) -> None:
        self.counts = EngineCounts()
        self._connection = connection
        self._began = 0.0  # when the snapshot at hand began, by time.monotonic()

    @property
    def is_reading(self) -> bool:
        """Whether a snapshot is open."""
        return self._connection.in_transaction

    def run(self, pull: Pull) -> list[WorkItem]:
        """Run a few waiting reads on shared snapshots."""
        taken: list[WorkItem] = []
        deadline = time.monotonic() + SNAPSHOT_SECONDS
        try:
            while len(taken) < MAX_READS and (item := pull()) is not None:
                taken.append(item)
                if item.begin():
                    self._read(item)
                    self.counts.reads += 1
                if time.monotonic() > deadline:
                    break
        finally:
            with suppress(Exception):  # tried again before the next snapshot
                self._end()
        return taken

    def poll(self) -> bool:
        """Return False: the writer polls."""
        return False

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _read(self, item: WorkItem) -> None:
        try:
            self._begin(item)
        except Exception as error:  # MemoryError is not an sqlite3.Error
            item.refuse(overloaded(error))
            return
        tx = SqliteTx(self._connection, item.now)
        limit = self._connection.limit
        limit.begin(self._connection.raw.interrupt, item, tx)
        try:
            item.answer = outcome.Value(item.fn(tx))
            item.callbacks = tx.callbacks
        except BaseException as error:
            item.answer = outcome.Error(error)
        finally:
            limit.end()
        tx.end()

    def _begin(self, item: WorkItem) -> None:
        """Begin a snapshot, unless the one at hand began after `item` was made."""
        if self._connection.in_transaction:
            if item.made < self._began:
                return
            self._end()
        self._began = time.monotonic()
        self._connection.execute("BEGIN")  # the snapshot is that of the first statement

    def _end(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")  # nothing was written
