"""The verbs of a document (D-191, D-120 to D-130).

The module has more than 500 lines because all its tests are about one unit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import trio

from fw_actors.errors import (
    ConflictError,
    DuplicateError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from tests.fw_actors.documents.conftest import ShopSite

pytestmark = pytest.mark.usefixtures("on_both_stores")


def order(fw: Any, **fields: Any) -> Any:
    return fw.new_doc("Sales Order", **{"title": "t", **fields}).insert()


async def test_insert_runs_hooks_in_order(desk: ShopSite) -> None:
    """The hooks of an insert and their order (D-140)."""
    await desk.do(order)
    assert desk.shop.CALLED == ["before_validate", "validate", "before_save", "on_insert 0"]


async def test_submit_cancel_and_delete_run_hooks_in_order(desk: ShopSite) -> None:
    """on_insert shows docstatus 0, on_submit 1 (D-126)."""
    await desk.do(lambda fw: order(fw).submit().cancel().delete())
    assert desk.shop.CALLED == [
        "before_validate", "validate", "before_save", "on_insert 0",
        "before_validate", "validate", "before_save", "on_submit 1",
        "on_cancel", "on_trash",
    ]  # fmt: skip


async def test_hook_may_fill_required_field(desk: ShopSite) -> None:
    assert (await desk.do(lambda fw: order(fw, title="fill in"))).title == "filled in"


@pytest.mark.parametrize("title", ["refuse", "refuse late"])
async def test_hook_exception_rolls_back_insert(desk: ShopSite, title: str) -> None:
    """A hook that raises removes the event with the write (B-56, D-141)."""

    def caught(fw: Any) -> int:
        with pytest.raises(ValidationError):
            order(fw, title=title)
        return int(fw.count("Sales Order"))

    assert await desk.do(caught) == 0


async def test_caught_refusal_keeps_transaction_and_document_usable(desk: ShopSite) -> None:
    """A caught refusal leaves the transaction usable (D-199) and the object as it was (D-129)."""

    def again(fw: Any) -> Any:
        doc = fw.new_doc("Sales Order", title="refuse late", token="s", lines=[{"item": "i"}])
        with pytest.raises(ValidationError):
            doc.insert()
        assert (doc.is_new(), doc.name, doc.owner, doc.creation) == (True, None, None, None)
        doc.title = "fine"
        return doc.insert()

    doc = await desk.do(again)
    stored = await desk.do(lambda fw: fw.get_doc("Sales Order", doc.name))
    assert (stored.title, stored.vault("token"), len(stored.lines)) == ("fine", "s", 1)


@pytest.mark.parametrize("hook", ["validate", "on_insert"])
async def test_hook_system_exit_rolls_back_write(
    desk: ShopSite, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sys.exit()` in a hook undoes its write and is a defect (D-146, H-66)."""
    monkeypatch.setattr(desk.shop.Order, hook, lambda doc, fw: sys.exit(3))
    with pytest.raises(RuntimeError, match=f"Order.{hook} would have ended the process"):
        await desk.do(order)
    assert await desk.do(lambda fw: fw.count("Sales Order")) == 0


async def test_hook_after_commit_system_exit_is_logged_as_error(
    desk: ShopSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.shop.Order, "after_commit", lambda doc, fw: sys.exit(3))
    name = (await desk.do(order)).name
    await desk.site.store.write(desk.site.errors.flush)
    [noted] = await desk.do(lambda fw: fw.get_all("Error Log", fields=["method"]))
    assert noted == {"method": "Sales Order.after_commit"}
    assert await desk.do(lambda fw: fw.exists("Sales Order", name)) == name


async def test_hook_after_commit_runs_for_committed_document_only(desk: ShopSite) -> None:
    """The hook `after_commit` is called after the commit (D-142)."""

    def work(fw: Any) -> str:
        name = str(order(fw).name)
        assert desk.shop.LATE == []
        with pytest.raises(ValidationError):
            order(fw, title="refuse late")
        return name

    name = await desk.do(work)
    assert [name] == desk.shop.LATE


async def test_hook_after_commit_is_skipped_on_rollback(desk: ShopSite) -> None:
    await desk.site.rollback("Administrator", order)
    assert desk.shop.LATE == []


async def test_insert_stamps_owner_and_time(desk: ShopSite) -> None:
    sam = await desk.add_account("Seller")
    doc = await desk.do(order, user=sam)
    assert (doc.owner, doc.modified_by, doc.docstatus) == (sam, sam, 0)
    assert doc.creation == doc.modified == "2027-01-15T08:00:00.000Z"


async def test_save_updates_modified_and_keeps_creation(desk: ShopSite) -> None:
    name = (await desk.do(order)).name
    sam = await desk.add_account("Seller")
    await trio.sleep(1.5)

    def change(fw: Any) -> Any:
        doc = fw.get_doc("Sales Order", name)
        doc.title = "other"
        return doc.save()

    doc = await desk.do(change, user=sam)
    assert (doc.creation, doc.owner) == ("2027-01-15T08:00:00.000Z", "Administrator")
    assert (doc.modified, doc.modified_by) == ("2027-01-15T08:00:01.500Z", sam)


async def test_save_over_newer_version_is_refused(desk: ShopSite) -> None:
    """A save over a newer version is 409 (D-120, D-122)."""
    old = await desk.do(order)
    await trio.sleep(1)
    await desk.do(lambda fw: fw.get_doc("Sales Order", old.name).save())

    def late(fw: Any) -> None:
        doc = fw.get_doc("Sales Order", old.name)
        doc.modified = old.modified
        doc.save()

    with pytest.raises(ConflictError, match="changed meanwhile") as refused:
        await desk.do(late)
    assert refused.value.extra["reason"] == "changed"


@pytest.mark.parametrize("verb", ["save", "submit", "cancel", "delete", "rename"])
async def test_verb_over_newer_version_is_refused(desk: ShopSite, verb: str) -> None:
    """A document is changed only over the version that it was read from (D-122)."""

    def work(fw: Any) -> tuple[Any, Any]:
        made = order(fw)
        if verb == "cancel":
            made.submit()
        read = fw.get_doc("Sales Order", made.name)
        made.remark = "unseen"
        made.save()
        desk.shop.CALLED.clear()
        with pytest.raises(ConflictError, match="changed meanwhile"):
            getattr(read, verb)(*["Other"] if verb == "rename" else [])
        return made.as_dict(), fw.get_doc("Sales Order", made.name).as_dict()

    saved, stored = await desk.do(work)
    assert stored == saved
    assert desk.shop.CALLED == []


@pytest.mark.parametrize("verb", ["save", "submit"])
async def test_modified_increases_per_version_within_one_millisecond(
    desk: ShopSite, verb: str
) -> None:
    """Virtual time stands still here; equal times would let a stale save overwrite a newer one."""
    old = await desk.do(order)
    newer = await desk.do(lambda fw: getattr(fw.get_doc("Sales Order", old.name), verb)())
    assert newer.modified > old.modified

    def late(fw: Any) -> None:
        doc = fw.get_doc("Sales Order", old.name)
        doc.modified = old.modified
        doc.save()

    with pytest.raises(ConflictError, match="changed meanwhile"):
        await desk.do(late)


async def test_save_of_deleted_document_is_refused(desk: ShopSite) -> None:
    def work(fw: Any) -> None:
        doc = order(fw)
        fw.get_doc("Sales Order", doc.name).delete()
        doc.save()

    with pytest.raises(ConflictError, match="deleted meanwhile") as refused:
        await desk.do(work)
    assert refused.value.extra["reason"] == "deleted"


async def test_insert_of_stored_document_is_refused(desk: ShopSite) -> None:
    with pytest.raises(ConflictError):
        await desk.do(lambda fw: order(fw).insert())


async def test_save_of_new_document_inserts_it(desk: ShopSite) -> None:
    doc = await desk.do(lambda fw: fw.new_doc("Sales Order", title="t").save())
    assert doc.name == "SO-00001"


WRONG_STATE = [  # verbs done before, verb that is refused
    (("submit",), "submit"),
    ((), "cancel"),
    (("submit", "cancel"), "cancel"),
    (("submit", "cancel"), "submit"),
    (("submit", "cancel"), "save"),
    (("submit",), "delete"),
]


@pytest.mark.parametrize(("done", "refused"), WRONG_STATE)
async def test_document_verb_is_refused_in_wrong_state(
    desk: ShopSite, done: tuple[str, ...], refused: str
) -> None:
    """A verb that the state does not allow is 409 (D-124, D-125)."""

    def work(fw: Any) -> None:
        doc = order(fw)
        for verb in done:
            getattr(doc, verb)()
        getattr(doc, refused)()

    with pytest.raises(ConflictError):
        await desk.do(work)


async def test_submit_refuses_document_of_unsubmittable_doctype(desk: ShopSite) -> None:
    with pytest.raises(ValidationError):
        await desk.do(lambda fw: fw.new_doc("Customer", title="c").insert().submit())


async def test_submitted_document_accepts_allow_on_submit_change(desk: ShopSite) -> None:
    """A submitted document accepts changes of `allow_on_submit` fields only (D-123)."""

    def work(fw: Any) -> Any:
        doc = order(fw).submit()
        doc.remark = "paid"
        return doc.save()

    doc = await desk.do(work)
    assert (doc.remark, doc.docstatus, desk.shop.CALLED[-1]) == ("paid", 1, "on_update")


LATE_CHANGES: list[dict[str, Any]] = [
    {"title": "other"}, {"lines": [{"item": "i"}]}, {"token": "new"}, {"margin": 2.0},
]  # fmt: skip


@pytest.mark.parametrize("change", LATE_CHANGES)
async def test_submitted_document_refuses_other_change(
    desk: ShopSite, change: dict[str, Any]
) -> None:
    def work(fw: Any) -> None:
        doc = order(fw).submit()
        for key, value in change.items():
            setattr(doc, key, value)
        doc.save()

    with pytest.raises(ValidationError) as refusal:
        await desk.do(work)
    assert refusal.value.extra == {"field": next(iter(change))}


async def test_submitted_document_saved_unchanged_runs_no_on_update(desk: ShopSite) -> None:
    """A submitted document saved without a change is no event; a draft is (B-60)."""
    await desk.do(lambda fw: order(fw, token="s", lines=[{"item": "i"}]).submit().save())
    assert "on_update" not in desk.shop.CALLED
    await desk.do(lambda fw: order(fw).save())
    assert "on_update" in desk.shop.CALLED


async def test_duplicate_unique_value_is_refused_with_field(desk: ShopSite) -> None:
    """A taken unique value is 409 (D-63)."""
    await desk.do(lambda fw: fw.new_doc("Customer", title="a", vat="7").insert())
    with pytest.raises(DuplicateError) as refusal:
        await desk.do(lambda fw: fw.new_doc("Customer", title="b", vat="7").insert())
    assert refusal.value.extra == {"field": "vat"}


async def test_insert_refuses_name_of_stored_document(desk: ShopSite) -> None:
    await desk.do(lambda fw: fw.new_doc("Customer", title="a").insert())
    with pytest.raises(DuplicateError):
        await desk.do(lambda fw: fw.new_doc("Customer", title="a").insert())


async def test_delete_removes_rows_of_document(desk: ShopSite) -> None:
    def work(fw: Any) -> list[dict[str, Any]]:
        order(fw, lines=[{"item": "i"}, {"item": "j"}]).delete()
        rows: list[dict[str, Any]] = fw.db.sql("SELECT name FROM doc_orderline")
        return rows

    assert await desk.do(work) == []


async def test_get_doc_reports_deleted_document_as_not_found(desk: ShopSite) -> None:
    def work(fw: Any) -> None:
        doc = order(fw)
        doc.delete()
        fw.get_doc("Sales Order", doc.name)

    with pytest.raises(NotFoundError):
        await desk.do(work)


VERBS = ["insert", "save", "submit", "cancel", "delete"]


@pytest.mark.parametrize("verb", VERBS)
async def test_document_verb_needs_permission_unless_ignored(desk: ShopSite, verb: str) -> None:
    """Each verb needs its permission unless `ignore_permissions` is given (D-191)."""
    stranger = await desk.add_account("Reader")

    def prepared(fw: Any) -> Any:
        doc = fw.new_doc("Sales Order", title="t")
        return doc if verb == "insert" else doc.insert(ignore_permissions=True)

    def denied(fw: Any) -> None:
        doc = prepared(fw)
        if verb == "cancel":
            doc.submit(ignore_permissions=True)
        with pytest.raises(PermissionDeniedError):
            getattr(doc, verb)()
        getattr(doc, verb)(ignore_permissions=True)

    await desk.do(denied, user=stranger)


async def test_child_row_refuses_own_save(desk: ShopSite) -> None:
    def work(fw: Any) -> None:
        order(fw, lines=[{"item": "i"}]).lines[0].save()

    with pytest.raises(ValidationError, match="with their parent"):
        await desk.do(work)


async def test_read_only_doctype_insert_is_refused_despite_ignored_permissions(
    desk: ShopSite,
) -> None:
    """Webhook Delivery is read only, but for replay (B-182)."""
    with pytest.raises(PermissionDeniedError):
        await desk.do(lambda fw: fw.new_doc("Webhook Delivery").insert(ignore_permissions=True))


async def test_reload_replaces_unsaved_values_by_stored_ones(desk: ShopSite) -> None:
    def work(fw: Any) -> str:
        doc = order(fw)
        doc.title = "unsaved"
        return str(doc.reload().title)

    assert await desk.do(work) == "t"


async def test_uninserted_document_refuses_later_verbs(desk: ShopSite) -> None:
    """A new object with the name of a stored document is not that document."""

    def work(fw: Any) -> None:
        fw.new_doc("Customer", title="Ada").insert()
        verbs: list[Callable[[Any], Any]] = [
            lambda doc: doc.delete(),
            lambda doc: doc.rename("Bob"),
            lambda doc: doc.db_set("vat", "1"),
        ]
        for verb in verbs:
            with pytest.raises(ConflictError, match="not been inserted yet"):
                verb(fw.new_doc("Customer", name="Ada", title="Ada"))

    await desk.do(work)


async def test_reload_of_document_without_name_is_refused(desk: ShopSite) -> None:
    def work(fw: Any) -> None:
        with pytest.raises(ConflictError, match=r"^This Customer has not been inserted yet"):
            fw.new_doc("Customer", title="a").reload()

    await desk.do(work)


async def test_reload_may_ignore_permissions(desk: ShopSite) -> None:
    """`reload` takes `ignore_permissions` as well (D-191)."""
    await desk.do(lambda fw: fw.new_doc("Customer", title="Ada", vat="1").insert())
    sam = await desk.add_account("Reader")

    def work(fw: Any) -> str:
        doc = fw.new_doc("Customer", name="Ada", title="Ada")
        with pytest.raises(PermissionDeniedError):
            doc.reload()
        return str(doc.reload(ignore_permissions=True).vat)

    assert await desk.do(work, sam) == "1"


@pytest.mark.parametrize(
    ("field", "value"),
    [("docstatus", 1), ("owner", "eve"), ("creation", "2020-01-01T00:00:00.000Z"), ("name", "x"),
     ("idx", "first"), ("idx", True), ("idx", 2**63)],
)  # fmt: skip
async def test_save_refuses_change_of_service_fields(
    desk: ShopSite, field: str, value: object
) -> None:
    """docstatus changes by submit and cancel, a name by rename (D-127)."""

    def work(fw: Any) -> None:
        doc = order(fw)
        setattr(doc, field, value)
        doc.save()

    with pytest.raises(ValidationError) as refusal:
        await desk.do(work)
    assert refusal.value.extra == {"field": field}


async def test_cancel_writes_allow_on_submit_changes_only(
    desk: ShopSite,
) -> None:
    """A cancel writes no more than a save of a submitted document (D-123)."""

    def work(fw: Any) -> tuple[Any, ...]:
        doc = order(fw).submit()
        doc.title = "changed"
        with pytest.raises(ValidationError):
            doc.cancel()
        doc.title, doc.remark = "t", "why"
        doc.cancel()
        stored = fw.get_doc("Sales Order", doc.name)
        return stored.title, stored.remark, stored.docstatus

    assert await desk.do(work) == ("t", "why", 2)


async def test_cancel_checks_the_changes_that_it_writes(desk: ShopSite) -> None:
    """They obey the rules of a save (D-61, D-123)."""

    def work(fw: Any) -> None:
        paper = fw.new_doc("Paper", notes=[{"customer": None}]).insert().submit()
        paper.notes[0].customer = "nobody"
        paper.cancel()

    with pytest.raises(ValidationError, match="there is no Customer nobody"):
        await desk.do(work)


async def test_cancel_accepts_document_with_dangling_link(desk: ShopSite) -> None:
    """A rule that came later, or raw SQL, must not prevent a cancel."""

    def work(fw: Any) -> int:
        fw.new_doc("Customer", title="ada").insert()
        doc = order(fw, customer="ada").submit()
        fw.db.sql("DELETE FROM doc_customer")
        return int(doc.cancel().docstatus)

    assert await desk.do(work) == 2


async def test_delete_restores_stored_values_for_hooks_and_events(desk: ShopSite) -> None:
    """`data.doc` is the document as it was stored until then (B-104)."""

    def work(fw: Any) -> str:
        doc = order(fw, lines=[{"item": "a"}])
        doc.title, doc.lines = "never saved", []
        doc.delete()
        return f"{doc.title} {len(doc.lines)}"

    assert await desk.do(work) == "t 1"


@pytest.mark.parametrize("name", [["a"], {"a": 1}, 7])
async def test_row_with_invalid_name_becomes_new_row(desk: ShopSite, name: object) -> None:
    def work(fw: Any) -> tuple[Any, ...]:
        doc = order(fw, lines=[{"item": "a"}])
        doc.lines = [{"name": name, "item": "b"}]
        doc.save()
        return len(doc.lines), isinstance(doc.lines[0].name, str)

    assert await desk.do(work) == (1, True)


async def test_row_owner_is_not_set_by_code(desk: ShopSite) -> None:
    def work(fw: Any) -> tuple[Any, ...]:
        doc = order(fw, lines=[{"item": "a"}])
        doc.lines[0].owner, doc.lines[0].item = "eve", "b"
        doc.save()
        return doc.lines[0].owner, fw.get_doc("Sales Order", doc.name).lines[0].owner

    assert await desk.do(work) == ("Administrator", "Administrator")


async def test_unique_field_may_be_empty_in_many_documents(desk: ShopSite) -> None:
    """A form sends "" for an emptied field, which is stored as null."""

    def empty(fw: Any) -> list[object]:
        docs = [fw.new_doc("Customer", title=t, vat="").insert() for t in ("Ada", "Eve", "Ida")]
        docs[0].vat = "1"
        docs[0].save().db_set("vat", "")
        box = fw.new_doc("Box", parts=[{"serial": ""}, {"serial": ""}]).insert()
        assert len(fw.get_all("Customer", [["vat", "is null"]])) == 3
        for operator in ("=", "<", "!=", ">="):
            assert fw.get_all("Customer", [["vat", operator, ""]]) == []
        return [doc.reload().vat for doc in docs] + [part.serial for part in box.reload().parts]

    assert await desk.do(empty) == [None] * 5
