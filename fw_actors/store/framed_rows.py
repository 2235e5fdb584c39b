"""Many rows in one value, each together with a text, on both databases.

To take a text for JSON and to read it from there costs three times its way as bytes, so that long
texts stand beside the JSON of their row: a frame is

    <JSON array of the row> LF <the text> LF <the row's key> LF

and the value is the frames one after the other, in any order. One aggregate makes both parts of a
frame from one row of the result: no text can stand in the frame of another row, whatever order
the database reads rows in. The key after the text tells a size that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import BigInteger, LargeBinary
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from fw_actors.store.errors import StatementError

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
    """How many bytes a text has (in UTF-8): quicker than to count its characters."""

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


@compiles(Octets, "sqlite")
def _octets_on_sqlite(octets: Octets, compiler: SQLCompiler, **kw: Any) -> str:
    return f"length(CAST({compiler.process(octets.clauses, **kw)} AS BLOB))"


@compiles(Octets, "postgresql")
def _octets_on_postgresql(octets: Octets, compiler: SQLCompiler, **kw: Any) -> str:
    return f"octet_length({compiler.process(octets.clauses, **kw)})"
