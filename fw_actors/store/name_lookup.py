"""Looks up names of documents for the completion of a shell, without opening the site.

Reads only: a shell completes while somebody types, so nothing may be created or migrated, no app's
code may run, and a store that does not answer quickly has no names.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

MAX_NAMES: Final = 100
_SECONDS: Final = 1.0
_HIGHEST: Final = "\U0010ffff"


def names_in_file(path: Path, table: str, prefix: str) -> list[str]:
    """Return names in a table of an SQLite file that begin with `prefix`, the highest first.

    At most `MAX_NAMES`; none without such a file or table.
    """
    if not path.is_file():
        return []
    try:
        opened = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_SECONDS)
        with closing(opened) as connection:
            rows = connection.execute(_statement(table, "?"), (prefix, prefix + _HIGHEST))
            return _names(rows.fetchall())
    except sqlite3.Error:
        return []


def names_in_database(url: str, table: str, prefix: str) -> list[str]:
    """Return names in a table of a PostgreSQL database, as `names_in_file`."""
    import psycopg  # few sites need its driver

    try:
        with psycopg.connect(url, connect_timeout=2, autocommit=True) as connection:
            connection.execute(f"SET statement_timeout = {int(_SECONDS * 1000)}")
            statement = _statement(table, "%s")
            rows = connection.execute(statement.encode(), (prefix, prefix + _HIGHEST))
            return _names(rows.fetchall())
    except psycopg.Error:
        return []


def _statement(table: str, placeholder: str) -> str:
    """Return the look-up; the index over names serves it, and so it begins at the highest name.

    The names of deliveries are in the order of time.
    """
    if not table.isidentifier():
        raise ValueError(f"{table!r} is not the name of a table")
    return (
        f"SELECT name FROM {table} WHERE name >= {placeholder} AND name <= {placeholder} "  # nosec B608
        f"ORDER BY name DESC LIMIT {MAX_NAMES}"
    )


def _names(rows: Sequence[Sequence[Any]]) -> list[str]:
    return [str(name) for (name,) in rows]
