"""A consistent copy of an SQLite database in use, whole or not there at all.

SQLite's own backup, from one read transaction: writers go on meanwhile, and none of their later
commits is in it. The copy is checked before it gets its name.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fw_actors.errors import ConfigurationError
from fw_actors.store.new_file import new_file
from fw_actors.store.sqlite_examination import examine_file

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
