"""Opens the store on PostgreSQL, and exchanges notices of commits with other processes on it.

The store has a bounded pool of connections in worker threads. Notices are LISTEN and NOTIFY. A
NOTIFY inside a transaction serialises all such commits, including their waits for the disk
(measured with 16 writers: 3,600 transactions/s without, 570 with). It is therefore sent after the
commit, once for several commits, on a separate connection. If a process dies in between, the others
find its work within a second, because every queue is polled.

The module has more than 500 lines because opening a store also starts its notices.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from math import ceil, inf
from typing import Any, Final, NamedTuple

import psycopg
import trio
from sqlalchemy import text

from fw_actors.errors import ConfigurationError, DatabaseUnreachableError
from fw_actors.runtime.clock import MS_PER_SECOND, Clock, Entropy
from fw_actors.store.backup import INTERRUPTED, RESTORING
from fw_actors.store.executor import (
    EngineCounts,
    Executors,
    RefusedWrites,
    ThreadExecutor,
    inline_executors,
    open_in_thread,
    run_alone,
)
from fw_actors.store.migrations import migrate
from fw_actors.store.postgres_connection import (
    ANSWER_SECONDS,
    ConnectionPool,
    PostgresConnection,
    PostgresSettings,
    ReconnectBackoff,
    ServerWatch,
    one_line,
    read_url,
)
from fw_actors.store.postgres_engine import PostgresEngine
from fw_actors.store.query_limits import QueryWatch
from fw_actors.store.store import (
    LOCK_SECONDS,
    MAX_WAITING_READS,
    MAX_WAITING_WRITES,
    MIGRATION_LOCK_SECONDS,
    Listeners,
    Store,
)
from fw_actors.store.transaction import Tx

CHANNEL: Final = "fw_commit"
BETWEEN_NOTICES_SECONDS: Final = 0.05

_LISTEN: Final = f"LISTEN {CHANNEL}".encode()
_NOTIFY: Final = f"NOTIFY {CHANNEL}".encode()
_BACKEND: Final = b"SELECT pg_backend_pid()"
_log: Final = logging.getLogger(__name__)


class Notices:
    """A connection that receives notices of external commits and sends ours.

    Raises: psycopg.Error from every method when the connection is lost.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        # A NOTIFY writes a commit record; no caller waits for it.
        self._connection = PostgresConnection(replace(settings, durable=False))
        try:
            self._connection.execute(_LISTEN)
            found = self._connection.execute_alone(_BACKEND).fetchone()
        except BaseException:  # a standby does not listen
            self._connection.close()
            raise
        assert found is not None
        self.backend: int = found[0]
        """The process of the server; a pool in between tells its clients another number."""

    def fileno(self) -> int:
        """Return the descriptor, which is readable when a notice may have arrived."""
        return self._connection.raw.fileno()

    def send(self) -> None:
        """Notify the other processes of a commit."""
        self._connection.execute(_NOTIFY)

    def heard(self) -> bool:
        """Return whether another process has sent a notice since the last call."""
        external = [
            notice.pid != self.backend for notice in self._connection.raw.notifies(timeout=0)
        ]
        return any(external)  # all notices are read first

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class InlineNotices:
    """Sends and receives notices on the caller's own task, for stores without threads.

    Args:
        noticed: called by `poll` when another process has committed.
    """

    def __init__(
        self, settings: PostgresSettings, notices: Notices, noticed: Callable[[], None]
    ) -> None:
        self._settings, self._notices, self._noticed = settings, notices, noticed

    def committed(self) -> None:
        """Notify the other processes of a commit."""
        with suppress(psycopg.Error):
            self._notices.send()

    def poll(self) -> None:
        """Receive notices. A lost connection is replaced and counts as a notice, since some may be
        lost."""
        try:
            heard = self._notices.heard()
        except psycopg.Error:
            self._notices.close()
            with suppress(psycopg.Error):
                self._notices = Notices(self._settings)
            heard = True
        if heard:
            self._noticed()

    async def close(self) -> None:
        """Close the connection."""
        self._notices.close()


class NoticeThread:
    """Sends and receives notices in its own thread, across restarts of the server.

    Args:
        notices: the first connection.
        noticed: called on trio's thread when another process has committed, and once after a
            reconnection, because notices sent meanwhile are lost.
    """

    def __init__(
        self, settings: PostgresSettings, notices: Notices, noticed: Callable[[], None]
    ) -> None:
        self._settings, self._noticed = settings, noticed
        self._notices: Notices | None = notices
        self._backoff = ReconnectBackoff()
        self._notify_pending = threading.Event()
        self._closing = threading.Event()
        self._notified_at = 0.0
        self._wake_socket, self._woken = socket.socketpair()
        self._wake_socket.setblocking(False)
        self._token = trio.lowlevel.current_trio_token()
        self._ended = trio.Event()
        threading.Thread(target=self._serve, name="fw-notices", daemon=True).start()

    def committed(self) -> None:
        """Notify the other processes soon. May be called from any thread."""
        if not self._notify_pending.is_set():
            self._notify_pending.set()
            self._wake()

    def poll(self) -> None:
        """Do nothing: notices are received at once."""

    async def close(self) -> None:
        """Send outstanding notices, and end."""
        self._closing.set()
        self._wake()
        with trio.CancelScope(shield=True):
            await self._ended.wait()

    def _wake(self) -> None:
        with suppress(OSError):  # a full buffer wakes the thread too; a closed one: it ended
            self._wake_socket.send(b"!")

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                self._step()
            except Exception as error:  # any error: this thread must run until it is closed
                self._disconnect(error)
        if self._notices is not None:
            with suppress(psycopg.Error):
                if self._notify_pending.is_set():
                    self._notices.send()
            self._notices.close()
        self._wake_socket.close()
        self._woken.close()
        self._send(self._ended.set)

    def _step(self) -> None:
        if self._notices is None:
            self._sleep([], self._backoff.remaining())
            if not self._closing.is_set() and self._backoff.remaining() <= 0:
                self._connect()
            return
        until_next = self._notified_at + BETWEEN_NOTICES_SECONDS - time.monotonic()
        if self._notify_pending.is_set() and until_next <= 0:
            self._notify_pending.clear()  # first, so that a later commit is notified again
            self._notices.send()
            self._notified_at = time.monotonic()
        elif not self._heard(self._notices):
            self._sleep([self._notices], until_next if self._notify_pending.is_set() else None)

    def _heard(self, notices: Notices) -> bool:
        heard = notices.heard()
        if heard:
            self._send(self._noticed)
        return heard

    def _connect(self) -> None:
        self._notices = Notices(self._settings)
        self._backoff.succeeded()
        self._send(self._noticed)

    def _disconnect(self, error: Exception) -> None:
        if self._notices is not None:
            self._notices.close()
            self._notices = None
        self._notify_pending.set()  # the last notice may not have been sent
        if self._backoff.failed():
            _log.warning("lost the connection for notices of commits: %s", one_line(error))

    def _sleep(self, sources: list[Notices], seconds: float | None) -> None:
        """Wait until this process commits, a notice arrives, or `seconds` have passed."""
        wait = None if seconds is None else ceil(max(0.0, seconds) * MS_PER_SECOND)
        watched = select.poll()  # select() takes no descriptor above 1023
        watched.register(self._woken, select.POLLIN)
        for source in sources:
            watched.register(source, select.POLLIN)
        ready = watched.poll(wait)
        if any(descriptor == self._woken.fileno() for descriptor, _ in ready):
            self._woken.recv(4096)

    def _send(self, fn: Callable[[], None]) -> None:
        with suppress(trio.RunFinishedError):  # trio has ended
            self._token.run_sync_soon(fn)


WRITER_THREADS: Final = 8
READER_THREADS: Final = 4
LOOKUP_THREADS: Final = 2
CONNECTIONS: Final = WRITER_THREADS + READER_THREADS + LOOKUP_THREADS + 1
"""The most connections of a process; the last one receives the notices of other processes."""


@asynccontextmanager
async def open_postgres(
    url: str,
    *,
    clock: Clock,
    entropy: Entropy,
    inline: bool = False,
    durable: bool = True,
    max_waiting_writes: int = MAX_WAITING_WRITES,
    max_waiting_reads: int = MAX_WAITING_READS,
    writer_threads: int = WRITER_THREADS,
    reader_threads: int = READER_THREADS,
    busy_seconds: float = LOCK_SECONDS,
    query_seconds: float | None = None,
    answer_seconds: float = ANSWER_SECONDS,
    restoring: bool = False,
) -> AsyncIterator[Store]:
    """Open the database at `url`, make or migrate its tables, and close it at the end.

    Calls of `write` begin in their order and overlap. When the server is restarted, calls get 503
    until it can be reached again; connections are replaced automatically. So do calls to a server
    that is frozen or behind a network that drops packets, after `answer_seconds` and the wait for a
    new connection; a call that was committing is told that its outcome is unknown. Leaving the
    block answers the waiting calls and refuses further ones.

    Args:
        url: `postgresql://user@host:port/database`, with any of libpq's parameters.
        clock: gives `Tx.now`.
        entropy: makes the installation's key in a new database.
        inline: run every call on the caller's task, after a checkpoint, without threads: for
            `fw shell` and deterministic tests. Commits of other processes are noticed only by
            `poll`.
        durable: commits wait for the disk; False is for tests.
        max_waiting_writes, max_waiting_reads: calls that may wait; more raise OverloadedError.
        writer_threads, reader_threads: each has at most one connection; one more connection
            receives the notices of other processes.
        busy_seconds: how long a statement waits for a lock of another transaction.
        query_seconds: the time limit of a read, or of a search inside a write; None: no limit.
            Inline calls are not interrupted.
        answer_seconds: the time for which a statement waits before it is checked that the server
            answers at all; inline calls wait without end.
        restoring: also opens a database into which a dump is being restored.

    Raises: ConfigurationError when the database cannot be reached (DatabaseUnreachableError), has
        an unsuitable version or encoding, is newer than this program, or its restore was killed;
        OverloadedError when another process keeps it locked.
    """
    conninfo = read_url(url)
    with _watching(conninfo, None if inline else answer_seconds) as watch:
        settings = PostgresSettings(conninfo, busy_seconds, durable=durable, watch=watch)
        opening = partial(_open, settings, clock.now(), entropy, restoring=restoring)
        pool, notices = opening() if inline else await open_in_thread(opening, _close)
        listeners, heard = Listeners(), EngineCounts()
        noticed = partial(_notice, heard, listeners)
        exchange = (InlineNotices if inline else NoticeThread)(settings, notices, noticed)
        engines = _make_engines(
            pool,
            ConnectionPool(
                replace(settings, query_seconds=query_seconds, read_only=True), pool.backoff
            ),
            (1, 1, 1) if inline else (writer_threads, reader_threads, LOOKUP_THREADS),
            exchange.committed,
            query_seconds,
        )
        if inline:
            executors = inline_executors(engines.writers[0], engines.readers[0], engines.lookups[0])
        else:
            executors = _thread_executors(
                engines, max_waiting_writes, max_waiting_reads, query_seconds
            )
        counts = [heard, *(engine.counts for engine in engines.all)]
        store = Store(
            clock, executors, listeners, counts, poll=exchange.poll,
            max_waiting_writes=max_waiting_writes, max_waiting_reads=max_waiting_reads,
            readers=len(engines.readers), writers=len(engines.writers),
        )  # fmt: skip
        try:
            yield store
        finally:
            await store.close()
            await exchange.close()


@contextmanager
def _watching(
    conninfo: Mapping[str, Any], answer_seconds: float | None
) -> Iterator[ServerWatch | None]:
    watch = None if answer_seconds is None else ServerWatch(conninfo, answer_seconds)
    try:
        yield watch
    finally:
        if watch is not None:
            watch.close()


class _PostgresEngines(NamedTuple):
    """The engines of a store, each for one thread."""

    writers: list[PostgresEngine]
    readers: list[PostgresEngine]
    lookups: list[PostgresEngine]

    @property
    def all(self) -> list[PostgresEngine]:
        return [*self.writers, *self.readers, *self.lookups]


def _make_engines(
    pool: ConnectionPool,
    read_pool: ConnectionPool,
    threads: tuple[int, int, int],
    committed: Callable[[], None],
    query_seconds: float | None,
) -> _PostgresEngines:
    """Return the engines; `threads` are the numbers of writing, reading and look-up threads.

    The connections of `read_pool` refuse to write, and set the server's `statement_timeout` in
    case a cancellation cannot be sent.
    """
    writing, reading, looking_up = threads
    writer = partial(
        PostgresEngine, pool, writable=True, committed=committed, refused_writes=RefusedWrites()
    )
    reader = partial(PostgresEngine, read_pool, writable=False)
    return _PostgresEngines(
        [writer(query_seconds=query_seconds) for _ in range(writing)],
        [reader(query_seconds=query_seconds) for _ in range(reading)],
        [reader(query_seconds=query_seconds, lookups=True) for _ in range(looking_up)],
    )


def _thread_executors(
    engines: _PostgresEngines,
    max_waiting_writes: int,
    max_waiting_reads: int,
    query_seconds: float | None,
) -> Executors:
    watch = QueryWatch([engine.limit for engine in engines.all], query_seconds)
    read_executor = partial(
        ThreadExecutor,
        capacity=max_waiting_reads,
        max_wait_seconds=inf if query_seconds is None else query_seconds,
        abandoned=watch.check_now,
    )
    return Executors(
        ThreadExecutor("fw-writer", engines.writers, max_waiting_writes),
        read_executor("fw-reader", engines.readers),
        read_executor("fw-lookup", engines.lookups),
        watch.close,
    )


def _notice(heard: EngineCounts, listeners: Listeners) -> None:
    heard.external_commits += 1
    listeners.notify()


def _open(
    settings: PostgresSettings, now: int, entropy: Entropy, *, restoring: bool
) -> tuple[ConnectionPool, Notices]:
    notices = _connected(settings)
    pool = ConnectionPool(settings)
    step = partial(_migrate, entropy=entropy, restoring=restoring)
    try:
        _refuse_unusable(pool, notices.backend, settings.conninfo.get("options", ""))
        run_alone(PostgresEngine(pool, writable=True), step, now)
    except BaseException:
        _close((pool, notices))
        raise
    return pool, notices


def check_postgres(url: str) -> None:
    """Check that the database can be opened for writing, and change nothing.

    Raises: ConfigurationError, as `open_postgres`.
    """
    _connected(PostgresSettings(read_url(url), LOCK_SECONDS)).close()


def _connected(settings: PostgresSettings) -> Notices:
    try:
        return Notices(settings)
    except psycopg.Error as error:
        raise DatabaseUnreachableError(
            [f"The database cannot be opened: {one_line(error)}."]
        ) from None


def _close(opened: tuple[ConnectionPool, Notices]) -> None:
    pool, notices = opened
    notices.close()
    pool.close()


def _migrate(tx: Tx, entropy: Entropy, *, restoring: bool) -> None:
    tx.run(_WAIT_FOR_MIGRATION)
    if not restoring and tx.columns(RESTORING):
        raise ConfigurationError([INTERRUPTED])
    if migrate(tx, entropy):
        _refuse_split_site(tx)


def _refuse_unusable(pool: ConnectionPool, listening: int, options: str) -> None:
    """Refuse a connection through a pooler that changes its server or keeps its options to itself,
    and an account without a schema for its tables.

    Args:
        listening: the server's process of the connection for notices.
        options: the command-line options for the server in the URL.
    """
    backend, path_from, schema, user, may_create = _place(pool)
    if backend == listening:  # two connections at once have one process of the server
        raise ConfigurationError(
            [
                "The pool in front of the database works in transaction or statement mode; it must "
                "work in session mode, because the service uses LISTEN and settings of its "
                "sessions."
            ]
        )
    if "search_path" in options and path_from not in _SET_BY_CLIENT:
        # Without it the tables of another site could be used.
        raise ConfigurationError(
            [
                "The pool in front of the database does not pass on the search path in the options "
                "of FW_DATABASE: set it for the account instead, as by ALTER ROLE "
                f"{user} SET search_path TO …"
            ]
        )
    if schema is None:
        raise ConfigurationError(
            [
                "The search path of FW_DATABASE, or of its account, names no schema that exists "
                f"and that the account {user} may use."
            ]
        )
    if not may_create:
        raise ConfigurationError(
            [
                f"The account {user} may not create tables in the schema {schema}: make it the "
                f"owner of the database, or run GRANT CREATE ON SCHEMA {schema} TO {user}."
            ]
        )


def _place(pool: ConnectionPool) -> tuple[int, str | None, str | None, str, bool | None]:
    """Return the facts of `_PLACE`, read outside a transaction, which a pooler in statement mode
    would break off."""
    found: list[Any] = []

    def read(connection: PostgresConnection) -> None:
        found[:] = connection.execute_alone(_PLACE).fetchone() or ()

    try:
        pool.release(pool.begin(pool.take(), read))
    except psycopg.Error as error:
        raise DatabaseUnreachableError(
            [f"The database cannot be opened: {one_line(error)}."]
        ) from None
    backend, path_from, schema, user, may_create = found
    return backend, path_from, schema, user, may_create


_SET_BY_CLIENT: Final = ("client", "session")
"""The sources of a setting that came with the connection, and of one that a pooler has set."""
_PLACE: Final = (
    "SELECT pg_backend_pid(), "
    "(SELECT source FROM pg_settings WHERE name = 'search_path'), "
    "current_schema(), current_user::text, "
    "has_schema_privilege(current_schema()::text, 'CREATE')"
)


def _refuse_split_site(tx: Tx) -> None:
    """Refuse a site whose documents are in a later schema of the search path.

    Version 0.2.0 used them there. The site would now be without any document, and a user could not
    see why.
    """
    for found, own in tx.rows(_SCHEMA_OF_DOCUMENTS):
        if found != own:
            raise ConfigurationError(
                [
                    f"The site is in the schema {own} without documents, and the schema {found}, "
                    "later in the search path, has documents, which earlier versions have used. "
                    "If no other site has them, move each of the tables doc_… to the site: "
                    f"ALTER TABLE {found}.doc_user SET SCHEMA {own}. To begin without documents, "
                    f"name only {own} in the search path of FW_DATABASE."
                ]
            )


_SCHEMA_OF_DOCUMENTS: Final = text(
    "SELECT place.name, current_schema() FROM unnest(current_schemas(false)) WITH ORDINALITY "
    "AS place (name, number) WHERE to_regclass(quote_ident(place.name) || '.doc_user') IS NOT NULL "
    "ORDER BY place.number LIMIT 1"
)
_WAIT_FOR_MIGRATION: Final = text(f"SET LOCAL lock_timeout = '{MIGRATION_LOCK_SECONDS}s'")
