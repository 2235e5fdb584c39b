"""Opens the store on SQLite, and exchanges notices of commits with other processes on its file.

There is one writer with group commit, and a few readers of snapshots. A process that serves the
file polls it once a second for commits of others. A notice only makes it poll at once, so a lost or
forged notice does no harm. Notices are datagrams on Unix sockets with names in the abstract
namespace of Linux, so a killed process leaves no file behind. Without a shared namespace, processes
only poll.
"""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from fw_actors.errors import ConfigurationError, DatabaseUnreachableError
from fw_actors.runtime.clock import Clock, Entropy
from fw_actors.store.executor import (
    Executors,
    SerialisingLock,
    ThreadExecutor,
    inline_executors,
    open_in_thread,
    run_alone,
)
from fw_actors.store.migrations import is_migrated, migrate
from fw_actors.store.query_limits import QueryLimit, QueryWatch
from fw_actors.store.sqlite_connection import SqliteConnection, is_damaged, translate
from fw_actors.store.sqlite_engine import SNAPSHOT_SECONDS, GroupCommit, SnapshotReads
from fw_actors.store.store import (
    LOCK_SECONDS,
    MAX_WAITING_READS,
    MAX_WAITING_WRITES,
    MIGRATION_LOCK_SECONDS,
    Listeners,
    Store,
)

READER_THREADS: Final = 2
LOOKUP_THREADS: Final = 1


@asynccontextmanager
async def open_sqlite(
    path: Path,
    *,
    clock: Clock,
    entropy: Entropy,
    inline: bool = False,
    durable: bool = True,
    max_waiting_writes: int = MAX_WAITING_WRITES,
    max_waiting_reads: int = MAX_WAITING_READS,
    reader_threads: int = READER_THREADS,
    busy_seconds: float = LOCK_SECONDS,
    query_seconds: float | None = None,
) -> AsyncIterator[Store]:
    """Open the database at `path`, make or migrate its tables, and close it at the end.

    A missing folder and file are created, readable only by their owner. Leaving the block answers
    the waiting calls and refuses further ones.

    Args:
        clock: gives `Tx.now`.
        entropy: makes the installation's key in a new database.
        inline: run every call on the caller's task, after a checkpoint, without threads: for
            `fw shell` and deterministic tests. Commits of other processes are noticed only by
            `poll`.
        durable: commits wait for the disk; False is for tests, whose data need not survive a power
            failure.
        max_waiting_writes, max_waiting_reads: calls that may wait; more raise OverloadedError.
        busy_seconds: the time that a group of writes waits for another process's transaction.
        query_seconds: the time limit of a read, or of a search inside a write; None: no limit.
            Inline calls are not interrupted.

    Raises: ConfigurationError when the file cannot be opened, is not a database, or is newer than
        this program; OverloadedError when another process keeps it locked.
    """
    opening = partial(
        _open,
        path,
        now=clock.now(),
        entropy=entropy,
        readers=1 if inline else reader_threads + LOOKUP_THREADS,
        durable=durable,
        busy_seconds=busy_seconds,
        query_seconds=query_seconds,
    )
    engines = opening() if inline else await open_in_thread(opening, _Engines.close)
    store = _store(
        path, clock, engines, max_waiting_writes, max_waiting_reads, query_seconds, inline=inline
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
        """Close the connections. Called when no thread has begun to use them."""
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
        connection = connect(busy_seconds=MIGRATION_LOCK_SECONDS, durable=durable)
        opened.append(connection)
        opened.append(connect(busy_seconds=busy_seconds, writable=False))
        writer, reading = GroupCommit(connection), SnapshotReads(opened[1])
        if not run_alone(reading, is_migrated, now):  # waits for no write, which may hang
            run_alone(writer, lambda tx: migrate(tx, entropy), now)
        connection.busy_seconds = busy_seconds
        while len(opened) <= readers:
            opened.append(connect(busy_seconds=busy_seconds, writable=False))
        readings = (reading, *(SnapshotReads(reader) for reader in opened[2:]))
        return _Engines(writer, readings, tuple(each.limit for each in opened))
    except BaseException as error:
        for connection in opened:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise open_error(path, error) from error
        raise


def _store(
    path: Path,
    clock: Clock,
    engines: _Engines,
    max_writes: int,
    max_reads: int,
    query_seconds: float | None,
    *,
    inline: bool,
) -> Store:
    listeners = Listeners()
    if inline:
        reader = engines.readers[0]
        executors = inline_executors(engines.writer, reader, reader, listeners.notify)
        notices = None
    else:
        executors = _thread_executors(engines, listeners, max_writes, max_reads, query_seconds)
        notices = CommitNotices(path, executors.writes.poll)
    return Store(
        clock,
        executors,
        listeners,
        [engines.writer.counts, *(reader.counts for reader in engines.readers)],
        poll=executors.writes.poll,
        max_waiting_writes=max_writes,
        max_waiting_reads=max_reads,
        readers=max(1, len(engines.readers) - LOOKUP_THREADS),
        writers=1,
        notices=notices,
    )


def _thread_executors(
    engines: _Engines,
    listeners: Listeners,
    max_writes: int,
    max_reads: int,
    query_seconds: float | None,
) -> Executors:
    watch = QueryWatch(engines.limits, query_seconds)
    read_executor = partial(
        ThreadExecutor,
        capacity=max_reads,
        serialising=SerialisingLock(SNAPSHOT_SECONDS),
        max_wait_seconds=inf if query_seconds is None else query_seconds,
        abandoned=watch.check_now,
    )
    return Executors(
        ThreadExecutor("fw-writer", [engines.writer], max_writes, listeners.notify),
        read_executor("fw-reader", engines.readers[LOOKUP_THREADS:]),
        read_executor("fw-lookup", engines.readers[:LOOKUP_THREADS]),
        watch.close,
    )


MIN_SQLITE_VERSION: Final = (3, 35, 0)  # RETURNING, MATERIALIZED


def make_file(path: Path) -> None:
    """Create the database's folder and file if they are missing, readable by the process's user
    only.

    Raises: ConfigurationError when that fails, or this SQLite is too old; DatabaseUnreachableError
        when the database is missing, and its log is there.
    """
    if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
        oldest = ".".join(map(str, MIN_SQLITE_VERSION))
        raise ConfigurationError(
            [f"SQLite {sqlite3.sqlite_version} is too old; {oldest} or newer is needed."]
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_log_alone(path)
        _make(path)
    except OSError as error:
        raise ConfigurationError(
            [f"The database {path} cannot be opened: {error.strerror}."]
        ) from error


def _refuse_log_alone(path: Path) -> None:
    """Refuse to create a database beside the log of one that was moved or deleted.

    SQLite would delete the log, with the last commits of a database that may be put back. A process
    that creates the database meanwhile makes its log later.
    """
    database = os.path.realpath(path)
    log = f"{database}-wal"
    if os.path.exists(log) and not os.path.exists(database):
        raise DatabaseUnreachableError(
            [
                f"The database {path} is missing, but its log {os.path.basename(log)} is there, "
                "which may hold its last commits: put the database back, or restore a backup "
                "(fw restore). To begin a new site, delete the log."
            ]
        )


def _make(path: Path) -> None:
    """Create an empty file if it does not exist; an existing file is not opened.

    Closing any descriptor of a file releases all POSIX locks that this process has on it, including
    those of other stores on it. The next program that closes the database would then consider
    itself the last one, and delete the log that the stores still write to.

    Raises: OSError, also if the file exists and may not be read and written.
    """
    behind_links = os.path.realpath(path)
    try:
        os.close(os.open(behind_links, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
        if not os.access(path, os.R_OK | os.W_OK):
            is_read_only = os.statvfs(path).f_flag & os.ST_RDONLY
            reason = errno.EROFS if is_read_only else errno.EACCES
            raise OSError(reason, os.strerror(reason)) from None


def open_error(path: Path, error: sqlite3.Error) -> Exception:
    """Return the error of opening `path` for SQLite's `error`."""
    if is_damaged(error):
        return ConfigurationError([f"The file {path} is not an intact SQLite database: {error}."])
    return translate(error)


MAX_LISTENERS: Final = 8
"""The number of processes that listen for notices of one file; further ones only poll."""
UNHEARD_SECONDS: Final = 0.1
"""The time for which no notice is sent to a name that no process listens at. Most names are free,
and a notice to each of them at each commit would cost more than the one that is heard."""


def socket_names(path: Path) -> list[bytes]:
    """Return the possible names of the listening sockets of a file."""
    if sys.platform != "linux":
        return []
    file = os.stat(path)
    return [b"\0fw-%d-%d-%d" % (file.st_dev, file.st_ino, n) for n in range(MAX_LISTENERS)]


class CommitNotices:
    """Sends notices of this process's commits, and receives notices of others once it listens.

    Args:
        path: of the database; it exists.
        received: called in another thread for one or more notices.
    """

    def __init__(self, path: Path, received: Callable[[], None]) -> None:
        self._names = socket_names(path)
        self._unheard_until: dict[bytes, float] = {}
        self._received = received
        self._sender: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._closing = False

    def send(self) -> None:
        """Notify the listening processes of a commit, if a socket can be opened."""
        if self._sender is None:
            try:
                self._sender = _datagram_socket()
            except OSError:  # at the limit of open files; an exception here would end trio's loop
                return
        now = time.monotonic()
        for name in self._names:
            if self._unheard_until.get(name, 0.0) > now:
                continue
            try:
                self._sender.sendto(b"!", name)
            except BlockingIOError:
                pass  # the full queue already contains a notice
            except OSError:
                self._unheard_until[name] = now + UNHEARD_SECONDS

    def listen(self) -> None:
        """Begin to receive notices; a second call does nothing."""
        if self._listener is not None:
            return
        for name in self._names:
            listener = _datagram_socket()
            try:
                listener.bind(name)
            except OSError:
                listener.close()
                continue
            self._listener = listener
            self._unheard_until.clear()  # `close` sends to this name
            listener.setblocking(True)
            threading.Thread(
                target=self._serve, args=(listener,), name="fw-notices", daemon=True
            ).start()
            return

    def close(self) -> None:
        """Stop listening."""
        self._closing = True
        if self._listener is not None:
            self.send()  # wakes the thread
        if self._sender is not None:
            self._sender.close()

    def _serve(self, listener: socket.socket) -> None:
        with listener:
            while not self._closing:
                listener.recv(1)
                with suppress(BlockingIOError):
                    while True:
                        listener.recv(1, socket.MSG_DONTWAIT)
                if not self._closing:
                    self._received()


def _datagram_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made
