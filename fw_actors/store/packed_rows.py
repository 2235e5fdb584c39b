"""Reads and writes many rows as one JSON or framed value, on both databases.

For statements that touch many rows at once. SQLite runs such a statement in one call, outside the
interpreter's lock; row by row, each step of each statement takes that lock from trio's thread.
Rows with long texts: `framed_rows`.

To take a text for JSON and to read it from there costs three times its way as bytes, so that long
texts stand beside the JSON of their row: a frame is

    <JSON array of the row> LF <the text> LF <the row's key> LF

and the value is the frames one after the other, in any order. One aggregate makes both parts of a
frame from one row of the result: no text can stand in the frame of another row, whatever order
the database reads rows in. The key after the text tells a size that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import BigInteger, LargeBinary, Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import TableValuedAlias

from fw_actors.store.statement import StatementError


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
        found: list[Any] = self.value._from_objects
        return found


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
        """Return the row's item number `index` as an `int` or a `str`; null where it is null."""
        return _Item(self.table.c.value, index, type_)

    def whole(self, type_: type) -> ColumnElement[Any]:
        """Return the row itself, for rows that are single values of type `int` or `str`."""
        return _Item(self.table.c.value, None, type_)


class AllRows(FunctionElement[str]):
    """All rows of a SELECT as one value: a JSON array of arrays, in no order."""

    name = "all_rows"
    inherit_cache = True
    type = Text()


def rows_as_json(rows: Iterable[Sequence[int | str | None] | int | str]) -> str:
    """Return rows as the value of a parameter. Raises: UnicodeEncodeError for a lone surrogate."""
    return msgspec.json.encode(list(rows)).decode()


def _compile_as(element: type[FunctionElement[Any]], *, sqlite: str, postgresql: str) -> None:
    """Have a function compiled as its arguments in place of `{}`, for each database."""
    for dialect, template in (("sqlite", sqlite), ("postgresql", postgresql)):

        @compiles(element, dialect)
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
    """The JSON part of a frame; its children add the further columns, in order.

    `key` is a number that no other row of the result has; `size` is how many bytes the text has,
    null where the text is null.
    """

    key: int
    size: int | None


R = TypeVar("R", bound=FramedRow)


class FramedRows(FunctionElement[bytes]):
    """All rows of a SELECT as frames; null where there are none.

    `FramedRows(key, text, *columns)`: `key` is an integer column that is never null and unique in
    the result, `text` may be null. Read by `read_frames`.
    """

    name = "framed_rows"
    inherit_cache = True
    type = LargeBinary()


class Octets(FunctionElement[int]):
    """The length of a text in bytes of UTF-8, which is faster than counting characters."""

    name = "octets"
    inherit_cache = True
    type = BigInteger()


def read_frames(value: bytes, decoder: msgspec.json.Decoder[R]) -> Iterator[tuple[R, bytes]]:
    """Yield each row with its text, which is empty where it is null.

    Raises: StatementError at the first frame that is not whole: nothing of what was yielded
        before it may be used.
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
