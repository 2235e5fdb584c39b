"""A document's rows: child tables as whole lists (D-14, D-95)."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from fw_actors.errors import ValidationError
from tests.fw_actors.documents.conftest import ShopSite

pytestmark = pytest.mark.usefixtures("on_both_stores")


def order(fw: Any, *items: str) -> Any:
    lines = [{"item": item} for item in items]
    return fw.new_doc("Sales Order", title="t", lines=lines).insert()


def items(fw: Any, name: str) -> list[tuple[str, int]]:
    return [(row.item, row.idx) for row in fw.get_doc("Sales Order", name).lines]


async def test_child_rows_keep_list_order(desk: ShopSite) -> None:
    name = (await desk.do(lambda fw: order(fw, "c", "a", "b"))).name
    assert await desk.do(lambda fw: items(fw, name)) == [("c", 1), ("a", 2), ("b", 3)]


async def test_saved_row_list_replaces_stored_rows(desk: ShopSite) -> None:
    def work(fw: Any) -> list[tuple[str, int]]:
        doc = order(fw, "a", "b", "c")
        doc.lines = [doc.lines[2], {"item": "new"}, doc.lines[0]]
        doc.save()
        return items(fw, doc.name)

    assert await desk.do(work) == [("c", 1), ("new", 2), ("a", 3)]


async def test_row_resent_by_name_keeps_secrets_and_origin(desk: ShopSite) -> None:
    def first(fw: Any) -> Any:
        return fw.new_doc(
            "Sales Order", title="t", lines=[{"item": "a", "token": "s", "pin": "1"}]
        ).insert()

    before = (await desk.do(first)).lines[0]
    await trio.sleep(5)
    sam = await desk.add_account("System Manager")

    def second(fw: Any) -> Any:
        doc = fw.get_doc("Sales Order", "SO-00001")
        doc.lines = [{"name": before.name, "item": "b", "token": {"configured": True}}]
        return doc.save()

    await desk.do(second, user=sam)
    row = (await desk.do(lambda fw: fw.get_doc("Sales Order", "SO-00001"))).lines[0]
    assert (row.name, row.item, row.vault("token"), row.pin) == (before.name, "b", "s", "1")
    assert (row.owner, row.creation) == ("Administrator", before.creation)
    assert (row.modified_by, row.modified != before.modified) == ("sam", True)


async def test_row_named_like_row_of_other_parent_is_renamed(desk: ShopSite) -> None:
    def work(fw: Any) -> tuple[str, str]:
        other = order(fw, "a").lines[0].name
        doc = fw.new_doc("Sales Order", title="t", lines=[{"name": other, "item": "b"}]).insert()
        doc.lines = [{"name": other, "item": "c"}]
        doc.save()
        return other, doc.lines[0].name

    first, second = await desk.do(work)
    assert first != second
    assert await desk.do(lambda fw: items(fw, "SO-00001")) == [("a", 1)]


async def test_row_sent_twice_becomes_two_rows(desk: ShopSite) -> None:
    def work(fw: Any) -> int:
        doc = order(fw, "a")
        name = doc.lines[0].name
        doc.lines = [{"name": name, "item": "a"}, {"name": name, "item": "b"}]
        doc.save()
        return len({row.name for row in fw.get_doc("Sales Order", doc.name).lines})

    assert await desk.do(work) == 2


async def test_child_rows_follow_docstatus_of_parent(desk: ShopSite) -> None:
    doc = await desk.do(lambda fw: order(fw, "a").submit())
    assert (await desk.do(lambda fw: fw.get_doc("Sales Order", doc.name))).lines[0].docstatus == 1


async def test_row_removal_leaves_rows_of_other_parent(desk: ShopSite) -> None:
    def work(fw: Any) -> list[tuple[str, int]]:
        first, second = order(fw, "a"), order(fw, "b")
        second.lines = []
        second.save()
        return items(fw, first.name)

    assert await desk.do(work) == [("a", 1)]


async def test_unchanged_row_keeps_modified_time(desk: ShopSite) -> None:
    """`modified` of a row is the time of its own change, not of its parent's."""
    before = (await desk.do(lambda fw: order(fw, "a", "b"))).lines
    await trio.sleep(5)

    def change(fw: Any) -> Any:
        doc = fw.get_doc("Sales Order", "SO-00001")
        doc.lines[1].item = "z"
        return doc.save()

    doc = await desk.do(change)
    after = (await desk.do(lambda fw: fw.get_doc("Sales Order", "SO-00001"))).lines
    assert [row.name for row in after] == [row.name for row in before]
    assert [row.modified == was.modified for row, was in zip(after, before, strict=True)] == [
        True,
        False,
    ]
    assert [row.modified for row in doc.lines] == [row.modified for row in after]


async def test_rows_may_swap_values_of_unique_field(desk: ShopSite) -> None:
    def work(fw: Any) -> list[tuple[str, int]]:
        doc = fw.new_doc("Box", name="b", parts=[{"serial": "1"}, {"serial": "2"}]).insert()
        first, second = doc.parts
        first.serial, second.serial = "2", "1"
        doc.save()
        stored = fw.get_doc("Box", "b").parts
        assert [row.name for row in stored] == [first.name, second.name]
        return [(row.serial, row.idx) for row in stored]

    assert await desk.do(work) == [("2", 1), ("1", 2)]


async def test_row_vault_value_is_replaced_on_save(desk: ShopSite) -> None:
    """Only `{"configured": true}` keeps a Vault value (D-74)."""
    name = await desk.do(
        lambda fw: (
            fw.new_doc("Sales Order", title="t", lines=[{"item": "a", "token": "old"}])
            .insert()
            .name
        )
    )

    def save(fw: Any) -> None:
        doc = fw.get_doc("Sales Order", name)
        doc.lines[0].token = "new"
        doc.save()

    await desk.do(save)
    assert (
        await desk.do(lambda fw: fw.get_doc("Sales Order", name).lines[0].vault("token")) == "new"
    )


async def test_table_field_refuses_document_of_other_doctype(desk: ShopSite) -> None:
    """A table takes rows of its child DocType only (D-170)."""

    def insert(fw: Any) -> None:
        strange = fw.new_doc("Customer", title="Ada")
        with pytest.raises(ValidationError) as refusal:
            fw.new_doc("Sales Order", title="t", lines=[strange])
        assert refusal.value.extra == {"field": "lines"}

    await desk.do(insert)
