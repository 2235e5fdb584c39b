"""The rights of a function inside a transaction, with threads and inline alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy import text as sql
from sqlalchemy.schema import CreateTable, DropTable
from sqlalchemy.sql import bindparam

from fw_actors.errors import ValidationError
from fw_actors.store import (
    ConstraintViolation,
    Statement,
    StatementError,
    Store,
    Tx,
    UniqueViolation,
)
from fw_actors.store.statement import POSTGRESQL, SQLITE
from tests.fw_actors.store.kinds import ANOTHER_TRANSACTION, NO_TEXT
from tests.fw_actors.store.notes import ADD, ALL, NOTES, NoteRefused, add, texts


async def test_transaction_reads_rows_one_and_scalar(store: Store) -> None:
    def work(tx: Tx) -> Any:
        tx.run_many(ADD, [{"owner": "ada", "text": name} for name in "ab"])
        return tx.rows(ALL), tx.one(ALL), tx.scalar(ALL)

    assert await store.write(work) == ([("a",), ("b",)], ("a",), "a")


async def test_transaction_one_and_scalar_return_none_without_rows(store: Store) -> None:
    assert await store.read(lambda tx: (tx.one(ALL), tx.scalar(ALL))) == (None, None)


async def test_transaction_accepts_sqlalchemy_constructs(store: Store) -> None:
    def work(tx: Tx) -> Any:
        changed = tx.run(insert(NOTES).values(owner="ada", text="50%"))
        returned = tx.run(insert(NOTES).values(owner="ada", text="b").returning(NOTES.c.id))
        query = select(NOTES.c.text).where(NOTES.c.text.in_(["50%", "zz"]))
        return changed, returned, tx.rows(query)

    assert await store.write(work) == (1, 1, [("50%",)])


async def test_failed_savepoint_undoes_own_part_only(store: Store) -> None:
    def work(tx: Tx) -> None:
        tx.run(ADD, owner="ada", text="outer")
        with tx.savepoint():
            tx.run(ADD, owner="ada", text="kept")
            with suppress(NoteRefused), tx.savepoint():
                tx.run(ADD, owner="ada", text="undone")
                raise NoteRefused

    await store.write(work)
    assert await store.read(texts) == ["outer", "kept"]


async def test_unique_violation_names_table_and_columns(store: Store) -> None:
    await store.write(add("a"))
    with pytest.raises(UniqueViolation) as caught:
        await store.write(add("a"))
    assert (caught.value.table, caught.value.columns) == ("notes", ("owner", "text"))


async def test_refused_raw_statement_keeps_transaction_usable(store: Store) -> None:
    """Architecture, The store: what is caught must not end the transaction, on either."""

    def work(tx: Tx) -> Any:
        tx.raw("INSERT INTO notes (owner, text) VALUES ('ada', :text)", {"text": "it's 50%"})
        with pytest.raises(ValidationError, match="refused"):
            tx.raw("SELECT nothing FROM nowhere")
        with pytest.raises(UniqueViolation):
            tx.raw("INSERT INTO notes (owner, text) VALUES ('ada', :text)", {"text": "it's 50%"})
        return tx.raw("SELECT text FROM notes WHERE text LIKE '%50%' -- :no, %s")

    assert await store.write(work) == [{"text": "it's 50%"}]


async def test_caught_violation_in_savepoint_keeps_transaction_usable(store: Store) -> None:
    def work(tx: Tx) -> None:
        tx.run(ADD, owner="ada", text="a")
        with pytest.raises(UniqueViolation), tx.savepoint():
            tx.run(ADD, owner="ada", text="a")
        tx.run(ADD, owner="ada", text="b")

    await store.write(work)
    assert await store.read(texts) == ["a", "b"]


async def test_null_in_required_column_is_constraint_violation(store: Store) -> None:
    with pytest.raises(ConstraintViolation, match="NOT NULL"):
        await store.write(lambda tx: tx.run(ADD, owner="ada", text=None))


async def test_unstorable_value_is_a_statement_error(store: Store, kind: str) -> None:
    for value in NO_TEXT[kind]:
        with pytest.raises(StatementError):
            await store.write(partial(add_value, value=value))
    assert await store.read(texts) == []


def add_value(tx: Tx, value: object) -> None:
    tx.run(ADD, owner="ada", text=value)


VALUES = [0, 1, -1, 2**63 - 1, -(2**63), 0.0, 0.1, -1e300, "", "ä \U0001f600 %s", b"", b"\x00\xff"]


@pytest.mark.parametrize("value", VALUES)
async def test_stored_value_reads_back_with_equal_type(store: Store, value: Any) -> None:
    """Whole numbers, fractions, text and bytes, and null in each of their columns."""
    column = {int: BigInteger, float: Double, str: Text, bytes: LargeBinary}[type(value)]
    table = Table("values", MetaData(), Column("number", Integer), Column("value", column))

    def work(tx: Tx) -> Any:
        tx.run(CreateTable(table))
        for number, each in enumerate((value, None)):
            tx.run(insert(table).values(number=number, value=each))
        query = select(table.c.value).where(table.c.value == value)
        both = tx.rows(select(table.c.value).order_by(table.c.number)), tx.rows(query)
        tx.run(DropTable(table))  # the next test has a column of another type
        return both

    rows, found = await store.write(work)
    assert rows == [(value,), (None,)]
    assert found == [(value,)]
    assert type(rows[0][0]) is type(value)


async def test_boolean_and_aggregate_results_are_integers(store: Store) -> None:
    def work(tx: Tx) -> Any:
        tx.run_many(ADD, [{"owner": "ada", "text": name} for name in "ab"])
        ids = select(func.sum(NOTES.c.id), func.count(), NOTES.c.owner == "ada")
        return tx.one(ids.group_by(NOTES.c.owner))

    row = await store.write(work)
    assert row == (3, 2, 1)
    assert [type(value) for value in row] == [int, int, int]


async def test_text_sorts_by_code_point_and_folds_ascii_only(
    store: Store,
) -> None:
    """Both stores agree, independent of the database's collation (D-35, O-10)."""
    names = ["b", "B", "a", "A", "ä", "Ä", "Z", "_", "", "\U0001f600", "\uffff"]

    def work(tx: Tx) -> Any:
        tx.run_many(ADD, [{"owner": "ada", "text": name} for name in names])
        column = NOTES.c.text
        return (
            tx.rows(select(column).order_by(column)),
            tx.rows(select(column).where(column > "Z").order_by(column)),
            tx.rows(select(column).where(func.lower(column).like("ä")).order_by(column)),
            tx.rows(select(column).where(func.lower(column).like("a")).order_by(column)),
            tx.scalar(select(func.max(column))),
        )

    ordered, after_z, umlauts, letters, last = await store.write(work)
    assert [name for (name,) in ordered] == sorted(names)
    assert [name for (name,) in after_z] == sorted(name for name in names if name > "Z")
    assert umlauts == [("ä",)]
    assert letters == [("A",), ("a",)]
    assert last == "\U0001f600"


async def test_read_transaction_refuses_write(store: Store) -> None:
    """The text is for apps: the function of FW_MAIL_METHOD and `app_site.read` can only read."""
    with pytest.raises(StatementError, match=r"^This transaction can only read\.$"):
        await store.read(add("a"))
    assert await store.read(lambda tx: tx.writable) is False


async def test_ended_transaction_refuses_statements(store: Store) -> None:
    tx = await store.write(lambda tx: tx)
    for attempt in (
        lambda: tx.rows(ALL),
        lambda: tx.run_many(ADD, [{"owner": "a", "text": "b"}]),
        lambda: tx.raw("SELECT 1"),
        lambda: tx.defer(ADD, lambda: None, owner="a", text="b"),
    ):
        with pytest.raises((StatementError, ValidationError), match="ended"):
            attempt()


async def test_transaction_refuses_other_threads(store: Store) -> None:
    """D-203: two threads that used one connection of SQLite at once ended the process."""

    def work(tx: Tx) -> Any:
        with ThreadPoolExecutor(1) as threads:
            for attempt in (
                lambda: tx.rows(ALL),
                lambda: tx.run_many(ADD, [{"owner": "a", "text": "b"}]),
                lambda: tx.savepoint().__enter__(),
                lambda: tx.raw("SELECT 1"),
            ):
                with pytest.raises(StatementError, match="only in the thread in which fw"):
                    threads.submit(attempt).result()
        return tx.rows(ALL)

    assert await store.write(work) == []


async def test_columns_lists_columns_of_existing_table_only(store: Store) -> None:
    found = await store.read(lambda tx: (tx.columns("notes"), tx.columns("missing")))
    assert found[0].keys() == {"id", "owner", "text"}
    assert (found[0]["text"], found[1]) == ("text", {})


async def test_indexes_lists_indexes_of_existing_table_only(store: Store) -> None:
    def work(tx: Tx) -> Any:
        tx.run(sql("CREATE INDEX notes_by_text ON notes (text)"))
        indexes = tx.indexes("notes"), tx.indexes("missing")
        tx.run(sql("DROP INDEX notes_by_text"))  # the next test may have the same schema
        return indexes

    found, none = await store.write(work)
    assert "notes_by_text" in found
    assert len(found) >= 2, "that of the unique constraint, too"
    assert none == frozenset()


async def test_tables_with_lists_tables_that_have_the_column(store: Store) -> None:
    """Also one that was added later; a longer name does not count."""
    statements = (
        "CREATE TABLE made (id TEXT, place TEXT)",
        "CREATE TABLE added (id TEXT)",
        "ALTER TABLE added ADD COLUMN place TEXT",
        "CREATE TABLE other (id TEXT, placement TEXT, marketplace TEXT)",
        "CREATE INDEX other_place ON other (placement)",
    )

    def work(tx: Tx) -> list[str]:
        for each in statements:
            tx.run(sql(each))
        found = tx.tables_with("place")
        for name in ("made", "added", "other"):
            tx.run(sql(f"DROP TABLE {name}"))  # the next test gets the schema
        return found

    assert await store.write(work) == ["added", "made"]


async def test_raw_sql_returns_dictionaries_for_rows(store: Store) -> None:
    await store.write(add("a"))

    def ask(tx: Tx) -> Any:
        return tx.raw("SELECT owner, text FROM notes WHERE text = :text", {"text": "a"})

    assert await store.read(ask) == [{"owner": "ada", "text": "a"}]
    assert await store.write(lambda tx: tx.raw("DELETE FROM notes")) == []


@pytest.mark.parametrize(
    "text",
    [
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "END",
        "SAVEPOINT member",
        "RELEASE member",
        "/* hidden */ COMMIT",
        "SELECT 1; COMMIT",
        "SELEC 1",
        "SELECT :absent",
        "VACUUM",
    ],
)
async def test_raw_sql_refuses_statements_beyond_transaction(store: Store, text: str) -> None:
    """NoteRefused as ValidationError, and the transaction stays as it was."""

    def work(tx: Tx) -> None:
        tx.run(ADD, owner="ada", text="a")
        with pytest.raises(ValidationError):
            tx.raw(text)
        tx.run(ADD, owner="ada", text="b")

    await store.write(lambda tx: None)  # so that BEGIN and COMMIT are prepared and cached
    await store.write(work)
    assert await store.read(texts) == ["a", "b"]


async def test_raw_sql_refuses_dialect_specific_statements_beyond_transaction(
    store: Store, kind: str
) -> None:
    def work(tx: Tx) -> None:
        for text in ANOTHER_TRANSACTION[kind]:
            with pytest.raises(ValidationError):
                tx.raw(text)
        tx.run(ADD, owner="ada", text="b")

    await store.write(work)
    assert await store.read(texts) == ["b"]


async def test_internal_sql_is_exempt_from_raw_sql_refusal(store: Store, kind: str) -> None:
    ours = {SQLITE: "PRAGMA journal_mode", POSTGRESQL: "SHOW lock_timeout"}[kind]

    def work(tx: Tx) -> Any:
        with pytest.raises(ValidationError):
            tx.raw("PRAGMA journal_mode")
        return tx.scalar(sql(ours))

    assert await store.write(work) in ("wal", "3s")


def _parts(tx: Tx, choice: random.Random, depth: int, number: Iterator[int]) -> None:
    """Add notes in savepoints of any nesting, of which some fail, some are empty."""
    for _ in range(choice.randrange(3)):
        if choice.random() < 0.5:
            _add_or_defer(tx, next(number))
        with suppress(NoteRefused), tx.savepoint():
            if depth:
                _parts(tx, choice, depth - 1, number)
            if choice.random() < 0.5:
                _add_or_defer(tx, next(number))
            if choice.random() < 0.4:
                raise NoteRefused


def _add_or_defer(tx: Tx, number: int) -> None:
    if number % 2:
        tx.run(ADD, owner="ada", text=str(number))
    else:
        tx.defer(ADD, _never, owner="ada", text=str(number))


def _never() -> None:
    raise AssertionError("an insert missed its row")


def _expected(choice: random.Random, depth: int, number: Iterator[int]) -> list[str]:
    """Return the notes that `_parts` leaves: the same random draws, without failed parts."""
    found: list[str] = []
    for _ in range(choice.randrange(3)):
        if choice.random() < 0.5:
            found.append(str(next(number)))
        part: list[str] = []
        if depth:
            part += _expected(choice, depth - 1, number)
        if choice.random() < 0.5:
            part.append(str(next(number)))
        if choice.random() >= 0.4:
            found += part
    return found


async def test_nested_savepoints_keep_successful_parts(store: Store) -> None:
    for seed in range(40):
        await store.write(lambda tx: tx.run(delete(NOTES)))
        work = partial(_parts, choice=random.Random(seed), depth=3, number=count())
        await store.write(work)
        expected = _expected(random.Random(seed), 3, count())
        assert await store.read(texts) == expected, f"seed {seed}"


RENAME: Final = Statement(
    update(NOTES).where(NOTES.c.text == bindparam("old")).values(text=bindparam("new"))
)


async def test_deferred_statement_alone_is_committed(
    store: Store,
) -> None:
    await store.write(lambda tx: tx.defer(ADD, _never, owner="ada", text="a"))
    assert await store.read(texts) == ["a"]


async def test_deferred_statement_runs_before_next_statement(store: Store) -> None:
    def work(tx: Tx) -> list[str]:
        tx.defer(ADD, _never, owner="ada", text="a")
        return texts(tx)

    assert await store.write(work) == ["a"]
    assert await store.read(texts) == ["a"]


@pytest.mark.parametrize("alone", [True, False])
async def test_deferred_statement_calls_fallback_without_changed_row(
    store: Store, alone: bool
) -> None:
    """The writes of the fallback are committed."""

    def work(tx: Tx) -> None:
        tx.defer(RENAME, partial(_add_or_defer, tx, 1), old="a", new="b")
        if not alone:
            tx.run(ADD, owner="ada", text="2")

    await store.write(work)
    assert await store.read(texts) == ["1", *([] if alone else ["2"])]


async def test_deferred_statement_is_dropped_with_failed_transaction(store: Store) -> None:
    def work(tx: Tx) -> None:
        tx.defer(ADD, _never, owner="ada", text="a")
        raise NoteRefused

    with pytest.raises(NoteRefused):
        await store.write(work)
    assert await store.read(texts) == []


async def test_deferred_statement_error_is_raised_by_write(store: Store) -> None:
    await store.write(add("a"))
    with pytest.raises(UniqueViolation):
        await store.write(lambda tx: tx.defer(ADD, _never, owner="ada", text="a"))
    with pytest.raises(StatementError):
        await store.write(lambda tx: tx.defer(ADD, _never, owner="ada"))
    await store.write(add("b"))
    assert await store.read(texts) == ["a", "b"]


async def test_deferred_statement_is_refused_in_read_transaction(store: Store) -> None:
    for reserved in (True, False):
        with pytest.raises(StatementError):
            await store.read(
                lambda tx: tx.defer(ADD, _never, owner="ada", text="a"), reserved=reserved
            )
        with pytest.raises(StatementError):
            await store.read(add("a"), reserved=reserved)
    assert await store.read(texts) == []
