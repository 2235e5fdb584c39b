"""SQL as SQLAlchemy Core constructs, compiled once for each dialect, and what a statement raises.

SQLite compares text by its bytes; a PostgreSQL database may have any collation. So every text
column is made with COLLATE "C", and order, comparison, `lower` and `like` agree on both.

A store that can't take the work at this moment raises `fw_actors.errors.OverloadedError` (503);
the other errors here are no answer to a caller, services turn them into one.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Column, Insert
from sqlalchemy.dialects.postgresql.base import PGTypeCompiler
from sqlalchemy.dialects.postgresql.psycopg import dialect
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import String, Text


class StoreError(Exception):
    """A statement that the database refused. Raise one of its children."""

    def __init__(self, message: str) -> None:
        if type(self) is StoreError:
            raise TypeError("StoreError is abstract; raise one of its subclasses")
        super().__init__(message)


class UniqueViolation(StoreError):
    """Raised when a row would have a key or a unique value that another row has.

    `table` is empty where the database names none (an index over an expression); `columns` are
    in the order of the index, or hold the index's own name then.
    """

    def __init__(self, table: str, columns: tuple[str, ...]) -> None:
        self.table = table
        self.columns = columns
        super().__init__(f"Another row of {table or 'this table'} has this {', '.join(columns)}.")


class ConstraintViolation(StoreError):
    """Raised when a row breaks a NOT NULL, CHECK or FOREIGN KEY rule of its table."""


class StatementError(StoreError):
    """Raised for a defect: a statement or value that the database can't take, a write in a read.

    Also for a transaction that is used after it ended.
    """


_BY_CODE_POINT: Final = ' COLLATE "C"'


class _TypeCompiler(PGTypeCompiler):
    def visit_TEXT(self, type_: Text, **kw: Any) -> str:  # noqa: N802
        return super().visit_TEXT(type_, **kw) + _collation(type_, **kw)

    def visit_VARCHAR(self, type_: String, **kw: Any) -> str:  # noqa: N802
        return super().visit_VARCHAR(type_, **kw) + _collation(type_, **kw)


def _collation(type_: String, *, type_expression: object = None, **_: Any) -> str:
    """Return the collation of a column in its definition; a cast has none."""
    wanted = isinstance(type_expression, Column) and type_.collation is None
    return _BY_CODE_POINT if wanted else ""


class PostgresDialect(dialect):
    """Positional parameters, and the store's collation in DDL."""

    type_compiler_cls = _TypeCompiler
    supports_statement_cache = True

    def __init__(self) -> None:
        super().__init__(paramstyle="format")  # type: ignore[no-untyped-call]


SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"

# Positional styles: a tuple is bound faster than a mapping, and its builder is made once.
_DIALECTS: Final[Mapping[str, Dialect]] = {
    SQLITE: pysqlite.dialect(paramstyle="qmark"),
    POSTGRESQL: PostgresDialect(),
}

Values = tuple[Any, ...]


class Form:
    """A construct compiled for one dialect.

    `text` is the SQL, `names` are the parameters that a caller must give. `order` are the places
    for values, of `size` different names; -1 where only `resolve` knows them. `defaults` has the
    values of those that a caller need not give. `pick` takes two or more values out of a mapping in
    their order, five times as fast as a look-up for each.
    """

    __slots__ = ("_compiled", "defaults", "names", "order", "pick", "size", "text")

    def __init__(
        self,
        text: str,
        order: tuple[str, ...] = (),
        required: frozenset[str] = frozenset(),
        defaults: Mapping[str, Any] = MappingProxyType({}),
        compiled: SQLCompiler | None = None,
    ) -> None:
        """`compiled`: of a construct with IN lists, whose SQL depends on their lengths."""
        self.text, self.order, self.names = text, order, required
        self.size = -1 if compiled is not None else len(set(order))
        self.pick = itemgetter(*order) if len(order) > 1 else None
        self.defaults, self._compiled = defaults, compiled

    def resolve(self, params: Mapping[str, Any]) -> tuple[str, Values]:
        """Return the SQL to run and its values in order.

        It differs from `text` only where an IN list has as many places as values.

        Raises: StatementError for a missing or unknown parameter.
        """
        if self._compiled is not None:
            return self._expanded(self._compiled, params)
        values = {**self.defaults, **params}
        if values.keys() != set(self.order):
            raise self._mismatch(params)
        return self.text, tuple(map(values.__getitem__, self.order))

    def _expanded(self, compiled: SQLCompiler, params: Mapping[str, Any]) -> tuple[str, Values]:
        if not self.names <= params.keys() <= compiled.binds.keys():
            raise self._mismatch(params)
        state = compiled.construct_expanded_state(dict(params))
        return state.statement, tuple(state.positional_parameters)

    def _mismatch(self, params: Mapping[str, Any]) -> StatementError:
        wanted = ", ".join(dict.fromkeys(self.order)) or "no parameters"
        return StatementError(f"Takes {wanted}; got {', '.join(params) or 'none'}: {self.text}")


class Statement:
    """A Core construct that is compiled once per dialect, on first use. Keep it in a constant.

        SPEND = Statement(update(tokens).where(tokens.c.hash == bindparam("hash")) …)
        tx.scalar(SPEND, hash=digest)

    Every `bindparam` without a value must be given at each use, others may be; names that the
    statement lacks are refused. Values are int, float, str, bytes and None: no type of
    SQLAlchemy converts them, on the way in or out.
    """

    __slots__ = ("construct", "forms")

    def __init__(self, construct: ClauseElement) -> None:
        self.construct = construct
        self.forms: dict[str, Form] = {}

    def form(self, dialect: str) -> Form:
        """Return the construct compiled for `dialect` (`SQLITE` or `POSTGRESQL`)."""
        form = self.forms.get(dialect)
        if form is None:  # two threads may both compile it: the same result, kept once
            form = self.forms[dialect] = compile_form(self.construct, dialect)
        return form

    def __repr__(self) -> str:
        return f"<Statement {self.form(SQLITE).text}>"


def compile_form(construct: ClauseElement, dialect: str) -> Form:
    """Compile `construct` for one dialect."""
    if isinstance(construct, Insert):
        construct = construct.inline()  # else PostgreSQL's form returns an unrequested key
    compiled = construct.compile(dialect=_DIALECTS[dialect])
    if not isinstance(compiled, SQLCompiler):  # DDL takes no values
        return Form(str(compiled).strip())
    order = tuple(compiled.positiontup or ())
    required = frozenset(name for name, bind in compiled.binds.items() if bind.required)
    if compiled.post_compile_params:
        return Form(compiled.string, order, required, compiled=compiled)
    defaults = {name: compiled.binds[name].value for name in set(order) - required}
    return Form(compiled.string, order, required, defaults)
