"""The plans of a database for the statements that the service itself runs.

The statements are recorded while a function of the service runs in a transaction, so that a test
explains what production asks, and not a copy of it. On PostgreSQL whole scans, hashes and merges
are switched off, since tables of tests are all but empty: what is shown then is whether the
statement can use an index, which is what a change of the statement breaks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.sql import ClauseElement

from fw_actors.store import Statement, Tx
from fw_actors.store.postgres_engine import PostgresTx
from fw_actors.store.statement import POSTGRESQL, SQLITE, compile_form

_STEP: Final = re.compile(
    r"(?:SCAN|SEARCH) (?P<table>\w+)(?: AS (?P<alias>\w+))?(?P<how>.*)", re.DOTALL
)
_SOUGHT: Final = re.compile(r'"?(\w+)"? ?(?:=|<=|>=|<|>)')
_SCANS: Final = ("Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Index Scan")
_SETTINGS: Final = ("seqscan", "hashjoin", "mergejoin")


@dataclass(frozen=True)
class Access:
    """One way into a table: the columns by which an index is sought; none for a whole scan.

    `table` is empty for what SQLite does besides, such as a sort.
    """

    table: str
    sought: frozenset[str]
    step: str


def statements_of(tx: Tx, fn: Callable[[], object]) -> list[tuple[Any, dict[str, Any]]]:
    """Run a function of the service; return each statement that it ran, with its parameters."""
    ran: list[tuple[Any, dict[str, Any]]] = []
    patched: Any = tx
    run_many = tx.run_many

    def noted(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(statement: Any, /, **params: Any) -> Any:
            ran.append((statement, params))
            return method(statement, **params)

        return run

    def noted_run_many(statement: Any, params: Iterable[dict[str, Any]], /) -> None:
        given = list(params)
        ran.extend((statement, one) for one in given[:1])
        run_many(statement, given)

    for name in ("one", "rows", "run", "scalar"):
        setattr(patched, name, noted(getattr(tx, name)))
    patched.run_many = noted_run_many
    try:
        fn()
    finally:
        del patched.one, patched.rows, patched.run, patched.run_many, patched.scalar
    return ran


def accesses(tx: Tx, fn: Callable[[], object]) -> list[Access]:
    """Return every access to a table in the plans of all that `fn` runs."""
    found: list[Access] = []
    for statement, params in statements_of(tx, fn):
        found += plan(tx, statement, params)
    return found


def unsought(found: Iterable[Access], **columns: str) -> list[str]:
    """Return the steps into a named table that no index over its column(s) answers.

    `columns`: for each table (or alias), the columns of which one has to be sought, in words. A
    table that is in no plan is one more entry, so that a test cannot pass by asking for nothing.
    """
    found = list(found)
    faults = [
        each.step
        for each in found
        if each.table in columns and not each.sought & set(columns[each.table].split())
    ]
    return faults + sorted(set(columns) - {each.table for each in found})


def plan(tx: Tx, statement: Statement | ClauseElement, params: dict[str, Any]) -> Iterator[Access]:
    """Yield the accesses of one statement, explained with the values that it runs with."""
    dialect = POSTGRESQL if isinstance(tx, PostgresTx) else SQLITE
    form = (
        statement.form(dialect)
        if isinstance(statement, Statement)
        else compile_form(statement, dialect)
    )
    sql, values = form.resolve(params)
    cursor = tx.connection.cursor  # type: ignore[attr-defined]
    if dialect == SQLITE:
        steps = cursor.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
        yield from _of_sqlite([str(step[-1]) for step in steps])
        return
    for setting in _SETTINGS:
        tx.run(text(f"SET LOCAL enable_{setting} = off"))
    cursor.execute(f"EXPLAIN (FORMAT JSON, COSTS OFF) {sql}".encode(), values)
    [[plan]] = cursor.fetchall()
    yield from _of_postgresql(json.loads(plan))
    for setting in _SETTINGS:
        tx.run(text(f"SET LOCAL enable_{setting} = on"))


def _of_sqlite(steps: list[str]) -> Iterator[Access]:
    for step in steps:
        met = _STEP.match(step)
        if met is not None:
            sought = _SOUGHT.findall(step.partition("(")[2]) if step.startswith("SEARCH") else ()
            yield Access(met["table"], frozenset(sought), step)
        else:
            yield Access("", frozenset(), step)


def _of_postgresql(plan: Any, table: str = "") -> Iterator[Access]:
    if isinstance(plan, list):
        for each in plan:
            yield from _of_postgresql(each, table)
    elif isinstance(plan, dict):
        kind, table = plan.get("Node Type", ""), plan.get("Relation Name", table)
        # A bitmap's index scans stand below the scan of its table.
        if kind in _SCANS:
            condition = plan.get("Index Cond", "")
            sought = frozenset(_SOUGHT.findall(condition))
            yield Access(table, sought, f"{kind} {table} {condition}")
        for each in plan.values():
            yield from _of_postgresql(each, table)
