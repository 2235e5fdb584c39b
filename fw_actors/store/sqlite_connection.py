"""An SQLite connection: its settings, and the translation of errors."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from fw_actors.errors import ConfigurationError, OverloadedError, store_refusal
from fw_actors.store.query_limits import LIKE_LONG, QueryLimit, like_long
from fw_actors.store.statement import ConstraintViolation, StatementError, UniqueViolation

# All errors of executing a statement; the last three come from binding its values.
REFUSALS: Final = (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError)

# By result code, extended or primary: the message for the caller.
# https://www.sqlite.org/rescode.html
_OVERLOADED: Final = MappingProxyType(
    {
        sqlite3.SQLITE_BUSY: "The database is locked by another process. Try again in a moment.",
        sqlite3.SQLITE_LOCKED: "The database is locked. Try again in a moment.",
        sqlite3.SQLITE_PROTOCOL: "The database is locked by other processes. Try again.",
        sqlite3.SQLITE_FULL: "The database or its disk is full; nothing was changed.",
        sqlite3.SQLITE_IOERR: "The disk under the database failed to read or write.",
        sqlite3.SQLITE_READONLY: "The database cannot be written: its file is read-only.",
        sqlite3.SQLITE_READONLY_DBMOVED: (
            "The database's files were moved or replaced while they were open. Put them back, or "
            "restart the service to use the new ones."
        ),
        sqlite3.SQLITE_NOMEM: "There is not enough memory for the database.",
        sqlite3.SQLITE_CANTOPEN: "The database's files cannot be opened.",
    }
)
_TEMPORARY: Final = "the folder of temporary files (SQLITE_TMPDIR, TMPDIR, /var/tmp or /tmp)"
# Of a read, which writes nothing but the rows that it sorts.
_OVERLOADED_READS: Final = MappingProxyType(
    {
        sqlite3.SQLITE_FULL: f"The query needs more room than there is in {_TEMPORARY}.",
        sqlite3.SQLITE_CANTOPEN: (
            f"The database's files cannot be opened, or {_TEMPORARY} is not writable."
        ),
    }
)
_UNIQUE: Final = (
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
)
_UNIQUE_MESSAGE: Final = re.compile(r"UNIQUE constraint failed: (?P<what>.+)", re.DOTALL)
_PRIMARY: Final = 0xFF


def code_of(error: BaseException) -> int:
    """Return the extended result code of an SQLite error; 0 for an error of the module sqlite3."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code


def translate(error: BaseException, *, writable: bool = True) -> Exception:
    """Return the exception for a statement that failed with `error` (see `Tx`).

    Args:
        writable: False in a read, where a refused write is a defect of fw and not the file's state,
            and a full disk is that of the rows that it sorts.
    """
    code = code_of(error)
    if code in _UNIQUE:
        return _unique_violation(str(error))
    primary = code & _PRIMARY
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return ConstraintViolation(f"{error}.")
    if primary == sqlite3.SQLITE_READONLY and not writable:
        return StatementError("This transaction can only read.")
    if primary in _OVERLOADED_READS and not writable:
        return store_refusal(_OVERLOADED_READS[primary])
    if (sentence := refusal_reason(error)) is not None:
        return store_refusal(sentence)
    return StatementError(f"The database refused a statement: {error}")


def refusal_reason(error: BaseException | None) -> str | None:
    """Return the state of file, disk or memory for which SQLite refuses writes, if an error reports
    one."""
    if error is None:
        return None
    code = code_of(error)
    return _OVERLOADED.get(code) or _OVERLOADED.get(code & _PRIMARY)


def has_moved() -> sqlite3.OperationalError:
    """Return SQLite's error for moved files, which it raises itself only without a log."""
    error = sqlite3.OperationalError("the database's files have moved since they were opened")
    error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DBMOVED
    return error


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds the requested lock."""
    return code_of(error) & _PRIMARY == sqlite3.SQLITE_BUSY


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether a file is not an intact SQLite database."""
    return code_of(error) & _PRIMARY in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def overloaded(error: BaseException | None) -> OverloadedError:
    """Return a new 503 for one caller of a transaction that `error` ended."""
    message = refusal_reason(error) or "The database could not complete the transaction."
    refusal = OverloadedError(message)
    refusal.__cause__ = error
    return refusal


def _unique_violation(message: str) -> UniqueViolation:
    found = _UNIQUE_MESSAGE.fullmatch(message)
    what = found["what"] if found else message
    if what.startswith("index "):  # over an expression: SQLite names only the index
        return UniqueViolation("", (what.removeprefix("index ").strip("'"),))
    pairs = [name.rpartition(".") for name in what.split(", ")]
    return UniqueViolation(pairs[0][0], tuple(column for _, _, column in pairs))


CACHED_STATEMENTS: Final = 1024
RETRY_SECONDS: Final = 0.01

_SETTINGS: Final = (
    "PRAGMA foreign_keys=ON",
    "PRAGMA cache_size=-2048",  # KiB, in each of four connections; 4 MiB made nothing faster
    "PRAGMA journal_size_limit=67108864",  # a WAL that grew under load shrinks again
    # An erased body must not stay in the file, and so in every further backup. Debian's SQLite does
    # this by default, others do not.
    "PRAGMA secure_delete=ON",
)


class SqliteConnection:
    """A connection, its one cursor and its limit. Used by one thread at a time.

    `log` is the path of its write-ahead log; `rolled_back`: whether the open transaction has
    rolled back to a savepoint.

    Args:
        path: the database file; it must exist.
        busy_seconds: the time that a statement waits for a lock of another process; on a writable
            connection, the time that the beginning of a group waits.
        durable: whether a commit is on the disk before it returns.
        writable: False for a connection that refuses every write.
        query_seconds: the time limit of a read, or of a search inside a write; None: no limit.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_seconds: float,
        durable: bool = True,
        writable: bool = True,
        query_seconds: float | None = None,
    ) -> None:
        self.limit = QueryLimit(query_seconds)
        self.writable = writable
        self._file = os.path.realpath(path)
        self.log = f"{self._file}-wal"  # SQLite places it next to a link's target
        self._opened: dict[str, tuple[int, int]] = {}
        self.busy_seconds = busy_seconds
        self.durable = durable
        self.rolled_back = False
        self.raw = sqlite3.connect(
            path,
            timeout=busy_seconds,
            isolation_level=None,  # transactions begin only by explicit commands
            check_same_thread=False,  # opened in one thread, used in another
            cached_statements=CACHED_STATEMENTS,
        )
        try:
            if _use_wal(self.raw, busy_seconds) != "wal":
                raise ConfigurationError(
                    [f"The file system of {path} cannot hold a database with a write-ahead log."]
                )
            (encoding,) = self.raw.execute("PRAGMA encoding").fetchone()
            if encoding != "UTF-8":  # statements compare sizes with bytes of UTF-8
                raise ConfigurationError([f"The database {path} is in {encoding}, not in UTF-8."])
            for setting in _SETTINGS:
                self.raw.execute(setting)
            # The sort of a read may hold a million rows; they go to a file. The setting also says
            # where a write keeps the former pages of a savepoint, which in a file would slow every
            # group that records events.
            self.raw.execute(f"PRAGMA temp_store={'MEMORY' if writable else 'FILE'}")
            self.raw.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
            self.raw.execute("PRAGMA busy_timeout=0" if writable else "PRAGMA query_only=ON")
            self.raw.create_function(
                LIKE_LONG, 2, partial(like_long, self._require_time), deterministic=True
            )
            self.cursor = self.raw.cursor()
            self.has_moved()  # from now on its files must stay the same
        except BaseException:
            self.raw.close()
            raise

    def _require_time(self) -> None:
        """Check the time limit in an SQL function of the store. Raises: TimeoutError when
        interrupted."""
        if self.limit.fired:
            raise TimeoutError

    def data_version(self) -> int:
        """Return a number that changes when another connection has committed."""
        version: int = self.raw.execute("PRAGMA data_version").fetchone()[0]
        return version

    def has_moved(self) -> bool:
        """Return whether the files that are open were moved, removed or replaced.

        SQLite does not notice this: it would write on into files without a name, which are lost
        when the process ends. A log exists as long as a connection is open.
        """
        for name in (self._file, self.log):
            try:
                found = os.stat(name)
            except FileNotFoundError:
                if name in self._opened:
                    return True
            except OSError:
                continue  # a disk that fails is reported by the writes
            else:
                identity = (found.st_dev, found.st_ino)
                if self._opened.setdefault(name, identity) != identity:
                    return True
        return False

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self.raw.close()


def _use_wal(connection: sqlite3.Connection, busy_seconds: float) -> str:
    """Switch to write-ahead logging and return the mode that the file has now.

    SQLite does not wait for locks here, so the switch is repeated for up to `busy_seconds`.
    """
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            mode: str = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_SECONDS)
        else:
            return mode
