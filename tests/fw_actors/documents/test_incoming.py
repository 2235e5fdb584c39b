"""The fields that a caller may write: permlevel, read_only, rows as whole lists (D-90, D-92,
D-14)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.documents import rest
from fw_actors.errors import BadRequestError, PermissionDeniedError
from tests.fw_actors.documents.conftest import ShopSite

ORDER = "Sales Order"
NAME = "SO-00001"


@pytest.fixture
async def order(desk: ShopSite) -> ShopSite:
    """An order whose row has what a seller may not write: cost (permlevel 1), batch, secrets."""
    await desk.add_account("Seller")

    def make(fw: Any) -> None:
        row = {"item": "a", "rate": 2, "cost": 3.5, "token": "t", "pin": "p", "batch": "B1"}
        fw.new_doc(ORDER, title="t", margin=1.5, number=7, lines=[row, {"item": "b"}]).insert()

    await desk.do(make)
    return desk


async def rows(desk: ShopSite) -> list[dict[str, Any]]:
    shown = await desk.do(lambda fw: rest.read(fw, ORDER, NAME))
    found: list[dict[str, Any]] = shown["lines"]
    return found


async def save(desk: ShopSite, body: dict[str, Any], user: str = "sam") -> dict[str, Any]:
    return await desk.do(lambda fw: rest.save(fw, ORDER, NAME, body), user)


async def test_row_resent_by_caller_keeps_unseen_fields(order: ShopSite) -> None:
    seen = (await order.do(lambda fw: rest.read(fw, ORDER, NAME), "sam"))["lines"]
    assert "cost" not in seen[0]
    await save(order, {"lines": [{**seen[0], "item": "z"}, seen[1]]})
    first = (await rows(order))[0]
    assert (first["item"], first["cost"], first["batch"]) == ("z", 3.5, "B1")
    doc = await order.do(lambda fw: fw.get_doc(ORDER, NAME))
    assert (doc.lines[0].vault("token"), doc.lines[0].pin) == ("t", "p")


async def test_row_sent_twice_copies_no_unseen_field(order: ShopSite) -> None:
    """The second one is a new row (D-95), whose unseen fields its writer may not set (D-90)."""
    first = (await order.do(lambda fw: rest.read(fw, ORDER, NAME), "sam"))["lines"][0]
    await save(order, {"lines": [first, first]})
    assert [(row["cost"], row["batch"]) for row in await rows(order)] == [(3.5, "B1"), (None, None)]


async def test_omitted_writable_row_field_takes_default(order: ShopSite) -> None:
    """Child rows are sent as whole lists (D-14)."""
    first = (await rows(order))[0]
    await save(order, {"lines": [{"name": first["name"], "item": "a"}]})
    assert (await rows(order))[0]["rate"] == 1.5


async def test_unwritable_field_is_accepted_unchanged(order: ShopSite) -> None:
    """From a caller who may read it (D-91)."""
    auditor = await order.add_account("Seller", "Auditor", name="auditor")
    body = await order.do(lambda fw: rest.read(fw, ORDER, NAME), auditor)
    assert (body["margin"], body["number"], body["lines"][0]["cost"]) == (1.5, 7, 3.5)
    sent = {key: body[key] for key in ("margin", "number", "lines")}
    assert (await save(order, sent, auditor))["lines"] == body["lines"]
    with pytest.raises(PermissionDeniedError):
        await save(order, {"margin": 2.5}, auditor)


async def test_unreadable_table_row_field_does_not_change_its_table(order: ShopSite) -> None:
    """A read_only table is unchanged for a caller who may not read all of its rows' fields."""

    def make(fw: Any) -> str:
        return str(fw.new_doc("Ledger", entries=[{"amount": 1, "secret_rate": 2}]).insert().name)

    name = await order.do(make)
    seen = await order.do(lambda fw: rest.read(fw, "Ledger", name), "sam")
    assert "secret_rate" not in seen["entries"][0]
    body = {"entries": seen["entries"], "note": "n"}
    await order.do(lambda fw: rest.save(fw, "Ledger", name, body), "sam")
    kept = await order.do(lambda fw: rest.read(fw, "Ledger", name))
    assert (kept["note"], kept["entries"][0]["secret_rate"]) == ("n", 2)


# 1.5 and 3.5 are the stored values, which a caller must not be able to guess (D-91).
@pytest.mark.parametrize("value", [1.5, 3.5, 4.5, None, "x"])
async def test_changed_field_above_permlevel_is_denied_including_rows(
    order: ShopSite, value: Any
) -> None:
    """A changed write above the permlevel is 403, in rows too (D-90)."""
    first, second = await rows(order)
    for body in (
        {"margin": value},
        {"lines": [{**first, "cost": value}, second]},
        {"lines": [{"item": "new", "cost": 1.0}]},
    ):
        with pytest.raises(PermissionDeniedError):
            await save(order, body)
    assert (await rows(order))[0]["cost"] == 3.5


async def test_changed_read_only_field_is_bad_request_including_rows(order: ShopSite) -> None:
    """A `read_only` field in a body is 400 unless unchanged, in rows too (D-92)."""
    first, second = await rows(order)
    for body, field in (
        ({"number": 8}, "number"),
        ({"lines": [{**first, "batch": "B2"}, second]}, "batch"),
        ({"lines": [first, {"item": "new", "batch": "B1"}]}, "batch"),
    ):
        with pytest.raises(BadRequestError) as refusal:
            await save(order, body, "Administrator")
        assert refusal.value.extra["field"] == field


async def test_insert_accepts_unwritable_field_equal_to_default(order: ShopSite) -> None:
    body = {"title": "t", "margin": None, "number": None, "lines": [{"item": "a", "cost": None}]}
    assert await order.do(lambda fw: rest.insert(fw, ORDER, body), "sam")
    for changed in ({"margin": 1.0}, {"lines": [{"item": "a", "cost": 1.0}]}):
        with pytest.raises(PermissionDeniedError):
            await order.do(lambda fw, b=changed: rest.insert(fw, ORDER, {**body, **b}), "sam")  # type: ignore[misc]


async def test_permlevel_grant_allows_write_including_rows(order: ShopSite) -> None:
    boss = await order.add_account("Seller", "Boss", name="boss")
    first, second = await rows(order)
    shown = await save(order, {"margin": 2, "lines": [{**first, "cost": 9}, second]}, boss)
    assert (shown["margin"], shown["lines"][0]["cost"]) == (2.0, 9.0)


async def test_get_all_skips_permlevels_and_get_list_enforces_them(order: ShopSite) -> None:
    """`get_all` skips permlevels (D-192); fields above one's own are 400 in a list (D-34)."""

    def work(fw: Any) -> Any:
        with pytest.raises(BadRequestError):
            fw.get_list(ORDER, fields=["margin"])
        with pytest.raises(BadRequestError):
            fw.get_list(ORDER, [["margin", ">", 1]])
        return fw.get_all(ORDER, [["margin", ">", 1]], ["margin"]), fw.get_value(
            ORDER, NAME, "margin"
        )

    assert await order.do(work, "sam") == ([{"margin": 1.5}], 1.5)
