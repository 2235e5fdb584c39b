"""The translation of SQLite's result codes into errors."""

from __future__ import annotations

import sqlite3

import pytest

from fw_actors.errors import OverloadedError, is_store_refusal
from fw_actors.store import ConstraintViolation, StatementError, UniqueViolation
from fw_actors.store.sqlite_connection import translate
from fw_actors.store.statement import StoreError


def failure(code: int, message: str = "as SQLite says") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (sqlite3.SQLITE_BUSY, "locked by another process"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "locked by another process"),
        (sqlite3.SQLITE_LOCKED, "locked"),
        (sqlite3.SQLITE_FULL, "full"),
        (sqlite3.SQLITE_IOERR_FSYNC, "disk"),
        (sqlite3.SQLITE_READONLY, "read-only"),
        (sqlite3.SQLITE_NOMEM, "memory"),
        (sqlite3.SQLITE_CANTOPEN, "opened"),
    ],
)
def test_translate_maps_operational_codes_to_overloaded_error(code: int, said: str) -> None:
    refusal = translate(failure(code))
    assert isinstance(refusal, OverloadedError)
    assert said in refusal.message
    assert is_store_refusal(refusal)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN])
def test_translate_names_the_folder_of_temporary_files_for_a_read(code: int) -> None:
    """A read writes nothing but the rows that it sorts (O-21): the database may be in order."""
    refusal = translate(failure(code), writable=False)
    assert isinstance(refusal, OverloadedError)
    assert "SQLITE_TMPDIR" in refusal.message


@pytest.mark.parametrize(
    ("message", "table", "columns"),
    [
        ("UNIQUE constraint failed: fw_token.hash", "fw_token", ("hash",)),
        ("UNIQUE constraint failed: notes.owner, notes.text", "notes", ("owner", "text")),
        ("UNIQUE constraint failed: Sales Invoice.name", "Sales Invoice", ("name",)),
        ("UNIQUE constraint failed: index 'lower_name'", "", ("lower_name",)),
    ],
)
def test_translate_names_table_and_columns_of_unique_violation(
    message: str, table: str, columns: tuple[str, ...]
) -> None:
    refusal = translate(failure(sqlite3.SQLITE_CONSTRAINT_UNIQUE, message))
    assert isinstance(refusal, UniqueViolation)
    assert (refusal.table, refusal.columns) == (table, columns)


def test_translate_distinguishes_constraints_and_statement_errors() -> None:
    broken = translate(failure(sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY))
    assert isinstance(broken, ConstraintViolation)
    assert isinstance(translate(failure(sqlite3.SQLITE_ERROR)), StatementError)
    assert isinstance(translate(OverflowError("too large")), StatementError)


def test_store_error_base_is_not_instantiable() -> None:
    with pytest.raises(TypeError):
        StoreError("anything")
