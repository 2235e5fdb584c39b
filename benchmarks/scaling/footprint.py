"""The room that finished deliveries take on PostgreSQL, and what it costs to drop the old ones.

Rows of real deliveries are copied by SQL until there are as many as asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

_TABLE: Final = sql.Identifier("doc_webhook_delivery")
_NAME: Final = "name"
_PARTITIONS: Final = 10


@dataclass(frozen=True)
class Footprint:
    """Bytes for each delivery: its row, its indexes. Seconds: to delete a tenth of all rows and
    vacuum after it; to drop a partition with as many. WAL bytes of both."""

    rows: int
    table: float
    indexes: float
    delete_seconds: float
    vacuum_seconds: float
    drop_seconds: float
    delete_wal: int
    drop_wal: int


def measure(url: str, target: int) -> Footprint:
    """Copy deliveries until there are `target`, and measure."""
    with psycopg.connect(url, autocommit=True) as connection:
        table = _TABLE
        columns = [
            row[0]
            for row in connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
                " AND NOT attisdropped ORDER BY attnum",
                (table.as_string(connection),),
            )
        ]
        rows = _multiply(connection, table, columns, target)
        connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(table))
        size = connection.execute(
            "SELECT pg_table_size(%(of)s::regclass), pg_indexes_size(%(of)s::regclass)",
            {"of": table.as_string(connection)},
        ).fetchone()
        assert size is not None
        drop, drop_wal = _drop(connection, table)
        with _measured(connection) as deleted:
            connection.execute(
                sql.SQL("DELETE FROM {t} WHERE right({n}, 1) = '0'").format(
                    t=table, n=sql.Identifier(_NAME)
                )
            )
        with _measured(connection) as vacuumed:
            connection.execute(sql.SQL("VACUUM {}").format(table))
    return Footprint(
        rows, size[0] / rows, size[1] / rows, deleted.seconds, vacuumed.seconds, drop,
        deleted.wal + vacuumed.wal, drop_wal,
    )  # fmt: skip


def _multiply(
    connection: psycopg.Connection[Any], table: sql.Identifier, columns: list[str], target: int
) -> int:
    """Copy the rows that are there; the names of the copies end with a number."""
    count = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table)).fetchone()
    assert count is not None
    rows: int = count[0]
    copies = max(1, target // rows - 1)
    unique = {_NAME, "row_id"} & set(columns)
    values = [
        sql.SQL("{} || '-' || n").format(sql.Identifier(name))
        if name in unique
        else sql.Identifier(name)
        for name in columns
    ]
    connection.execute(
        sql.SQL("INSERT INTO {t} ({c}) SELECT {v} FROM {t}, generate_series(1, {n}) AS n").format(
            t=table,
            c=sql.SQL(", ").join(map(sql.Identifier, columns)),
            v=sql.SQL(", ").join(values),
            n=sql.Literal(copies),
        )
    )
    return rows * (copies + 1)


def _drop(connection: psycopg.Connection[Any], table: sql.Identifier) -> tuple[float, int]:
    """Drop one of ten partitions that hold the same rows, with the same indexes."""
    connection.execute(
        sql.SQL(
            "CREATE TABLE bench_parts (LIKE {t} INCLUDING DEFAULTS, part int)"
            " PARTITION BY LIST (part)"
        ).format(t=table)
    )
    for part in range(_PARTITIONS):
        connection.execute(
            sql.SQL("CREATE TABLE {p} PARTITION OF bench_parts FOR VALUES IN ({n})").format(
                p=sql.Identifier(f"bench_part_{part}"), n=sql.Literal(part)
            )
        )
    connection.execute(
        sql.SQL("INSERT INTO bench_part_0 SELECT *, 0 FROM {t} WHERE right({n}, 1) = '0'").format(
            t=table, n=sql.Identifier(_NAME)
        )
    )
    with _measured(connection) as dropped:
        connection.execute("DROP TABLE bench_part_0")
    connection.execute("DROP TABLE bench_parts")
    return dropped.seconds, dropped.wal


@dataclass
class _Measured:
    seconds: float = 0.0
    wal: int = 0


@contextmanager
def _measured(connection: psycopg.Connection[Any]) -> Iterator[_Measured]:
    measured = _Measured()
    before, began = _written(connection), time.perf_counter()
    yield measured
    measured.seconds = time.perf_counter() - began
    measured.wal = _written(connection) - before


def _written(connection: psycopg.Connection[Any]) -> int:
    found = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert found is not None
    return int(found[0])
