"""A consistent copy of an SQLite database in use, whole or not there at all.

SQLite's own backup, from one read transaction: writers go on meanwhile, and none of their later
commits is in it. The copy is checked before it gets its name.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fw_actors.errors import ConfigurationError
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
    draft = target.with_name(f".{target.name}.part")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        try:
            _copy(source, draft, progress)
            faults = examine_file(draft).faults
            if faults:
                raise ConfigurationError([f"The copy is not intact: {'; '.join(faults)}."])
            _sync(draft)
            os.link(draft, target)  # unlike a rename it never takes the place of another file
            _sync(target.parent)
        finally:
            for part in (draft, *(Path(f"{draft}-{end}") for end in ("wal", "shm", "journal"))):
                part.unlink(missing_ok=True)
    except FileExistsError:
        raise ConfigurationError([f"{target} is there already; name another file."]) from None
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError([f"{target} can't be written: {reason}."]) from error
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


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
