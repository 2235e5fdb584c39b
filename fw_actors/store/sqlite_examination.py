"""Looks at an SQLite file from outside: is it whole, and how large. On a connection of its own."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WHOLE_CHECK_BYTES: Final = 1 << 30
"""Up to this size every index is held against its table too; that reads the file many times."""
_MOST_FAULTS: Final = 5
_BUSY_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Examined:
    """What was found; `faults` are SQLite's own sentences, none for a file that is whole."""

    size: int  # bytes, with its write-ahead log
    free: int  # bytes inside the file that nothing uses
    faults: tuple[str, ...]
    thorough: bool  # whether the indexes were held against their tables


def examine_file(path: Path) -> Examined:
    """Examine a database in use; blocks for as long as reading it takes.

    A file that can't be read at all is a fault, no exception.
    """
    log = path.with_name(path.name + "-wal")
    size = sum(file.stat().st_size for file in (path, log) if file.exists())
    thorough = size <= WHOLE_CHECK_BYTES
    check = "integrity_check" if thorough else "quick_check"
    try:
        opened = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
        with contextlib.closing(opened) as connection:
            told = connection.execute(f"PRAGMA {check}({_MOST_FAULTS})").fetchall()
            pages, page = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("freelist_count", "page_size")
            )
    except sqlite3.Error as error:
        return Examined(size, 0, (str(error),), thorough)
    faults = tuple(str(line) for (line,) in told if line != "ok")
    return Examined(size, pages * page, faults, thorough)
