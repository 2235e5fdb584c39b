"""Lists on pages take the same time with a million records: counts and searches are limited."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.documents import query
from fw_actors.documents.core import ErrorLogEntry, Version, WebhookDelivery
from fw_actors.documents.query import ListPage, list_page
from fw_actors.documents.tables import split_by_index
from fw_actors.errors import BadRequestError, PermissionDeniedError
from tests.fw_actors.virtual_site_kit import VirtualSite

DELIVERY = "Webhook Delivery"
EVENTS = ("note.old", "note.new")
SEEN = ["name", "event", "attempts"]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten records are many."""
    monkeypatch.setattr(query, "MAX_COUNTED_ROWS", 6)
    monkeypatch.setattr(query, "MAX_SEARCHED_ROWS", 4)


@pytest.fixture
async def ten(site: VirtualSite, few: None) -> VirtualSite:
    """A site with ten deliveries of two Webhooks, the newest last."""
    for event in EVENTS:
        await site.subscribe(event)
    events = [{"name": event, "data": {}} for event in EVENTS for _ in range(5)]
    await site.do(lambda fw: fw.webhooks.emit_many(events))
    return site


async def listed(site: VirtualSite, *filters: Any, **more: Any) -> ListPage:
    options = {"order_by": None, "limit": 3, "start": 0, **more}
    user = options.pop("user", "Administrator")
    return await site.do(lambda fw: list_page(fw, DELIVERY, filters, SEEN, **options), user)


@pytest.mark.parametrize(
    ("filters", "sought"),
    [
        ([["status", "=", "Sent"]], 1),
        ([["webhook", "=", "w"], ["status", "=", "Sent"], ["creation", ">=", "2026-01-01"]], 3),
        ([["event", "=", "e"]], 0),
        ([["event", "=", "e"], ["webhook", "=", "w"]], 1),
        ([["reference_doctype", "=", "Note"], ["reference_name", "=", "N"]], 2),
        ([["reference_name", "=", "N"]], 0),
        ([["name", "=", "msg_1"], ["event", "=", "e"]], 2),
        ([[["name", "event"], "like", "%e%"], ["status", "=", "Sent"]], 1),
        ([["status", "!=", "Sent"], ["status", "=", None]], 0),
    ],
)
def test_split_by_index_separates_filters_that_an_index_answers(
    filters: list[Any], sought: int
) -> None:
    found, rest = split_by_index(WebhookDelivery.meta, filters)
    assert (len(found), len(rest)) == (sought, len(filters) - sought)


@pytest.mark.parametrize("names", [[], ["event"] * 21])
async def test_list_page_refuses_filter_of_too_many_or_no_fields(
    ten: VirtualSite, names: list[Any]
) -> None:
    """A condition for each of thousands would hold up the store."""
    with pytest.raises(BadRequestError, match="must name 1 to 20 fields") as refusal:
        await listed(ten, [names, "=", "note.old"])
    assert refusal.value.extra == {"field": "filters"}
    assert (await listed(ten, [["event"] * 20, "=", "note.new"])).total == 4


def test_split_by_index_uses_the_indexes_of_each_doctype() -> None:
    one = [["ref_doctype", "=", "Note"], ["docname", "=", "N"]]
    assert split_by_index(Version.meta, one) == (one, [])
    assert split_by_index(ErrorLogEntry.meta, one[:1]) == ([], one[:1])


@pytest.mark.usefixtures("on_both_stores")
async def test_list_page_counts_no_further_than_it_must(ten: VirtualSite) -> None:
    """H-200."""
    page = await listed(ten)
    assert (len(page.rows), page.total, page.more, page.newest_only) == (3, 6, True, False)
    page = await listed(ten, ["status", "=", "Sent"])
    assert (page.rows, page.total, page.more) == ([], 0, False)
    page = await listed(ten, start=6)
    assert (page.rows, page.more) == ([], True), "pages of records end"


@pytest.mark.usefixtures("on_both_stores")
async def test_list_page_without_an_index_searches_the_newest_records(ten: VirtualSite) -> None:
    """H-200."""
    page = await listed(ten, ["event", "=", "note.new"])
    assert (len(page.rows), page.total, page.more, page.newest_only) == (3, 4, False, True)
    page = await listed(ten, ["event", "=", "note.old"])
    assert (page.rows, page.total, page.newest_only) == ([], 0, True), "the older ones"
    page = await listed(ten, ["event", "=", "note.new"], start=3)
    assert (len(page.rows), page.total) == (1, 4)
    page = await listed(ten, ["event", "=", "note.new"], start=5)
    assert (page.rows, page.total) == ([], 4)
    page = await listed(ten, order_by="event asc")
    assert [row["event"] for row in page.rows] == ["note.new"] * 3
    [[name]] = await ten.sql("SELECT name FROM doc_webhook WHERE custom_event = 'note.old'")
    page = await listed(ten, ["webhook", "=", name], ["event", "like", "%d"])
    assert page.total == 4, "among the newest of its Webhook"


@pytest.mark.usefixtures("on_both_stores")
async def test_list_page_filters_and_sorts_by_fields_that_it_does_not_show(
    ten: VirtualSite,
) -> None:
    await ten.sql("UPDATE doc_webhook_delivery SET max_attempts = 9 WHERE event = 'note.new'")
    one, *_ = (await listed(ten, ["event", "=", "note.new"])).rows
    await ten.sql(
        "UPDATE doc_webhook_delivery SET max_attempts = 1 WHERE name = :name", name=one["name"]
    )
    assert (await listed(ten, ["max_attempts", "=", 9])).total == 3
    either = [["event", "reference_name"], "=", "note.new"]
    page = await listed(ten, either, order_by="max_attempts asc")
    assert (page.rows[0], page.total) == (one, 4)


async def test_list_page_counts_the_matches_before_a_page_beyond_them(ten: VirtualSite) -> None:
    [[name]] = await ten.sql("SELECT name FROM doc_webhook WHERE custom_event = 'note.old'")
    page = await listed(ten, ["webhook", "=", name], start=5)
    assert (page.rows, page.total, page.more) == ([], 5, False)


@pytest.mark.parametrize("malformed", ["event", [], ["event"], 7, None])
async def test_list_page_refuses_a_malformed_filter(ten: VirtualSite, malformed: Any) -> None:
    with pytest.raises(BadRequestError, match="A filter must be"):
        await listed(ten, malformed)


async def test_list_page_asks_for_the_permissions_of_the_list(ten: VirtualSite) -> None:
    await ten.add_account("wendy")
    with pytest.raises(PermissionDeniedError):
        await listed(ten, user="wendy")
    with pytest.raises(BadRequestError):
        await ten.do(
            lambda fw: list_page(fw, "Has Role", (), ["name"], order_by=None, limit=3, start=0)
        )
    with pytest.raises(BadRequestError, match="no field secret"):
        await listed(ten, ["secret", "=", "x"])
