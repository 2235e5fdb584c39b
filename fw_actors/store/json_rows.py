"""Many rows in one JSON value, which a statement reads as a table or gives, on both databases.

For statements that touch many rows at once. SQLite runs such a statement in one call, outside the
interpreter's lock; row by row, each step of each statement takes that lock from trio's thread.
Rows with long texts: `framed_rows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import TableValuedAlias


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
        """What makes the statement read from the rows."""
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
        """Return the row itself, where the rows are no arrays but each an `int` or a `str`."""
        return _Item(self.table.c.value, None, type_)


class AllRows(FunctionElement[str]):
    """All rows of a SELECT as one value: a JSON array of arrays, in no order."""

    name = "all_rows"
    inherit_cache = True
    type = Text()


def rows_as_json(rows: Iterable[Sequence[int | str | None] | int | str]) -> str:
    """Return rows as the value of a parameter. Raises: UnicodeEncodeError for a lone surrogate."""
    return msgspec.json.encode(list(rows)).decode()


@compiles(_Elements, "sqlite")
def _elements_on_sqlite(element: _Elements, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **kw)})"


@compiles(_Elements, "postgresql")
def _elements_on_postgresql(element: _Elements, compiler: SQLCompiler, **kw: Any) -> str:
    return f"jsonb_array_elements(CAST({compiler.process(element.clauses, **kw)} AS JSONB))"


@compiles(AllRows, "sqlite")
def _all_rows_on_sqlite(rows: AllRows, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_group_array(json_array({compiler.process(rows.clauses, **kw)}))"


@compiles(AllRows, "postgresql")
def _all_rows_on_postgresql(rows: AllRows, compiler: SQLCompiler, **kw: Any) -> str:
    array = f"json_build_array({compiler.process(rows.clauses, **kw)})"
    return f"CAST(COALESCE(json_agg({array}), '[]') AS TEXT)"


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
