"""A submitted document may still change in `allow_on_submit` fields only (D-123)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.documents import rest
from fw_actors.errors import BadRequestError, ValidationError
from tests.fw_actors.documents.conftest import ShopSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

ORDER = "Sales Order"
NAME = "SO-00001"


@pytest.fixture
async def order(desk: ShopSite) -> ShopSite:
    """A submitted order with two rows, a and b."""
    lines = [{"item": "a", "token": "t"}, {"item": "b"}]
    body = {"title": "t", "lines": lines, "submit": True}
    await desk.do(lambda fw: rest.insert(fw, ORDER, body))
    desk.shop.CALLED.clear()
    return desk


async def save(desk: ShopSite, **values: Any) -> dict[str, Any]:
    return await desk.do(lambda fw: rest.save(fw, ORDER, NAME, values))


async def rows(desk: ShopSite) -> list[dict[str, Any]]:
    shown = await desk.do(lambda fw: rest.read(fw, ORDER, NAME))
    return [{k: row[k] for k in ("name", "item", "note")} for row in shown["lines"]]


async def test_submitted_document_accepts_allow_on_submit_values_including_rows(
    order: ShopSite,
) -> None:
    first, second = await rows(order)
    shown = await save(order, remark="r", lines=[{**first, "note": "n"}, second])
    assert (shown["remark"], shown["docstatus"]) == ("r", 1)
    assert [row["note"] for row in await rows(order)] == ["n", None]
    assert order.shop.CALLED[-1] == "on_update"


async def test_submitted_document_refuses_change_of_other_fields(order: ShopSite) -> None:
    first, second = await rows(order)
    for values, field in (
        ({"title": "u"}, "title"),
        ({"margin": 1.0}, "margin"),
        ({"token": "new"}, "token"),
        ({"lines": [first]}, "lines"),
        ({"lines": [first, second, {"item": "c"}]}, "lines"),
        ({"lines": [second, first]}, "lines"),
        ({"lines": [{"item": "a"}, {"item": "b"}]}, "lines"),
        ({"lines": [{**first, "item": "z"}, second]}, "item"),
        ({"lines": [{**first, "token": "new"}, second]}, "token"),
    ):
        with pytest.raises(ValidationError) as refusal:
            await save(order, **values)
        assert refusal.value.extra["field"] == field, values
    assert order.shop.CALLED == []


async def test_hook_change_of_submitted_document_is_refused(order: ShopSite) -> None:
    with pytest.raises(ValidationError) as refusal:
        await save(order, remark="change the title in validate")
    assert refusal.value.extra == {"field": "title"}


async def test_submitted_document_saved_unchanged_runs_no_hook(order: ShopSite) -> None:
    """A submitted document saved without a change is no event; a draft is (B-60)."""
    shown = await order.do(lambda fw: rest.read(fw, ORDER, NAME))
    kept = {"title": "t", "token": {"configured": True}, "lines": shown["lines"]}
    after = await save(order, **kept)
    assert (after["modified"], order.shop.CALLED) == (shown["modified"], [])


async def test_submitted_json_field_distinguishes_true_and_1(desk: ShopSite) -> None:
    """Equality is that of JSON, so true and 1 differ (D-59); Python's would answer a value that was
    not written."""
    body = {"extra": {"a": 1}, "submit": True}
    name = (await desk.do(lambda fw: rest.insert(fw, "Paper", body)))["name"]
    for value in (True, 1):
        await desk.do(lambda fw, v=value: rest.save(fw, "Paper", name, {"extra": {"a": v}}))  # type: ignore[misc]
        shown = await desk.do(lambda fw: rest.read(fw, "Paper", name))
        assert shown["extra"]["a"] is value
    with pytest.raises(ValidationError):
        await desk.do(lambda fw: rest.save(fw, "Paper", name, {"fixed": False}))


async def test_submitted_table_accepts_change_of_one_row(desk: ShopSite) -> None:
    """The others are as they were; the document has changed (D-123)."""
    body = {"notes": [{"amount": 1}, {"amount": 2}], "submit": True}
    before = await desk.do(lambda fw: rest.insert(fw, "Paper", body))
    first, second = before["notes"]
    changed = [{**first, "amount": 3}, second]
    await desk.do(lambda fw: rest.save(fw, "Paper", before["name"], {"notes": changed}))
    shown = await desk.do(lambda fw: rest.read(fw, "Paper", before["name"]))
    assert [row["amount"] for row in shown["notes"]] == [3, 2]


async def test_read_only_json_field_refuses_true_for_1(desk: ShopSite) -> None:
    """A `read_only` field in a body is 400 unless unchanged (D-92)."""
    name = (await desk.do(lambda fw: rest.insert(fw, "Paper", {"sealed": 1})))["name"]
    with pytest.raises(BadRequestError):
        await desk.do(lambda fw: rest.save(fw, "Paper", name, {"sealed": True}))
