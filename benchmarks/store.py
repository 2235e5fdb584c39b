"""The cost of a durable write through the store, against the databases' own drivers alone.

Both sides run the same statements with the same durability, and each round on a fresh database.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import psycopg
import trio
from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, Text, bindparam, insert
from sqlalchemy.schema import CreateTable

from benchmarks.rows import BenchmarkRow, Comparison, Effort
from fw_actors.runtime import SystemClock, SystemEntropy
from fw_actors.store import THREAD_SWITCH_SECONDS, Statement, Store, Tx, open_sqlite
from fw_actors.store.postgres import WRITER_THREADS, open_postgres
from fw_actors.store.statement import POSTGRESQL, SQLITE, compile_form
from tests.postgres_cluster import PostgresCluster, postgres_cluster

CALLERS: Final = 64
_NUMBERED: Final = BigInteger().with_variant(Integer(), SQLITE)  # numbered by the database
ENTRY: Final = Table(
    "entry",
    MetaData(),
    Column("id", _NUMBERED, primary_key=True),
    Column("caller", Text),
    Column("number", BigInteger),
)
WRITE: Final = Statement(
    insert(ENTRY).values(caller=bindparam("caller"), number=bindparam("number"))
)


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the suite; threads switch as in a process that serves."""
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    with tempfile.TemporaryDirectory() as folder, postgres_cluster(durable=True) as cluster:
        places = (Path(folder) / f"{number}.db" for number in range(1_000_000))
        for name, ours, reference, what in (
            (
                "commits",
                lambda: trio.run(through_sqlite, next(places), effort.events, CALLERS),
                lambda: sqlite_alone(next(places), effort.events, CALLERS),
                f"sqlite3 alone, {CALLERS} savepoints a commit",
            ),
            (
                "commits_1",
                lambda: trio.run(through_sqlite, next(places), effort.events // 10, 1),
                lambda: sqlite_alone(next(places), effort.events // 10, 1),
                "sqlite3 alone, a commit each",
            ),
            (
                "postgres_commits",
                lambda: through_postgres(cluster, effort.events),
                lambda: postgres_alone(cluster, effort.events),
                f"psycopg alone, {WRITER_THREADS} threads with a connection each",
            ),
        ):
            yield Comparison("store", name, "writes/s", ours, reference, what).measure(effort)


async def through_sqlite(path: Path, events: int, callers: int) -> float:
    """Return the rate of writes of so many callers at once."""
    opened = open_sqlite(path, clock=SystemClock(), entropy=SystemEntropy())
    return await through(opened, events, callers)


def through_postgres(cluster: PostgresCluster, events: int) -> float:
    """The same on PostgreSQL, in a schema of its own."""
    with cluster.schema() as url:
        opened = open_postgres(url, clock=SystemClock(), entropy=SystemEntropy())
        return trio.run(through, opened, events, CALLERS)


async def through(opened: AbstractAsyncContextManager[Store], events: int, callers: int) -> float:
    async def call(store: Store, caller: str) -> None:
        for number in range(events // callers):
            await store.write(partial(write, caller=caller, number=number))

    async with opened as store:
        await store.write(lambda tx: tx.run(CreateTable(ENTRY)))
        began = perf_counter()
        async with trio.open_nursery() as nursery:
            for number in range(callers):
                nursery.start_soon(call, store, f"caller {number}")
        return events // callers * callers / (perf_counter() - began)


def write(tx: Tx, caller: str, number: int) -> None:
    tx.run(WRITE, caller=caller, number=number)


def sqlite_alone(path: Path, events: int, group: int) -> float:
    """Return the rate of the same statements on a connection as the store sets one up."""
    text = WRITE.form(SQLITE).text
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute(compile_form(CreateTable(ENTRY), SQLITE).text)
        execute = connection.cursor().execute
        began = perf_counter()
        for number in range(events // group):
            execute("BEGIN IMMEDIATE")
            execute(text, ("caller 0", number))  # the first of a group has no savepoint
            for member in range(1, group):
                execute("SAVEPOINT member")
                execute(text, (f"caller {member}", number))
                execute("RELEASE member")
            execute("COMMIT")
        return events // group * group / (perf_counter() - began)


def postgres_alone(cluster: PostgresCluster, events: int) -> float:
    """Return the rate of the same statements in as many threads as the store has writers."""
    text = WRITE.form(POSTGRESQL).text.encode()
    each = events // WRITER_THREADS

    def work(connection: psycopg.Connection[Any], ready: threading.Barrier) -> None:
        cursor = connection.cursor()
        ready.wait()
        for number in range(each):
            cursor.execute(b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
            cursor.execute(text, ("caller 0", number))
            cursor.execute(b"COMMIT")
        ready.wait()

    with cluster.schema() as url, connections(url) as opened:
        opened[0].execute(compile_form(CreateTable(ENTRY), POSTGRESQL).text.encode())
        ready = threading.Barrier(len(opened) + 1)
        for connection in opened:
            threading.Thread(target=work, args=(connection, ready), daemon=True).start()
        ready.wait()
        began = perf_counter()
        ready.wait()
        return each * len(opened) / (perf_counter() - began)


@contextmanager
def connections(url: str) -> Iterator[list[psycopg.Connection[Any]]]:
    opened = [psycopg.connect(url, autocommit=True) for _ in range(WRITER_THREADS)]
    try:
        yield opened
    finally:
        for connection in opened:
            connection.close()
