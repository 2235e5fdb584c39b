"""PostgreSQL's dialect as the store's tables need it: text that sorts by code point.

SQLite compares text by its bytes; a PostgreSQL database may have any collation. So every text
column is made with COLLATE "C", and order, comparison, `lower` and `like` agree on both.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Column
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.dialects.postgresql.base import PGTypeCompiler
from sqlalchemy.types import String, Text

_BY_CODE_POINT: Final = ' COLLATE "C"'


class _TypeCompiler(PGTypeCompiler):
    def visit_TEXT(self, type_: Text, **kw: Any) -> str:  # noqa: N802
        return super().visit_TEXT(type_, **kw) + _collation(type_, **kw)

    def visit_VARCHAR(self, type_: String, **kw: Any) -> str:  # noqa: N802
        return super().visit_VARCHAR(type_, **kw) + _collation(type_, **kw)


def _collation(type_: String, *, type_expression: object = None, **_: Any) -> str:
    """Only a column that is being made has one; a cast has not."""
    wanted = isinstance(type_expression, Column) and type_.collation is None
    return _BY_CODE_POINT if wanted else ""


class PostgresDialect(psycopg.dialect):
    """Positional parameters, and the store's collation in DDL."""

    type_compiler_cls = _TypeCompiler
    supports_statement_cache = True

    def __init__(self) -> None:
        super().__init__(paramstyle="format")  # type: ignore[no-untyped-call]
