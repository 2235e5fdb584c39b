"""Declarations that one of the stores could not hold are refused on both."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import new_class
from typing import Any

import pytest

from fw_actors.app import JSON, Data, Date, DocType, Int, Password, Select, Table, Text, Vault
from fw_actors.documents.registry import Registry
from fw_actors.documents.tables import DocTable, make_tables
from fw_actors.errors import ConfigurationError
from fw_actors.ops.site import open_store
from fw_actors.runtime import SeededEntropy, SystemClock
from fw_actors.store import Tx
from tests.site_kit import make_config

Body = dict[str, Any]
LONGEST = 650


def declare(body: Body) -> Any:
    body = {"__module__": __name__, **body}
    return new_class("Thing", (DocType,), {}, lambda namespace: namespace.update(body))


REFUSED: list[tuple[Body, str]] = [
    ({"code": Data(unique=True, length=LONGEST + 1)}, "code: too long for an index"),
    ({"code": Text(unique=True)}, "code: a field without a length cannot be in an index"),
    ({"code": JSON(unique=True)}, "code: a field without a length cannot be in an index"),
    ({"code": Select(options=["é" * 2000], unique=True)}, "code: too long for an index"),
    (
        {"a": Data(length=400), "b": Data(length=400), "unique_together": (("a", "b"),)},
        "a, b: too long for an index",
    ),
    (
        {"a": Date(), "b": Text(), "index_together": (("a", "b"),)},
        "a, b: a field without a length cannot be in an index",
    ),
    (
        {"a": Vault(), "index_together": (("a",),)},
        "index_together: a is a Vault, which has no index",
    ),
    ({f"f{n}": Int() for n in range(401)}, "there must be at most 400 fields, not 401"),
    *(
        ({name: Int()}, f"{name}: PostgreSQL reserves this name")
        for name in ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")
    ),
]


@pytest.mark.parametrize(("body", "says"), REFUSED)
def test_registry_refuses_declaration_beyond_store_limits(body: Body, says: str) -> None:
    """The problem names file, class and field, like every mistake of a declaration (D-169)."""
    with pytest.raises(ConfigurationError) as refusal:
        Registry([declare(body)], ())
    (problem,) = refusal.value.problems
    assert problem.startswith(f"{__file__}: class Thing: {says}")


REPORTED_ONCE: list[tuple[Body, str]] = [
    ({"code": Data(unique=True, length="x")}, "code: length must be a whole number, 1 or more"),
    ({"code": Select(options=5, unique=True)}, "code: options must be a list of text values"),
    ({"code": Password(unique=True)}, "code: a Password cannot be unique"),
    ({"rows": Table(5, unique=True)}, "rows: a Table cannot be unique"),
]


@pytest.mark.parametrize(("body", "says"), REPORTED_ONCE)
def test_invalid_unique_field_is_reported_without_index_problem(body: Body, says: str) -> None:
    assert declare(body).meta.problems[0] == says
    assert not [text for text in declare(body).meta.problems if "index" in text]


@pytest.mark.parametrize("together", [("a", "b"), "a", 5, (("a", "nothing"),), (("rows",),)])
def test_unique_together_accepts_tuples_of_columns_only(together: Any) -> None:
    body = {"a": Data(), "b": Data(), "rows": Table(IndexRow), "unique_together": together}
    assert declare(body).meta.problems


class IndexRow(DocType, child=True):
    """A row of a table."""

    text = Data()


FULL = {
    "code": Data(unique=True, length=LONGEST),
    "a": Data(length=LONGEST - 10),
    "b": Int(),
    "unique_together": (("a", "b"),),
    **{f"text{n}": Text() for n in range(397)},
}


@pytest.mark.usefixtures("on_both_stores")
async def test_widest_declarable_table_stores_incompressible_texts(tmp_path: Path) -> None:
    """Every column holds incompressible text of four bytes per character."""
    meta = declare(FULL).meta
    table = DocTable(meta)
    random = Random(1)

    def text(length: int) -> str:
        return "".join(chr(random.randrange(0x10000, 0x110000)) for _ in range(length))

    values: Body = {name: text(f.length or 700) for name, f in meta.fields.items() if name != "b"}
    row = {**dict.fromkeys(table.names), **values, "b": 2**53, "name": text(140)}

    def fill(tx: Tx) -> dict[str, Any] | None:
        make_tables(tx, [table])
        table.insert(tx, row)
        return table.fetch(tx, str(row["name"]))

    config = make_config(tmp_path)
    async with open_store(config, SystemClock(), SeededEntropy(1), inline=True) as store:
        assert await store.write(fill) == row
