"""What SQLite's errors mean to the rest of the service; nothing above knows sqlite3's own."""

from __future__ import annotations

import re
import sqlite3
from types import MappingProxyType
from typing import Final

from fw_actors.errors import OverloadedError
from fw_actors.store.errors import ConstraintViolation, StatementError, UniqueViolation

# All that executing a statement can raise; the last three come from binding its values.
REFUSALS: Final = (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError)

# Primary result code: what a caller is told. https://www.sqlite.org/rescode.html
_OVERLOADED: Final = MappingProxyType(
    {
        sqlite3.SQLITE_BUSY: "The database is locked by another process. Try again in a moment.",
        sqlite3.SQLITE_LOCKED: "The database is locked. Try again in a moment.",
        sqlite3.SQLITE_PROTOCOL: "The database is locked by other processes. Try again.",
        sqlite3.SQLITE_FULL: "The database or its disk is full; nothing was changed.",
        sqlite3.SQLITE_IOERR: "The disk under the database failed to read or write.",
        sqlite3.SQLITE_READONLY: "The database can't be written: its file is read-only.",
        sqlite3.SQLITE_NOMEM: "There is not enough memory for the database.",
        sqlite3.SQLITE_CANTOPEN: "The database's files can't be opened.",
    }
)
_UNIQUE: Final = (
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
)
_UNIQUE_MESSAGE: Final = re.compile(r"UNIQUE constraint failed: (?P<what>.+)", re.DOTALL)
_PRIMARY: Final = 0xFF


def code_of(error: BaseException) -> int:
    """Return the extended result code of an SQLite error; 0 for what sqlite3 raises by itself."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code


def translate(error: BaseException, *, writable: bool = True) -> Exception:
    """Return what a statement that failed with `error` raises (see `Tx`).

    Args:
        writable: False in a read, where a refused write is our defect and not the file's state.
    """
    code = code_of(error)
    if code in _UNIQUE:
        return _unique_violation(str(error))
    primary = code & _PRIMARY
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return ConstraintViolation(f"{error}.")
    if primary == sqlite3.SQLITE_READONLY and not writable:
        return StatementError("A read can't write; use Store.write.")
    if primary in _OVERLOADED:
        return OverloadedError(_OVERLOADED[primary])
    return StatementError(f"The database refused a statement: {error}")


def overloaded(error: BaseException | None) -> OverloadedError:
    """Return a new 503 for one caller of a transaction that `error` ended."""
    message = _OVERLOADED.get(code_of(error) & _PRIMARY) if error is not None else None
    refusal = OverloadedError(message or "The database could not complete the transaction.")
    refusal.__cause__ = error
    return refusal


def _unique_violation(message: str) -> UniqueViolation:
    found = _UNIQUE_MESSAGE.fullmatch(message)
    what = found["what"] if found else message
    if what.startswith("index "):  # over an expression: SQLite names the index alone
        return UniqueViolation("", (what.removeprefix("index ").strip("'"),))
    pairs = [name.rpartition(".") for name in what.split(", ")]
    return UniqueViolation(pairs[0][0], tuple(column for _, _, column in pairs))
