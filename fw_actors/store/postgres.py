"""Opens the store on PostgreSQL: a bounded pool of connections in worker threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final, NamedTuple

import psycopg
from sqlalchemy import text

from fw_actors.errors import ConfigurationError
from fw_actors.runtime.clock import Clock, Entropy
from fw_actors.store.executor import (
    EngineCounts,
    Executor,
    InlineExecutor,
    ThreadExecutor,
    open_in_thread,
    run_alone,
)
from fw_actors.store.migrations import migrate
from fw_actors.store.postgres_connection import ConnectionPool, PostgresSettings, one_line, read_url
from fw_actors.store.postgres_engine import PostgresEngine
from fw_actors.store.postgres_notices import InlineNotices, Notices, NoticeThread
from fw_actors.store.query_limits import QueryWatch
from fw_actors.store.store import Listeners, Store
from fw_actors.store.transaction import Tx

MAX_WAITING_WRITES: Final = 4096
MAX_WAITING_READS: Final = 1024
WRITER_THREADS: Final = 8
READER_THREADS: Final = 4
LOOKUP_THREADS: Final = 2
LOCK_SECONDS: Final = 3.0
MIGRATION_LOCK_SECONDS: Final = 30


@asynccontextmanager
async def open_postgres(
    url: str,
    *,
    clock: Clock,
    entropy: Entropy,
    inline: bool = False,
    max_waiting_writes: int = MAX_WAITING_WRITES,
    max_waiting_reads: int = MAX_WAITING_READS,
    writer_threads: int = WRITER_THREADS,
    reader_threads: int = READER_THREADS,
    busy_seconds: float = LOCK_SECONDS,
    query_seconds: float | None = None,
) -> AsyncIterator[Store]:
    """Open the database at `url`, make or migrate its tables, and close it at the end.

    Calls of `write` begin in their order and overlap. When the server is restarted, calls get
    503 until it can be reached again; connections are made anew by themselves. Leaving the block
    answers the calls that wait and refuses further ones.

    Args:
        url: `postgresql://user@host:port/database`, with any of libpq's parameters.
        clock: gives `Tx.now`.
        entropy: makes the installation's key in a new database.
        inline: run every call on the caller's task, after a checkpoint, without threads and
            without waiting for the disk: for deterministic tests. Commits of other processes
            are noticed in `poll` alone.
        max_waiting_writes, max_waiting_reads: calls that may wait; more raise OverloadedError.
        writer_threads, reader_threads: each has at most one connection; one more hears of
            other processes' commits.
        busy_seconds: how long a statement waits for a lock of another transaction.
        query_seconds: how long a read, or a search inside a write, may take; None: without end.
            Inline calls are not interrupted.

    Raises: ConfigurationError when the database can't be reached, is not fit, or is newer than
        this program; OverloadedError when another process keeps it locked.
    """
    settings = PostgresSettings(read_url(url), busy_seconds, durable=not inline)
    opening = partial(_open, settings, clock.now(), entropy)
    pool, notices = opening() if inline else await open_in_thread(opening, _close)
    listeners, heard = Listeners(), EngineCounts()
    noticed = partial(_notice, heard, listeners)
    exchange = (InlineNotices if inline else NoticeThread)(settings, notices, noticed)
    engines = _make_engines(
        pool,
        ConnectionPool(replace(settings, query_seconds=query_seconds)),
        (1, 1, 1) if inline else (writer_threads, reader_threads, LOOKUP_THREADS),
        exchange.committed,
        query_seconds,
    )
    executors = (
        _inline_executors(engines)
        if inline
        else _thread_executors(engines, max_waiting_writes, max_waiting_reads, query_seconds)
    )
    store = Store(
        clock,
        executors.writes,
        executors.reads,
        executors.lookups,
        listeners,
        [heard, *(engine.counts for engine in engines.all)],
        poll=exchange.poll,
        max_waiting_writes=max_waiting_writes,
        max_waiting_reads=max_waiting_reads,
        closed=executors.closed,
    )
    try:
        yield store
    finally:
        await store.close()
        await exchange.close()


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
    """Return the engines of as many writing, reading and look-up threads.

    The connections of `read_pool` have the server's own limit of time, in case a cancellation
    can't be sent.
    """
    writing, reading, looking_up = threads
    return _PostgresEngines(
        [
            PostgresEngine(pool, writable=True, committed=committed, query_seconds=query_seconds)
            for _ in range(writing)
        ],
        *(
            [
                PostgresEngine(read_pool, writable=False, query_seconds=query_seconds)
                for _ in range(count)
            ]
            for count in (reading, looking_up)
        ),
    )


class _Executors(NamedTuple):
    """The executors of a store; `closed` is called when all of them are."""

    writes: Executor
    reads: Executor
    lookups: Executor
    closed: Callable[[], None] | None = None


def _inline_executors(engines: _PostgresEngines) -> _Executors:
    return _Executors(
        InlineExecutor(engines.writers[0]),
        InlineExecutor(engines.readers[0]),
        InlineExecutor(engines.lookups[0]),
    )


def _thread_executors(
    engines: _PostgresEngines,
    max_waiting_writes: int,
    max_waiting_reads: int,
    query_seconds: float | None,
) -> _Executors:
    watch = QueryWatch([engine.limit for engine in engines.all], query_seconds)
    read_executor = partial(
        ThreadExecutor,
        capacity=max_waiting_reads,
        longest_wait=inf if query_seconds is None else query_seconds,
        abandoned=watch.check_now,
    )
    return _Executors(
        ThreadExecutor("fw-writer", engines.writers, max_waiting_writes),
        read_executor("fw-reader", engines.readers),
        read_executor("fw-lookup", engines.lookups),
        watch.close,
    )


def _notice(heard: EngineCounts, listeners: Listeners) -> None:
    heard.external_commits += 1
    listeners.notify()


def _open(settings: PostgresSettings, now: int, entropy: Entropy) -> tuple[ConnectionPool, Notices]:
    try:
        notices = Notices(settings)
    except psycopg.Error as error:
        raise ConfigurationError([f"The database can't be opened: {one_line(error)}."]) from None
    pool = ConnectionPool(settings)
    try:
        run_alone(PostgresEngine(pool, writable=True), lambda tx: _migrate(tx, entropy), now)
    except BaseException:
        _close((pool, notices))
        raise
    return pool, notices


def _close(opened: tuple[ConnectionPool, Notices]) -> None:
    pool, notices = opened
    notices.close()
    pool.close()


def _migrate(tx: Tx, entropy: Entropy) -> None:
    tx.run(_WAIT_FOR_MIGRATION)
    migrate(tx, entropy)


_WAIT_FOR_MIGRATION: Final = text(f"SET LOCAL lock_timeout = '{MIGRATION_LOCK_SECONDS}s'")
