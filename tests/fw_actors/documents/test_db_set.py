"""`db_set`: fields written without hooks and events (D-130)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.errors import (
    ConflictError,
    DuplicateError,
    PermissionDeniedError,
    ValidationError,
)
from tests.fw_actors.documents.conftest import ShopSite

pytestmark = pytest.mark.usefixtures("on_both_stores")


def order(fw: Any, **fields: Any) -> Any:
    return fw.new_doc("Sales Order", **{"title": "t", **fields}).insert()


async def test_db_set_writes_single_field_without_hooks(desk: ShopSite) -> None:
    """`db_set` runs no hook and is no event (D-130, B-58)."""

    def work(fw: Any) -> tuple[Any, ...]:
        doc = order(fw)
        desk.shop.CALLED.clear()
        doc.remark = "not this"
        doc.db_set("title", "direct")
        stored = fw.get_doc("Sales Order", doc.name)
        return doc.title, doc.remark, stored.title, stored.remark, doc.modified == stored.modified

    assert await desk.do(work) == ("direct", "not this", "direct", None, True)
    assert desk.shop.CALLED == []


@pytest.mark.parametrize("change", ["save", "submit", "db_set"])
async def test_document_inserted_by_sql_can_be_changed(desk: ShopSite, change: str) -> None:
    """SQL may insert a row without the columns that the service writes (D-197)."""
    insert = "INSERT INTO doc_sales_order (name, title) VALUES ('by SQL', 't')"

    def work(fw: Any) -> Any:
        fw.db.sql(insert)
        doc = fw.get_doc("Sales Order", "by SQL")
        assert (doc.creation, doc.modified) == (None, None)
        if change == "db_set":
            doc.db_set("title", "u")
        else:
            doc.title = "u"
            getattr(doc, change)()
        return doc

    doc = await desk.do(work)
    stored = await desk.do(lambda fw: fw.get_doc("Sales Order", "by SQL"))
    assert (stored.title, stored.modified) == ("u", doc.modified)
    assert stored.modified is not None


async def test_save_is_refused_after_db_set_by_other_object(desk: ShopSite) -> None:
    """A save over a newer version is 409 (D-120, D-122)."""

    def work(fw: Any) -> tuple[Any, ...]:
        name = order(fw).name
        earlier, writer = fw.get_doc("Sales Order", name), fw.get_doc("Sales Order", name)
        writer.db_set("remark", "direct")
        earlier.title = "late"
        with pytest.raises(ConflictError):
            earlier.save()
        earlier.db_set("title", "direct")  # writes one column, independent of other changes
        with pytest.raises(ConflictError):  # the object keeps its old version
            earlier.save()
        writer.reload().save()
        stored = fw.get_doc("Sales Order", name)
        return stored.remark, stored.title

    assert await desk.do(work) == ("direct", "direct")


async def test_save_is_accepted_after_own_db_set(desk: ShopSite) -> None:
    sam = await desk.add_account("Seller")
    name = (await desk.do(order)).name

    def work(fw: Any) -> tuple[Any, ...]:
        doc = fw.get_doc("Sales Order", name)
        doc.db_set("remark", "direct", ignore_permissions=True)
        assert doc.modified_by == sam
        doc.title = "saved"
        return doc.save().remark, fw.get_doc("Sales Order", name).title

    assert await desk.do(work, user=sam) == ("direct", "saved")


async def test_db_set_encrypts_vault_field(desk: ShopSite) -> None:
    def work(fw: Any) -> tuple[Any, ...]:
        doc = order(fw)
        doc.db_set("token", "s3cret")
        rows = fw.db.sql("SELECT token FROM doc_sales_order")
        return doc.token, doc.vault("token"), "s3cret" in rows[0]["token"]

    assert await desk.do(work) == ({"configured": True}, "s3cret", False)


async def test_db_set_refuses_duplicate_unique_value(desk: ShopSite) -> None:
    def work(fw: Any) -> str:
        fw.new_doc("Customer", title="a", vat="7").insert()
        other = fw.new_doc("Customer", title="b", vat="8").insert()
        with pytest.raises(DuplicateError):
            other.db_set("vat", "7")
        return str(other.vat)

    assert await desk.do(work) == "8"


async def test_db_set_needs_write_permission_unless_ignored(desk: ShopSite) -> None:
    """`db_set` needs write permission unless `ignore_permissions` is given (D-130, D-191)."""
    name = (await desk.do(order)).name
    reader = await desk.add_account("Reader")
    with pytest.raises(PermissionDeniedError):
        await desk.do(lambda fw: fw.get_doc("Sales Order", name).db_set("title", "x"), reader)
    await desk.do(
        lambda fw: fw.get_doc("Sales Order", name).db_set("title", "x", ignore_permissions=True),
        reader,
    )


@pytest.mark.parametrize("field", ["nothing", "lines", "modified"])
async def test_db_set_refuses_name_of_unstored_field(desk: ShopSite, field: str) -> None:
    from fw_actors.errors import BadRequestError

    with pytest.raises(BadRequestError):
        await desk.do(lambda fw: order(fw).db_set(field, "x"))


@pytest.mark.parametrize(
    ("field", "value"), [("customer", "Nobody"), ("title", None), ("title", "")]
)
async def test_db_set_refuses_dangling_link_and_empty_required_field(
    desk: ShopSite, field: str, value: object
) -> None:
    """A Link to a missing document is 422 (D-58), by `db_set` too (D-130)."""

    def attempt(fw: Any) -> object:
        doc = order(fw)
        with pytest.raises(ValidationError) as refusal:
            doc.db_set(field, value)
        assert refusal.value.extra == {"field": field}
        return doc.reload().title

    assert await desk.do(attempt) == "t"
