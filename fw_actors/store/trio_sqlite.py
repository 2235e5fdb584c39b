"""Opens the store on SQLite: one writer with group commit, a few readers of snapshots."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import trio

from fw_actors.runtime.clock import Clock
from fw_actors.runtime.entropy import Entropy
from fw_actors.store.calls import Call
from fw_actors.store.contract import Store, StoreStatistics
from fw_actors.store.lanes import InlineLane, Lane, ThreadLane
from fw_actors.store.migrations import migrate
from fw_actors.store.sqlite_connection import SqliteConnection, make_file, refusal_to_open
from fw_actors.store.sqlite_groups import GroupCommit
from fw_actors.store.sqlite_snapshots import SnapshotReads
from fw_actors.store.transaction import Tx

MAX_WAITING_WRITES: Final = 4096
MAX_WAITING_READS: Final = 1024
READER_THREADS: Final = 2
BUSY_SECONDS: Final = 3.0
MIGRATION_BUSY_SECONDS: Final = 30.0

T = TypeVar("T")
_log: Final = logging.getLogger(__name__)


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
) -> AsyncIterator[Store]:
    """Open the database at `path`, make or migrate its tables, and close it at the end.

    Folder and file are made when they are missing, readable by their owner alone. Leaving the
    block answers the calls that wait and refuses further ones.

    Args:
        clock: gives `Tx.now`.
        entropy: makes the installation's key in a new database.
        inline: run every call on the caller's task, after a checkpoint, without threads and
            without waiting for the disk: for deterministic tests, where nothing must outlive
            the machine. Commits of other processes are noticed in `look_now` alone.
        max_waiting_writes, max_waiting_reads: calls that may wait; more raise OverloadedError.
        busy_seconds: how long a group of writes waits for another process's transaction.

    Raises: ConfigurationError when the file can't be opened, is no database, or is newer than
        this program; OverloadedError when another process keeps it locked.
    """
    opening = partial(
        _open,
        path,
        now=clock.now(),
        entropy=entropy,
        readers=1 if inline else reader_threads,
        durable=not inline,
        busy_seconds=busy_seconds,
    )
    engines = opening() if inline else await trio.to_thread.run_sync(opening)
    store = _SqliteStore(clock, engines, max_waiting_writes, max_waiting_reads, inline=inline)
    try:
        yield store
    finally:
        await store.close()


@dataclass(frozen=True)
class _Engines:
    writer: GroupCommit
    readers: tuple[SnapshotReads, ...]


def _open(
    path: Path, *, now: int, entropy: Entropy, readers: int, durable: bool, busy_seconds: float
) -> _Engines:
    make_file(path)
    opened: list[SqliteConnection] = []
    try:
        connection = SqliteConnection(path, busy_seconds=MIGRATION_BUSY_SECONDS, durable=durable)
        opened.append(connection)
        writer = GroupCommit(connection)
        _run_alone(writer, lambda tx: migrate(tx, entropy), now)
        connection.wait_for_locks(busy_seconds)
        while len(opened) <= readers:
            opened.append(SqliteConnection(path, busy_seconds=busy_seconds, writable=False))
        return _Engines(writer, tuple(SnapshotReads(reader) for reader in opened[1:]))
    except BaseException as error:
        for connection in opened:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise refusal_to_open(path, error) from error
        raise


def _run_alone(engine: GroupCommit, fn: Callable[[Tx], object], now: int) -> None:
    calls = [call := Call(fn, now)]
    engine.run(lambda: calls.pop() if calls else None)
    assert call.answer is not None
    call.answer.unwrap()


class _SqliteStore:
    """See `Store`."""

    def __init__(
        self, clock: Clock, engines: _Engines, max_writes: int, max_reads: int, *, inline: bool
    ) -> None:
        self._clock = clock
        self._engines = engines
        self._max_writes = max_writes
        self._max_reads = max_reads
        self._listeners: dict[object, Callable[[], None]] = {}
        self._writes: Lane
        self._reads: Lane
        if inline:
            self._writes = InlineLane(engines.writer, self._tell_listeners)
            self._reads = InlineLane(engines.readers[0])
        else:
            self._writes = ThreadLane(
                "fw-writer", [engines.writer], max_writes, self._tell_listeners
            )
            self._reads = ThreadLane("fw-reader", engines.readers, max_reads)

    async def write(self, fn: Callable[[Tx], T]) -> T:
        result: T = await self._writes.call(fn, self._clock.now())
        return result

    async def read(self, fn: Callable[[Tx], T]) -> T:
        result: T = await self._reads.call(fn, self._clock.now())
        return result

    def on_foreign_commit(self, callback: Callable[[], None]) -> Callable[[], None]:
        key = object()
        self._listeners[key] = callback

        def end() -> None:
            self._listeners.pop(key, None)

        return end

    def look_now(self) -> None:
        self._writes.look_now()

    def statistics(self) -> StoreStatistics:
        counts = self._engines.writer.counts
        return StoreStatistics(
            waiting_writes=self._writes.waiting,
            waiting_reads=self._reads.waiting,
            max_waiting_writes=self._max_writes,
            max_waiting_reads=self._max_reads,
            commits=counts.commits,
            committed=counts.committed,
            rolled_back=counts.rolled_back,
            refused=counts.refused + self._writes.refused,
            skipped=self._writes.skipped + self._reads.skipped,
            reads=sum(reader.reads for reader in self._engines.readers),
            largest_group=counts.largest_group,
            foreign_commits=counts.foreign_commits,
        )

    async def close(self) -> None:
        """Answer what waits, then close the connections; the writer is last to go."""
        await self._reads.close()
        await self._writes.close()

    def _tell_listeners(self) -> None:
        for callback in tuple(self._listeners.values()):
            try:
                callback()
            except Exception:
                _log.exception("a listener for commits of other processes failed")
