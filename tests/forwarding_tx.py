"""A transaction around another one, for stores that count statements or let them fail."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import ClauseElement

from fw_actors.store import Statement, Tx
from fw_actors.store.transaction import AfterCommit, Row, TableLayout


class ForwardingTx(Tx):
    """Passes everything on to `inner`; a subclass learns of each statement before it runs."""

    def __init__(self, inner: Tx) -> None:
        self.now, self.writable = inner.now, inner.writable
        self.inserts_in_queries, self.locks_rows = inner.inserts_in_queries, inner.locks_rows
        self._inner = inner

    @abstractmethod
    def before_statement(self, params: Mapping[str, Any]) -> None:
        """React to a statement; an error raised here is raised instead of its result."""

    def rows(self, statement: Statement | ClauseElement, /, **params: Any) -> list[Row]:
        self.before_statement(params)
        return self._inner.rows(statement, **params)

    def run(self, statement: Statement | ClauseElement, /, **params: Any) -> int:
        self.before_statement(params)
        return self._inner.run(statement, **params)

    def run_many(
        self, statement: Statement | ClauseElement, params: Iterable[dict[str, Any]], /
    ) -> None:
        self.before_statement({})
        self._inner.run_many(statement, params)

    def savepoint(self) -> AbstractContextManager[None]:
        return self._inner.savepoint()

    def searching(self) -> AbstractContextManager[None]:
        return self._inner.searching()

    def after_commit(self, callback: AfterCommit, *, once: bool = False) -> None:
        self._inner.after_commit(callback, once=once)

    def lock(self, name: str) -> None:
        self._inner.lock(name)

    def limit_pauses(self) -> None:
        self._inner.limit_pauses()

    def layouts(self, tables: Sequence[str]) -> list[TableLayout]:
        return self._inner.layouts(tables)

    def tables_with(self, column: str) -> list[str]:
        return self._inner.tables_with(column)

    def raw(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        self.before_statement({})
        return self._inner.raw(text, params)
