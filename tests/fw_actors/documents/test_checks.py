"""The rules of fields and links (D-53 to D-65)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.errors import ConflictError, ValidationError
from tests.fw_actors.documents.conftest import ShopSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

REFUSED: list[tuple[str, dict[str, Any], str]] = [  # doctype, fields, field to blame
    ("Sales Order", {}, "title"),
    ("Sales Order", {"title": ""}, "title"),
    ("Sales Order", {"title": "t", "lines": [{}]}, "item"),
    ("Sales Order", {"title": "t", "lines": [{"item": "a", "rate": "x"}]}, "rate"),
    ("Sales Order", {"title": "x" * 141}, "title"),
    ("Sales Order", {"title": 5}, "title"),
    ("Sales Order", {"title": "t", "customer": "nobody"}, "customer"),
    ("Sales Order", {"title": "t", "lines": [{"item": "a", "customer": "nobody"}]}, "customer"),
    ("Sales Order", {"title": "\u200b \u2060"}, "title"),
    ("Sales Order", {"title": "t", "lines": [{"item": " "}]}, "item"),
    ("Sample", {"kind": "c"}, "kind"),
    ("Sample", {"done": 7}, "done"),
]


@pytest.mark.parametrize(("doctype", "fields", "blamed"), REFUSED)
async def test_insert_refuses_invalid_value_and_names_field(
    desk: ShopSite, doctype: str, fields: dict[str, Any], blamed: str
) -> None:
    """A value that breaks a rule is 422 (D-61), a Link to a missing document too (D-58)."""
    with pytest.raises(ValidationError) as refusal:
        await desk.do(lambda fw: fw.new_doc(doctype, **fields).insert())
    assert refusal.value.extra["field"] == blamed


@pytest.mark.parametrize("row", [{"item": "b", "rate": "x"}, {}, {"item": "b", "customer": "no"}])
async def test_insert_refusal_says_in_which_row_the_field_is(
    desk: ShopSite, row: dict[str, Any]
) -> None:
    """The position of the row is in the message and in `extra` (D-61)."""
    with pytest.raises(ValidationError, match=r"^lines, row 2: ") as refusal:
        await desk.do(
            lambda fw: fw.new_doc("Sales Order", title="t", lines=[{"item": "a"}, row]).insert()
        )
    assert (refusal.value.extra["table"], refusal.value.extra["row"]) == ("lines", 2)


async def test_document_with_a_stored_invisible_value_stays_changeable(desk: ShopSite) -> None:
    """D-65: also one in a row."""

    def work(fw: Any) -> Any:
        order = fw.new_doc("Sales Order", title="t", lines=[{"item": "a"}]).insert()
        fw.db.sql("UPDATE doc_sales_order SET title = :title", {"title": "\u200b"})
        fw.db.sql("UPDATE doc_orderline SET item = :item", {"item": " "})
        stored = fw.get_doc("Sales Order", order.name)
        stored.remark = "changed"
        return stored.save()

    saved = await desk.do(work)
    assert (saved.title, saved.lines[0].item, saved.remark) == ("\u200b", " ", "changed")


async def test_table_has_5000_rows_at_most(desk: ShopSite) -> None:
    """One more is 422 (D-60)."""

    def insert(fw: Any, count: int) -> Any:
        return fw.new_doc("Customer File", title=f"{count} rows", rows=[{}] * count).insert()

    with pytest.raises(ValidationError, match="at most 5,000 rows") as refusal:
        await desk.do(lambda fw: insert(fw, 5_001))
    assert refusal.value.extra == {"field": "rows"}
    assert len((await desk.do(lambda fw: insert(fw, 5_000))).rows) == 5_000


async def test_empty_select_value_is_stored_as_none(desk: ShopSite) -> None:
    assert (await desk.do(lambda fw: fw.new_doc("Sample", kind="").insert())).kind is None


async def test_link_field_accepts_existing_document_and_empty_value(desk: ShopSite) -> None:
    def work(fw: Any) -> tuple[Any, ...]:
        fw.new_doc("Customer", title="ada").insert()
        first = fw.new_doc("Sales Order", title="t", customer="ada").insert()
        second = fw.new_doc("Sales Order", title="t", customer="").insert()
        return first.customer, second.customer

    assert await desk.do(work) == ("ada", "")


def customer(fw: Any, title: str = "ada") -> Any:
    return fw.new_doc("Customer", title=title).insert()


async def test_delete_refuses_linked_document_and_names_linker(desk: ShopSite) -> None:
    """Deleting a linked document is 409 with the first linker (D-128)."""

    def work(fw: Any) -> None:
        ada = customer(fw)
        fw.new_doc("Sales Order", title="t", customer="ada").insert()
        fw.new_doc("Sales Order", title="t", customer="ada").insert()
        ada.delete()

    with pytest.raises(ConflictError, match="Sales Order SO-00001 links to Customer ada"):
        await desk.do(work)


async def test_delete_refusal_names_parent_of_linking_row(desk: ShopSite) -> None:
    def work(fw: Any) -> None:
        ada = customer(fw)
        fw.new_doc("Sales Order", title="t", lines=[{"item": "a", "customer": "ada"}]).insert()
        ada.delete()

    with pytest.raises(ConflictError, match="Sales Order SO-00001 links to Customer ada"):
        await desk.do(work)


async def test_delete_accepts_document_linked_to_itself(desk: ShopSite) -> None:
    def work(fw: Any) -> str | None:
        ada = customer(fw)
        ada.parent_customer = "ada"
        ada.save().delete()
        return fw.exists("Customer", "ada")  # type: ignore[no-any-return]

    assert await desk.do(work) is None


async def test_link_to_document_of_another_doctype_prevents_no_deletion(desk: ShopSite) -> None:
    """A link counts for the DocType that it leads to, whatever has the same name (D-128)."""

    def work(fw: Any) -> str | None:
        customer(fw)
        fw.new_doc("Sales Order", title="t", customer="ada").insert()
        fw.new_doc("Role", name="ada").insert().delete()
        return fw.exists("Role", "ada")  # type: ignore[no-any-return]

    assert await desk.do(work) is None


async def test_delete_refuses_role_of_existing_user(desk: ShopSite) -> None:
    await desk.add_account("Seller")
    with pytest.raises(ConflictError, match="User sam links to Role Seller"):
        await desk.do(lambda fw: fw.get_doc("Role", "Seller").delete())
