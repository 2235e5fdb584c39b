"""A document in Python (D-195, D-191)."""

from __future__ import annotations

from typing import Any

import pytest
from markupsafe import Markup

from fw_actors.documents.vault import UnreadableError
from fw_actors.errors import BadRequestError, ValidationError
from tests.fw_actors.documents.conftest import APPS, ShopSite
from tests.site_kit import database_of, inline_site

pytestmark = pytest.mark.usefixtures("on_both_stores")


def new(fw: Any, **fields: Any) -> Any:
    return fw.new_doc("Sales Order", **{"title": "t", **fields})


async def test_new_document_exposes_fields_with_defaults(desk: ShopSite) -> None:
    def work(fw: Any) -> tuple[Any, ...]:
        doc = fw.new_doc("Sample", count=3)
        return doc.doctype, doc.name, doc.count, doc.data, doc.done, doc.extra, doc.is_new()

    assert await desk.do(work) == ("Sample", None, 3, None, 1, {"a": []}, True)


async def test_mutable_default_is_copied_per_document(desk: ShopSite) -> None:
    def work(fw: Any) -> Any:
        fw.new_doc("Sample").extra["a"].append("mine")
        return fw.new_doc("Sample").extra

    assert await desk.do(work) == {"a": []}


async def test_child_rows_are_built_from_dicts(desk: ShopSite) -> None:
    """Child rows are objects in a list that are made from dicts (D-195)."""

    def work(fw: Any) -> tuple[Any, ...]:
        doc = new(fw, lines=[{"item": "a"}])
        doc.lines.append({"item": "b", "rate": 2})
        doc.insert()
        return tuple(
            (row.item, row.rate, row.idx, row.parent, row.parentfield) for row in doc.lines
        )

    name = "SO-00001"
    assert await desk.do(work) == (("a", 1.5, 1, name, "lines"), ("b", 2.0, 2, name, "lines"))


@pytest.mark.parametrize("rows", ["ab", 5, {"item": "a"}, [5], ["ab"], [None], [[]]])
async def test_table_field_refuses_non_list_of_rows(desk: ShopSite, rows: Any) -> None:
    def assign(fw: Any) -> None:
        doc = new(fw)
        doc.lines = rows
        doc.insert()

    for work in (assign, lambda fw: new(fw, lines=rows)):
        with pytest.raises(ValidationError) as refusal:
            await desk.do(work)
        assert refusal.value.extra == {"field": "lines"}


@pytest.mark.parametrize("key", ["colour", "owner", "creation", "_fw", "parent"])
async def test_new_doc_refuses_unknown_field_and_names_key(desk: ShopSite, key: str) -> None:
    with pytest.raises(BadRequestError) as refusal:
        await desk.do(lambda fw: new(fw, **{key: "x"}))
    assert refusal.value.extra == {"field": key}


async def test_document_as_dict_lists_standard_and_own_fields(desk: ShopSite) -> None:
    """A document has its standard fields and its own (D-50)."""
    shown = await desk.do(lambda fw: new(fw, lines=[{"item": "a"}]).insert().as_dict())
    row = shown.pop("lines")[0]
    now = "2027-01-15T08:00:00.000Z"
    assert shown == {
        "doctype": "Sales Order", "name": "SO-00001", "owner": "Administrator", "creation": now,
        "modified": now, "modified_by": "Administrator", "docstatus": 0, "idx": 0, "title": "t",
        "margin": None, "token": None, "remark": None, "customer": None, "number": None,
    }  # fmt: skip
    assert {key: row[key] for key in ("doctype", "idx", "parent", "parenttype", "parentfield")} == {
        "doctype": "OrderLine", "idx": 1, "parent": "SO-00001", "parenttype": "Sales Order",
        "parentfield": "lines",
    }  # fmt: skip


async def test_stored_document_reads_back_equal_values(desk: ShopSite) -> None:
    values = {
        "data": "d", "text": "t\nu", "count": 2**53, "ratio": 0.1, "done": 0, "day": "2026-01-02",
        "moment": "2026-01-02T03:04:05.678Z", "kind": "b", "extra": {"deep": [1, None, "x"]},
    }  # fmt: skip
    await desk.do(lambda fw: fw.new_doc("Sample", name="s", **values).insert())
    read = await desk.do(lambda fw: fw.get_doc("Sample", "s").as_dict())
    assert {key: read[key] for key in values} == values


async def test_document_takes_texts_of_subclasses(desk: ShopSite) -> None:
    """Values in Python are those of JSON, so that Versions and events can hold them (D-195)."""

    def change(fw: Any) -> Any:
        doc = fw.new_doc("Customer File", title=Markup("a<b"), rows=[{}]).insert()
        doc.title = Markup("c")
        doc.save()
        doc.rename(Markup("d"))
        return doc.as_dict()

    shown = await desk.do(change)
    assert {type(shown[name]) for name in ("name", "title")} == {str}
    assert type(shown["rows"][0]["parent"]) is str
    versions = await desk.do(lambda fw: fw.get_all("Version", {"docname": "d"}, ["data"]))
    changed = [version["data"]["changed"] for version in versions]
    assert {"title": ["a<b", "c"]} in changed
    assert {"name": ["a<b", "d"]} in changed


async def test_document_as_dict_hides_password_and_vault_values(desk: ShopSite) -> None:
    """A Password is blanked on every read (D-70), a Vault value never returned (D-73)."""
    values = {"pin": "1234", "token": "s3cret"}
    await desk.do(lambda fw: fw.new_doc("Sample", name="s", **values).insert())
    read = await desk.do(lambda fw: fw.get_doc("Sample", "s").as_dict())
    assert (read["pin"], read["token"]) == (None, {"configured": True})
    assert (await desk.do(lambda fw: fw.new_doc("Sample").as_dict()))["token"] is None


async def test_shown_vault_value_belongs_to_its_document(desk: ShopSite) -> None:
    """An app that changes the dict of one document must not change what others show."""

    def work(fw: Any) -> Any:
        first = new(fw, token="t").insert()
        for shown in (first.as_dict()["token"], first.token, fw.get_doc(*key(first)).token):
            shown.clear()
        return new(fw, token="t").insert().as_dict()["token"], fw.get_doc(*key(first)).token

    def key(doc: Any) -> tuple[str, str]:
        return doc.doctype, doc.name

    assert await desk.do(work) == ({"configured": True}, {"configured": True})


async def test_application_code_reads_password_and_opens_vault_field(desk: ShopSite) -> None:
    """A Password is plain text at rest (D-70); `doc.vault("token")` is for app code (D-77)."""

    def work(fw: Any) -> tuple[Any, ...]:
        doc = fw.new_doc("Sample", name="s", pin="1234", token="s3cret")
        before = doc.vault("token")
        doc.insert()
        stored = fw.get_doc("Sample", "s")
        return before, doc.vault("token"), stored.vault("token"), stored.pin

    assert await desk.do(work) == ("s3cret", "s3cret", "s3cret", "1234")


async def test_empty_vault_field_opens_to_none(desk: ShopSite) -> None:
    def work(fw: Any) -> tuple[Any, ...]:
        doc = fw.new_doc("Sample", name="s")
        return doc.vault("token"), doc.insert().vault("token")

    assert await desk.do(work) == (None, None)


KEEPING: list[tuple[dict[str, Any], str | None, str | None]] = [  # written, then pin, token
    ({}, "1234", "s3cret"),
    ({"pin": None, "token": None}, "1234", "s3cret"),
    ({"token": {"configured": True}}, "1234", "s3cret"),
    ({"pin": "", "token": ""}, "", None),
    ({"pin": "5678", "token": "other"}, "5678", "other"),
]


@pytest.mark.parametrize(("written", "pin", "token"), KEEPING)
async def test_secret_field_ignores_null_and_clears_on_empty_text(
    desk: ShopSite, written: dict[str, Any], pin: str, token: str | None
) -> None:
    """null leaves a secret, `""` empties it (D-71); `{"configured": true}` leaves it (D-74)."""

    def work(fw: Any) -> tuple[Any, ...]:
        fw.new_doc("Sample", name="s", pin="1234", token="s3cret").insert()
        doc = fw.get_doc("Sample", "s")
        for key, value in written.items():
            setattr(doc, key, value)
        doc.save()
        stored = fw.get_doc("Sample", "s")
        return stored.pin, stored.vault("token")

    assert await desk.do(work) == (pin, token)


@pytest.mark.parametrize("value", [{"configured": False}, {}, {"configured": True, "x": 1}, 5])
async def test_vault_field_refuses_non_text_value(desk: ShopSite, value: Any) -> None:
    with pytest.raises(ValidationError):
        await desk.do(lambda fw: fw.new_doc("Sample", token=value).insert())


async def test_configured_marker_sets_no_new_vault_value(desk: ShopSite) -> None:
    def work(fw: Any) -> Any:
        return (
            fw.new_doc("Sample", name="s", token={"configured": True}).insert().as_dict()["token"]
        )

    assert await desk.do(work) is None


async def test_secret_survives_save_through_reloaded_document(desk: ShopSite) -> None:
    def work(fw: Any) -> str:
        new(fw, token="s3cret", lines=[{"item": "a", "token": "row", "pin": "1"}]).insert()
        for _ in range(2):
            fw.get_doc("Sales Order", "SO-00001").save()
        doc = fw.get_doc("Sales Order", "SO-00001")
        return f"{doc.vault('token')} {doc.lines[0].vault('token')} {doc.lines[0].pin}"

    assert await desk.do(work) == "s3cret row 1"


async def test_keyless_site_refuses_vault_write_and_saves_other_fields(
    desk: ShopSite, tmp_path: Any
) -> None:
    """Writing or changing a Vault value needs FW_SECRET_KEY (D-76)."""
    await desk.do(lambda fw: fw.new_doc("Sample", name="s", token="s3cret").insert())
    same: dict[str, Any] = {"apps": ("shop",), "database": database_of(tmp_path)}

    def work(fw: Any) -> None:
        doc = fw.get_doc("Sample", "s")
        doc.data = "changed"
        doc.save()
        with pytest.raises(UnreadableError):
            doc.vault("token")
        doc.token = "new"
        with pytest.raises(ValidationError) as refusal:
            doc.save()
        assert refusal.value.extra == {"field": "token"}

    async with inline_site(APPS, secrets={}, **same) as keyless:
        await keyless.write("Administrator", work)
    kept = await desk.do(lambda fw: fw.get_doc("Sample", "s"))
    assert (kept.data, kept.vault("token")) == ("changed", "s3cret")
