"""Renaming: links, children and references follow in one transaction (D-103, D-104)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.documents import rest
from fw_actors.errors import (
    BadRequestError,
    ConflictError,
    DuplicateError,
    PermissionDeniedError,
    ValidationError,
)
from tests.fw_actors.documents.conftest import ShopSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

ORDER = "Sales Order"


@pytest.fixture
async def populated(desk: ShopSite) -> ShopSite:
    """The customer Ada, a customer that links to Ada, and an order that links to Ada twice."""

    def add_records(fw: Any) -> None:
        fw.new_doc("Customer", title="Ada", vat="1").insert()
        fw.new_doc("Customer", title="Annabella", parent_customer="Ada").insert()
        lines = [{"item": "a", "customer": "Ada", "token": "t-1"}, {"item": "b"}]
        fw.new_doc(ORDER, title="t", customer="Ada", token="t-0", lines=lines).insert()
        desk.shop.CALLED.clear()

    await desk.do(add_records)
    desk.shop.LATE.clear()
    return desk


async def test_rename_updates_links_in_documents_and_rows(populated: ShopSite) -> None:
    def work(fw: Any) -> list[Any]:
        fw.get_doc("Customer", "Ada").rename("Ada L.")
        order = fw.get_doc(ORDER, "SO-00001")
        rows = [row.customer for row in order.lines]
        return [
            order.customer,
            rows,
            fw.get_value("Customer", "Annabella", "parent_customer"),
            fw.exists("Customer", "Ada"),
        ]

    assert await populated.do(work) == ["Ada L.", ["Ada L.", None], "Ada L.", None]


async def test_rename_leaves_links_to_document_of_another_doctype(populated: ShopSite) -> None:
    """A link follows the document that it leads to, not one of the same name (D-103)."""

    def work(fw: Any) -> str:
        fw.new_doc("Role", name="Ada").insert().rename("Clerk")
        return str(fw.get_doc(ORDER, "SO-00001").customer)

    assert await populated.do(work) == "Ada"


async def test_rename_keeps_modified_of_document_and_of_its_links(populated: ShopSite) -> None:
    """No field was changed by a user; the Version states who renamed it (D-103)."""

    def stamps(fw: Any, customer: str) -> list[tuple[str, str]]:
        found = [fw.get_doc("Customer", customer), fw.get_doc("Customer", "Annabella")]
        return [(doc.modified, doc.modified_by) for doc in (*found, fw.get_doc(ORDER, "SO-00001"))]

    before = await populated.do(lambda fw: stamps(fw, "Ada"))
    await populated.do(lambda fw: fw.get_doc("Customer", "Ada").rename("Ada L."))
    assert await populated.do(lambda fw: stamps(fw, "Ada L.")) == before


async def test_rename_updates_naming_field(populated: ShopSite) -> None:
    def work(fw: Any) -> tuple[Any, ...]:
        doc = fw.get_doc("Customer", "Ada").rename("Ada L.")
        stored = fw.get_doc("Customer", "Ada L.")
        return doc.name, doc.title, stored.title, stored.vat

    assert await populated.do(work) == ("Ada L.", "Ada L.", "Ada L.", "1")


async def test_rename_keeps_rows_and_vault_values(populated: ShopSite) -> None:
    """Vault values are bound to a row id that a rename keeps (D-75)."""

    def work(fw: Any) -> list[Any]:
        before = [row.name for row in fw.get_doc(ORDER, "SO-00001").lines]
        renamed = fw.get_doc(ORDER, "SO-00001").rename("First")
        after = fw.get_doc(ORDER, "First")
        assert [row.name for row in after.lines] == before
        assert [row.parent for row in after.lines] == ["First", "First"]
        return [doc.vault("token") for doc in (renamed, after, renamed.lines[0], after.lines[0])]

    assert await populated.do(work) == ["t-0", "t-0", "t-1", "t-1"]


async def test_renamed_document_object_stays_usable(populated: ShopSite) -> None:
    def work(fw: Any) -> str:
        order = fw.get_doc(ORDER, "SO-00001").rename("First")
        order.remark = "again"
        order.save().submit().cancel().rename("Second").delete()
        return str(fw.exists(ORDER, "Second"))

    assert await populated.do(work) == "None"


async def test_rename_runs_no_document_hook(populated: ShopSite) -> None:
    """`db_set` and rename are no events (B-58); a rename runs no hook (D-106)."""
    await populated.do(lambda fw: fw.get_doc(ORDER, "SO-00001").rename("First"))
    assert (populated.shop.CALLED, populated.shop.LATE) == ([], [])


async def test_rename_accepts_submitted_and_cancelled_document(populated: ShopSite) -> None:
    def work(fw: Any) -> int:
        order = fw.get_doc(ORDER, "SO-00001").submit().rename("First").cancel().rename("Second")
        return int(order.docstatus)

    assert await populated.do(work) == 2


@pytest.mark.parametrize("name", ["", " ", "a/b", "x" * 141, " a", "a\x00", None, 5])
async def test_rename_refuses_invalid_document_name(populated: ShopSite, name: Any) -> None:
    """A name is 1 to 140 characters without `/`, else 422 (D-100)."""
    with pytest.raises(ValidationError):
        await populated.do(lambda fw: fw.get_doc("Customer", "Ada").rename(name))
    assert await populated.do(lambda fw: fw.get_value(ORDER, "SO-00001", "customer")) == "Ada"


async def test_rename_refuses_existing_name_and_accepts_own_name(populated: ShopSite) -> None:
    with pytest.raises(DuplicateError):
        await populated.do(lambda fw: fw.get_doc("Customer", "Ada").rename("Annabella"))
    same = await populated.do(lambda fw: fw.get_doc("Customer", "Ada").rename("Ada"))
    assert same.name == "Ada"


async def test_rename_over_newer_version_is_refused(populated: ShopSite) -> None:
    def work(fw: Any) -> None:
        stale = fw.get_doc(ORDER, "SO-00001")
        stale.modified = "2026-01-01T00:00:00.000Z"
        stale.rename("First")

    with pytest.raises(ConflictError, match="changed meanwhile"):
        await populated.do(work)


async def test_rename_needs_write_permission_unless_ignored(populated: ShopSite) -> None:
    reader, seller = (
        await populated.add_account("Reader", name="ro"),
        await populated.add_account("Seller", name="rw"),
    )
    with pytest.raises(PermissionDeniedError):
        await populated.do(lambda fw: fw.get_doc(ORDER, "SO-00001").rename("First"), reader)
    await populated.do(lambda fw: fw.get_doc(ORDER, "SO-00001").rename("First"), seller)

    def ignoring(fw: Any) -> str:
        return str(fw.get_doc(ORDER, "First").rename("Second", ignore_permissions=True).name)

    assert await populated.do(ignoring, reader) == "Second"


async def test_rest_rename_returns_renamed_document(populated: ShopSite) -> None:
    """POST …/rename takes `{name}` and answers `{data: doc}` (D-15)."""
    shown = await populated.do(lambda fw: rest.rename(fw, ORDER, "SO-00001", {"name": "First"}))
    assert (shown["name"], [row["parent"] for row in shown["lines"]]) == ("First", ["First"] * 2)


@pytest.mark.parametrize("body", [{}, {"name": 5}, {"name": None}, {"name": "a", "to": "b"}])
async def test_rest_rename_refuses_body_beyond_name(
    populated: ShopSite, body: dict[str, Any]
) -> None:
    with pytest.raises(BadRequestError) as refusal:
        await populated.do(lambda fw: rest.rename(fw, ORDER, "SO-00001", body))
    assert refusal.value.extra == {"field": "to" if "to" in body else "name"}


async def test_export_omits_secret_fields_of_document(populated: ShopSite) -> None:
    """An export has no Password, Vault and secret-named fields (D-16)."""
    shown = await populated.do(lambda fw: rest.export(fw, ORDER, "SO-00001"))
    assert "token" not in shown
    assert (shown["title"], shown["margin"], shown["name"]) == ("t", None, "SO-00001")
    line = shown["lines"][0]
    assert not {"token", "pin", "line_secret"} & set(line)
    assert (line["item"], line["cost"]) == ("a", None)


async def test_export_needs_permission_and_omits_fields_above_permlevel(
    populated: ShopSite,
) -> None:
    reader, boss = (
        await populated.add_account("Reader", name="ro"),
        await populated.add_account("Exporter", name="ex"),
    )
    with pytest.raises(PermissionDeniedError, match="export"):
        await populated.do(lambda fw: rest.export(fw, ORDER, "SO-00001"), reader)
    shown = await populated.do(lambda fw: rest.export(fw, ORDER, "SO-00001"), boss)
    assert "margin" not in shown
    assert "cost" not in shown["lines"][0]


async def test_rest_rename_needs_permission_to_write_the_naming_field(desk: ShopSite) -> None:
    """A rename writes the field of `naming`, as a save does (D-104, D-90, D-92)."""
    seller, boss = (
        await desk.add_account("Seller"),
        await desk.add_account("Seller", "Boss", name="bo"),
    )
    for doctype in ("Grade", "Permit"):
        await desk.do(lambda fw, d=doctype: fw.new_doc(d, code="A").insert())  # type: ignore[misc]
    with pytest.raises(PermissionDeniedError, match="You may not write code"):
        await desk.do(lambda fw: rest.rename(fw, "Grade", "A", {"name": "B"}), seller)
    with pytest.raises(BadRequestError, match="code cannot be written"):
        await desk.do(lambda fw: rest.rename(fw, "Permit", "A", {"name": "B"}), boss)
    assert (await desk.do(lambda fw: rest.rename(fw, "Grade", "A", {"name": "B"}), boss))[
        "code"
    ] == "B"
    same = await desk.do(lambda fw: rest.rename(fw, "Permit", "A", {"name": "A"}), seller)
    assert same["code"] == "A"
    assert await desk.do(lambda fw: fw.get_doc("Permit", "A").rename("B").code) == "B"


async def test_rename_updates_self_link_on_document_object(desk: ShopSite) -> None:
    """A rename carries links: the answer shows them, and the object can be saved (D-103)."""

    def renamed(fw: Any) -> Any:
        doc = fw.new_doc("Customer", title="Ada").insert()
        doc.parent_customer = "Ada"
        doc.save().rename("Eve")
        return doc.parent_customer, doc.save().parent_customer

    assert await desk.do(renamed) == ("Eve", "Eve")


async def test_rename_updates_row_link_to_own_document(desk: ShopSite) -> None:
    def renamed(fw: Any) -> Any:
        doc = fw.new_doc("Customer File", title="Ada").insert()
        doc.rows = [{"file": "Ada"}]
        doc.save().rename("Eve")
        return doc.rows[0].file, doc.save().rows[0].file

    assert await desk.do(renamed) == ("Eve", "Eve")


async def test_rename_refuses_dangling_link_in_naming_field(desk: ShopSite) -> None:
    """A Link to a missing document is 422, by a rename as by a save (D-104, D-58)."""

    def renamed(fw: Any) -> str:
        for name in ("Ada", "Eve"):
            fw.new_doc("Customer", title=name).insert()
        doc = fw.new_doc("Profile", customer="Ada").insert()
        with pytest.raises(ValidationError) as refusal:
            doc.rename("Nobody")
        assert refusal.value.extra == {"field": "customer"}
        assert (doc.name, doc.customer) == ("Ada", "Ada")
        return str(doc.rename("Eve").reload().customer)

    assert await desk.do(renamed) == "Eve"


async def test_rename_refuses_naming_link_beyond_scopes(desk: ShopSite) -> None:
    """A write is checked by the values that would be stored (A-313, D-104)."""

    def add_records(fw: Any) -> None:
        for name in ("Ada", "Eve"):
            fw.new_doc("Customer", title=name).insert()
        fw.new_doc("Profile", customer="Ada").insert()

    await desk.do(add_records)
    await desk.add_account("Seller")
    scope = {"user": "sam", "allow": "Customer", "for_value": "Ada"}
    await desk.do(lambda fw: fw.new_doc("User Permission", **scope).insert())
    with pytest.raises(PermissionDeniedError):
        await desk.do(lambda fw: fw.get_doc("Profile", "Ada").rename("Eve"), "sam")
