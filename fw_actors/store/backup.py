"""Backups of the database as files: SQLite's online backup and check, PostgreSQL's `pg_dump`.

SQLite's backup reads in one read transaction: writers go on meanwhile, and the copy holds none of
their later commits. The copy is checked before it gets its name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fw_actors.errors import ConfigurationError

_BESIDE = ("", "-wal", "-shm", "-journal")  # files that SQLite makes beside the database


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield a draft beside `target`, for its owner only, that gets its name when the block ends.

    It is on the disk then. When the block raises, nothing is left behind.

    Raises: ConfigurationError when `target` exists or can't be written.
    """
    draft = _draft_of(target)
    try:
        # One that a kill has left may be a whole file by another name: it is not written into.
        remove_draft_of(target)
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            yield draft
            _sync(draft)
            os.link(draft, target)  # unlike a rename it never replaces another file
            _sync(target.parent)
        finally:
            remove_draft_of(target)
    except FileExistsError:
        raise ConfigurationError([f"{target} already exists; name another file."]) from None
    except OSError as error:
        raise ConfigurationError([f"{target} can't be written: {error.strerror}."]) from error


def remove_draft_of(target: Path) -> None:
    """Remove what a process that was killed has left beside `target`: half of it, or all."""
    for end in _BESIDE:
        Path(f"{_draft_of(target)}{end}").unlink(missing_ok=True)


def _draft_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.part")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


WHOLE_CHECK_BYTES: Final = 1 << 30
"""Up to this size every index is held against its table too; that reads the file many times."""
_MAX_FAULTS: Final = 5
_EXAMINATION_BUSY_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Examined:
    """The result of an examination; `faults` are SQLite's own messages, none for an intact file."""

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
            told = connection.execute(f"PRAGMA {check}({_MAX_FAULTS})").fetchall()
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


PG_DUMP: Final = "pg_dump"
_PREFIX: Final = "FW_"
_MAX_LINES: Final = 5


def back_up_database(url: str, target: Path, environ: Mapping[str, str]) -> int:
    """Dump the database to `target`, which must not exist, in the format of `pg_restore`.

    `environ`: the process's; pg_dump is looked for on its PATH, and gets all of it but what is
    ours. A password goes by environment, where `ps` does not show it.

    Returns: the size of the dump, in bytes.
    Raises: ConfigurationError when there is no pg_dump, it fails, or `target` can't be written.
    """
    program = shutil.which(PG_DUMP, path=environ.get("PATH"))
    if program is None:
        raise ConfigurationError([f"A backup of PostgreSQL needs {PG_DUMP}, which was not found."])
    arguments, passed = connection_of(url, environ)
    with new_file(target) as draft:
        command = [program, "--format=custom", "--no-owner", f"--file={draft}"]
        _run([*command, f"--dbname={arguments}"], passed)
    return target.stat().st_size


def connection_of(url: str, environ: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the connection string without the password, and the environment of a program of
    PostgreSQL, with it and without anything of ours."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo  # few sites need its driver

    facts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    password = facts.pop("password", None)
    passed = {name: value for name, value in environ.items() if not name.startswith(_PREFIX)}
    if password is not None:
        passed["PGPASSWORD"] = password
    return make_conninfo(**facts), passed


def _run(command: list[str], environ: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise ConfigurationError(
            error_lines(done.stderr) or [f"{PG_DUMP} failed without a message"]
        )


def error_lines(stderr: bytes) -> list[str]:
    """Return the last lines of an error of PostgreSQL's programs, without their guesses."""
    said = stderr.decode(errors="replace").splitlines()
    return [line for line in said if line[:1] not in ("", "\t")][-_MAX_LINES:]
