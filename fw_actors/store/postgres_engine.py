"""PostgreSQL's engine: transactions, retries, and raw SQL.

There is no group commit: all row locks of a group would be held until its commit, and one deadlock
would refuse all members. The server groups the commits of concurrent connections itself.

PostgreSQL has no authorizer, so raw SQL is checked by its text: it must be one statement, and its
first word must be allowed. Literals, quoted names and comments are skipped as the server skips
them.

The module has more than 500 lines because its transactions and engines share one connection.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import get_ident
from typing import Any, Final, NamedTuple, NoReturn

import outcome
import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Column, Text
from sqlalchemy.dialects.postgresql.base import PGTypeCompiler
from sqlalchemy.dialects.postgresql.psycopg import dialect
from sqlalchemy.sql import ClauseElement
from sqlalchemy.types import String

from fw_actors.errors import OverloadedError, ValidationError, store_refusal
from fw_actors.store.executor import EngineCounts, Pull, RefusedWrites, WorkItem
from fw_actors.store.postgres_connection import (
    BEGIN_LAZY,
    BEGIN_READ,
    BEGIN_WRITE,
    CANCELLED,
    CAUGHT_OUTSIDE,
    CONNECTION_LOST,
    LIMIT_PAUSES,
    LOST_AT_COMMIT,
    READ_ONLY_COPY,
    REFUSALS,
    UNREACHABLE,
    ConnectionPool,
    PostgresConnection,
    refusal_reason,
    translate,
)
from fw_actors.store.query_limits import QueryLimit
from fw_actors.store.statement import POSTGRESQL, Statement, StatementError, Values
from fw_actors.store.transaction import CursorTx, TableLayout, changed_rows, refuse_ended

_BY_CODE_POINT: Final = ' COLLATE "C"'


class _TypeCompiler(PGTypeCompiler):
    def visit_TEXT(self, type_: Text, **kw: Any) -> str:  # noqa: N802
        return super().visit_TEXT(type_, **kw) + _collation(type_, **kw)

    def visit_VARCHAR(self, type_: String, **kw: Any) -> str:  # noqa: N802
        return super().visit_VARCHAR(type_, **kw) + _collation(type_, **kw)


def _collation(type_: String, *, type_expression: object = None, **_: Any) -> str:
    """Return the collation of a column in its definition; a cast has none."""
    needs_collation = isinstance(type_expression, Column) and type_.collation is None
    return _BY_CODE_POINT if needs_collation else ""


class PostgresDialect(dialect):
    """Positional parameters, and the store's collation in DDL."""

    type_compiler_cls = _TypeCompiler
    supports_statement_cache = True

    def __init__(self) -> None:
        super().__init__(paramstyle="format")  # type: ignore[no-untyped-call]


_TOKEN: Final = re.compile(
    r"""
      (?P<skipped> '(?:[^']|'')*'                     # standard_conforming_strings is on
        | --[^\r\n]*
        | \$(?P<tag>(?:[A-Za-z_\x80-\U0010ffff][\w]*)?)\$.*?\$(?P=tag)\$
        | :: | := | \s+ )
    | (?P<escaped> [eE]'(?:[^'\\]|\\.|'')*' )
    | "(?P<quoted>(?:[^"]|"")*)"
    | : (?P<name>[A-Za-z_]\w*)
    | (?P<word> [A-Za-z_\x80-\U0010ffff][\w$]* )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT: Final = "/*"
_COMMENT_LIMIT: Final = re.compile(r"/\*|\*/")
_ALLOWED: Final = frozenset(
    [
        *("SELECT", "VALUES", "TABLE", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE"),
        *("CREATE", "ALTER", "DROP", "COMMENT", "GRANT", "REVOKE", "REINDEX", "REFRESH"),
        *("ANALYZE", "EXPLAIN", "LOCK", "SHOW"),
    ]
)
_REFUSED_FUNCTIONS: Final = frozenset(  # functions whose effects outlive the transaction
    [
        "set_config",
        "pg_advisory_lock",
        "pg_advisory_lock_shared",
        "pg_try_advisory_lock",
        "pg_try_advisory_lock_shared",
    ]
)


def read_raw(text: str) -> bytes:
    """Return the statement in psycopg's format, with `%(name)s` for each `:name`.

    Raises: ValidationError for more than one statement, and for one that would reach beyond the
        transaction: BEGIN, COMMIT, SAVEPOINT, SET, LISTEN, DO, COPY and their like.
    """
    parts: list[str] = []
    first = ""
    ended = False
    position = 0
    while position < len(text):
        if text.startswith(_COMMENT, position):
            begin, position = position, _end_of_comment(text, position)
            parts.append(text[begin:position].replace("%", "%%"))
            continue
        token = _TOKEN.match(text, position)
        assert token is not None, "any character is a token"
        position = token.end()
        kind, piece = token.lastgroup, token[0]
        if kind == "tag":
            kind = "skipped"
        if ended and kind != "skipped" and piece != ";":
            raise ValidationError("fw.db.sql accepts only one statement at a time.")
        if kind == "name":
            parts.append(f"%({token['name']})s")
            continue
        parts.append(piece.replace("%", "%%"))
        if kind in ("word", "quoted"):
            _refuse_function(token["word"] or token["quoted"])
        if not first and kind != "skipped" and piece != "(":
            first = piece.upper()
        ended = ended or piece == ";"
    if first not in _ALLOWED:
        refused = f"{first[:20]} statements" if first else "an empty statement"
        raise ValidationError(f"fw.db.sql does not allow {refused}.")
    try:
        return "".join(parts).encode()
    except UnicodeEncodeError:
        raise ValidationError("SQL must not contain a lone surrogate.") from None


def _end_of_comment(text: str, begin: int) -> int:
    """Return the end of the block comment at `begin`, in which others may be nested."""
    depth = 0
    for limit in _COMMENT_LIMIT.finditer(text, begin):
        depth += 1 if limit[0] == _COMMENT else -1
        if not depth:
            return limit.end()
    return len(text)


def _refuse_function(name: str) -> None:
    if name.lower() in _REFUSED_FUNCTIONS:
        raise ValidationError(
            f"fw.db.sql does not allow {name}, because its effect outlasts the transaction."
        )


_LOCK: Final = b"SELECT pg_advisory_xact_lock(%s)"
_LOCK_BYTES: Final = 8
# Resolves a table's name along the search path, as a statement does.
_LAYOUTS: Final = (
    b"SELECT (SELECT coalesce(json_object_agg(attname, format_type(atttypid, NULL)), '{}')::text "
    b"FROM pg_catalog.pg_attribute WHERE attrelid = given.id AND attnum > 0 AND NOT attisdropped), "
    b"(SELECT coalesce(json_agg(relname), '[]')::text FROM pg_catalog.pg_index "
    b"JOIN pg_catalog.pg_class ON oid = indexrelid WHERE indrelid = given.id) "
    b"FROM (SELECT to_regclass(quote_ident(current_schema()) || '.' || quote_ident(name)) AS id, "
    b"place "
    b"FROM json_array_elements_text(%s) WITH ORDINALITY AS one (name, place)) AS given "
    b"ORDER BY place"
)
"""Of tables in the current schema: one of another schema in the search path is another site's."""
_TABLES_WITH: Final = (
    b"SELECT relname::text FROM pg_catalog.pg_class WHERE relkind = 'r' AND relnamespace = "
    b"(SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema()) AND EXISTS "
    b"(SELECT FROM pg_catalog.pg_attribute "
    b"WHERE attrelid = pg_class.oid AND attname = %s AND NOT attisdropped) ORDER BY 1"
)


class PostgresTx(CursorTx):
    """A PostgreSQL transaction.

    Commands without an answer (BEGIN, SAVEPOINT, RELEASE) are deferred until the next statement,
    and share a round trip to the server. Commands that no statement follows are never sent. A
    deferred statement that is the only one commits by itself, without BEGIN and COMMIT.

    A failed statement aborts the transaction up to the innermost savepoint. If the error is caught
    outside a savepoint, the commit is refused.
    """

    dialect = POSTGRESQL
    refusals = REFUSALS

    def __init__(
        self,
        pool: ConnectionPool,
        connection: PostgresConnection,
        begin: bytes,
        now: int,
        limit: QueryLimit,
        *,
        writable: bool,
    ) -> None:
        """`begin`: the command that begins the transaction on `connection`, one of `pool`."""
        super().__init__(
            now, limit, self._execute_within, self._execute_many_within, writable=writable
        )
        self.connection = connection
        self.wrote = False
        """Whether changes are committed."""
        self.refusal_reason: str | None = None
        """The state of the server by which it has refused a statement of this write."""
        self._pool = pool
        self._begin = begin
        self._deferred = [begin]
        self._deferred_statement: _Deferred | None = None
        self._pauses_limited = not writable  # a read holds no locks for which others wait

    @property
    def has_begun(self) -> bool:
        """Whether a statement was executed, even if it failed."""
        return self._deferred[:1] != [self._begin]

    def defer(
        self,
        statement: Statement | ClauseElement,
        missed: Callable[[], object],
        then: Sequence[tuple[Statement, dict[str, Any]]] = (),
        /,
        **params: Any,
    ) -> None:
        ended = self._execute is refuse_ended  # then `run` refuses it
        if self.has_begun or self._deferred_statement is not None or then or ended:
            super().defer(statement, missed, then, **params)
        else:
            bound = self._bound(statement, params)
            self._deferred_statement = _Deferred(*bound, missed, self._depth)

    def complete(self, *, alone: bool) -> None:
        """Run the deferred statement, if there is one still; the function has returned.

        Args:
            alone: whether it may commit by itself. It does if it changes anything.
        """
        only = self._deferred_statement
        if only is None:
            return
        if not alone or not self.connection.is_ready:  # a lost connection is replaced at a BEGIN
            self._run_deferred_statement()
            return
        self._deferred_statement = None
        try:
            changed = changed_rows(self.connection.execute_alone(only.text, only.values))
        except self.refusals as error:
            if self.connection.status == TransactionStatus.UNKNOWN:
                raise store_refusal(LOST_AT_COMMIT) from None
            self._refuse(error)
        self.wrote = changed > 0
        if not changed:
            only.missed()

    def lock(self, name: str) -> None:
        if self.writable:
            digest = hashlib.blake2b(name.encode(), digest_size=_LOCK_BYTES).digest()
            self._fetched(_LOCK, (int.from_bytes(digest, "big", signed=True),))

    def limit_pauses(self) -> None:
        if not self._pauses_limited:
            self._pauses_limited = True
            self._deferred.append(LIMIT_PAUSES)

    def layouts(self, tables: Sequence[str]) -> list[TableLayout]:
        rows = self._fetched(_LAYOUTS, (json.dumps(tables),))
        return [
            TableLayout(json.loads(columns), frozenset(json.loads(indexes)))
            for columns, indexes in rows
        ]

    def tables_with(self, column: str) -> list[str]:
        return [name for (name,) in self._fetched(_TABLES_WITH, (column,))]

    def raw(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        if get_ident() != self._thread:
            self._refuse_thread()
        statement = read_raw(text)
        try:
            with self.savepoint():  # a refused statement leaves the transaction as it was
                rows = self._fetched(statement, params or {})
                names = [column.name for column in self.connection.cursor.description or ()]
                return [dict(zip(names, row, strict=True)) for row in rows]
        except StatementError as error:
            raise ValidationError(str(error)) from None

    def _refuse(self, error: BaseException) -> NoReturn:
        by_the_server = not self.writable and getattr(error, "sqlstate", None) == CANCELLED
        if by_the_server:  # the server's timeout came before the watch
            self.stop(self._limit.refusal())
        if self._limit.fired or by_the_server:
            raise self._limit.refusal() from None
        if self.writable:
            self.refusal_reason = refusal_reason(error)
        raise translate(error, writable=self.writable) from None

    def interrupt(self) -> None:
        self.connection.cancel()

    def _execute_within(self, text: str | bytes, values: Any = ()) -> Any:
        self._send_deferred()
        return self.connection.execute_within(text, values)

    def _execute_many_within(self, text: str, values: Sequence[tuple[Any, ...]]) -> None:
        self._send_deferred()
        self.connection.execute_many_within(text, values)

    def _send_deferred(self) -> None:
        if self._deferred_statement is not None:
            self._run_deferred_statement()
        if not self._deferred:
            return
        begins, text = not self.has_begun, b"; ".join(self._deferred)
        self._deferred.clear()
        if begins:
            try:
                self.connection = self._pool.begin(
                    self.connection, lambda taken: taken.execute(text)
                )
            except psycopg.errors.FeatureNotSupported:  # of a standby: no READ WRITE
                self.refusal_reason = READ_ONLY_COPY
                raise store_refusal(READ_ONLY_COPY) from None
        else:
            self.connection.execute_command_within(text)

    def _run_deferred_statement(self) -> None:
        only, self._deferred_statement = self._deferred_statement, None
        assert only is not None
        try:
            changed = changed_rows(self._execute(only.text, only.values))
        except self.refusals as error:
            self._refuse(error)
        if not changed:
            only.missed()

    def _begin_part(self, name: str) -> None:
        if self._deferred_statement is not None:
            self._run_deferred_statement()
        self._deferred.append(_savepoint(name))

    def _part_returned(self) -> None:
        if self.connection.status == TransactionStatus.INERROR:
            raise StatementError(CAUGHT_OUTSIDE)

    def _end_part(self, name: str) -> None:
        if not self._withdraw_part(name):
            self._deferred.append(b"RELEASE " + name.encode())
        elif self._deferred_statement is not None:
            self._deferred_statement = self._deferred_statement._replace(depth=self._depth - 1)

    def _undo_part(self, name: str) -> None:
        deferred = self._deferred_statement
        if deferred is not None and deferred.depth >= self._depth:
            self._deferred_statement = None
        if self._withdraw_part(name):
            return
        self._deferred.clear()  # they belong to parts of the one rolled back
        if not self.connection.is_open:
            return
        try:
            self.connection.execute(f"ROLLBACK TO {name}; RELEASE {name}".encode())
        except self.refusals as error:
            self._refuse(error)

    def _withdraw_part(self, name: str) -> bool:
        """Remove a savepoint that was not sent yet, because no statement followed it; return
        whether it was removed."""
        savepoint = _savepoint(name)
        if savepoint not in self._deferred:
            return False
        del self._deferred[self._deferred.index(savepoint) :]
        return True


class _Deferred(NamedTuple):
    """A statement that is run later, see `Tx.defer`; `depth`: the savepoints it is in."""

    text: str
    values: Values
    missed: Callable[[], object]
    depth: int


def _savepoint(name: str) -> bytes:
    return b"SAVEPOINT " + name.encode()


class PostgresLookup(PostgresTx):
    """A read without a transaction: each statement sees what is committed when it runs.

    It takes two round trips less than a transaction. The connection refuses to write.
    """

    def _execute_within(self, text: str | bytes, values: Any = ()) -> Any:
        if self.has_begun:
            return self.connection.execute_alone(text, values)
        self._deferred.clear()
        self.connection = self._pool.begin(
            self.connection, lambda taken: taken.execute_alone(text, values)
        )
        return self.connection.cursor


_log: Final = logging.getLogger(__name__)


class PostgresEngine:
    """The engine of one thread, for writes or for reads.

    Args:
        pool: shared by all engines of a store.
        committed: called in this thread after a commit that had written something.
        query_seconds: the time limit of a read, or of a search inside a write; None: no limit.
        lookups: run reads without a transaction, see `PostgresLookup`.
        refused_writes: shared by all engines that write.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        writable: bool,
        committed: Callable[[], None] = lambda: None,
        query_seconds: float | None = None,
        lookups: bool = False,
        refused_writes: RefusedWrites | None = None,
    ) -> None:
        self._refused_writes = refused_writes or RefusedWrites()
        self.counts = EngineCounts()
        self.limit = QueryLimit(query_seconds)
        self._pool = pool
        self._writable = writable
        self._committed = committed
        self._tx_class = PostgresLookup if lookups else PostgresTx

    def run(self, first: WorkItem, pull: Pull, empty: Callable[[], bool]) -> list[WorkItem]:
        """Run one call. See `Engine.run`."""
        taken: list[WorkItem] = []
        item: WorkItem | None = first
        while item is not None:
            taken.append(item)
            if not item.withdrawn:
                return self._serve(item, taken, pull)
            item = pull()
        return taken

    def _serve(self, item: WorkItem, taken: list[WorkItem], pull: Pull) -> list[WorkItem]:
        try:
            connection = self._pool.take()
        except Exception as error:
            self._refuse_waiting(taken, pull, error)
            return taken
        tx = self._tx_class(
            self._pool,
            connection,
            self._beginning(item),
            item.now,
            self.limit,
            writable=self._writable,
        )
        try:
            if item.begin():  # else it was cancelled meanwhile
                self._run(tx, item)
        except BaseException:  # a defect here must not leave the caller waiting forever
            _log.exception("a transaction failed")
            item.refuse(OverloadedError(CONNECTION_LOST))
        finally:
            tx.connection.roll_back()
            self._pool.release(tx.connection)
        return taken

    def _beginning(self, item: WorkItem) -> bytes:
        if not self._writable:
            return BEGIN_READ
        return BEGIN_WRITE if item.durable else BEGIN_LAZY

    def poll(self) -> bool:
        """Return False: external commits are noticed by `postgres.NoticeThread`."""
        return False

    def close(self) -> None:
        """Close the pool."""
        self._pool.close()

    def _run(self, tx: PostgresTx, item: WorkItem) -> None:
        if not self._writable:
            self.limit.begin(tx.interrupt, item, tx)
        try:
            answer = item.fn(tx)
            tx.complete(alone=item.durable)
            item.answer = outcome.Value(answer)
        except BaseException as error:
            item.answer = outcome.Error(error)
        finally:
            self.limit.end()
        tx.end()
        if not self._writable:
            self.counts.reads += 1
            if tx.connection.is_open:
                with suppress(psycopg.Error):  # a ROLLBACK makes psycopg forget prepared statements
                    tx.connection.execute(b"COMMIT")
        else:
            self._end_write(tx, item)
        if isinstance(item.answer, outcome.Value):
            item.callbacks = tx.callbacks

    def _end_write(self, tx: PostgresTx, item: WorkItem) -> None:
        """Commit, if the function has returned, and count the outcome."""
        if isinstance(item.answer, outcome.Error):
            is_refused = isinstance(item.answer.error, OverloadedError)
        elif (refusal := self._commit(tx)) is not None:
            is_refused = True
            item.refuse(refusal)
        else:
            self._count_commit(tx)
            return
        if is_refused:
            self.counts.refused += 1
        else:
            self.counts.rolled_back += 1
        if tx.refusal_reason is not None:
            self._refused_writes.refused(tx.refusal_reason)

    def _count_commit(self, tx: PostgresTx) -> None:
        self.counts.commits += 1
        self.counts.committed += 1
        self.counts.largest_group = 1
        if tx.wrote:
            self._committed()
            if self._refused_writes.is_open:
                self._refused_writes.accepted()

    def _commit(self, tx: PostgresTx) -> Exception | None:
        """Commit the work of a function that has returned; return the exception if that failed."""
        connection = tx.connection
        if tx.wrote or not tx.has_begun:
            return None
        if connection.status == TransactionStatus.INERROR:
            return StatementError(CAUGHT_OUTSIDE)
        if connection.status != TransactionStatus.INTRANS:
            return OverloadedError(CONNECTION_LOST)
        try:
            tx.wrote = connection.commit()
        except psycopg.Error as error:
            if connection.status == TransactionStatus.UNKNOWN:
                return OverloadedError(LOST_AT_COMMIT)
            tx.refusal_reason = refusal_reason(error)
            return translate(error)
        return None

    def _refuse_waiting(self, taken: list[WorkItem], pull: Pull, error: Exception) -> None:
        """Refuse all waiting items: the server would fail each of them."""
        message = error.message if isinstance(error, OverloadedError) else UNREACHABLE
        if not isinstance(error, OverloadedError):
            _log.error("a transaction cannot begin: %s", error)
        while (item := pull(to_refuse=True)) is not None:
            taken.append(item)
        for item in taken:
            if item.begin():
                item.refuse(OverloadedError(message))
                self.counts.refused += self._writable
