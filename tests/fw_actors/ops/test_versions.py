"""Versions: which fields changed, by whom, in which request (D-223)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fw_actors.documents import rest
from fw_actors.errors import PermissionDeniedError, ValidationError
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

ORDER = "Sales Order"
NAME = "SO-00001"


@pytest.fixture
async def order(site: VirtualSite) -> VirtualSite:
    """An order with two rows, as it was inserted."""
    lines = [{"item": "a", "rate": 1}, {"item": "b", "rate": 2}]
    await site.do(lambda fw: rest.insert(fw, ORDER, {"title": "t", "lines": lines}))
    return site


async def versions(site: VirtualSite) -> list[dict[str, Any]]:
    def read(fw: Any) -> list[dict[str, Any]]:
        fields = ["ref_doctype", "docname", "data", "request_id", "owner"]
        return list(fw.get_all("Version", fields=fields, order_by="creation, name"))

    return await site.site.read("Administrator", read)


async def changed(site: VirtualSite, fn: Callable[[Any], Any]) -> dict[str, Any]:
    """Run `fn`; the data of the one Version that it made."""
    await site.do(fn)
    (version,) = await versions(site)
    data: dict[str, Any] = version["data"]
    return data


async def test_version_records_fields_owner_and_request_of_a_save(order: VirtualSite) -> None:
    await order.add_account("ada", "System Manager", password=None)
    values = {"title": "u", "margin": 1.5}
    await order.site.write("ada", lambda fw: rest.save(fw, ORDER, NAME, values), "request-1")
    (version,) = await versions(order)
    assert version == {
        "ref_doctype": ORDER, "docname": NAME, "owner": "ada", "request_id": "request-1",
        "data": {"changed": {"title": ["t", "u"], "margin": [None, 1.5]}, "rows": []},
    }  # fmt: skip


async def test_version_is_not_made_by_insert_or_unchanged_save(order: VirtualSite) -> None:
    await order.do(lambda fw: rest.save(fw, ORDER, NAME, {"title": "t"}))
    assert await versions(order) == []


async def test_version_records_submit_and_cancel_as_docstatus(order: VirtualSite) -> None:
    def work(fw: Any) -> None:
        fw.get_doc(ORDER, NAME).submit().cancel()

    await order.do(work)
    result = [version["data"] for version in await versions(order)]
    assert sorted(result, key=str) == [
        {"changed": {"docstatus": [0, 1]}, "rows": []},
        {"changed": {"docstatus": [1, 2]}, "rows": []},
    ]


async def test_version_records_added_changed_and_removed_rows(order: VirtualSite) -> None:
    kept = (await order.sql("SELECT name FROM doc_orderline WHERE item = 'a'"))[0][0]
    gone = (await order.sql("SELECT name FROM doc_orderline WHERE item = 'b'"))[0][0]
    lines = [{"item": "new", "rate": 5}, {"name": kept, "item": "a", "rate": 9}]
    data = await changed(order, lambda fw: rest.save(fw, ORDER, NAME, {"lines": lines}))
    added = (await order.sql("SELECT name FROM doc_orderline WHERE item = 'new'"))[0][0]
    assert data["changed"] == {}
    assert sorted(data["rows"], key=lambda row: str(row["change"])) == [
        {"table": "lines", "row": added, "change": "added",
         "changed": {"item": [None, "new"], "rate": [None, 5.0]}},
        {"table": "lines", "row": kept, "change": "changed",
         "changed": {"rate": [1.0, 9.0], "idx": [1, 2]}},
        {"table": "lines", "row": gone, "change": "removed",
         "changed": {"item": ["b", None], "rate": [2.0, None]}},
    ]  # fmt: skip


async def test_version_contains_no_secret(order: VirtualSite) -> None:
    """A secret is absent from Versions (D-223, D-70)."""
    kept = (await order.sql("SELECT name FROM doc_orderline WHERE item = 'a'"))[0][0]
    secrets = {"token": "s-vault", "pin": "s-pin", "line_secret": "s-name"}
    body = {"token": "s-top", "lines": [{"name": kept, "item": "a", "rate": 1, **secrets}]}
    data = await changed(order, lambda fw: rest.save(fw, ORDER, NAME, body))
    text = json.dumps(data)
    assert not [word for word in ("s-", "token", "pin", "line_secret", "v1:") if word in text]
    assert {"table": "lines", "row": kept, "change": "changed", "changed": {}} in data["rows"]


async def test_version_contains_no_secret_of_added_or_removed_rows(order: VirtualSite) -> None:
    """A secret is absent from Versions (D-223, D-70), also where a row comes or goes with it."""
    secrets = {"token": "s-vault", "pin": "s-pin", "line_secret": "s-name"}
    line = {"item": "with secrets", "rate": 1}
    await changed(order, lambda fw: rest.save(fw, ORDER, NAME, {"lines": [{**line, **secrets}]}))
    await order.do(lambda fw: rest.save(fw, ORDER, NAME, {"lines": [{"item": "other"}]}))
    rows = [row for version in await versions(order) for row in version["data"]["rows"]]
    result = [row for row in rows if "with secrets" in row["changed"]["item"]]
    assert sorted(row["change"] for row in result) == ["added", "removed"]
    assert [sorted(row["changed"]) for row in result] == [["item", "rate"]] * 2
    assert "s-" not in json.dumps(rows)


async def test_version_of_a_changed_secret_names_no_field(
    site: VirtualSite,
) -> None:
    await site.do(lambda fw: rest.insert(fw, "Sample", {"name": "s", "pin": "one"}))
    save = rest.save
    data = await changed(site, lambda fw: save(fw, "Sample", "s", {"pin": "two"}))
    assert data == {"changed": {}, "rows": []}


async def test_version_records_a_field_written_by_db_set(order: VirtualSite) -> None:
    data = await changed(order, lambda fw: fw.get_doc(ORDER, NAME).db_set("title", "u"))
    assert data == {"changed": {"title": ["t", "u"]}, "rows": []}


async def test_version_records_a_rename_and_follows_it(order: VirtualSite) -> None:
    def work(fw: Any) -> None:
        doc = fw.get_doc(ORDER, NAME)
        doc.title = "u"
        doc.save().rename("First")

    await order.do(work)
    found = await versions(order)
    assert [version["docname"] for version in found] == ["First", "First"]
    renamed = {"changed": {"name": [NAME, "First"]}, "rows": []}
    assert renamed in [version["data"] for version in found]


async def test_version_is_not_made_by_a_refused_write(order: VirtualSite) -> None:
    with pytest.raises(ValidationError):
        await order.do(lambda fw: rest.save(fw, ORDER, NAME, {"title": "refuse"}))
    assert await versions(order) == []


async def test_version_and_error_log_cannot_be_inserted(site: VirtualSite) -> None:
    for doctype in ("Version", "Error Log"):
        with pytest.raises(PermissionDeniedError, match="only be written by the service"):
            await site.do(lambda fw, d=doctype: rest.insert(fw, d, {}))  # type: ignore[misc]


async def test_version_is_complete_if_a_hook_saves_again(
    order: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes of the outer save were in neither of the two Versions (D-223)."""

    def remark(doc: Any, fw: Any) -> None:
        if doc.remark is None:
            doc.remark = "r"
            doc.save()

    meta = (await order.do(lambda fw: fw.get_doc(ORDER, NAME))).meta
    monkeypatch.setattr(meta.cls, "on_update", remark)
    await order.do(lambda fw: rest.save(fw, ORDER, NAME, {"title": "u"}))
    changes = [version["data"]["changed"] for version in await versions(order)]
    assert {"remark": [None, "r"]} in changes
    assert {"title": ["t", "u"], "remark": [None, "r"]} in changes
