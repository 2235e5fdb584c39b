"""A transaction on PostgreSQL."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from psycopg.pq import TransactionStatus
from sqlalchemy.sql import ClauseElement

from fw_actors.errors import OverloadedError, ValidationError
from fw_actors.store.errors import StatementError
from fw_actors.store.postgres_connection import PostgresConnection
from fw_actors.store.postgres_errors import CANCELED, CAUGHT_OUTSIDE, LOST, REFUSALS, translate
from fw_actors.store.postgres_raw import read_raw
from fw_actors.store.query_limits import QueryLimit
from fw_actors.store.statement import POSTGRESQL, Form, Statement, Values, compile_form
from fw_actors.store.transaction import AfterCommit, Row, Tx

_LOCK: Final = b"SELECT pg_advisory_xact_lock(%s)"
_LOCK_BYTES: Final = 8
# Finds the table that a statement would mean, along the search path.
_COLUMNS: Final = (
    b"SELECT attname::text, format_type(atttypid, NULL) FROM pg_catalog.pg_attribute "
    b"WHERE attrelid = to_regclass(quote_ident(%s)) AND attnum > 0 AND NOT attisdropped"
)
_INDEXES: Final = (
    b"SELECT relname::text FROM pg_catalog.pg_index JOIN pg_catalog.pg_class ON oid = indexrelid "
    b"WHERE indrelid = to_regclass(quote_ident(%s))"
)
_LIVE: Final = (TransactionStatus.INTRANS, TransactionStatus.INERROR)


class PostgresTx(Tx):
    """See `Tx`. Made by the store for each call; `end()` is called when its function returns.

    A statement that fails spoils the transaction up to the innermost savepoint; what is caught
    outside one is refused at the commit.
    """

    def __init__(
        self, connection: PostgresConnection, now: int, limit: QueryLimit, *, writable: bool
    ) -> None:
        self.now = now
        self.writable = writable
        self.callbacks: list[AfterCommit] = []
        self._connection = connection
        self._cursor = connection.cursor
        self._limit = limit
        self._depth = 0
        self._refusal: Exception | None = None

    def rows(self, statement: Statement | ClauseElement, /, **params: Any) -> list[Row]:
        self._execute(*_form(statement).resolve(params))
        return self._fetch()

    def run(self, statement: Statement | ClauseElement, /, **params: Any) -> int:
        self._execute(*_form(statement).resolve(params))
        return max(self._cursor.rowcount, 0)

    def run_many(
        self, statement: Statement | ClauseElement, params: Iterable[dict[str, Any]], /
    ) -> None:
        form = _form(statement)
        resolved = [form.resolve(values) for values in params]
        texts = {text for text, _ in resolved}
        if len(texts) > 1:
            raise StatementError("run_many can't run IN lists of different lengths.")
        self._refuse_ended()
        for text in texts:
            try:
                self._cursor.executemany(text.encode(), [values for _, values in resolved])
            except REFUSALS as error:
                raise self._refused(error) from None

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        name = f"part_{self._depth}"
        kept = len(self.callbacks)
        self._execute(f"SAVEPOINT {name}")
        self._depth += 1
        try:
            yield
            if self._connection.status == TransactionStatus.INERROR:
                raise StatementError(CAUGHT_OUTSIDE)
        except BaseException:
            del self.callbacks[kept:]
            if self._connection.status in _LIVE:
                self._execute(f"ROLLBACK TO {name}")
                self._execute(f"RELEASE {name}")
            raise
        else:
            self._execute(f"RELEASE {name}")
        finally:
            self._depth -= 1

    def after_commit(self, callback: AfterCommit) -> None:
        self.callbacks.append(callback)

    def lock(self, name: str) -> None:
        if self.writable:
            digest = hashlib.blake2b(name.encode(), digest_size=_LOCK_BYTES).digest()
            self._execute(_LOCK, (int.from_bytes(digest, "big", signed=True),))

    def columns(self, table: str) -> Mapping[str, str]:
        return dict(self._described(_COLUMNS, table))

    def indexes(self, table: str) -> frozenset[str]:
        return frozenset(name for (name,) in self._described(_INDEXES, table))

    def raw(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        self._refuse_ended()
        statement = read_raw(text)
        try:
            with self.savepoint():  # a refused statement leaves the transaction as it was
                self._execute(statement, params or {})
                names = [column.name for column in self._cursor.description or ()]
                return [dict(zip(names, row, strict=True)) for row in self._fetch()]
        except StatementError as error:
            raise ValidationError(str(error)) from None

    def _described(self, text: bytes, table: str) -> list[Any]:
        self._execute(text, (table,))
        return self._fetch()

    @contextmanager
    def searching(self) -> Iterator[None]:
        if not self.writable:
            yield
            return
        self._limit.begin(self._connection.cancel)
        try:
            yield
        finally:
            self._limit.end()

    def stop(self, refusal: Exception) -> None:
        """See `query_limits.Stoppable`."""
        self._refusal = refusal

    def end(self) -> None:
        """Refuse every further statement: the function has returned."""
        self._refusal = StatementError(
            "This transaction has ended; its handle can't be used any more."
        )

    def _execute(self, text: str | bytes, values: Values | Mapping[str, Any] = ()) -> None:
        self._refuse_ended()
        if self._connection.status not in _LIVE:
            # Outside a transaction every further statement would commit by itself.
            raise OverloadedError(LOST)
        try:
            self._cursor.execute(text.encode() if isinstance(text, str) else text, values)
        except REFUSALS as error:
            raise self._refused(error) from None

    def _fetch(self) -> list[Row]:
        return self._cursor.fetchall() if self._cursor.description is not None else []

    def _refused(self, error: BaseException) -> Exception:
        by_the_server = not self.writable and getattr(error, "sqlstate", None) == CANCELED
        if by_the_server:  # it was quicker than the watch
            self.stop(self._limit.refusal())
        if self._limit.fired or by_the_server:
            return self._limit.refusal()
        return translate(error, writable=self.writable)

    def _refuse_ended(self) -> None:
        if self._refusal is not None:
            raise self._refusal


def _form(statement: Statement | ClauseElement) -> Form:
    if type(statement) is Statement:
        return statement.forms.get(POSTGRESQL) or statement.form(POSTGRESQL)
    assert isinstance(statement, ClauseElement)
    return compile_form(statement, POSTGRESQL)
