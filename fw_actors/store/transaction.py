"""The handle by which a function inside a transaction reads and writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any, ClassVar, Final, NamedTuple, NoReturn

from sqlalchemy.sql import ClauseElement

from fw_actors.store.query_limits import QueryLimit
from fw_actors.store.statement import Statement, StatementError, Values, compile_form

Row = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class SlowCallback:
    """A callback of `Tx.after_commit` that may take long, such as one of an app.

    `call` is called in a thread, while trio's thread and further writes go on; `failed` is called
    on trio's thread with an exception of it.
    """

    call: Callable[[], None]
    failed: Callable[[BaseException], None]

    def __call__(self) -> None:
        """Call it at once. Raises: its exception, which it has reported."""
        error = self.run()
        if error is not None:
            self.failed(error)
            raise error

    def run(self) -> BaseException | None:
        """Call it in a thread; return its exception, if any."""
        try:
            self.call()
        except BaseException as error:  # it must not end the thread
            return error
        return None


AfterCommit = Callable[[], None]


class TableLayout(NamedTuple):
    """The columns and indexes of a table in the database; empty if the table does not exist.

    `columns`: the database's type in lower case, by the column's name. `indexes`: their names.
    """

    columns: Mapping[str, str]
    indexes: frozenset[str]


class Tx(ABC):
    """One transaction, given to the function that `Store.write` or `Store.read` runs.

    It is synchronous, is used only in the thread that runs the function, and cannot be used after
    the function has returned. Parameters and results are int, float, str, bytes and None.

    Every method that runs a statement raises
        UniqueViolation, ConstraintViolation: the row breaks a rule of its table;
        StatementError: a defect, such as a missing parameter or a write inside a read;
        OverloadedError: the database cannot take it now (locked, full disk, I/O error). The
            transaction may be lost then: catching the error does not save it.
    A failed statement changes nothing, but earlier changes of the function stay. To continue after
    a caught error, run the statement in a `savepoint()`; PostgreSQL requires it.
    """

    now: int
    """Milliseconds since the epoch by the store's clock, when `write` or `read` was called."""

    writable: bool
    """False inside `Store.read`, where every write is refused."""

    waited_seconds: float = 0.0
    """The time for which it has waited for the database's lock (SQLite); set when it begins."""

    inserts_in_queries: bool = True
    """False if a query cannot read the rows that an INSERT in its WITH clause returns."""

    locks_rows: bool = True
    """False if only one transaction writes at a time, so that no row needs a lock."""

    oldest_index_first: bool = True
    """False if a row is checked against the newest unique index of its table first."""

    @abstractmethod
    def rows(self, statement: Statement | ClauseElement, /, **params: Any) -> list[Row]:
        """Run a statement and return all its rows (SELECT, or RETURNING)."""

    @abstractmethod
    def run(self, statement: Statement | ClauseElement, /, **params: Any) -> int:
        """Run a statement and return the number of changed rows (0 for DDL)."""

    @abstractmethod
    def run_many(
        self, statement: Statement | ClauseElement, params: Iterable[dict[str, Any]], /
    ) -> None:
        """Run an INSERT, UPDATE or DELETE without RETURNING once for each mapping."""

    def defer(
        self,
        statement: Statement | ClauseElement,
        missed: Callable[[], object],
        then: Sequence[tuple[Statement, dict[str, Any]]] = (),
        /,
        **params: Any,
    ) -> None:
        """Run a statement that changes at most one row before the next one, or at the commit; and
        those of `then` after it.

        If it changes none, `missed` is called in place of `then`, and may run other statements.
        If nothing else is run in the transaction, PostgreSQL runs it as a transaction of its own:
        one round trip in place of three. SQLite then runs it together with those of other
        transactions, so that the lock on the database is held for the statements only. Parameters
        are in memory until then, so statements with long texts should be run at once.

        An error is raised by the next statement, or by the call of `Store.write`.
        """
        if not self.run(statement, **params):
            missed()
            return
        for further, values in then:
            self.run(further, **values)

    def one(self, statement: Statement | ClauseElement, /, **params: Any) -> Row | None:
        """Return the first row, or None. All rows are read: add LIMIT 1 if there may be many."""
        rows = self.rows(statement, **params)
        return rows[0] if rows else None

    def scalar(self, statement: Statement | ClauseElement, /, **params: Any) -> Any:
        """Return the first value of the first row, or None."""
        rows = self.rows(statement, **params)
        return rows[0][0] if rows else None

    @abstractmethod
    def savepoint(self) -> AbstractContextManager[None]:
        """Open a part that can fail separately: an exception undoes only its changes.

        The exception is raised again. Savepoints can be nested.
        """

    @abstractmethod
    def searching(self) -> AbstractContextManager[None]:
        """Apply the time limit of queries to the statements of a part.

        For statements whose cost depends on a user's request, so that a search inside a write
        cannot block all other writes. It has no effect inside a read, which is limited as a whole.

        Raises: OverloadedError, with `extra.reason`, from the statement that was interrupted.
        """

    @abstractmethod
    def after_commit(self, callback: AfterCommit, *, once: bool = False) -> None:
        """Call `callback` on trio's thread once the transaction is durable.

        With `once` a callback that is registered already is not registered again.

        Callbacks run in order, before the caller of `write` is answered; a `SlowCallback` runs in a
        thread, after the others and after those of earlier commits. They are dropped when the
        transaction, or the savepoint in which they were registered, is rolled back. Correctness
        must not depend on a callback, because a process can die between the commit and the
        callback. An exception of a callback is only logged.
        """

    @abstractmethod
    def lock(self, name: str) -> None:
        """Lock `name` until the transaction ends; other transactions that lock it wait.

        For rules that span several rows. It does nothing on SQLite, which has one writer.
        """

    @abstractmethod
    def limit_pauses(self) -> None:
        """Let PostgreSQL end this transaction if the process pauses in it, after some seconds.

        For transactions without code of an app, on rows for which others wait: a process that is
        stopped or suspended holds its locks, for up to a minute without this. It does nothing on
        SQLite, where the lock of a stopped process is on the whole database.
        """

    @abstractmethod
    def layouts(self, tables: Sequence[str]) -> list[TableLayout]:
        """Return the columns and indexes of each table, in the order of `tables`."""

    @abstractmethod
    def tables_with(self, column: str) -> list[str]:
        """Return the names of the tables that have this column, sorted; also of those that no
        declaration names any more.

        Args:
            column: a name of letters, digits and underscores.
        """

    def columns(self, table: str) -> Mapping[str, str]:
        """Return the columns of a table; see `TableLayout`."""
        return self.layouts((table,))[0].columns

    def indexes(self, table: str) -> frozenset[str]:
        """Return the names of a table's indexes; see `TableLayout`."""
        return self.layouts((table,))[0].indexes

    @abstractmethod
    def raw(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run one statement of an app (`fw.db.sql`, D-197) and return its rows.

        Args:
            text: SQL with parameters written `:name`.
            params: their values.

        Raises: ValidationError for SQL that the database refuses, and for statements with effects
            beyond the transaction: BEGIN, COMMIT, SAVEPOINT, ATTACH, DETACH, PRAGMA.
        """


_ENDED: Final = "This transaction has ended; its handle cannot be used any more."
_OTHER_THREAD: Final = (
    "fw and its documents can be used only in the thread in which fw was given: read before other "
    "threads start, and write when they have returned."
)


class CursorTx(Tx):
    """The common base of both databases' transactions: statements on one cursor, savepoints.

    Statements are executed here without further layers, because each request runs many. An instance
    is made for each item; `end()` is called when its function returns.
    """

    dialect: ClassVar[str]
    refusals: ClassVar[tuple[type[Exception], ...]]
    """The errors that the cursor raises for a refused statement."""
    _places: dict[AfterCommit, int] | None = None
    """The places in `callbacks` of those registered once; made on demand."""

    def __init__(
        self,
        now: int,
        limit: QueryLimit,
        execute: Callable[..., Any],
        execute_many: Callable[..., Any],
        *,
        writable: bool,
    ) -> None:
        """`execute`, `execute_many`: run SQL with values; the former returns the cursor."""
        self.now = now
        self.writable = writable
        self.callbacks: list[AfterCommit] = []
        self._limit = limit
        self._execute, self._execute_many = execute, execute_many
        self._depth = 0
        self._thread = get_ident()

    def rows(self, statement: Statement | ClauseElement, /, **params: Any) -> list[Row]:
        text, values = self._bound(statement, params)
        return self._fetched(text, values)

    def one(self, statement: Statement | ClauseElement, /, **params: Any) -> Row | None:
        text, values = self._bound(statement, params)
        rows = self._fetched(text, values)
        return rows[0] if rows else None

    def scalar(self, statement: Statement | ClauseElement, /, **params: Any) -> Any:
        text, values = self._bound(statement, params)
        rows = self._fetched(text, values)
        return rows[0][0] if rows else None

    def run(self, statement: Statement | ClauseElement, /, **params: Any) -> int:
        text, values = self._bound(statement, params)
        try:
            return changed_rows(self._execute(text, values))
        except self.refusals as error:
            self._refuse(error)

    def run_many(
        self, statement: Statement | ClauseElement, params: Iterable[dict[str, Any]], /
    ) -> None:
        if not isinstance(statement, Statement):
            statement = Statement(statement)  # compiled once for all rows
        bound = [self._bound(statement, each) for each in params]
        texts = {text for text, _ in bound}
        if len(texts) > 1:
            raise StatementError("run_many cannot run IN lists of different lengths.")
        for text in texts:
            try:
                self._execute_many(text, [values for _, values in bound])
            except self.refusals as error:
                self._refuse(error)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        if get_ident() != self._thread:
            self._refuse_thread()
        name = part_name(self._depth)
        kept = len(self.callbacks)
        self._begin_part(name)
        self._depth += 1
        try:
            yield
            self._part_returned()
        except BaseException:
            del self.callbacks[kept:]
            self._undo_part(name)
            raise
        else:
            self._end_part(name)
        finally:
            self._depth -= 1

    @contextmanager
    def searching(self) -> Iterator[None]:
        if not self.writable:
            yield
            return
        self._limit.begin(self.interrupt)
        try:
            yield
        finally:
            self._limit.end()

    def after_commit(self, callback: AfterCommit, *, once: bool = False) -> None:
        if once:
            if self._places is None:
                self._places = {}
            place = self._places.get(callback)
            # A savepoint that was undone has dropped the callback from its place.
            if place is not None and callback in self.callbacks[place : place + 1]:
                return
            self._places[callback] = len(self.callbacks)
        self.callbacks.append(callback)

    def stop(self, refusal: Exception) -> None:
        """Refuse further statements, see `query_limits.Stoppable`."""

        def stopped(*_statement: object) -> NoReturn:
            raise refusal

        self._execute = self._execute_many = stopped

    def end(self) -> None:
        """Refuse every further statement: the function has returned."""
        self._execute = self._execute_many = refuse_ended

    def _bound(
        self, statement: Statement | ClauseElement, params: dict[str, Any]
    ) -> tuple[str, Values]:
        """Return the SQL of a statement, and its values in order."""
        if get_ident() != self._thread:
            self._refuse_thread()
        if type(statement) is Statement:
            form = statement.forms.get(self.dialect) or statement.form(self.dialect)
            if form.defaults:
                params = {**form.defaults, **params}
            if len(params) == form.size:
                try:
                    if form.pick is not None:
                        return form.text, form.pick(params)
                    return form.text, tuple(map(params.__getitem__, form.order))
                except KeyError:
                    pass  # `resolve` names the missing parameter
        else:
            assert isinstance(statement, ClauseElement)
            form = compile_form(statement, self.dialect)
        return form.resolve(params)

    def _refuse_thread(self) -> NoReturn:
        """Refuse a thread that an app has started: two threads that use one connection at once end
        the process (SQLite), and their savepoints would undo each other's changes.

        Raises: StatementError.
        """
        raise StatementError(_ENDED if self._execute is refuse_ended else _OTHER_THREAD)

    def _fetched(self, text: str | bytes, values: Values | Mapping[str, Any] = ()) -> list[Row]:
        try:
            cursor = self._execute(text, values)
            # All rows are read, because a partly read RETURNING blocks SQLite's commit.
            rows: list[Row] = cursor.fetchall() if cursor.description is not None else []
        except self.refusals as error:
            self._refuse(error)
        return rows

    def lock(self, name: str) -> None:
        """Do nothing: there is only one writer."""

    def limit_pauses(self) -> None:
        """Do nothing: SQLite has no limit of pauses."""

    @abstractmethod
    def _refuse(self, error: BaseException) -> NoReturn:
        """Raise the exception for one of `refusals`."""

    @abstractmethod
    def interrupt(self) -> None:
        """Interrupt the running statement. Called in another thread."""

    def _begin_part(self, name: str) -> None:
        """Set a savepoint."""
        self._fetched(f"SAVEPOINT {name}")

    def _part_returned(self) -> None:
        """Raise an error if a savepoint cannot be released. Called before its release."""

    def _end_part(self, name: str) -> None:
        """Release a savepoint."""
        self._fetched(f"RELEASE {name}")

    @abstractmethod
    def _undo_part(self, name: str) -> None:
        """Roll back to a savepoint and release it, if the database still has the transaction."""


def part_name(depth: int) -> str:
    """Return the name of a savepoint that is in `depth` others."""
    return f"part_{depth}"


def changed_rows(cursor: Any) -> int:
    """Return the number of rows that the last statement of a cursor has changed or returned."""
    if cursor.description is not None:
        return len(cursor.fetchall())
    changed: int = cursor.rowcount
    return max(changed, 0)


def refuse_ended(*_statement: object) -> NoReturn:
    """Stand for a cursor's methods when the function has returned. Raises: StatementError."""
    raise StatementError(_ENDED)
