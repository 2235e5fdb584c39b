"""The reference: the same rows by bare sqlite3, with prepared text and nothing around it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

ORDERS: Final = "doc_bench_order"
LINES: Final = "doc_bench_line"
_DELIVERIES: Final = "doc_webhook_delivery"
_JOBS: Final = "fw_job"
_VERSIONS: Final = "doc_version"

Write = tuple[str, Sequence[Any]]
"""One statement and its values."""


def inserts(database: Path) -> list[list[Write]]:
    """Return what wrote the orders of a site, by order: itself, its lines, delivery and job."""
    connection = sqlite3.connect(database)
    lines: dict[str, list[Write]] = {}
    for line in _rows(connection, LINES):
        lines.setdefault(line["parent"], []).append(_insert(LINES, line))
    orders = list(_rows(connection, ORDERS))
    rows = zip(_rows(connection, _DELIVERIES), _rows(connection, _JOBS), strict=True)
    written = [
        [_insert(ORDERS, order), *lines[order["name"]],
         _insert(_DELIVERIES, delivery), _insert(_JOBS, job)]
        for order, (delivery, job) in zip(orders, rows, strict=True)
    ]  # fmt: skip
    connection.close()
    return written


def saves(database: Path, before: Path) -> list[list[Write]]:
    """Return what changed the orders since `before`: itself, its Version, delivery and job."""
    connection, earlier = sqlite3.connect(database), sqlite3.connect(before)
    added = []
    for table in (_VERSIONS, _DELIVERIES, _JOBS):
        (count,) = earlier.execute(f"SELECT count(*) FROM {table}").fetchone()
        added.append([_insert(table, row) for row in list(_rows(connection, table))[count:]])
    orders = [_update(order) for order in _rows(connection, ORDERS)]
    written = [list(each) for each in zip(orders, *added, strict=True)]
    connection.close()
    earlier.close()
    return written


def write(database: Path, documents: Sequence[Sequence[Write]], group: int) -> float:
    """Run the statements, a durable commit for each `group` of documents; documents per second."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    execute = connection.cursor().execute
    began = time.perf_counter()
    for begin in range(0, len(documents), group):
        execute("BEGIN IMMEDIATE")
        for document in documents[begin : begin + group]:
            for text, values in document:
                execute(text, values)
        execute("COMMIT")
    seconds = time.perf_counter() - began
    connection.close()
    return len(documents) / seconds


def read(database: Path, names: Sequence[str]) -> float:
    """Read orders with their lines by name, and make each into JSON; documents per second."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.row_factory = sqlite3.Row
    encode = msgspec.json.Encoder().encode
    began = time.perf_counter()
    for name in names:
        row = connection.execute(f"SELECT * FROM {ORDERS} WHERE name = ?", (name,)).fetchone()
        lines = connection.execute(
            f"SELECT * FROM {LINES} WHERE parent = ? AND parenttype = ? AND parentfield = ? "
            "ORDER BY idx",
            (name, "Bench Order", "lines"),
        )
        encode({"data": {**dict(row), "lines": [dict(line) for line in lines]}})
    seconds = time.perf_counter() - began
    connection.close()
    return len(names) / seconds


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    """All rows in the order in which they were written."""
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, values, strict=True)) for values in cursor.fetchall())


def _insert(table: str, row: dict[str, Any]) -> Write:
    places = ", ".join("?" * len(row))
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values())


def _update(row: dict[str, Any]) -> Write:
    columns = [column for column in row if column != "name"]
    text = f"UPDATE {ORDERS} SET {', '.join(f'{c} = ?' for c in columns)} WHERE name = ?"
    return text, (*(row[column] for column in columns), row["name"])
