"""The reference: the same rows by bare sqlite3, with prepared text and nothing around it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec


class Rows(NamedTuple):
    """The rows that one write of ours left, by table: what the reference writes again."""

    table: str
    columns: tuple[str, ...]
    values: tuple[Any, ...]


def rows_of(database: Path, tables: Sequence[str]) -> list[Rows]:
    """Return all rows of these tables."""
    found = []
    connection = sqlite3.connect(database)
    for table in tables:
        cursor = connection.execute(f"SELECT * FROM {table}")
        columns = tuple(column[0] for column in cursor.description)
        found += [Rows(table, columns, values) for values in cursor]
    connection.close()
    return found


def write(database: Path, rows: Sequence[Rows], documents: int, group: int) -> float:
    """Write the rows so many times over, a commit for each `group`; documents per second.

    `database` has the tables and indexes; keys get a number behind them.
    """
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    texts = [
        f"INSERT INTO {row.table} ({', '.join(row.columns)}) "
        f"VALUES ({', '.join('?' * len(row.columns))})"
        for row in rows
    ]
    keys = [_key(row) for row in rows]
    began = time.perf_counter()
    for begin in range(0, documents, group):
        connection.execute("BEGIN IMMEDIATE")
        for number in range(begin, min(begin + group, documents)):
            for row, text, key in zip(rows, texts, keys, strict=True):
                values = list(row.values)
                values[key] = f"{number}-{values[key]}" if row.columns[key] == "name" else None
                connection.execute(text, values)
        connection.execute("COMMIT")
    seconds = time.perf_counter() - began
    connection.close()
    return documents / seconds


def _key(row: Rows) -> int:
    return row.columns.index("name" if "name" in row.columns else "id")


def read(database: Path, names: Sequence[str], table: str, child: str) -> float:
    """Read documents with their rows by name, and make each into JSON; documents per second."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.row_factory = sqlite3.Row
    encode = msgspec.json.Encoder().encode
    began = time.perf_counter()
    for name in names:
        row = connection.execute(f"SELECT * FROM {table} WHERE name = ?", (name,)).fetchone()
        document = dict(row)
        document["lines"] = [
            dict(each)
            for each in connection.execute(
                f"SELECT * FROM {child} WHERE parent = ? ORDER BY idx", (name,)
            )
        ]
        encode({"data": document})
    seconds = time.perf_counter() - began
    connection.close()
    return len(names) / seconds
