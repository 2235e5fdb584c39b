"""Puts backups in the place of a database: files of SQLite, and dumps of PostgreSQL.

The earlier database is kept beside, under a name with the time, until somebody deletes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from fw_actors.errors import ConfigurationError
from fw_actors.store.backup import back_up_file, connection_of, error_lines, remove_draft_of

PG_RESTORE: Final = "pg_restore"
_SQLITE_HEAD: Final = b"SQLite format 3\0"
_DUMP_HEAD: Final = b"PGDMP"
_LEAVING_SECONDS: Final = 2.0
_BESIDE: Final = ("-wal", "-shm", "-journal")


def kind_of_backup(file: Path) -> str:
    """Return `sqlite` or `postgresql`. Raises: ConfigurationError for any other file."""
    try:
        with file.open("rb") as opened:
            head = opened.read(len(_SQLITE_HEAD))
    except OSError as error:
        raise ConfigurationError([f"{file} can't be read: {error.strerror}."]) from None
    if head == _SQLITE_HEAD:
        return "sqlite"
    if head.startswith(_DUMP_HEAD):
        return "postgresql"
    raise ConfigurationError([f"{file} is no backup: neither a file of SQLite nor a dump."])


@contextmanager
def file_draft(
    backup: Path, database: Path, progress: Callable[[int, int], None]
) -> Iterator[Path]:
    """Yield a checked copy of a backup beside the database; it is removed with the block.

    Raises: ConfigurationError if the backup is not intact or the copy can't be written.
    """
    draft = database.with_name(f"{database.name}.restoring")
    _remove(draft)
    remove_draft_of(draft)
    try:
        database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        back_up_file(backup, draft, progress)
        _require_site(draft)
        yield draft
    except OSError as error:
        raise ConfigurationError([f"{draft} can't be written: {error.strerror}."]) from error
    finally:
        _remove(draft)


def _require_site(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as opened:
        tables = opened.execute("SELECT name FROM sqlite_schema WHERE name = 'fw_meta'").fetchall()
    if not tables:
        raise ConfigurationError(["The backup is of another program: it has no table fw_meta."])


def put_file(draft: Path, database: Path, kept: Path) -> None:
    """Put a draft in the place of a database, which gets the name `kept`.

    Raises: ConfigurationError if another process has one of them open.
    """
    _fold_log(draft)
    if database.exists():
        with contextlib.suppress(sqlite3.DatabaseError):  # a damaged one is moved with its log
            _fold_log(database)
        for end in _BESIDE:
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{database}{end}", f"{kept}{end}")
        os.rename(database, kept)
    os.rename(draft, database)
    descriptor = os.open(database.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fold_log(file: Path) -> None:
    """Bring the write-ahead log into the file, which no other connection may have open.

    Raises: ConfigurationError if one has; sqlite3.DatabaseError for a damaged file.
    """
    with contextlib.closing(sqlite3.connect(file, timeout=1.0, isolation_level=None)) as opened:
        try:
            opened.execute("PRAGMA journal_mode=DELETE").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            raise ConfigurationError(
                [f"Another process has {file} open: stop every worker and command first."]
            ) from None


def _remove(file: Path) -> None:
    for end in ("", *_BESIDE):
        Path(f"{file}{end}").unlink(missing_ok=True)


def check_dump(file: Path, environ: Mapping[str, str]) -> None:
    """Check that pg_restore can read a dump. Raises: ConfigurationError."""
    _run([_program(environ), "--list", str(file)], dict(environ))


class DatabaseRestore:
    """The restore of a dump into the current schema of a PostgreSQL database."""

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        """`environ`: the process's, as in `back_up_database`."""
        self._url, self._environ = url, environ

    def examine(self) -> bool:
        """Return whether the database has a site already.

        Raises: ConfigurationError if other connections use the database.
        """
        with self._connected() as connection:
            others = _count_others(connection)
            end = time.monotonic() + _LEAVING_SECONDS
            while others and time.monotonic() < end:  # backends end a moment after their clients
                time.sleep(0.05)
                others = _count_others(connection)
            if others:
                raise ConfigurationError(
                    [
                        f"The database has {others} other connections: stop every service and "
                        "worker, on all machines, first."
                    ]
                )
            return self._has_site(connection)

    @contextmanager
    def replaced(self, file: Path, kept: str) -> Iterator[None]:
        """Restore a dump for the block; what was there is kept in the schema `kept`.

        When the block raises, all is as it was before.

        Raises: ConfigurationError if the dump can't be restored.
        """
        with self._connected() as connection:
            schema = connection.execute("SELECT current_schema()").fetchone()[0]
            had_site = self._has_site(connection)
            if had_site:
                connection.execute(f"ALTER SCHEMA {_quoted(schema)} RENAME TO {_quoted(kept)}")
                connection.execute(f"CREATE SCHEMA {_quoted(schema)}")
        try:
            self._restore(file)
            yield
        except BaseException:
            with self._connected() as connection:
                connection.execute(f"DROP SCHEMA {_quoted(schema)} CASCADE")
                if had_site:
                    connection.execute(f"ALTER SCHEMA {_quoted(kept)} RENAME TO {_quoted(schema)}")
                else:
                    connection.execute(f"CREATE SCHEMA {_quoted(schema)}")
            raise

    def _restore(self, file: Path) -> None:
        arguments, passed = connection_of(self._url, self._environ)
        command = [_program(self._environ), "--no-owner", "--exit-on-error", "--single-transaction"]
        _run([*command, f"--dbname={arguments}", str(file)], passed)
        with self._connected() as connection:
            if not self._has_site(connection):
                raise ConfigurationError(
                    ["The dump is of another program, or of another schema than this database's."]
                )

    @staticmethod
    def _has_site(connection: Any) -> bool:
        return connection.execute("SELECT to_regclass('fw_meta')").fetchone()[0] is not None

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        import psycopg  # few sites need its driver

        try:
            with psycopg.connect(self._url, autocommit=True, connect_timeout=10) as connection:
                yield connection
        except psycopg.Error as error:
            raise ConfigurationError([f"The database refused: {error}".strip()]) from None


def _count_others(connection: Any) -> int:
    """Return how many other clients are connected to the database."""
    count: int = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    ).fetchone()[0]
    return count


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _program(environ: Mapping[str, str]) -> str:
    program = shutil.which(PG_RESTORE, path=environ.get("PATH"))
    if program is None:
        raise ConfigurationError([f"This restore needs {PG_RESTORE}, which was not found."])
    return program


def _run(command: list[str], environ: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise ConfigurationError(error_lines(done.stderr) or [f"{PG_RESTORE} failed"])
