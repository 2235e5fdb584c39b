"""Translates PostgreSQL's errors; no other module above knows psycopg's.

psycopg's messages quote whole rows (DETAIL), secrets among them, so none is passed on or kept as
a cause: only the primary message and the names of table, column and constraint.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

import psycopg

from fw_actors.errors import OverloadedError
from fw_actors.store.statement import ConstraintViolation, StatementError, UniqueViolation

# All errors of executing a statement; the last two come from values that can't be sent.
REFUSALS: Final = (psycopg.Error, UnicodeError, OverflowError)

LOST: Final = "The connection to the database was lost; nothing was changed."
LOST_AT_COMMIT: Final = (
    "The connection to the database was lost during the commit. Read again to see whether it "
    "was done."
)
UNREACHABLE: Final = "The database can't be reached. Try again in a moment."
CAUGHT_OUTSIDE: Final = (
    "A statement failed and the error was caught without a savepoint around it; PostgreSQL has "
    "given up the transaction and nothing was changed."
)

# By SQLSTATE, or its class (the first two characters): the message for the caller.
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_OVERLOADED: Final = MappingProxyType(
    {
        "08": LOST,
        "40": "Another transaction was in the way; nothing was changed. Try again.",
        "55P03": "The database is locked by another transaction. Try again in a moment.",
        "53": "The database has no resources left; nothing was changed.",
        "53100": "The database's disk is full; nothing was changed.",
        "53200": "There is not enough memory for the database.",
        "53300": "The database takes no more connections. Try again in a moment.",
        "57": "The database ended the statement. Try again in a moment.",
        "57P01": "The database is shutting down. Try again in a moment.",
        "57P02": "The database is starting again after a crash. Try again in a moment.",
        "57P03": "The database is starting or shutting down. Try again in a moment.",
        "25P03": "The transaction was idle for too long and the database ended it.",
        "25006": "The database can't be written: it is a read-only copy.",
        "58": "The disk under the database failed to read or write.",
    }
)
CANCELED: Final = "57014"
"""A query that was canceled, by us or by `statement_timeout`."""
_READ_ONLY: Final = "25006"
_ABORTED: Final = "25P02"
_UNIQUE: Final = "23505"
_INTEGRITY: Final = "23"
_RULES: Final = MappingProxyType({"23502": "NOT NULL", "23503": "FOREIGN KEY", "23514": "CHECK"})
# `Key (owner, "fullName")=(…) already exists.`: the parentheses stay in every language.
_KEY: Final = re.compile(r"\((?P<columns>(?:\"(?:[^\"]|\"\")+\"|[^\"()])+)\)=\(")
_COLUMN: Final = re.compile(r'"((?:[^"]|"")+)"|([^",\s]+)')


def translate(error: BaseException, *, writable: bool = True) -> Exception:
    """Return what a statement that failed with `error` raises (see `Tx`).

    Args:
        writable: False in a read, where a refused write is our defect and not the server's state.
    """
    state = getattr(error, "sqlstate", None)
    if state is None:
        return _without_state(error)
    assert isinstance(error, psycopg.Error)
    if state == _UNIQUE:
        return _unique_violation(error.diag)
    if state[:2] == _INTEGRITY:
        return _constraint_violation(state, error.diag)
    if state == _READ_ONLY and not writable:
        return StatementError("A read can't write; use Store.write.")
    if state == _ABORTED:
        return StatementError(CAUGHT_OUTSIDE)
    told = _OVERLOADED.get(state) or _OVERLOADED.get(state[:2])
    return OverloadedError(told) if told is not None else StatementError(_refused(error))


def _without_state(error: BaseException) -> Exception:
    """Translate errors that libpq or psycopg raise themselves: a lost connection, a value that
    can't be sent.
    """
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return OverloadedError(LOST)
    return StatementError(f"A statement can't be sent: {type(error).__name__}: {error}")


def _refused(error: psycopg.Error) -> str:
    return f"The database refused a statement: {error.diag.message_primary}"


def _constraint_violation(state: str, diag: psycopg.errors.Diagnostic) -> ConstraintViolation:
    rule = _RULES.get(state, "Integrity")
    where = ".".join(filter(None, (diag.table_name, diag.column_name or diag.constraint_name)))
    return ConstraintViolation(f"{rule} constraint failed: {where}.")


def _unique_violation(diag: psycopg.errors.Diagnostic) -> UniqueViolation:
    found = _KEY.search(diag.message_detail or "")
    if found is None:  # an index over an expression, or rows that we may not see
        return UniqueViolation(diag.table_name or "", (diag.constraint_name or "",))
    columns = (
        quoted.replace('""', '"') or plain for quoted, plain in _COLUMN.findall(found["columns"])
    )
    return UniqueViolation(diag.table_name or "", tuple(columns))
