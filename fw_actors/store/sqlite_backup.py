"""Online backup and integrity check of an SQLite database.

SQLite's own backup, from one read transaction: writers go on meanwhile, and none of their later
commits is in it. The copy is checked before it gets its name.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fw_actors.errors import ConfigurationError
from fw_actors.store.files import new_file

WHOLE_CHECK_BYTES: Final = 1 << 30
"""Up to this size every index is held against its table too; that reads the file many times."""
_MOST_FAULTS: Final = 5
_EXAMINATION_BUSY_SECONDS: Final = 5.0


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
        opened = sqlite3.connect(
            f"{path.as_uri()}?mode=ro", uri=True, timeout=_EXAMINATION_BUSY_SECONDS
        )
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


PAGES_AT_ONCE: Final = 1000
_BUSY_SECONDS: Final = 30.0

Progress = Callable[[int, int], None]
"""Called with how many pages are copied, and how many there are."""


def back_up_file(source: Path, target: Path, progress: Progress) -> int:
    """Copy the database to `target`, which must not exist; blocks until it is on the disk.

    Returns: the size of the copy, in bytes.
    Raises: ConfigurationError when there is no database, `target` exists or can't be written, or
        the copy is not intact; nothing is left behind then.
    """
    if not source.is_file():
        raise ConfigurationError([f"There is no database {source}."])
    with new_file(target) as draft:
        try:
            _copy(source, draft, progress)
        except sqlite3.Error as error:
            raise ConfigurationError([f"{source} can't be copied: {error}."]) from error
        faults = examine_file(draft).faults
        if faults:
            raise ConfigurationError([f"The copy is not intact: {'; '.join(faults)}."])
    return target.stat().st_size


def _copy(source: Path, target: Path, progress: Progress) -> None:
    with (
        contextlib.closing(_connect(source, "ro")) as old,
        contextlib.closing(_connect(target, "rw")) as new,
    ):
        # A transaction that is open already: else each commit of others begins the copy anew.
        old.execute("BEGIN")
        old.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        old.backup(
            new,
            pages=PAGES_AT_ONCE,
            progress=lambda status, remaining, total: progress(total - remaining, total),
        )
        new.execute("PRAGMA journal_mode=DELETE")  # all of it in the one file


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
    )
