"""Bulk replays on pages: their filters in words, and the counts of their deliveries (O-300)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from fw_actors.documents.handle import Fw
from fw_actors.webhooks.replay import MAX_COUNTED_DELIVERIES, ReplayRun
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site
from web.pages.listing import BAD, GOOD, PLAIN, WARN, Listing, listing
from web.pages.replays import ShownCount, in_words, path_of, replays_of, shown_run

LIST = "/app/Webhook%20Delivery?replay_run=r1"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[VirtualSite]:
    async with open_virtual_site(tmp_path) as site:
        yield site


def run_of(**fields: Any) -> ReplayRun:
    values: dict[str, Any] = {
        "id": "r1", "user": "ada", "request_id": "", "filters": "[]", "last": "", "cursor": "",
        "state": "done", "total": 1234, "replayed": 3, "reasons": "{}", "error": "",
        "begun": 1_750_000_000_000, "ended": 1_750_000_060_000,
    }  # fmt: skip
    return ReplayRun(**{**values, **fields})


async def keep_run(site: VirtualSite, name: str, begun: int, *filters: Any) -> None:
    await site.sql(
        'INSERT INTO fw_bulk_replay (id, "user", request_id, filters, last, cursor, state, total,'
        " replayed, reasons, error, begun)"
        " VALUES (:id, 'ada', '', :filters, '', '', 'done', 0, 0, '{}', '', :begun)",
        id=name, filters=json.dumps(filters), begun=begun,
    )  # fmt: skip


async def add_deliveries(site: VirtualSite, *statuses: str) -> None:
    """Add deliveries that the run `r1` has replayed."""
    for status in statuses:
        sent = await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
        await site.sql(
            "UPDATE doc_webhook_delivery SET replay_run = 'r1', status = :status"
            " WHERE name = :name",
            status=status, name=sent["deliveries"][0],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (["status", "=", "Failed"], "Status Failed"),
        (["status", "!=", "Sent"], "Status != Sent"),
        (["creation", ">=", "2026-01-31T08:00:00.123Z"], "since 2026-01-31 08:00:00 UTC"),
        (["creation", "<", "2026-01-31T08:00:00.123Z"], "until 2026-01-31 08:00:00 UTC"),
        (["creation", "=", "2026-01-31T08:00:00Z"], "Created 2026-01-31T08:00:00Z"),
        (["error", "=", "status: the receiver answered 410."], 'Error "The receiver answered 410"'),
        (["error", "like", "status: %"], "Error like status: %"),
        (["error", "is null"], "Error is null"),
        (["error", "is null", None], "Error is null"),
        (["error", "is null", True], "Error is null"),
        (["error", "is null", False], "Error is not null"),
        (["error", "=", None], "Error is null"),
        (["error", "!=", None], "Error is not null"),
        (["response_status", "in", [500, 502, 503]], "Response in 500, 502, 503"),
        (["response_status", "in", [500, 502, 503, 504]], "Response in 4 values"),
        ([["event", "error"], "like", "%x%"], "Any text like %x%"),
        (["webhook", "=", "gone"], "Webhook gone"),
    ],
)
async def test_filters_of_replay_are_stated_in_words(
    site: VirtualSite, condition: list[Any], expected: str
) -> None:
    assert await site.do(lambda fw: in_words(fw, [condition])) == expected


async def test_webhook_in_filters_of_replay_is_stated_by_its_title(site: VirtualSite) -> None:
    name = await site.subscribe(title="Ledger")
    filters = [["webhook", "=", name], ["status", "=", "Failed"]]
    assert await site.do(lambda fw: in_words(fw, filters)) == "Webhook Ledger, Status Failed"


async def test_counts_of_replay_link_to_their_deliveries(site: VirtualSite) -> None:
    """O-300: those that were deleted, or replayed again since, have no list."""
    await site.subscribe()
    await add_deliveries(site, "Sent", "Sent", "Failed", "Queued", "Retrying", "Retrying")
    run = run_of(replayed=8, reasons='{"It no longer exists.": 1200}')
    shown = await site.do(lambda fw: shown_run(fw, run, MAX_COUNTED_DELIVERIES))
    assert shown.counts == (
        ShownCount("Arrived", "2", f"{LIST}&status=Sent"),
        ShownCount("Failed again", "1", f"{LIST}&status=Failed"),
        ShownCount("Still open", "3", LIST),
        ShownCount("Replayed again since, or deleted", "2", ""),
    )
    assert (shown.replayed, shown.total) == ("8", "1,234")
    assert shown.refused == (("1,200", "It no longer exists."),)


async def test_replay_with_more_deliveries_than_are_counted_says_so(site: VirtualSite) -> None:
    await site.subscribe()
    await add_deliveries(site, "Sent", "Sent", "Sent")
    shown = await site.do(lambda fw: shown_run(fw, run_of(replayed=9), 2))
    assert [count.text for count in shown.counts][1:] == ["0 or more", "0 or more"]
    assert shown.counts[0].text.endswith(" or more")
    shown = await site.do(lambda fw: shown_run(fw, run_of(replayed=3), 3))
    assert [count.text for count in shown.counts] == ["3", "0", "0"]


@pytest.mark.parametrize(
    ("state", "status", "tone", "moving"),
    [
        ("running", "Sent", PLAIN, True),
        ("done", "Sent", GOOD, False),
        ("done", "Retrying", GOOD, True),
        ("stopped", "Failed", WARN, False),
        ("failed", "Failed", BAD, False),
    ],
)
async def test_page_of_replay_is_reloaded_while_its_counts_change(
    site: VirtualSite, state: str, status: str, tone: str, moving: bool
) -> None:
    await site.subscribe()
    await add_deliveries(site, status)
    shown = await site.do(lambda fw: shown_run(fw, run_of(state=state, replayed=1), 10))
    assert (shown.state.text, shown.state.tone, shown.moving) == (state, tone, moving)


async def test_webhook_lists_its_last_replays(site: VirtualSite) -> None:
    """O-301: those that name it, and those that name no Webhook, the newest first."""
    await keep_run(site, "other", 9, ["webhook", "=", "crm"])
    await keep_run(site, "all", 3, ["status", "=", "Failed"])
    for number in range(4, 9):
        await keep_run(site, f"own {number}", number, ["webhook", "=", "erp"])
    for webhook, expected in (
        ("erp", ["own 8", "own 7", "own 6", "own 5", "own 4"]),
        ("crm", ["other", "all"]),
        ("new", ["all"]),
    ):
        runs = await site.do(partial(replays_of, webhook=webhook))
        assert [run.id for run in runs] == expected


async def test_replays_are_shown_to_unlimited_managers_only(site: VirtualSite) -> None:
    await keep_run(site, "r1", 1)
    await site.add_account("ada", password=None)

    def shown(fw: Any) -> tuple[int, str]:
        return len(replays_of(fw, "erp")), path_of(fw, "r1")

    assert await site.do(shown) == (1, "/app/replays/r1")
    assert await site.do(shown, "ada") == (0, "")


@pytest.mark.parametrize("run", [None, "", "deleted"])
async def test_replay_that_is_not_kept_has_no_page(site: VirtualSite, run: str | None) -> None:
    await keep_run(site, "r1", 1)
    assert await site.do(lambda fw: path_of(fw, run)) == ""


async def test_list_limits_action_on_all_to_counted_documents(site: VirtualSite) -> None:
    """B-257: what is recorded after the page was loaded is not in its number."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))

    def page(fw: Fw) -> Listing:
        return listing(fw, "Webhook Delivery", {"event": "note.shared"})

    shown = await site.do(page)
    filters = json.loads(shown.matching)
    await trio.sleep(0.001)
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    count = await site.do(lambda fw: fw.count("Webhook Delivery", filters))
    assert (shown.total, count, (await site.do(page)).total) == (1, 1, 2)
