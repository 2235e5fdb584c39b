"""A name is 1 to 140 characters without `/`, else 422 (D-100); where names come from (D-101)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.documents.naming import free_number
from fw_actors.errors import DuplicateError, ValidationError
from tests.fw_actors.documents.conftest import ShopSite


def role(fw: Any, name: Any) -> str:
    return str(fw.new_doc("Role", name=name).insert().name)


GOOD = [
    "x",
    "x" * 140,
    "Ärztin & Söhne",
    "a b",
    "100%",
    "a\\b",
    "...",
    ".x",
    "日本語\u3000名前",
    "👩\u200d🔬",
]


@pytest.mark.parametrize("name", GOOD)
async def test_given_name_up_to_140_characters_is_kept(desk: ShopSite, name: str) -> None:
    assert await desk.do(lambda fw: role(fw, name)) == name


BAD = [
    "",
    " ",
    "x" * 141,
    "a/b",
    "/",
    "a\nb",
    "a\tb",
    "nul\x00",
    "half \ud800",
    " a",
    "a ",
    5,
    ".",
    "..",
    "\u200b",
    "\ufe0f\u2800\u3164",
]


@pytest.mark.parametrize("name", BAD)
async def test_invalid_document_name_is_refused_with_field(desk: ShopSite, name: Any) -> None:
    with pytest.raises(ValidationError) as refusal:
        await desk.do(lambda fw: role(fw, name))
    assert refusal.value.extra == {"field": "name"}


async def test_name_that_is_no_text_is_refused_as_such(desk: ShopSite) -> None:
    """D-100: the refusal of a number states the type; the name is not missing."""
    with pytest.raises(ValidationError, match=r"^name must be text\.$"):
        await desk.do(lambda fw: role(fw, 5))


async def test_missing_name_is_replaced_by_random_name(desk: ShopSite) -> None:
    """A body without `name` gets a random one (D-101)."""
    names = {await desk.do(lambda fw: role(fw, None)) for _ in range(20)}
    assert len(names) == 20
    assert {len(name) for name in names} == {13}


@pytest.mark.usefixtures("on_both_stores")
async def test_naming_series_continues_across_transactions(desk: ShopSite) -> None:
    def three(fw: Any) -> list[str]:
        return [fw.new_doc("Sales Order", title="t").insert().name for _ in range(3)]

    assert await desk.do(three) == ["SO-00001", "SO-00002", "SO-00003"]
    assert (await desk.do(three))[0] == "SO-00004"


@pytest.mark.usefixtures("on_both_stores")
async def test_rollback_returns_number_to_naming_series(desk: ShopSite) -> None:
    def one(fw: Any) -> str:
        return str(fw.new_doc("Sales Order", title="t").insert().name)

    await desk.site.rollback("Administrator", one)
    assert await desk.do(one) == "SO-00001"


async def test_naming_series_grows_beyond_declared_digits(desk: ShopSite) -> None:
    def late(fw: Any) -> str:
        fw.db.sql("INSERT INTO fw_series (prefix, current) VALUES ('SO-', 99999)")
        return str(fw.new_doc("Sales Order", title="t").insert().name)

    assert await desk.do(late) == "SO-100000"


@pytest.mark.usefixtures("on_both_stores")
async def test_naming_series_skips_names_taken_by_rename(desk: ShopSite) -> None:
    """A series that stopped at such a name would fail every later insert."""

    def names(fw: Any) -> list[str]:
        first = fw.new_doc("Sales Order", title="t").insert()
        first.rename("SO-00002")
        return [fw.new_doc("Sales Order", title="t").insert().name for _ in range(2)]

    assert await desk.do(names) == ["SO-00003", "SO-00004"]


@pytest.mark.usefixtures("on_both_stores")
async def test_naming_series_skips_thousands_of_imported_names_in_few_steps(
    desk: ShopSite,
) -> None:
    """A step for each of them would delay every other write (D-102)."""

    def names(fw: Any) -> list[str]:
        found = fw.new_doc("Sales Order", title="t").insert()
        found.rename("imported")
        copy = fw.db.sql("SELECT * FROM doc_sales_order WHERE name = 'imported'")[0]
        columns = ", ".join(f'"{column}"' for column in copy)
        given = ", ".join(f":{column}" for column in copy)
        for number in range(2, 2002):
            row = {**copy, "name": f"SO-{number:05d}", "row_id": f"row-{number}"}
            fw.db.sql(f"INSERT INTO doc_sales_order ({columns}) VALUES ({given})", row)
        return [fw.new_doc("Sales Order", title="t").insert().name for _ in range(2)]

    assert await desk.do(names) == ["SO-02002", "SO-02003"]


@given(start=st.integers(1, 10**6), length=st.integers(0, 10**6))
def test_free_number_is_after_all_taken_ones_in_few_steps(start: int, length: int) -> None:
    steps = 0

    def is_taken(number: int) -> bool:
        nonlocal steps
        steps += 1
        return start <= number < start + length

    assert free_number(start, is_taken) == start + length
    assert steps <= 100 + 2 * 21


@given(gaps=st.sets(st.integers(1, 99), min_size=1))
def test_free_number_is_the_first_within_a_hundred(gaps: set[int]) -> None:
    assert free_number(1, lambda number: number not in gaps) == min(gaps)


async def test_field_naming_uses_value_of_field(desk: ShopSite) -> None:
    assert (await desk.do(lambda fw: fw.new_doc("Customer", title="Ada").insert())).name == "Ada"


@pytest.mark.parametrize("title", ["a/b", " ", "x\u0000"])
async def test_field_naming_refuses_invalid_name(desk: ShopSite, title: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        await desk.do(lambda fw: fw.new_doc("Customer", title=title).insert())
    assert refusal.value.extra == {"field": "title"}


async def test_random_naming_ignores_given_name(desk: ShopSite) -> None:
    def scope(fw: Any) -> str:
        fw.new_doc("User", name="ida", email="ida@example.test").insert()
        doc = fw.new_doc("User Permission", name="mine", user="ida", allow="User", for_value="ida")
        return str(doc.insert().name)

    assert await desk.do(scope) != "mine"


@pytest.mark.parametrize("given", ["billing", None])
async def test_webhook_name_is_given_or_random(desk: ShopSite, given: str | None) -> None:
    """A given name makes declared state idempotent (C-150)."""

    def hook(fw: Any) -> str:
        doc = fw.new_doc(
            "Webhook", name=given, url="https://x.test", event_type="Custom",
            custom_event="a", secret="s",
        )  # fmt: skip
        return str(doc.insert().name)

    name = await desk.do(hook)
    assert name == given if given else len(name) == 13


async def test_document_names_are_case_sensitive(desk: ShopSite) -> None:
    await desk.do(lambda fw: role(fw, "boss"))
    assert await desk.do(lambda fw: role(fw, "BOSS")) == "BOSS"
    with pytest.raises(DuplicateError):
        await desk.do(lambda fw: role(fw, "boss"))


@pytest.mark.parametrize(
    ("doctype", "field", "value"), [("Role", "name", "Bosun"), ("Customer", "title", "Ada")]
)
async def test_taken_name_names_its_field(
    desk: ShopSite, doctype: str, field: str, value: str
) -> None:
    """A taken name is refused like another taken value: with its field (D-63)."""
    await desk.do(lambda fw: fw.new_doc(doctype, **{field: value}).insert())
    with pytest.raises(DuplicateError) as refusal:
        await desk.do(lambda fw: fw.new_doc(doctype, **{field: value}).insert())
    assert refusal.value.extra == {"field": field}


@pytest.mark.parametrize("name", [".", "..", "\u200b"])
async def test_stored_name_from_before_a_rule_stays_changeable(desk: ShopSite, name: str) -> None:
    """A document that had the name before the rule can be renamed (D-100)."""

    def renamed(fw: Any) -> str:
        role(fw, "Bosun")
        fw.db.sql("UPDATE doc_role SET name = :name WHERE name = 'Bosun'", {"name": name})
        doc = fw.get_doc("Role", name)
        doc.rename("Mate")
        return str(fw.get_doc("Role", "Mate").name)

    assert await desk.do(renamed) == "Mate"
