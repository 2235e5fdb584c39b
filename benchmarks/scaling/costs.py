"""Measures the costs of a delivery for its node and its database, with one real node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import psycopg

from tests.postgres_cluster import PostgresCluster

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_ENDED: Final = (FileNotFoundError, ProcessLookupError)  # while it was looked at
_COMMITS: Final = 200
_STATEMENTS: Final = 5000


@dataclass(frozen=True)
class Costs:
    """Costs that the model of a fleet is given, in seconds.

    `node`: of a node's processor, for a delivery. `row`: of the database's processors, for a row
    that a transaction changes. `statement`: the same, for each statement whatever it changes.
    `way`: there and back between a node and the database. `sync`: until a commit is durable.
    """

    node: float
    row: float
    statement: float
    way: float
    sync: float


@dataclass(frozen=True)
class Usage:
    """Resources used up to a moment: processor seconds; bytes, records and syncs of the WAL."""

    nodes: float
    database: float
    commits: int
    wal_bytes: int
    wal_syncs: int

    def since(self, before: Usage) -> Usage:
        """Return what was used after `before`."""
        return Usage(
            self.nodes - before.nodes,
            self.database - before.database,
            self.commits - before.commits,
            self.wal_bytes - before.wal_bytes,
            self.wal_syncs - before.wal_syncs,
        )


def usage(cluster: PostgresCluster, url: str) -> Usage:
    """Return what the server and the processes of nodes, children of this one, have used."""
    postmaster = int((cluster.folder / "data" / "postmaster.pid").read_text().split()[0])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_clear_snapshot()")
        wal = connection.execute("SELECT wal_bytes, wal_sync FROM pg_stat_wal").fetchone()
        commits = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert wal is not None
    assert commits is not None
    nodes = _seconds_of(_descendants(os.getpid()), "fw_cli")
    database = _seconds_of([postmaster, *_descendants(postmaster)], "")
    return Usage(nodes, database, int(commits[0]), int(wal[0]), int(wal[1]))


def statement_seconds(url: str, cluster: PostgresCluster) -> tuple[float, float, float]:
    """Measure the cheapest statement: the server's processor time, and the whole way; and a sync.

    Returns: seconds of the processor, seconds there and back, seconds of a durable commit more.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE bench_row (id int PRIMARY KEY, value int)")
        connection.execute("INSERT INTO bench_row VALUES (1, 0)")
        pid = connection.info.backend_pid
        before, began = _own_seconds(pid), time.perf_counter()
        for _ in range(_STATEMENTS):
            connection.execute("SELECT value FROM bench_row WHERE id = 1")
        way = (time.perf_counter() - began) / _STATEMENTS
        processor = (_own_seconds(pid) - before) / _STATEMENTS

        def change() -> Any:
            return connection.execute("UPDATE bench_row SET value = value + 1 WHERE id = 1")

        durable = _median_seconds(change)
        connection.execute("SET synchronous_commit = off")
        sync = max(0.0, durable - _median_seconds(change))
        connection.execute("DROP TABLE bench_row")
    return processor, max(way - processor, 0.0), sync


def _median_seconds(fn: Callable[[], Any]) -> float:
    taken = []
    for _ in range(_COMMITS):
        began = time.perf_counter()
        fn()
        taken.append(time.perf_counter() - began)
    return median(taken)


def _descendants(pid: int) -> list[int]:
    """Return all living processes below `pid`."""
    parents: dict[int, list[int]] = {}
    for child, fields in _all_processes():
        parents.setdefault(int(fields[1]), []).append(child)
    found = list(parents.get(pid, ()))
    for one in found:
        found += parents.get(one, ())
    return found


def _seconds_of(pids: list[int], named: str) -> float:
    return sum(_own_seconds(pid, ended=True) for pid in pids if named in _command(pid))


def _own_seconds(pid: int, *, ended: bool = False) -> float:
    """Return the processor time of a process, with that of its ended children if asked."""
    try:
        fields = _fields(Path(f"/proc/{pid}/stat"))
    except _ENDED:
        return 0.0
    return sum(int(one) for one in fields[11 : 15 if ended else 13]) / _TICKS


def _all_processes() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(*_ENDED):
            yield int(folder.name), _fields(folder / "stat")


def _fields(file: Path) -> list[str]:
    """Return the fields of a process after its name, which may contain anything."""
    return file.read_text().rpartition(")")[2].split()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except _ENDED:
        return ""
