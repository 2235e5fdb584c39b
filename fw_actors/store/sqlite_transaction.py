"""A transaction on SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from sqlalchemy.sql import ClauseElement

from fw_actors.errors import OverloadedError, ValidationError
from fw_actors.store.sqlite_connection import REFUSALS, SqliteConnection, translate
from fw_actors.store.statement import SQLITE, Form, Statement, StatementError, compile_form
from fw_actors.store.transaction import AfterCommit, Row, Tx

# Apps' statements must not reuse a cached preparation of ours, which the guard let pass.
_RAW_PREFIX: Final = "/* fw.db.sql */ "


class SqliteTx(Tx):
    """An SQLite transaction. Made for each item; `end()` is called when its function returns."""

    def __init__(self, connection: SqliteConnection, now: int) -> None:
        self.now = now
        self.writable = connection.writable
        self.callbacks: list[AfterCommit] = []
        self.failure: BaseException | None = None
        self.connection = connection
        self._cursor = connection.cursor
        self._execute = connection.cursor.execute
        self._depth = 0

    def rows(self, statement: Statement | ClauseElement, /, **params: Any) -> list[Row]:
        text, values = _form(statement).resolve(params)
        try:
            # Read to the end: a RETURNING that is half read blocks the commit.
            return self._execute(text, values).fetchall()
        except REFUSALS as error:
            raise self._refused(error) from error

    def run(self, statement: Statement | ClauseElement, /, **params: Any) -> int:
        text, values = _form(statement).resolve(params)
        try:
            cursor = self._execute(text, values)
            if cursor.description is not None:
                return len(cursor.fetchall())
        except REFUSALS as error:
            raise self._refused(error) from error
        return max(cursor.rowcount, 0)

    def run_many(
        self, statement: Statement | ClauseElement, params: Iterable[dict[str, Any]], /
    ) -> None:
        form = _form(statement)
        resolved = [form.resolve(values) for values in params]
        texts = {text for text, _ in resolved}
        if len(texts) > 1:
            raise StatementError("run_many can't run IN lists of different lengths.")
        if self._execute != self._cursor.execute:
            self._execute("")  # raises
        for text in texts:
            try:
                self._cursor.executemany(text, [values for _, values in resolved])
            except REFUSALS as error:
                raise self._refused(error) from error

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        name = f"part_{self._depth}"
        kept = len(self.callbacks)
        self._command(f"SAVEPOINT {name}")
        self._depth += 1
        try:
            yield
        except BaseException:
            del self.callbacks[kept:]
            if self.connection.in_transaction:
                self._command(f"ROLLBACK TO {name}")
                self.connection.note_rollback()
                self._command(f"RELEASE {name}")
            raise
        else:
            self._command(f"RELEASE {name}")
        finally:
            self._depth -= 1

    def after_commit(self, callback: AfterCommit) -> None:
        self.callbacks.append(callback)

    def lock(self, name: str) -> None:
        """Do nothing: SQLite has one writer."""

    def columns(self, table: str) -> Mapping[str, str]:
        return dict(self._described("SELECT name, lower(type) FROM pragma_table_info(?)", table))

    def indexes(self, table: str) -> frozenset[str]:
        found = self._described("SELECT name FROM pragma_index_list(?)", table)
        return frozenset(name for (name,) in found)

    def raw(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        guard = self.connection.guard
        guard.active = True
        try:
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

    @contextmanager
    def searching(self) -> Iterator[None]:
        if not self.writable:
            yield
            return
        limit = self.connection.limit
        limit.begin(self.connection.raw.interrupt)
        try:
            yield
        finally:
            limit.end()

    def stop(self, refusal: Exception) -> None:
        """Refuse further statements, see `query_limits.Stoppable`."""

        def stopped(*_statement: object) -> NoReturn:
            raise refusal

        self._execute = stopped

    def end(self) -> None:
        """Refuse every further statement: the function has returned."""
        self._execute = _ended

    def _described(self, text: str, table: str) -> list[Any]:
        try:
            return self._execute(text, (table,)).fetchall()
        except REFUSALS as error:
            raise self._refused(error) from error

    def _command(self, text: str) -> None:
        try:
            self._execute(text)
        except REFUSALS as error:
            raise self._refused(error) from error

    def _refused(self, error: BaseException) -> Exception:
        if not self.connection.in_transaction:
            # SQLite has ended the transaction; a further statement would commit by itself.
            self.failure = error
            self._execute = _lost
        if self.connection.limit.fired:
            return self.connection.limit.refusal()
        return translate(error, writable=self.writable)


def _form(statement: Statement | ClauseElement) -> Form:
    if type(statement) is Statement:
        return statement.forms.get(SQLITE) or statement.form(SQLITE)
    assert isinstance(statement, ClauseElement)
    return compile_form(statement, SQLITE)


def _ended(*_statement: object) -> NoReturn:
    raise StatementError("This transaction has ended; its handle can't be used any more.")


def _lost(*_statement: object) -> NoReturn:
    raise OverloadedError("The database has given up this transaction; nothing was changed.")
