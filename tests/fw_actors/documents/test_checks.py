"""The rules of fields and links (D-53 to D-63)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.errors import ConflictError, ValidationError
from tests.fw_actors.documents.conftest import Desk

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
    ("Sample", {"kind": "c"}, "kind"),
    ("Sample", {"done": 7}, "done"),
]


@pytest.mark.parametrize(("doctype", "fields", "blamed"), REFUSED)
async def test_a_value_that_breaks_a_rule_is_refused_with_its_field(
    desk: Desk, doctype: str, fields: dict[str, Any], blamed: str
) -> None:
    """A value that breaks a rule is 422 (D-61), a Link to a missing document too (D-58)."""
    with pytest.raises(ValidationError) as refusal:
        await desk.do(lambda fw: fw.new_doc(doctype, **fields).insert())
    assert refusal.value.extra == {"field": blamed}


async def test_an_empty_choice_is_none(desk: Desk) -> None:
    assert (await desk.do(lambda fw: fw.new_doc("Sample", kind="").insert())).kind is None


async def test_a_link_to_a_document_is_taken_and_an_empty_one_too(desk: Desk) -> None:
    def work(fw: Any) -> tuple[Any, ...]:
        fw.new_doc("Customer", title="ada").insert()
        first = fw.new_doc("Sales Order", title="t", customer="ada").insert()
        second = fw.new_doc("Sales Order", title="t", customer="").insert()
        return first.customer, second.customer

    assert await desk.do(work) == ("ada", "")


def customer(fw: Any, title: str = "ada") -> Any:
    return fw.new_doc("Customer", title=title).insert()


async def test_what_another_document_links_to_is_not_deleted(desk: Desk) -> None:
    """Deleting a linked document is 409 with the first linker (D-128)."""

    def work(fw: Any) -> None:
        ada = customer(fw)
        fw.new_doc("Sales Order", title="t", customer="ada").insert()
        fw.new_doc("Sales Order", title="t", customer="ada").insert()
        ada.delete()

    with pytest.raises(ConflictError, match="Sales Order SO-00001 links to Customer ada"):
        await desk.do(work)


async def test_a_child_row_that_links_is_told_by_its_parent(desk: Desk) -> None:
    def work(fw: Any) -> None:
        ada = customer(fw)
        fw.new_doc("Sales Order", title="t", lines=[{"item": "a", "customer": "ada"}]).insert()
        ada.delete()

    with pytest.raises(ConflictError, match="Sales Order SO-00001 links to Customer ada"):
        await desk.do(work)


async def test_a_document_that_links_to_itself_is_deleted(desk: Desk) -> None:
    def work(fw: Any) -> str | None:
        ada = customer(fw)
        ada.parent_customer = "ada"
        ada.save().delete()
        return fw.exists("Customer", "ada")  # type: ignore[no-any-return]

    assert await desk.do(work) is None


async def test_a_role_that_a_user_has_is_not_deleted(desk: Desk) -> None:
    await desk.hire("Seller")
    with pytest.raises(ConflictError, match="User sam links to Role Seller"):
        await desk.do(lambda fw: fw.get_doc("Role", "Seller").delete())
