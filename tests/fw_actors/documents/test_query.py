"""Filters and order of lists (D-30 to D-37)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from fw_actors.documents import query, rest
from fw_actors.errors import BadRequestError
from tests.fw_actors.documents.conftest import ShopSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

ROWS: list[dict[str, Any]] = [
    {"name": "a", "data": "Apple", "count": 1, "done": 0, "day": "2026-01-01", "ratio": 0.5},
    {"name": "b", "data": "banana", "count": 2, "day": "2026-02-01",
     "moment": "2026-02-01T00:00:00Z"},
    {"name": "c", "data": "Äpfel", "count": 3},
    {"name": "d", "data": "50%_\\", "count": None},
    {"name": "e", "data": None, "count": 10},
]  # fmt: skip


@pytest.fixture
async def shelf(desk: ShopSite) -> ShopSite:
    def fill(fw: Any) -> None:
        for row in ROWS:
            fw.new_doc("Sample", **row).insert()

    await desk.do(fill)
    return desk


async def names(desk: ShopSite, filters: Any, order_by: Any = "name") -> str:
    found = await desk.do(lambda fw: fw.get_all("Sample", filters, ["name"], order_by))
    return "".join(row["name"] for row in found)


FILTERS: list[tuple[Any, str]] = [
    ([], "abcde"),
    ([["count", "=", 2]], "b"),
    ([["count", "!=", 2]], "ace"),  # leaves null out
    ([["count", "<", 2]], "a"),
    ([["count", "<=", 2]], "ab"),
    ([["count", ">", 2]], "ce"),
    ([["count", ">=", 3]], "ce"),
    ([["count", "in", [1, 3, 99]]], "ac"),
    ([["count", "in", []]], ""),
    ([["count", "not in", [1, 3]]], "be"),
    ([["count", "not in", []]], "abcde"),
    ([["count", "between", [2, 3]]], "bc"),
    ([["count", "is null"]], "d"),
    ([["count", "is null", True]], "d"),
    ([["count", "is null", None]], "d"),
    ([["count", "is null", False]], "abce"),
    ([["count", "is null", 0]], "abce"),
    ([["count", "=", None]], "d"),
    ([["count", "!=", None]], "abce"),
    ([["data", "like", "a%"]], "a"),
    ([["data", "like", "A%"]], "a"),
    ([["data", "like", "%AN%"]], "b"),
    ([["data", "like", "Ä%"]], "c"),
    ([["data", "like", "ä%"]], ""),  # ASCII case alone is ignored
    ([["data", "like", "_anana"]], "b"),
    ([["data", "like", "50\\%\\_\\\\"]], "d"),
    ([["data", "like", "\\%"]], ""),
    ([["name", "like", "A"]], "a"),
    ([["day", ">", "2026-01-15"]], "b"),
    ([["moment", "=", "2026-02-01T01:00:00+01:00"]], "b"),
    ([["done", "=", False]], "a"),
    ([["done", "=", 1]], "bcde"),
    ([["creation", "=", "2027-01-15T08:00:00Z"]], "abcde"),
    ([["docstatus", "=", 0], ["count", ">", 1], ["data", "!=", "banana"]], "c"),
    ({"count": 2, "data": "banana"}, "b"),
    ({"count": None}, "d"),
    ([("count", "=", 2)], "b"),
    ([["data", "=", "' OR 1=1"]], ""),
]


async def test_filter_operators_return_matching_rows(shelf: ShopSite) -> None:
    """Each operator of a filter (D-30)."""
    found = [(filters, await names(shelf, filters)) for filters, _ in FILTERS]
    assert found == FILTERS


BAD_FILTERS: list[Any] = [
    [["count"]], [["count", "="]], [["count", "=", 1, 2]], ["count", "=", 1], ["count"], [5],
    [["count", [], 1]], [["count", {}, 1]], [[{}, "=", 1]],
    [["count", "==", 1]], [["count", "LIKE", "x"]], [["count", "=", "1"]], [["count", "=", True]],
    [["count", "is null", "false"]], [["count", "is null", 2]], [["count", "is null", []]],
    [["count", "=", 2**53 + 1]], [["count", "in", 1]], [["count", "in", "12"]],
    [["count", "between", [1]]], [["count", "between", [1, 2, 3]]], [["data", "like", 5]],
    [["count", "like", "1%"]], [["moment", "like", "2026%"]], [["data", "like", "x\\"]],
    [["count", "<", None]], [["data", "like", None]], [["count", "in", [1, None]]],
    [["day", ">", "yesterday"]], [["kind", "=", "c"]], [["name", "=", 5]],
    [["nothing", "=", 1]], [["name; DROP TABLE", "=", 1]], [[5, "=", 1]], [[None, "=", 1]],
    [["pin", "=", "1234"]], [["token", "is null"]], {"token": "x"}, {"lines": 1},
    "name", 5, None, [["name", "=", "nul \0"]], [["owner", "in", ["half \ud800"]]],
    [["name", "like", "half \ud800"]], [["data", "like", "%" * 1001]],
    [["idx", "=", 0]] * 101, [["idx", "in", [0] * 30_001]],
    [[["idx"] * 20, "in", [0] * 1_501]], [[["idx", "count"], "not in", [0] * 7_501]] * 2,
]  # fmt: skip


async def test_invalid_filter_is_a_bad_request(shelf: ShopSite) -> None:
    """Password and Vault fields are neither filtered nor sorted by (D-33, D-34, D-36)."""
    for filters in BAD_FILTERS:
        with pytest.raises(BadRequestError):
            pytest.fail(f"{filters} found {await names(shelf, filters)}")


async def test_refused_range_states_the_number_of_values(shelf: ShopSite) -> None:
    """`between` takes a list of two values (D-30); a list of one is a list too."""
    with pytest.raises(BadRequestError, match=r"^between must have a list of two values"):
        await names(shelf, [["count", "between", [1]]])


async def test_refused_null_states_its_operators(shelf: ShopSite) -> None:
    """D-36: it named only `is null`, although `=` and `!=` take null too."""
    with pytest.raises(BadRequestError, match=r'^null must be compared with =, != or "is null"'):
        await names(shelf, [["count", "<", None]])


async def test_filter_value_of_wrong_type_names_column(desk: ShopSite) -> None:
    """A value of a wrong type is 400 with the key's name (H-18, D-61)."""
    for column in ("creation", "modified", "docstatus", "idx"):
        with pytest.raises(BadRequestError, match=f"^{column} must be"):
            await names(desk, [[column, "=", []]])


ORDERS = [
    ("name", "abcde"),
    ("name desc", "edcba"),
    ("count", "dabce"),  # null sorts first ascending
    ("count desc", "ecbad"),  # and last descending
    ("data", "edabc"),  # by code point: 5 < A < b < Ä
    ("done asc, name desc", "aedcb"),
    ("done, count desc", "aecbd"),
    ("creation desc", "edcba"),  # ties by name
    ("done desc, name", "bcdea"),
]


async def test_list_order_sorts_null_first_ascending(shelf: ShopSite) -> None:
    """null sorts first ascending, text sorts by code point (D-35)."""
    assert [(order, await names(shelf, [], order)) for order, _ in ORDERS] == ORDERS


BAD_ORDERS: list[Any] = [
    "COUNT desc", "nothing", "name up", "name asc desc", ",", "name,", "name; --", "1", "pin",
    "token desc", "(select 1)", "lines", 5, ["name"],
]  # fmt: skip


async def test_invalid_order_by_is_a_bad_request(shelf: ShopSite) -> None:
    for order_by in BAD_ORDERS:
        with pytest.raises(BadRequestError):
            pytest.fail(f"{order_by} gave {await names(shelf, [], order_by)}")


BAD_PAGES: list[dict[str, Any]] = [
    {"limit": -1}, {"limit": "5"}, {"limit": True}, {"limit": 2**70}, {"start": -1},
    {"start": 1.0}, {"fields": "name"}, {"fields": [5]},
]  # fmt: skip


async def test_invalid_page_is_a_bad_request(shelf: ShopSite) -> None:
    for page in BAD_PAGES:
        with pytest.raises(BadRequestError):
            pytest.fail(f"{page} gave {await shelf.do(partial(get_samples, **page))}")


def get_samples(fw: Any, **page: Any) -> Any:
    return fw.get_list("Sample", **page)


async def test_list_default_order_is_newest_first(desk: ShopSite) -> None:
    """The default order is `creation desc` (D-32)."""

    def put(fw: Any, name: str) -> None:
        fw.new_doc("Sample", name=name).insert()

    for name in "abc":
        await desk.do(partial(put, name=name))
        await trio.sleep(1)
    assert [row["name"] for row in await desk.do(lambda fw: fw.get_all("Sample"))] == list("cba")


async def test_list_pages_neither_repeat_nor_skip_rows(shelf: ShopSite) -> None:
    def pages(fw: Any) -> list[str]:
        found = []
        for start in range(0, 6, 2):
            found += fw.get_list("Sample", fields=["name"], limit=2, start=start)
        return [row["name"] for row in found]

    assert sorted(await shelf.do(pages)) == list("abcde")


async def test_list_rows_show_fields_in_document_form(shelf: ShopSite) -> None:
    fields = ["moment", "day", "count", "creation", "extra", "done"]
    row = (await shelf.do(lambda fw: fw.get_all("Sample", {"name": "b"}, fields)))[0]
    assert row == {
        "moment": "2026-02-01T00:00:00.000Z", "day": "2026-02-01", "count": 2, "done": 1,
        "creation": "2027-01-15T08:00:00.000Z", "extra": {"a": []},
    }  # fmt: skip


async def test_list_default_fields_are_standard_fields(shelf: ShopSite) -> None:
    """The default fields are the name and the standard fields (D-31)."""
    row = (await shelf.do(lambda fw: fw.get_all("Sample", {"name": "b"})))[0]
    assert sorted(row) == [
        "creation", "docstatus", "idx", "modified", "modified_by", "name", "owner",
    ]  # fmt: skip


async def test_list_refuses_secret_or_unknown_field(shelf: ShopSite) -> None:
    for field in ("pin", "token", "nothing", "*", 5, "count(*)"):
        with pytest.raises(BadRequestError):
            await shelf.do(partial(listed, fields=[field]))


def listed(fw: Any, doctype: str = "Sample", **arguments: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = fw.get_list(doctype, **arguments)
    return rows


async def test_list_refuses_field_above_permlevel_in_any_argument(
    desk: ShopSite,
) -> None:
    """Fields above one's permlevel are neither filtered nor sorted by: 400 (D-34)."""
    sam = await desk.add_account("Seller")
    ways: list[dict[str, Any]] = [
        {"fields": ["margin"]}, {"filters": {"margin": 1}}, {"order_by": "margin"},
    ]  # fmt: skip
    for way in ways:
        with pytest.raises(BadRequestError):
            await desk.do(partial(listed, doctype="Sales Order", **way), sam)
        await desk.do(partial(listed, doctype="Sales Order", **way))


async def test_child_rows_are_filtered_by_parent(desk: ShopSite) -> None:
    def work(fw: Any) -> Any:
        fw.new_doc("Sales Order", title="t", lines=[{"item": "a"}, {"item": "b"}]).insert()
        fw.new_doc("Sales Order", title="t", lines=[{"item": "c"}]).insert()
        return fw.get_all("OrderLine", {"parent": "SO-00001"}, ["item", "parentfield"], "idx")

    found = await desk.do(work)
    assert [(row["item"], row["parentfield"]) for row in found] == [("a", "lines"), ("b", "lines")]


async def test_parent_filter_is_refused_for_non_child_doctype(shelf: ShopSite) -> None:
    with pytest.raises(BadRequestError):
        await names(shelf, {"parent": "x"})


async def test_count_returns_number_of_matching_rows(shelf: ShopSite) -> None:
    assert await shelf.do(lambda fw: fw.count("Sample", [["count", ">", 1]])) == 3


@pytest.mark.parametrize("fields", ["name", [["name"]], [{}], [None], 7, {"name": 1}])
async def test_list_refuses_fields_not_a_list_of_names(desk: ShopSite, fields: Any) -> None:
    """`fields` is a JSON list (D-31)."""
    with pytest.raises(BadRequestError, match="list of names"):
        await desk.do(lambda fw: fw.get_all("Sample", fields=fields))
    listing = {"fields": fields}
    with pytest.raises(BadRequestError):
        await desk.do(lambda fw: rest.list_documents(fw, "Sample", listing))


@pytest.fixture
def read_pages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that are read at once; pages have 2 rows."""
    sizes: list[int] = []
    rows = query.Lists.rows

    def counted(*args: Any, **options: Any) -> list[dict[str, Any]]:
        found = rows(*args, **options)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(query, "WALK_ROWS", 2)
    monkeypatch.setattr(query.Lists, "rows", counted)
    return sizes


async def test_names_of_are_read_in_pages(shelf: ShopSite, read_pages: list[int]) -> None:
    """C-176."""
    found = await shelf.do(lambda fw: list(query.names_of(fw, "Sample")))
    assert found == list("abcde")
    assert read_pages == [2, 2, 1, 0]


async def test_newest_first_reads_rows_in_pages(shelf: ShopSite, read_pages: list[int]) -> None:
    """C-176. Several documents may have one time."""

    def walk(fw: Any) -> str:
        for name, time in zip("abcde", (5, 5, 5, 7, 3), strict=True):
            fw.db.sql("UPDATE doc_sample SET creation = :t WHERE name = :n", {"t": time, "n": name})
        fields, filters = ["creation", "name"], [["count", "is null", False]]
        return "".join(row["name"] for row in query.newest_first(fw, "Sample", [], fields)) + (
            "".join(row["name"] for row in query.newest_first(fw, "Sample", filters, fields))
        )

    assert await shelf.do(walk) == "dcbae" + "cbae"
    assert max(read_pages) == 2


async def test_oldest_first_reads_rows_in_pages(shelf: ShopSite, read_pages: list[int]) -> None:
    """C-176."""

    def walk(fw: Any) -> str:
        for name, time in zip("abcde", (5, 5, 5, 7, 3), strict=True):
            fw.db.sql("UPDATE doc_sample SET creation = :t WHERE name = :n", {"t": time, "n": name})
        rows = query.oldest_first(fw, "Sample", [], ["creation", "name"])
        return "".join(row["name"] for row in rows)

    assert await shelf.do(walk) == "eabcd"
    assert max(read_pages) == 2
