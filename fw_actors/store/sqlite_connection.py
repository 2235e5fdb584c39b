"""An SQLite connection: its settings, its transactions, and the translation of errors."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from sqlalchemy.sql import ClauseElement

from fw_actors.errors import ConfigurationError, OverloadedError, ValidationError
from fw_actors.store.query_limits import LIKE_LONG, QueryLimit, like_long
from fw_actors.store.statement import (
    SQLITE,
    ConstraintViolation,
    Statement,
    StatementError,
    UniqueViolation,
    Values,
)
from fw_actors.store.transaction import CursorTx, TableLayout, changed_rows, part_name

# All errors of executing a statement; the last three come from binding its values.
REFUSALS: Final = (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError)

# By primary result code: the message for the caller. https://www.sqlite.org/rescode.html
_OVERLOADED: Final = MappingProxyType(
    {
        sqlite3.SQLITE_BUSY: "The database is locked by another process. Try again in a moment.",
        sqlite3.SQLITE_LOCKED: "The database is locked. Try again in a moment.",
        sqlite3.SQLITE_PROTOCOL: "The database is locked by other processes. Try again.",
        sqlite3.SQLITE_FULL: "The database or its disk is full; nothing was changed.",
        sqlite3.SQLITE_IOERR: "The disk under the database failed to read or write.",
        sqlite3.SQLITE_READONLY: "The database cannot be written: its file is read-only.",
        sqlite3.SQLITE_NOMEM: "There is not enough memory for the database.",
        sqlite3.SQLITE_CANTOPEN: "The database's files cannot be opened.",
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
        writable: False in a read, where a refused write is a defect of fw and not the file's state.
    """
    code = code_of(error)
    if code in _UNIQUE:
        return _unique_violation(str(error))
    primary = code & _PRIMARY
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return ConstraintViolation(f"{error}.")
    if primary == sqlite3.SQLITE_READONLY and not writable:
        return StatementError("A read cannot write; use Store.write.")
    if primary in _OVERLOADED:
        return OverloadedError(_OVERLOADED[primary])
    return StatementError(f"The database refused a statement: {error}")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds the requested lock."""
    return code_of(error) & _PRIMARY == sqlite3.SQLITE_BUSY


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether a file is not an intact SQLite database."""
    return code_of(error) & _PRIMARY in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def overloaded(error: BaseException | None) -> OverloadedError:
    """Return a new 503 for one caller of a transaction that `error` ended."""
    message = _OVERLOADED.get(code_of(error) & _PRIMARY) if error is not None else None
    refusal = OverloadedError(message or "The database could not complete the transaction.")
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
    "PRAGMA temp_store=MEMORY",
    "PRAGMA cache_size=-4096",  # KiB, in each of four connections; 16 MiB made nothing faster
    "PRAGMA journal_size_limit=67108864",  # a WAL that grew under load shrinks again
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
        self.log = f"{os.path.realpath(path)}-wal"  # SQLite places it next to a link's target
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
            self.raw.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
            self.raw.execute("PRAGMA busy_timeout=0" if writable else "PRAGMA query_only=ON")
            self.raw.create_function(
                LIKE_LONG, 2, partial(like_long, self._require_time), deterministic=True
            )
            self.cursor = self.raw.cursor()
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


_COLUMNS: Final = "SELECT name, lower(type) FROM pragma_table_info(?)"
_INDEXES: Final = "SELECT name FROM pragma_index_list(?)"
# Makes an app's statement different from fw's own, whose prepared form has passed the guard.
_RAW_PREFIX: Final = "/* fw.db.sql */ "


class RawGuard:
    """SQLite's authorizer: while `active`, refuses statements with effects beyond the transaction.

    It stays installed, because installing an authorizer makes SQLite prepare every statement again.
    """

    _REFUSED: Final = frozenset(
        {
            sqlite3.SQLITE_TRANSACTION,
            sqlite3.SQLITE_SAVEPOINT,
            sqlite3.SQLITE_ATTACH,
            sqlite3.SQLITE_DETACH,
            sqlite3.SQLITE_PRAGMA,
        }
    )

    def __init__(self) -> None:
        self.active = False

    def __call__(self, action: int, *_details: str | None) -> int:
        if self.active and action in self._REFUSED:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


class TransactionGroup(Protocol):
    """The group of a transaction that writes, see `sqlite_engine.GroupCommit`."""

    @property
    def has_room(self) -> bool:
        """Whether a further statement may be deferred."""

    def waits(self, values: Sequence[Values]) -> None:
        """Count a deferred statement with these values."""

    def enter(self) -> None:
        """Begin the transaction of the running member, after those that have returned.

        Raises: sqlite3.OperationalError, SQLITE_BUSY after the connection's `busy_seconds`.
        """


class SqliteTx(CursorTx):
    """A transaction on SQLite; a member of a group of them if it writes.

    A member's first statement begins the group's transaction. Until then its deferred statements
    wait, and its savepoints are only positions among them: a member that runs nothing else needs
    the database's lock only for these, together with the other members.
    """

    dialect = SQLITE
    inserts_in_queries = False
    locks_rows = False
    refusals = REFUSALS

    def __init__(
        self,
        connection: SqliteConnection,
        guard: RawGuard,
        now: int,
        group: TransactionGroup | None = None,
    ) -> None:
        """`guard` is the connection's authorizer; `group` runs it, unless it only reads."""
        # All fields are set here, without a call of the base class, because each request opens
        # several transactions.
        self.now, self.writable, self.callbacks = now, connection.writable, []
        self._limit, self._depth = connection.limit, 0
        self.connection, self._guard, self._group = connection, guard, group
        self.failure: BaseException | None = None
        """The error by which SQLite ended the transaction, or that of a deferred statement."""
        self.deferred: list[_DeferredStatements] = []
        self.has_begun = group is None
        self._positions: list[int] = []
        if group is None:
            self.resume()
        else:
            self._execute, self._execute_many = self._begin_and_execute, self._begin_and_run_many

    def resume(self) -> None:
        """Run statements directly: the transaction has begun."""
        cursor = self.connection.cursor
        self._execute, self._execute_many = cursor.execute, cursor.executemany

    def defer(
        self,
        statement: Statement | ClauseElement,
        missed: Callable[[], object],
        then: Sequence[tuple[Statement, Mapping[str, Any]]] = (),
        /,
        **params: Any,
    ) -> None:
        if self.has_begun or self._group is None or not self._group.has_room:
            super().defer(statement, missed, then, **params)
            return
        bound = [self._bound(statement, params)]
        bound += [self._bound(further, dict(values)) for further, values in then]
        texts, values = zip(*bound, strict=True)
        self.deferred.append(_DeferredStatements(texts, values, missed))
        self._group.waits(values)

    def end(self) -> None:
        super().end()
        self.has_begun = True  # so that nothing is deferred any more

    def run_deferred(self) -> None:
        """Run the deferred statements, and set the savepoints that are open among them.

        Raises: the error of one of them, by which the whole transaction fails.
        """
        deferred, self.deferred = self.deferred, []
        positions, self._positions = self._positions, []
        begun = 0
        try:
            for number, each in enumerate(deferred):
                while begun < len(positions) and positions[begun] <= number:
                    super()._begin_part(part_name(begun))
                    begun += 1
                self._run_deferred(each)
            for depth in range(begun, len(positions)):
                super()._begin_part(part_name(depth))
        except BaseException as error:
            self.failure = self.failure or error
            raise

    def _run_deferred(self, deferred: _DeferredStatements) -> None:
        for number, (text, values) in enumerate(zip(*deferred[:2], strict=True)):
            try:
                changed = changed_rows(self._execute(text, values))
            except REFUSALS as error:
                self._refuse(error)
            if number == 0 and not changed:
                deferred.missed()
                return

    def layouts(self, tables: Sequence[str]) -> list[TableLayout]:
        return [
            TableLayout(
                dict(self._fetched(_COLUMNS, (table,))),
                frozenset(name for (name,) in self._fetched(_INDEXES, (table,))),
            )
            for table in tables
        ]

    def raw(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        guard = self._guard
        try:
            if not self.has_begun:  # the guard refuses BEGIN
                self._begin()
            guard.active = True
            cursor = self._execute(_RAW_PREFIX + text, params or {})
            rows = cursor.fetchall()
        except REFUSALS as error:
            refusal = self._refused(error)
            if isinstance(refusal, StatementError):
                reason = str(error).rstrip(".")
                raise ValidationError(f"The database refused the SQL: {reason}.") from error
            raise refusal from error
        finally:
            guard.active = False
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _begin(self) -> None:
        assert self._group is not None
        self.has_begun = True
        self.resume()
        self._group.enter()
        self.run_deferred()

    def _begin_and_execute(self, text: str, values: Any = ()) -> Any:
        self._begin()
        return self._execute(text, values)

    def _begin_and_run_many(self, text: str, values: Any) -> Any:
        self._begin()
        return self._execute_many(text, values)

    def _refuse(self, error: BaseException) -> NoReturn:
        raise self._refused(error) from error

    def _refused(self, error: BaseException) -> Exception:
        if not self.connection.raw.in_transaction:
            # SQLite has ended the transaction; a further statement would commit by itself.
            self.failure = error
            self._execute = self._execute_many = _lost
        if self.connection.limit.fired:
            return self.connection.limit.refusal()
        return translate(error, writable=self.writable)

    def interrupt(self) -> None:
        self.connection.raw.interrupt()

    def _begin_part(self, name: str) -> None:
        if self.has_begun:
            super()._begin_part(name)
        else:
            self._positions.append(len(self.deferred))

    def _end_part(self, name: str) -> None:
        if self.has_begun:
            super()._end_part(name)
        else:
            self._positions.pop()

    def _undo_part(self, name: str) -> None:
        if not self.has_begun:
            del self.deferred[self._positions.pop() :]
        elif self.connection.raw.in_transaction:
            self._fetched(f"ROLLBACK TO {name}")
            self.connection.rolled_back = True  # at worst the log is synced twice
            self._fetched(f"RELEASE {name}")


class _DeferredStatements(NamedTuple):
    """Statements that are run later, see `Tx.defer`: the SQL and the values of each."""

    texts: tuple[str, ...]
    values: tuple[Values, ...]
    missed: Callable[[], object]


def _lost(*_statement: object) -> NoReturn:
    raise OverloadedError("The database has rolled back this transaction; nothing was changed.")
