"""The tables of DocTypes: made and widened, never dropped (D-163)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fw_actors.app import JSON, Check, Data, Datetime, DocType, Float, Int, Link, Text
from fw_actors.documents.tables import DocTable, are_made, make_tables
from fw_actors.errors import ConfigurationError
from fw_actors.ops.site import open_store
from fw_actors.runtime import SeededEntropy, SystemClock
from fw_actors.store import Store, Tx, UniqueViolation
from tests.site_kit import make_config

pytestmark = pytest.mark.usefixtures("on_both_stores")


def table_of(doctype: type[DocType]) -> DocTable:
    return DocTable(doctype.meta)


class Small(DocType, name="Thing"):
    old = Data()


class UniqueOld(DocType, name="Thing"):
    old = Data(unique=True)


class Wide(DocType, name="Thing"):
    old = Data()
    code = Data(unique=True)
    done = Check()
    on = Check(default=1)
    link = Link(options="Thing")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    config = make_config(tmp_path)
    async with open_store(config, SystemClock(), SeededEntropy(1), inline=True) as store:
        yield store


def row(table: DocTable, name: str, **values: Any) -> dict[str, Any]:
    return {**dict.fromkeys(table.names), "name": name, **values}


async def test_make_tables_creates_missing_table_once(store: Store) -> None:
    small = table_of(Small)
    assert await store.write(lambda tx: make_tables(tx, [small])) == ["doc_thing"]
    assert await store.write(lambda tx: make_tables(tx, [small])) == []


async def test_make_tables_adds_columns_and_keeps_rows(store: Store) -> None:
    small, wide = table_of(Small), table_of(Wide)

    def widen(tx: Tx) -> list[str]:
        make_tables(tx, [small])
        small.insert(tx, row(small, "a", old="kept"))
        return make_tables(tx, [wide])

    assert await store.write(widen) == ["doc_thing"]
    found = await store.read(lambda tx: wide.fetch(tx, "a"))
    assert found is not None
    assert (found["old"], found["code"], found["link"]) == ("kept", None, None)


async def test_added_check_column_is_never_null(store: Store) -> None:
    """A Check is 0 or 1 and never null (D-54)."""
    small, wide = table_of(Small), table_of(Wide)

    def widen(tx: Tx) -> dict[str, Any] | None:
        make_tables(tx, [small])
        small.insert(tx, row(small, "a"))
        make_tables(tx, [wide])
        return wide.fetch(tx, "a")

    found = await store.write(widen)
    assert found is not None
    assert (found["done"], found["on"]) == (0, 1)


async def test_make_tables_keeps_undeclared_columns(store: Store) -> None:
    """No column is dropped (D-163)."""
    wide, small = table_of(Wide), table_of(Small)

    def narrow(tx: Tx) -> Mapping[str, str]:
        make_tables(tx, [wide])
        make_tables(tx, [small])
        small.insert(tx, row(small, "a"))
        return tx.columns("doc_thing")

    assert {"code", "done"} <= (await store.write(narrow)).keys()


async def test_added_unique_field_refuses_duplicates(store: Store) -> None:
    small, wide = table_of(Small), table_of(Wide)

    def twice(tx: Tx) -> None:
        make_tables(tx, [small])
        make_tables(tx, [wide])
        for name in "ab":
            wide.insert(tx, row(wide, name, code="same"))

    with pytest.raises(UniqueViolation):
        await store.write(twice)


class Loose(DocType, name="Thing"):
    code = Data()
    link = Link(options="Thing")


class Pair(DocType, name="Thing"):
    unique_together = (("code", "link"),)
    code = Data()
    link = Link(options="Thing")


@pytest.mark.parametrize("before", [Wide, Pair])
async def test_make_tables_drops_undeclared_unique_index(
    store: Store, before: type[DocType]
) -> None:
    """A field that is no longer declared unique takes duplicates (D-165); a remaining index would
    refuse them."""
    strict, loose = table_of(before), table_of(Loose)

    def twice(tx: Tx) -> list[str]:
        make_tables(tx, [strict])
        changed = make_tables(tx, [loose])
        for name in "ab":
            loose.insert(tx, row(loose, name, code="same", link="same"))
        return changed

    assert await store.write(twice) == ["doc_thing"]
    assert await store.write(lambda tx: make_tables(tx, [loose])) == []


class Keyed(DocType, name="Thing"):
    unique_together = (("code", "link"),)
    partial_unique: ClassVar = {("code", "link"): "link"}
    code = Data()
    link = Link(options="Thing")


async def test_partial_unique_index_ignores_rows_with_null(
    store: Store,
) -> None:
    keyed = table_of(Keyed)
    await store.write(lambda tx: make_tables(tx, [table_of(Pair)]))
    assert await store.write(lambda tx: make_tables(tx, [keyed])) == ["doc_thing"]
    there = await store.read(lambda tx: tx.indexes("doc_thing"))
    assert {name for name in there if name.startswith("key")} == {"keyed_doc_thing__code__link"}
    for name in "ab":
        await store.write(partial(keyed.insert, row=row(keyed, name, code="same")))
    await store.write(lambda tx: keyed.insert(tx, row(keyed, "c", code="same", link="x")))
    with pytest.raises(UniqueViolation) as refusal:
        await store.write(lambda tx: keyed.insert(tx, row(keyed, "d", code="same", link="x")))
    assert refusal.value.columns == ("code", "link")


class Former(DocType, name="Thing"):
    index_together = (("code", "link"), ("link", "code"))
    code = Data()
    link = Link(options="Thing")


class Renewed(DocType, name="Thing"):
    former_indexes: ClassVar = (("code", "link"),)
    code = Data()
    link = Link(options="Thing")


async def test_make_tables_drops_former_index(store: Store) -> None:
    before, after = ({f"by_doc_thing__{a}__{b}" for a, b in pairs} for pairs in (
        (("code", "link"), ("link", "code")), (("link", "code"),)
    ))  # fmt: skip
    for declared, expected in ((Former, before), (Renewed, after)):
        await store.write(partial(make_tables, tables=[table_of(declared)]))
        there = await store.read(lambda tx: tx.indexes("doc_thing"))
        assert {name for name in there if name.count("__") == 2} == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Small, Wide),
        (Small, UniqueOld),
        (Loose, Pair),
        (Pair, Keyed),
        (Pair, Loose),
        (Former, Renewed),
    ],
)
async def test_tables_are_made_if_a_start_would_change_nothing(
    store: Store, before: type[DocType], after: type[DocType]
) -> None:
    """A command that only reads waits for no write of another process (C-175)."""
    others, old, new = (table_of(each) for each in (Unrelated, before, after))

    def state(tx: Tx) -> list[bool]:
        return [are_made(tx, [others, old]), are_made(tx, [others, new])]

    await store.write(lambda tx: make_tables(tx, [others, old]))
    assert await store.read(state) == [True, False]
    await store.write(lambda tx: make_tables(tx, [others, new]))
    assert (await store.read(state))[1]


async def test_tables_are_not_made_before_the_first_start(store: Store) -> None:
    class FirstThing(DocType):
        code = Data()

    table = table_of(FirstThing)
    assert not await store.read(lambda tx: are_made(tx, [table]))
    await store.write(lambda tx: make_tables(tx, [table]))
    assert await store.read(lambda tx: are_made(tx, [table]))


async def test_tables_are_not_made_while_a_unique_field_holds_empty_text(store: Store) -> None:
    """Rows that are older than the rule hold "" until a start replaces it (D-62, C-175)."""
    table = table_of(UniqueOld)

    def fill(tx: Tx) -> None:
        make_tables(tx, [table])
        table.insert(tx, row(table, "a", old=""))

    await store.write(fill)
    assert not await store.read(lambda tx: are_made(tx, [table]))
    await store.write(lambda tx: make_tables(tx, [table]))
    assert await store.read(lambda tx: are_made(tx, [table]))


async def test_tables_are_not_made_if_a_column_is_of_another_type(store: Store) -> None:
    """The start then reports the column (D-164)."""
    await store.write(lambda tx: make_tables(tx, [table_of(Typed)]))
    assert not await store.read(lambda tx: are_made(tx, [table_of(Retyped)]))


class Unrelated(DocType):
    code = Data(unique=True)


class Typed(DocType, name="Thing"):
    a = Data()
    b = Int()
    c = Float()


class Retyped(DocType, name="Thing"):
    a = Int()
    b = Float()
    c = JSON()


class Akin(DocType, name="Thing"):
    a = Text()
    b = Datetime()
    c = Float()


async def test_make_tables_reports_columns_of_changed_type(
    store: Store,
) -> None:
    """Tables are made or widened, so a column keeps its type (D-164). Unchecked, SQLite would mix
    both types in a column, and PostgreSQL would round or fail with 500."""
    await store.write(lambda tx: make_tables(tx, [table_of(Typed)]))
    with pytest.raises(ConfigurationError) as refusal:
        await store.write(lambda tx: make_tables(tx, [table_of(Retyped)]))
    reported = [
        problem.partition("class ")[2].partition(":")[::2] for problem in refusal.value.problems
    ]
    assert reported == [
        ("Retyped", " a: doc_thing.a was made for text, and Int needs whole numbers: " + ADVICE),
        ("Retyped", " b: doc_thing.b was made for whole numbers, and Float needs floating-point "
                    "numbers: " + ADVICE),
        ("Retyped", " c: doc_thing.c was made for floating-point numbers, and JSON needs text: "
                    + ADVICE),
    ]  # fmt: skip


ADVICE = "give the field another name, or change the column in the database first"


async def test_make_tables_accepts_type_of_equal_storage(store: Store) -> None:
    await store.write(lambda tx: make_tables(tx, [table_of(Typed)]))
    assert await store.write(lambda tx: make_tables(tx, [table_of(Akin)])) == []


class Coded(DocType, name="Thing"):
    zone = Data(unique=True)
    code = Data(unique=True)
    number = Int(unique=True)
    year = Int()

    unique_together = (("year", "zone"),)


TAKEN: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"zone": "z", "code": "c", "number": 1, "year": 5}, ("code",)),
    ({"zone": "z", "number": 1, "year": 5}, ("number",)),
    ({"zone": "z", "year": 5}, ("zone",)),
]


async def test_unique_fields_are_checked_in_one_order_by_both_stores(store: Store) -> None:
    """Of several taken values, both stores name the same one (D-63)."""
    coded = table_of(Coded)

    def insert(tx: Tx, name: str, values: Mapping[str, Any]) -> None:
        coded.insert(tx, row(coded, name, **values))

    await store.write(lambda tx: make_tables(tx, [coded]))
    await store.write(partial(insert, name="a", values=TAKEN[0][0]))
    for values, columns in TAKEN:
        with pytest.raises(UniqueViolation) as refused:
            await store.write(partial(insert, name="b", values=values))
        assert refused.value.columns == columns


async def test_unique_field_accepts_repeated_null(store: Store) -> None:
    wide = table_of(Wide)

    def twice(tx: Tx) -> None:
        make_tables(tx, [wide])
        for name in "ab":
            wide.insert(tx, row(wide, name))

    await store.write(twice)


async def test_make_tables_creates_index_of_field_and_time(store: Store) -> None:
    class Timed(DocType, name="Thing"):
        kind = Data(length=650)
        index_together = (("kind", "creation", "modified"),)

    def work(tx: Tx) -> frozenset[str]:
        timed = table_of(Timed)
        make_tables(tx, [timed])
        timed.insert(
            tx,
            row(
                timed,
                "a",
                kind="".join(map(chr, range(0x1F300, 0x1F300 + 650))),
                creation=2**53,
                modified=1,
            ),
        )
        return tx.indexes("doc_thing")

    assert "by_doc_thing__kind__creation__modified" in await store.write(work)


async def test_make_tables_refuses_unique_field_with_stored_duplicates(store: Store) -> None:
    small = table_of(Small)

    def work(tx: Tx) -> None:
        make_tables(tx, [small])
        for name, old in (("a", "one"), ("b", "same"), ("c", "same"), ("d", None), ("e", None)):
            small.insert(tx, row(small, name, old=old))
        make_tables(tx, [table_of(UniqueOld)])

    with pytest.raises(ConfigurationError) as refusal:
        await store.write(work)
    (problem,) = refusal.value.problems
    assert problem.endswith(
        "class UniqueOld: old: it cannot be unique, since stored documents share a value, such as "
        "b and c; change these first"
    )


async def test_make_tables_turns_empty_unique_values_into_null(store: Store) -> None:
    """`""` in a unique field is null, whenever it was written (D-62)."""
    small = table_of(Small)

    def work(tx: Tx) -> list[Any]:
        make_tables(tx, [small])
        for name, old in (("a", ""), ("b", ""), ("c", "kept")):
            small.insert(tx, row(small, name, old=old))
        unique = table_of(UniqueOld)
        make_tables(tx, [unique])
        found = [unique.fetch(tx, name) for name in "abc"]
        return [each["old"] for each in found if each is not None]

    assert await store.write(work) == [None, None, "kept"]


LONGEST = "x" * 59


class Long(DocType, name=LONGEST):
    """Names as long as they may be: PostgreSQL would cut more than 63 characters."""

    a_field_whose_name_is_as_long_as_the_rules_for_names_allow_a = Data(unique=True)
    a_field_whose_name_is_as_long_as_the_rules_for_names_allow_b = Data(unique=True)


async def test_longest_table_and_index_names_are_not_truncated(store: Store) -> None:
    long = table_of(Long)
    assert Long.meta.problems == ()
    assert await store.write(lambda tx: make_tables(tx, [long])) == [f"doc_{LONGEST}"]
    assert await store.write(lambda tx: make_tables(tx, [long])) == []
    there = await store.read(lambda tx: tx.indexes(long.table.name))
    assert {str(index.name) for index in long.table.indexes} <= there
    assert max(len(str(index.name)) for index in long.table.indexes) == 63


def test_doctype_name_beyond_postgresql_limit_is_refused() -> None:
    class TooLong(DocType, name=LONGEST + "x"):
        pass

    assert "at most 59 characters" in str(TooLong.meta.problems)


class Sales(DocType):
    order_creation = Link(options="Sales")


class SalesOrder(DocType, name="Sales Order"):
    pass


async def test_index_names_of_different_doctypes_never_collide(store: Store) -> None:
    tables = [table_of(Sales), table_of(SalesOrder)]
    await store.write(lambda tx: make_tables(tx, tables))
    for each in tables:
        there = await store.read(methodcaller("indexes", each.table.name))
        assert {str(index.name) for index in each.table.indexes} <= there
