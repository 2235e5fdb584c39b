"""SQL as SQLAlchemy Core constructs, compiled once for each dialect, and rows packed in one value.

SQLite compares text by its bytes; a PostgreSQL database may have any collation. Therefore every
text column is created with COLLATE "C", so that order, comparison, `lower` and `like` agree on
both.

A store that cannot run a transaction at the moment raises `fw_actors.errors.OverloadedError` (503).
The errors of this module are not responses; the use cases translate them.

Statements that touch many rows at once read or write them as one JSON or framed value, on both
databases. SQLite runs such a statement in one call without the interpreter's lock; row by row, each
step would take that lock from trio's thread.

Encoding a text as JSON and decoding it costs three times as much as passing bytes, so long texts
follow the JSON of their row (`FramedRows`). A frame is

    <JSON array of the row> LF <the text> LF <the row's key> LF

and the value is the concatenation of all frames, in any order. One aggregate makes both parts of a
frame from one row of the result, so a text is always in the frame of its row, in whatever order the
database reads rows. The key after the text reveals a wrong size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import (
    BigInteger,
    Case,
    Index,
    Insert,
    LargeBinary,
    Table,
    Text,
    Update,
    bindparam,
    case,
    delete,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex
from sqlalchemy.sql import ClauseElement, ColumnElement
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import TableValuedAlias


class StoreError(Exception):
    """The base of errors for a statement that the database refused; it is abstract."""

    def __init__(self, message: str) -> None:
        if type(self) is StoreError:
            raise TypeError("StoreError is abstract; raise one of its subclasses")
        super().__init__(message)


class UniqueViolation(StoreError):
    """Raised when a row would have a key or a unique value that another row has.

    `columns` are in the order of the index. If the database names no table (an index over an
    expression), `table` is empty and `columns` has the name of the index.
    """

    def __init__(self, table: str, columns: tuple[str, ...]) -> None:
        self.table = table
        self.columns = columns
        super().__init__(f"Another row of {table or 'this table'} has this {', '.join(columns)}.")


class ConstraintViolation(StoreError):
    """Raised when a row breaks a NOT NULL, CHECK or FOREIGN KEY rule of its table."""


class StatementError(StoreError):
    """Raised for a defect: a statement or value that the database cannot take, a write in a read.

    Also for a transaction that is used after it ended.
    """


SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"


class _SqliteCompiler(SQLiteCompiler):
    """Passes the hints of `with_hint` on: `INDEXED BY`, which SQLite obeys or refuses."""

    def get_from_hint_text(self, table: Any, text: str | None) -> str | None:
        return text


class SqliteDialect(pysqlite.dialect):
    """The dialect whose statements may name an index."""

    statement_compiler = _SqliteCompiler
    supports_statement_cache = True


@cache
def _dialect(name: str) -> Dialect:
    """Return the dialect `SQLITE` or `POSTGRESQL`.

    Parameters are positional: a tuple is bound faster than a mapping, and its builder is made once.
    """
    if name == POSTGRESQL:
        # Not loaded for a site on SQLite: it takes 2 MB in each process.
        from fw_actors.store.postgres_engine import PostgresDialect

        return PostgresDialect()
    return SqliteDialect(paramstyle="qmark")


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Return an index of the rows for which the SQL condition `where` is true.

    SQLAlchemy's `postgresql_where` would load PostgreSQL's dialect for a site on SQLite too.
    """
    return Index(name, *columns, unique=unique, info={"where": where})


@compiles(CreateIndex)
def _create_index(creation: CreateIndex, compiler: Any, **kw: Any) -> str:
    sql: str = compiler.visit_create_index(creation, **kw)
    where = creation.element.info.get("where")
    return sql if where is None else f"{sql} WHERE {where}"


Values = tuple[Any, ...]


class Form:
    """A construct compiled for one dialect.

    `text` is the SQL; `names` are the parameters that a caller must give; `defaults` has the values
    of the optional ones. `order` has the parameter's name for each place; `size` is the number of
    different names, or -1 if only `resolve` knows them. `pick` takes two or more values from a
    mapping in their order, five times as fast as one look-up for each.
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
        """`compiled`: for a construct with IN lists, whose SQL depends on their lengths."""
        self.text, self.order, self.names = text, order, required
        self.size = -1 if compiled is not None else len(set(order))
        self.pick = itemgetter(*order) if len(order) > 1 else None
        self.defaults, self._compiled = defaults, compiled

    def resolve(self, params: Mapping[str, Any]) -> tuple[str, Values]:
        """Return the SQL to run and its values in order.

        The SQL differs from `text` only by the IN lists, which get a place for each value.

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
        expected = ", ".join(dict.fromkeys(self.order)) or "no parameters"
        return StatementError(f"Takes {expected}; got {', '.join(params) or 'none'}: {self.text}")


STATEMENT_CACHE_SIZE: Final = 256
"""How many results of a function keep that makes statements of tables: those of all sites of a
process, whose tables are mostly the same. Each statement is then compiled once for them all."""


class Statement:
    """A Core construct that is compiled once per dialect, on first use. Keep it in a constant.

        SPEND = Statement(update(tokens).where(tokens.c.hash == bindparam("hash")) …)
        tx.scalar(SPEND, hash=digest)

    Every `bindparam` without a value must be given at each use, others may be given; unknown names
    are refused. Values are int, float, str, bytes and None; SQLAlchemy's types do not convert them,
    neither parameters nor results.
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
        construct = construct.inline()  # else PostgreSQL's form also returns the key
    compiled = construct.compile(dialect=_dialect(dialect))
    if not isinstance(compiled, SQLCompiler):  # DDL takes no values
        return Form(str(compiled).strip())
    order = tuple(compiled.positiontup or ())
    required = frozenset(name for name, bind in compiled.binds.items() if bind.required)
    if compiled.post_compile_params:
        return Form(compiled.string, order, required, compiled=compiled)
    defaults = {name: compiled.binds[name].value for name in set(order) - required}
    return Form(compiled.string, order, required, defaults)


class _Elements(FunctionElement[Any]):
    """The elements of a JSON array, one a row, in the column `value`."""

    name = "elements"
    inherit_cache = True


class _Item(ColumnElement[Any]):
    """One item of a row that is a JSON array, or (`index` None) the row itself."""

    inherit_cache = False

    def __init__(self, value: ColumnElement[Any], index: int | None, type_: type) -> None:
        self.value, self.index = value, index
        self.type = BigInteger() if type_ is int else Text()

    @property
    def _from_objects(self) -> list[Any]:
        """The tables that a statement with this item selects from."""
        tables: list[Any] = self.value._from_objects
        return tables


class JsonRows:
    """Rows given as the parameter `name`, which takes what `rows_as_json` returns.

    ROWS = JsonRows("rows")
    update(T).where(T.c.id == ROWS.item(0, int)).values(state=ROWS.item(1, str))
    """

    def __init__(self, name: str) -> None:
        self.table: TableValuedAlias = _Elements(bindparam(name, type_=Text())).table_valued(
            "value", name=f"{name}_given"
        )

    def item(self, index: int, type_: type) -> ColumnElement[Any]:
        """Return the row's item `index` (from 0) as an `int` or a `str`; null where it is null."""
        return _Item(self.table.c.value, index, type_)

    def whole(self, type_: type) -> ColumnElement[Any]:
        """Return the row itself, for rows that are single values of type `int` or `str`."""
        return _Item(self.table.c.value, None, type_)


MAX_BOUND_TEXTS: Final = 500
"""How many texts a condition binds one by one; a statement may bind 32,766 on SQLite."""


def deletion_of_oldest(
    table: Table, column: ColumnElement[int], *further: ColumnElement[bool]
) -> Statement:
    """Return a statement that deletes at most `limit` rows whose `column` is up to `before`, the
    oldest first. `further` conditions must be met, too.

    Rows that others have locked (PostgreSQL) are left out, and further ones deleted in their place:
    a sweep waits for nobody, and does not end early.
    """
    key = next(iter(table.primary_key.columns))
    old = select(key).where(column <= bindparam("before"), *further).order_by(column)
    oldest = old.limit(bindparam("limit")).with_for_update(skip_locked=True)
    return Statement(delete(table).where(key.in_(oldest)))


def update_of_times_ahead(
    table: Table, column: ColumnElement[int], *further: ColumnElement[bool]
) -> Update:
    """Return an update, without values, of at most `limit` rows whose `column` is after `ahead`.

    The rows are locked (PostgreSQL): one is corrected once, also if two processes notice it.
    """
    key = next(iter(table.primary_key.columns))
    ahead = bindparam("ahead", type_=BigInteger())
    keys = select(key).where(column > ahead, *further).limit(bindparam("limit"))
    return update(table).where(key.in_(keys.with_for_update(skip_locked=True)))


def earlier(one: ColumnElement[int], other: ColumnElement[int]) -> Case[int]:
    """Return the earlier of two times; `one` if it is null."""
    return case((one > other, other), else_=one)


def one_of(column: ColumnElement[Any], texts: Collection[str]) -> ColumnElement[bool]:
    """Return the condition that a column is one of `texts`, of which there may be any number."""
    if len(texts) <= MAX_BOUND_TEXTS:
        return column.in_(sorted(texts))
    parameter = bindparam(None, value=rows_as_json(sorted(texts)), type_=Text(), unique=True)
    elements = _Elements(parameter).table_valued("value", name="one_of")
    return column.in_(select(_Item(elements.c.value, None, str)).select_from(elements))


class AllRows(FunctionElement[str]):
    """All rows of a SELECT as one value: a JSON array of arrays, in no order."""

    name = "all_rows"
    inherit_cache = True
    type = Text()


def rows_as_json(rows: Iterable[Sequence[int | str | None] | int | str]) -> str:
    """Return rows as the value of a parameter. Raises: UnicodeEncodeError for a lone surrogate."""
    return msgspec.json.encode(list(rows)).decode()


def _compile_as(element: type[FunctionElement[Any]], *, sqlite: str, postgresql: str) -> None:
    """Register the SQL of a function for each database; its arguments replace `{}`."""
    for name, template in (("sqlite", sqlite), ("postgresql", postgresql)):

        @compiles(element, name)
        def compiled(
            element: Any, compiler: SQLCompiler, template: str = template, **kw: Any
        ) -> str:
            return template.replace("{}", compiler.process(element.clauses, **kw))


_compile_as(_Elements, sqlite="json_each({})", postgresql="jsonb_array_elements(CAST({} AS JSONB))")
_compile_as(
    AllRows,
    sqlite="json_group_array(json_array({}))",
    postgresql="CAST(COALESCE(json_agg(json_build_array({})), '[]') AS TEXT)",
)


@compiles(_Item, "sqlite")
def _item_on_sqlite(item: _Item, compiler: SQLCompiler, **kw: Any) -> str:
    value = compiler.process(item.value, **kw)
    return value if item.index is None else f"json_extract({value}, '$[{item.index}]')"


@compiles(_Item, "postgresql")
def _item_on_postgresql(item: _Item, compiler: SQLCompiler, **kw: Any) -> str:
    type_ = compiler.dialect.type_compiler_instance.process(item.type)
    value = compiler.process(item.value, **kw)
    text = f"{value} #>> '{{}}'" if item.index is None else f"{value} ->> {item.index}"
    return f"CAST({text} AS {type_})"


_LF: Final = b"\n"  # JSON has none inside a line, and a key is a number


class FramedRow(msgspec.Struct, array_like=True):
    """The JSON part of a frame; subclasses add the further columns in order.

    `key` is a number that is unique in the result; `size` is the length of the text in bytes, null
    if the text is null.
    """

    key: int
    size: int | None


R = TypeVar("R", bound=FramedRow)


class FramedRows(FunctionElement[bytes]):
    """All rows of a SELECT as frames; null if there are none.

    `FramedRows(key, text, *columns)`: `key` is an integer column that is never null and unique in
    the result, `text` may be null. Read by `read_frames`.
    """

    name = "framed_rows"
    inherit_cache = True
    type = LargeBinary()


class Octets(FunctionElement[int]):
    """The length of a text in bytes of UTF-8; the database computes it faster than characters."""

    name = "octets"
    inherit_cache = True
    type = BigInteger()


class PlainText(FunctionElement[str]):
    """The value of a text column; null instead of bytes, which SQLite stores in any column."""

    name = "plain_text"
    inherit_cache = True
    type = Text()


class TextBytes(FunctionElement[bytes]):
    """The UTF-8 of a text."""

    name = "text_bytes"
    inherit_cache = True
    type = LargeBinary()


def read_frames(value: bytes, decoder: msgspec.json.Decoder[R]) -> Iterator[tuple[R, bytes]]:
    """Yield each row with its text as UTF-8, which is empty for null.

    Raises: StatementError at the first incomplete frame; the rows yielded before must not be used.
    """
    begin = 0
    while begin < len(value):
        head = value.find(_LF, begin)
        try:
            row = decoder.decode(value[begin:head])
        except msgspec.DecodeError:
            raise _damaged() from None
        end = head + 1 + (row.size or 0)
        close = b"\n%d\n" % row.key
        begin = end + len(close)
        if value[end:begin] != close:
            raise _damaged()
        yield row, value[head + 1 : end]


def _damaged() -> StatementError:
    return StatementError("Rows and their texts do not fit together; none of them can be used.")


def _parts(frame: FramedRows, compiler: SQLCompiler, kw: dict[str, Any]) -> tuple[str, str, str]:
    """Return the SQL of the array's items, of the text and of the key."""
    key, text, *columns = frame.clauses
    items = (key, Octets(text), *columns)
    return (
        ", ".join(compiler.process(item, **kw) for item in items),
        f"COALESCE({compiler.process(text, **kw)}, '')",
        f"CAST({compiler.process(key, **kw)} AS TEXT)",
    )


@compiles(FramedRows, "sqlite")
def _framed_rows_on_sqlite(frame: FramedRows, compiler: SQLCompiler, **kw: Any) -> str:
    items, text, key = _parts(frame, compiler, kw)
    return (
        f"CAST(group_concat(json_array({items}) || '\n' || {text} || '\n' || {key} || '\n', '')"
        " AS BLOB)"
    )


@compiles(FramedRows, "postgresql")
def _framed_rows_on_postgresql(frame: FramedRows, compiler: SQLCompiler, **kw: Any) -> str:
    items, text, key = _parts(frame, compiler, kw)
    array = f"CAST(json_build_array({items}) AS TEXT)"
    whole = f"{array} || '\n' || {text} || '\n' || {key} || '\n'"
    return f"string_agg(convert_to({whole}, 'UTF8'), ''::bytea)"


_compile_as(Octets, sqlite="length(CAST({} AS BLOB))", postgresql="octet_length({})")
_compile_as(PlainText, sqlite="CASE WHEN typeof({}) <> 'blob' THEN {} END", postgresql="{}")
_compile_as(TextBytes, sqlite="CAST({} AS BLOB)", postgresql="convert_to({}, 'UTF8')")
