"""Writes of hooks to their own document, before it is written itself (D-121, D-122, D-129)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fw_actors.errors import ConflictError, ValidationError
from tests.fw_actors.documents.conftest import ShopSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

ORDER = "Sales Order"
BEFORE = ["before_validate", "validate", "before_save"]
Act = Callable[[Any, Any], object]


def order(fw: Any, **fields: Any) -> Any:
    return fw.new_doc(ORDER, **{"title": "t", **fields}).insert()


def acting_once(act: Act) -> Act:
    """Return a hook that calls `act` for stored documents, and not in the verbs of `act`."""
    acting = [False]

    def hook(doc: Any, fw: Any) -> None:
        if not acting[0] and not doc.is_new():
            acting[0] = True
            try:
                act(doc, fw)
            finally:
                acting[0] = False

    return hook


def saves_another(doc: Any, fw: Any) -> None:
    other = fw.get_doc(ORDER, doc.name)
    other.remark = "saved by the hook"
    other.save()


def submits_another(doc: Any, fw: Any) -> None:
    fw.get_doc(ORDER, doc.name).submit()


def deletes_another(doc: Any, fw: Any) -> None:
    fw.get_doc(ORDER, doc.name).delete()


def renames_another(doc: Any, fw: Any) -> None:
    fw.get_doc(ORDER, doc.name).rename("renamed by the hook")


def deletes_itself(doc: Any, fw: Any) -> None:
    doc.delete()


OTHERS = [saves_another, submits_another, deletes_another, renames_another, deletes_itself]


@pytest.mark.parametrize("act", OTHERS)
@pytest.mark.parametrize("hook", BEFORE)
@pytest.mark.parametrize("verb", ["save", "submit"])
async def test_hook_write_through_another_object_is_refused(
    desk: ShopSite, verb: str, hook: str, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document is written only over the version that it was read from (D-122), also if a hook
    has written another one meanwhile."""
    name = (await desk.do(order)).name
    monkeypatch.setattr(desk.shop.Order, hook, acting_once(act))

    def attempt(fw: Any) -> None:
        doc = fw.get_doc(ORDER, name)
        doc.title = "changed"
        with pytest.raises(ConflictError, match="a hook has already written it"):
            getattr(doc, verb)()

    await desk.do(attempt)
    stored = await desk.do(lambda fw: fw.get_doc(ORDER, name))
    assert (stored.title, stored.remark, stored.docstatus) == ("t", None, 0)
    assert await desk.do(lambda fw: fw.count("Version")) == 0


@pytest.mark.parametrize("hook", BEFORE)
async def test_hook_write_of_its_own_object_is_kept(
    desk: ShopSite, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write has a later `modified` than the one before (D-121)."""
    times: list[str] = []

    def act(doc: Any, fw: Any) -> None:
        doc.db_set("number", 7)
        times.append(doc.modified)
        doc.remark = "saved by the hook"
        doc.save()
        times.append(doc.modified)

    name = (await desk.do(order)).name
    monkeypatch.setattr(desk.shop.Order, hook, acting_once(act))

    def change(fw: Any) -> None:
        doc = fw.get_doc(ORDER, name)
        times.append(doc.modified)
        doc.title = "changed"
        doc.save()
        times.append(doc.modified)

    await desk.do(change)
    assert times == sorted(set(times))
    assert len(times) == 4
    stored = await desk.do(lambda fw: fw.get_doc(ORDER, name))
    assert (stored.title, stored.number, stored.remark) == ("changed", 7, "saved by the hook")
    assert stored.modified == times[-1]


@pytest.mark.parametrize("verb", ["save", "submit"])
async def test_hook_reload_keeps_change_in_version(
    desk: ShopSite, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change of a stored document is a Version (D-223)."""

    def act(doc: Any, fw: Any) -> None:
        doc.reload()
        doc.title = "by the hook"

    name = (await desk.do(order)).name
    monkeypatch.setattr(desk.shop.Order, "validate", acting_once(act))
    await desk.do(lambda fw: getattr(fw.get_doc(ORDER, name), verb)())
    (version,) = await desk.do(lambda fw: fw.get_all("Version", fields=["data"]))
    assert version["data"]["changed"]["title"] == ["t", "by the hook"]


async def test_hook_submit_of_its_own_object_refuses_the_save(
    desk: ShopSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save does not change `docstatus` (D-127)."""
    name = (await desk.do(order)).name
    monkeypatch.setattr(desk.shop.Order, "validate", acting_once(lambda doc, fw: doc.submit()))
    with pytest.raises(ValidationError, match="docstatus cannot be written"):
        await desk.do(lambda fw: fw.get_doc(ORDER, name).save())
    assert (await desk.do(lambda fw: fw.get_doc(ORDER, name))).docstatus == 0


async def test_hook_insert_of_its_own_object_inserts_no_second_document(
    desk: ShopSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    inserting = [True]

    def hook(doc: Any, fw: Any) -> None:
        if inserting.pop() if inserting else False:
            doc.insert()

    monkeypatch.setattr(desk.shop.Order, "validate", hook)
    with pytest.raises(ConflictError, match="has already been inserted"):
        await desk.do(order)
    assert await desk.do(lambda fw: fw.count(ORDER)) == 0


@pytest.mark.parametrize("act", [deletes_another, renames_another, deletes_itself])
async def test_hook_on_trash_cannot_remove_its_document_first(
    desk: ShopSite, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion that deletes nothing is refused: it would be an event a second time."""
    name = (await desk.do(order)).name
    monkeypatch.setattr(desk.shop.Order, "on_trash", acting_once(act))
    with pytest.raises(ConflictError, match="a hook has already written it"):
        await desk.do(lambda fw: fw.get_doc(ORDER, name).delete())
    assert await desk.do(lambda fw: fw.exists(ORDER, name)) == name


def rows_of_object(doc: Any) -> list[Any]:
    return [(row.item, row.name, row.parent, row.vault("token")) for row in doc.lines]


@pytest.mark.parametrize("inserted", [False, True])
async def test_hook_refusal_restores_rows_of_the_object(
    desk: ShopSite, inserted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused verb leaves the object unchanged (D-129), its list of rows and these included, so
    that it can be repeated."""

    def adds_a_row(doc: Any, fw: Any) -> None:
        doc.lines.append({"item": "added", "token": "of the added one"})
        doc.lines[0].item, doc.lines[0].token = "changed", "other"

    def refuses(doc: Any, fw: Any) -> None:
        raise ValidationError("Not yet.")

    def attempt(fw: Any) -> list[Any]:
        doc = fw.new_doc(ORDER, title="t", lines=[{"item": "i", "token": "first"}])
        if inserted:
            doc.insert()
        listed, before = doc.lines, rows_of_object(doc)
        with monkeypatch.context() as patched:
            patched.setattr(desk.shop.Order, "validate", adds_a_row)
            patched.setattr(desk.shop.Order, "on_update" if inserted else "on_insert", refuses)
            with pytest.raises(ValidationError, match="Not yet"):
                doc.save()
        assert doc.lines is listed
        assert rows_of_object(doc) == before
        monkeypatch.setattr(desk.shop.Order, "validate", adds_a_row)
        return rows_of_object(fw.get_doc(ORDER, doc.save().name))

    stored = await desk.do(attempt)
    assert [(item, token) for item, _, _, token in stored] == [
        ("changed", "other"),
        ("added", "of the added one"),
    ]


async def test_value_that_validate_writes_is_checked_before_the_next_hook(
    desk: ShopSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`before_save` sees the values of a document that obeys the rules (D-143)."""
    write = acting_once(lambda doc, fw: setattr(doc, "margin", "x"))
    monkeypatch.setattr(desk.shop.Order, "validate", write)
    name = await desk.do(lambda fw: order(fw).name)
    desk.shop.CALLED.clear()
    with pytest.raises(ValidationError) as refusal:
        await desk.do(lambda fw: fw.get_doc(ORDER, name).save())
    assert refusal.value.extra["field"] == "margin"
    assert "before_save" not in desk.shop.CALLED
