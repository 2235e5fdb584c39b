"""The operations of `/api/resource/…` inside a transaction (D-10 to D-19)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from fw_actors.documents import rest
from fw_actors.errors import (
    BadRequestError,
    ConflictError,
    DuplicateError,
    FwError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from tests.fw_actors.documents.conftest import ShopSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

ORDER = "Sales Order"


async def refused(desk: ShopSite, fn: Callable[[Any], Any], user: str = "Administrator") -> FwError:
    with pytest.raises(FwError) as refusal:
        await desk.do(fn, user)
    return refusal.value


async def test_rest_insert_returns_inserted_document(desk: ShopSite) -> None:
    body = {"title": "t", "lines": [{"item": "a"}], "doctype": ORDER}
    doc = await desk.do(lambda fw: rest.insert(fw, ORDER, body))
    assert (doc["name"], doc["docstatus"], doc["lines"][0]["item"]) == ("SO-00001", 0, "a")


async def test_rest_insert_submits_on_submit_true(desk: ShopSite) -> None:
    """`submit: true` beside the fields submits too (D-11)."""
    doc = await desk.do(lambda fw: rest.insert(fw, ORDER, {"title": "t", "submit": True}))
    assert doc["docstatus"] == 1
    draft = await desk.do(lambda fw: rest.insert(fw, ORDER, {"title": "t", "submit": False}))
    assert draft["docstatus"] == 0


async def test_rest_insert_checks_submit_permission_before_writing(desk: ShopSite) -> None:
    """`submit: true` needs create and submit (D-12)."""
    sam = await desk.add_account("Reader")
    body = {"title": "t", "submit": True}
    assert isinstance(
        await refused(desk, lambda fw: rest.insert(fw, ORDER, body), sam), PermissionDeniedError
    )
    assert desk.shop.CALLED == []


BAD_BODIES: list[tuple[dict[str, Any], str]] = [  # the body of an insert, the key to blame
    ({"title": "t", "colour": 1}, "colour"),
    ({"title": "t", "docstatus": 1}, "docstatus"),
    ({"title": "t", "owner": "me"}, "owner"),
    ({"title": "t", "creation": "2026-01-01T00:00:00Z"}, "creation"),
    ({"title": "t", "modified_by": "me"}, "modified_by"),
    ({"title": "t", "modified": "2026-01-01T00:00:00Z"}, "modified"),
    ({"title": "t", "idx": 1}, "idx"),
    ({"title": "t", "doctype": "Customer"}, "doctype"),
    ({"title": "t", "name": "SO-9"}, "name"),
    ({"title": "t", "name": 5}, "name"),
    ({"title": "t", "submit": 1}, "submit"),
    ({"title": "t", "number": 1}, "number"),  # read_only
    ({"title": 5}, "title"),
    ({"title": "two\nlines"}, "title"),
    ({"title": "t", "margin": "1"}, "margin"),
    ({"title": "t", "token": {"configured": False}}, "token"),
    ({"title": "t", "lines": {}}, "lines"),
    ({"title": "t", "lines": ["a"]}, "lines"),
    ({"title": "t", "lines": [{"item": "a", "colour": 1}]}, "colour"),
    ({"title": "t", "lines": [{"item": 5}]}, "item"),
    ({"title": "t", "lines": [{"item": "a", "name": 5}]}, "name"),
    ({"title": "t", "lines": [{"item": "a", "rate": "1"}]}, "rate"),
]


async def test_rest_insert_refuses_wrong_body_shape_and_names_key(desk: ShopSite) -> None:
    """A wrong shape is 400 with its key (H-12), as are `docstatus` and the like (D-93, D-94)."""
    for body, key in BAD_BODIES:
        refusal = await refused(desk, partial(rest.insert, doctype=ORDER, body=body))
        assert isinstance(refusal, BadRequestError), body
        assert refusal.extra["field"] == key
    assert desk.shop.CALLED == []


async def test_rest_insert_refusal_says_in_which_row_the_field_is(desk: ShopSite) -> None:
    """The position of the row is in the message and in `extra` (D-61)."""
    for row in ({"item": "b", "colour": 1}, {"item": 5}):
        body = {"title": "t", "lines": [{"item": "a"}, row]}
        refusal = await refused(desk, partial(rest.insert, doctype=ORDER, body=body))
        assert isinstance(refusal, BadRequestError)
        assert refusal.message.startswith("lines, row 2: ")
        assert (refusal.extra["table"], refusal.extra["row"]) == ("lines", 2)


async def test_rest_insert_refuses_name_with_line_break(desk: ShopSite) -> None:
    """Line breaks pass in Text and JSON fields only, and 400 names the key (D-64, H-12)."""
    for name in ("two\nlines", "a\ttab", "\r"):
        refusal = await refused(desk, partial(rest.insert, doctype="Box", body={"name": name}))
        assert isinstance(refusal, BadRequestError), name
        assert refusal.extra == {"field": "name"}


RULES: list[tuple[dict[str, Any], str]] = [
    ({}, "title"),
    ({"title": None}, "title"),
    ({"title": "x" * 141}, "title"),
    ({"title": "t", "customer": "nobody"}, "customer"),
    ({"title": "t", "lines": [{"item": None}]}, "item"),
]


async def test_rest_insert_reports_rule_violation_as_unprocessable(desk: ShopSite) -> None:
    """A value out of range and a missing required field are 422 (D-61)."""
    for body, key in RULES:
        refusal = await refused(desk, partial(rest.insert, doctype=ORDER, body=body))
        assert isinstance(refusal, ValidationError), body
        assert refusal.extra["field"] == key


async def made(desk: ShopSite, **body: Any) -> dict[str, Any]:
    return await desk.do(lambda fw: rest.insert(fw, ORDER, {"title": "t", **body}))


async def test_rest_save_changes_sent_fields_only(desk: ShopSite) -> None:
    """PUT changes the fields that are sent, and child rows as whole lists (D-14)."""
    await made(desk, remark="r", token="s", lines=[{"item": "a"}])
    doc = await desk.do(lambda fw: rest.save(fw, ORDER, "SO-00001", {"title": "other"}))
    assert (doc["title"], doc["remark"], doc["token"]) == ("other", "r", {"configured": True})
    assert len(doc["lines"]) == 1
    doc = await desk.do(lambda fw: rest.save(fw, ORDER, "SO-00001", {"lines": []}))
    assert doc["lines"] == []


async def test_rest_save_accepts_reordered_rows_of_read_document(desk: ShopSite) -> None:
    doc = await made(desk, token="s", lines=[{"item": "a", "token": "r"}, {"item": "b"}])
    rows = [doc["lines"][1], doc["lines"][0]]
    saved = await desk.do(lambda fw: rest.save(fw, ORDER, "SO-00001", {"lines": rows}))
    assert [row["item"] for row in saved["lines"]] == ["b", "a"]
    assert [row["name"] for row in saved["lines"]] == [row["name"] for row in rows]
    assert saved["lines"][1]["token"] == {"configured": True}


async def test_rest_save_accepts_same_name_and_refuses_other(desk: ShopSite) -> None:
    await made(desk)
    same = {"name": "SO-00001", "doctype": ORDER, "title": "x", "number": None}
    assert (await desk.do(lambda fw: rest.save(fw, ORDER, "SO-00001", same)))["title"] == "x"
    refusal = await refused(desk, lambda fw: rest.save(fw, ORDER, "SO-00001", {"name": "SO-2"}))
    assert isinstance(refusal, BadRequestError)


async def test_rest_save_with_stale_modified_is_refused(desk: ShopSite) -> None:
    """A save with `modified` is compared with the stored one; without it the save wins (D-120)."""
    old = (await made(desk))["modified"]
    await trio.sleep(1)
    newer = await desk.do(
        lambda fw: rest.save(fw, ORDER, "SO-00001", {"title": "a", "modified": old})
    )
    assert newer["modified"] != old
    stale = await refused(
        desk, lambda fw: rest.save(fw, ORDER, "SO-00001", {"title": "b", "modified": old})
    )
    assert isinstance(stale, ConflictError)
    await desk.do(lambda fw: rest.save(fw, ORDER, "SO-00001", {"title": "c"}))


@pytest.mark.parametrize("modified", ["yesterday", 5, None, ""])
async def test_rest_save_refuses_invalid_modified_time(desk: ShopSite, modified: Any) -> None:
    await made(desk)
    body = {"title": "x", "modified": modified}
    refusal = await refused(desk, lambda fw: rest.save(fw, ORDER, "SO-00001", body))
    assert isinstance(refusal, BadRequestError)


ACTS: dict[str, Callable[..., Any]] = {
    "submit": rest.submit,
    "cancel": rest.cancel,
    "rename": lambda fw, doctype, name, version: rest.rename(
        fw, doctype, name, {"name": "Other"}, version
    ),
    "delete": rest.delete,
}


@pytest.mark.parametrize("act", ACTS)
async def test_rest_act_on_stale_version_is_refused(desk: ShopSite, act: str) -> None:
    """The version is compared in the transaction that writes (D-120)."""
    old = await made(desk, submit=act == "cancel")
    newer = await desk.do(lambda fw: rest.save(fw, ORDER, "SO-00001", {"remark": "unseen"}))

    def carry_out(shown: dict[str, Any]) -> Callable[[Any], Any]:
        version = rest.version_of(shown["modified"])
        return lambda fw: ACTS[act](fw, ORDER, "SO-00001", version)

    refusal = await refused(desk, carry_out(old))
    assert isinstance(refusal, ConflictError)
    assert str(refusal) == "Sales Order SO-00001 was changed meanwhile; read it again."
    assert await desk.do(lambda fw: rest.read(fw, ORDER, "SO-00001")) == newer
    await desk.do(carry_out(newer))


async def test_rest_submit_cancel_and_delete_follow_document_states(desk: ShopSite) -> None:
    await made(desk)
    name = "SO-00001"
    assert (await desk.do(lambda fw: rest.submit(fw, ORDER, name)))["docstatus"] == 1
    assert isinstance(await refused(desk, lambda fw: rest.submit(fw, ORDER, name)), ConflictError)
    assert (await desk.do(lambda fw: rest.cancel(fw, ORDER, name)))["docstatus"] == 2
    assert await desk.do(lambda fw: rest.delete(fw, ORDER, name)) == {"ok": True}
    assert isinstance(await refused(desk, lambda fw: rest.read(fw, ORDER, name)), NotFoundError)


VERBS: list[tuple[str, Callable[[Any], Any]]] = [
    ("list", lambda fw: rest.list_documents(fw, ORDER, {})),
    ("read", lambda fw: rest.read(fw, ORDER, "SO-00001")),
    ("create", lambda fw: rest.insert(fw, ORDER, {"title": "t"})),
    ("write", lambda fw: rest.save(fw, ORDER, "SO-00001", {"title": "t"})),
    ("delete", lambda fw: rest.delete(fw, ORDER, "SO-00001")),
    ("submit", lambda fw: rest.submit(fw, ORDER, "SO-00001")),
    ("cancel", lambda fw: rest.cancel(fw, ORDER, "SO-00001")),
]


async def test_rest_verb_without_permission_hides_existence_of_name(desk: ShopSite) -> None:
    """Without the permission the answer is 403 (H-54), for missing names too (D-19)."""
    sam = await desk.add_account()
    for _ in range(2):
        for _, verb in VERBS:
            assert isinstance(await refused(desk, verb, sam), PermissionDeniedError)
        await made(desk)


async def test_rest_reader_may_only_read_and_list(desk: ShopSite) -> None:
    sam = await desk.add_account("Reader")
    await made(desk)
    for needed, verb in VERBS:
        if needed in ("list", "read"):
            await desk.do(verb, sam)
        else:
            assert isinstance(await refused(desk, verb, sam), PermissionDeniedError)


@pytest.mark.parametrize("doctype", ["Nothing", "sales order", "doc_sales_order", "", "x" * 500])
async def test_rest_list_reports_unknown_doctype_as_not_found(desk: ShopSite, doctype: str) -> None:
    refusal = await refused(desk, lambda fw: rest.list_documents(fw, doctype, {}))
    assert isinstance(refusal, NotFoundError)


async def test_rest_list_refuses_child_doctype(desk: ShopSite) -> None:
    refusal = await refused(desk, lambda fw: rest.list_documents(fw, "OrderLine", {}))
    assert isinstance(refusal, BadRequestError)


async def test_rest_read_omits_fields_above_permlevel(desk: ShopSite) -> None:
    """A field above one's permlevel is absent on read, 403 on a changed write (D-90)."""
    sam, boss = (
        await desk.add_account("Seller"),
        await desk.add_account("Seller", "Boss", name="bo"),
    )
    await made(desk, margin=1.5, lines=[{"item": "a", "cost": 2.5}])
    seen = await desk.do(lambda fw: rest.read(fw, ORDER, "SO-00001"), sam)
    assert ("margin" in seen, "cost" in seen["lines"][0]) == (False, False)
    full = await desk.do(lambda fw: rest.read(fw, ORDER, "SO-00001"), boss)
    assert (full["margin"], full["lines"][0]["cost"]) == (1.5, 2.5)


async def test_rest_save_refuses_changed_field_above_permlevel(desk: ShopSite) -> None:
    sam, boss = (
        await desk.add_account("Seller"),
        await desk.add_account("Seller", "Boss", name="bo"),
    )
    await made(desk, margin=1.5)

    def write(margin: float) -> Callable[[Any], Any]:
        return lambda fw: rest.save(fw, ORDER, "SO-00001", {"margin": margin, "title": "x"})

    for margin in (2.0, 1.5):  # the stored value too, so that it cannot be guessed (D-91)
        assert isinstance(await refused(desk, write(margin), sam), PermissionDeniedError)
    assert (await desk.do(write(2.0), boss))["margin"] == 2.0


async def test_rest_list_returns_data_and_total(desk: ShopSite) -> None:
    """A list has `data` and `total` (D-10), 20 rows by default and 500 at most (D-17)."""

    def fill(fw: Any) -> None:
        for _ in range(23):
            fw.new_doc(ORDER, title="t").insert()

    await desk.do(fill)
    pages: list[tuple[dict[str, Any], int]] = [
        ({}, 20), ({"limit": 500}, 23), ({"limit": 5, "start": 20}, 3), ({"start": 99}, 0),
        ({"limit": 1}, 1), ({"start": 23}, 0), ({"limit": 23}, 23),
    ]  # fmt: skip
    for listing, length in pages:
        page = await desk.do(partial(rest.list_documents, doctype=ORDER, listing=listing))
        assert (len(page["data"]), page["total"]) == (length, 23), listing


async def long_orders(desk: ShopSite, count: int) -> None:
    """Make orders with remarks of a million letters."""

    def fill(fw: Any) -> None:
        for number in range(count):
            fw.new_doc(ORDER, title=f"t{number % 3}", remark="r" * 1_000_000).insert()

    await desk.do(fill)


async def test_rest_list_refuses_oversized_answer_before_reading_texts(
    desk: ShopSite,
) -> None:
    """Without the limit, 500 rows with a megabyte of text would be half a gigabyte (D-18)."""
    await long_orders(desk, 9)
    given: list[Any] = []

    def list_all(fw: Any) -> None:
        rows = fw.tx.rows

        def noted(statement: Any, /, **params: Any) -> Any:
            found = rows(statement, **params)
            given.extend(value for row in found for value in row)
            return found

        fw.tx.rows = noted
        rest.list_documents(fw, ORDER, {"fields": ["name", "remark"]})

    error = await refused(desk, list_all)
    assert isinstance(error, ValidationError)
    assert error.extra == {"field": "limit"}
    assert error.message == (
        "These 9 rows have 9 MiB; a response has at most 8 MiB. Request fewer rows, or omit fields"
        " with long texts."
    )
    assert sum(len(value) for value in given if isinstance(value, str)) < 1000


async def test_rest_list_within_size_limit_keeps_order(desk: ShopSite) -> None:
    await long_orders(desk, 9)
    listing: dict[str, Any] = {"order_by": "title desc", "limit": 4, "start": 2}
    short = await desk.do(lambda fw: rest.list_documents(fw, ORDER, {**listing}))
    long = await desk.do(
        lambda fw: rest.list_documents(fw, ORDER, {**listing, "fields": ["name", "remark"]})
    )
    assert [row["name"] for row in long["data"]] == [row["name"] for row in short["data"]]
    assert [len(row["remark"]) for row in long["data"]] == [1_000_000] * 4
    assert long["total"] == 9
    everything = await desk.do(lambda fw: rest.list_documents(fw, ORDER, {"limit": 500}))
    assert len(everything["data"]) == 9  # without the remarks


async def test_rest_list_total_counts_matching_documents(desk: ShopSite) -> None:
    await made(desk)
    await made(desk, remark="x")
    listing = {"filters": [["remark", "=", "x"]], "limit": 1, "fields": ["name", "remark"]}
    page = await desk.do(lambda fw: rest.list_documents(fw, ORDER, listing))
    assert page == {"data": [{"name": "SO-00002", "remark": "x"}], "total": 1}


BAD_LISTINGS: list[tuple[dict[str, Any], str]] = [
    ({"limit": 0}, "limit"), ({"limit": 501}, "limit"), ({"limit": -1}, "limit"),
    ({"start": -1}, "start"), ({"filters": {"title": "t"}}, "filters"), ({"filters": 5}, "filters"),
    ({"fields": "name"}, "fields"), ({"fields": []}, "fields"), ({"fields": ["lines"]}, "lines"),
    ({"fields": ["token"]}, "token"), ({"order_by": "token"}, "token"),
    ({"order_by": ","}, "order_by"),
]  # fmt: skip


async def test_rest_list_refuses_invalid_argument_and_names_it(desk: ShopSite) -> None:
    for listing, key in BAD_LISTINGS:
        list_orders = partial(rest.list_documents, doctype=ORDER, listing=listing)
        refusal = await refused(desk, list_orders)
        assert isinstance(refusal, BadRequestError), listing
        assert refusal.extra == {"field": key}


async def test_rest_insert_reports_existing_name_as_duplicate(desk: ShopSite) -> None:
    await desk.do(lambda fw: rest.insert(fw, "Role", {"name": "Boss 2"}))
    refusal = await refused(desk, lambda fw: rest.insert(fw, "Role", {"name": "Boss 2"}))
    assert isinstance(refusal, DuplicateError)


async def test_rest_insert_refuses_webhook_delivery(desk: ShopSite) -> None:
    body: dict[str, Any] = {"status": "Sent"}
    refusal = await refused(desk, lambda fw: rest.insert(fw, "Webhook Delivery", body))
    assert isinstance(refusal, PermissionDeniedError)
