"""The handle by which a function inside a transaction reads and writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy.sql import ClauseElement

from fw_actors.store.statement import Statement

Row = tuple[Any, ...]
AfterCommit = Callable[[], None]


class Tx(ABC):
    """One transaction, given to the function that `Store.write` or `Store.read` runs.

    Plain and synchronous; used in the one thread that runs the function, and dead after it.
    Values are int, float, str, bytes and None, in both directions.

    Every method that runs a statement raises
        UniqueViolation, ConstraintViolation: the row breaks a rule of its table;
        StatementError: a defect, such as a missing parameter or a write inside a read;
        OverloadedError: the database can't take it now (locked, full disk, I/O error). The
            transaction may be lost then: catching the error does not save it.
    A statement that fails changes nothing, but whatever the function did before it stays. To go
    on after a caught error put the attempt in a `savepoint()`: PostgreSQL insists on it.
    """

    now: int
    """Milliseconds since the epoch by the store's clock, when `write` or `read` was called."""

    writable: bool
    """False inside `Store.read`, where every write is refused."""

    @abstractmethod
    def rows(self, statement: Statement | ClauseElement, /, **params: Any) -> list[Row]:
        """Run a statement and return all rows that it gives (SELECT, or RETURNING)."""

    @abstractmethod
    def run(self, statement: Statement | ClauseElement, /, **params: Any) -> int:
        """Run a statement and return how many rows it changed (0 for DDL)."""

    @abstractmethod
    def run_many(
        self, statement: Statement | ClauseElement, params: Iterable[dict[str, Any]], /
    ) -> None:
        """Run an INSERT, UPDATE or DELETE without RETURNING once for each mapping."""

    def one(self, statement: Statement | ClauseElement, /, **params: Any) -> Row | None:
        """Return the first row, or None. Put LIMIT 1 where there may be many."""
        rows = self.rows(statement, **params)
        return rows[0] if rows else None

    def scalar(self, statement: Statement | ClauseElement, /, **params: Any) -> Any:
        """Return the first value of the first row, or None."""
        rows = self.rows(statement, **params)
        return rows[0][0] if rows else None

    @abstractmethod
    def savepoint(self) -> AbstractContextManager[None]:
        """Open a part that can fail alone: an exception that leaves it undoes what it did.

        The exception passes on. Savepoints nest.
        """

    @abstractmethod
    def searching(self) -> AbstractContextManager[None]:
        """Hold the statements of a part to the time that a query may take.

        For statements whose work depends on what a user asks for, so that a search inside a write
        can't hold up all others. Inside a read there is nothing to do: all of it is held to that.

        Raises: OverloadedError, with `extra.reason`, by the statement that is ended.
        """

    @abstractmethod
    def after_commit(self, callback: AfterCommit) -> None:
        """Have `callback` called on trio's thread once the transaction is durable.

        Callbacks run in order, before the caller of `write` is answered. They are dropped when
        the transaction, or the savepoint in which they were registered, is rolled back. Nothing
        that matters may hang on one: a process can die between commit and callback. An
        exception of a callback is only logged.
        """

    @abstractmethod
    def lock(self, name: str) -> None:
        """Hold `name` until the transaction ends; another transaction that wants it waits.

        For rules that span several rows. Nothing to do on SQLite, which has one writer.
        """

    @abstractmethod
    def columns(self, table: str) -> Mapping[str, str]:
        """Return the columns of a table by name, each with the database's type name in lower case;
        empty when the table does not exist.
        """

    @abstractmethod
    def indexes(self, table: str) -> frozenset[str]:
        """Return the names of a table's indexes; empty when the table does not exist."""

    @abstractmethod
    def raw(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run one statement of an app (`fw.db.sql`, D-197) and return its rows.

        Args:
            text: SQL with parameters written `:name`.
            params: their values.

        Raises: ValidationError for SQL that the database refuses, and for statements that would
            reach beyond the transaction: BEGIN, COMMIT, SAVEPOINT, ATTACH, DETACH, PRAGMA.
        """
