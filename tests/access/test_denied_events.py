"""Refused replays on record, and how many of them (O-81, O-86)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.http_site import HttpSite, http_site

pytestmark = pytest.mark.usefixtures("on_both_stores")

LIMIT = 20
BROWSER = [("Accept", "text/html")]


async def denials(site: HttpSite) -> list[tuple[str, str | None, Any]]:
    """Return actor, target and detail of each refusal; those with a detail are last."""
    text = "SELECT actor, target, detail, request_id FROM doc_audit_event WHERE action = 'Denied'"
    rows = await site.rows(text)
    assert all((row["request_id"] is None) == (row["target"] is None) for row in rows)
    found = [(r["actor"], r["target"], r["detail"] and json.loads(r["detail"])) for r in rows]
    return sorted(found, key=lambda row: (row[2] is not None, row[0], row[1] or ""))


async def replay(site: HttpSite, sid: str, times: int, first: int = 0) -> None:
    for number in range(first, first + times):
        reply = await site.op("webhooks.replay", {"delivery": f"msg_{number:03}"}, sid=sid)
        assert (reply.status, reply.error["type"]) == (403, "PermissionDeniedError")


def singles(actor: str, count: int, first: int = 0) -> list[tuple[str, str, None]]:
    return [(actor, f"msg_{number:03}", None) for number in range(first, first + count)]


async def test_denied_events_are_single_up_to_twenty_a_minute(site: HttpSite) -> None:
    """A refused replay leaves an event with the action Denied and no detail (O-81, O-86)."""
    await site.add_account("ann")
    await replay(site, await site.sid("ann"), LIMIT)
    assert await denials(site) == singles("ann", LIMIT)


async def test_denied_events_beyond_twenty_are_counted_in_one(site: HttpSite) -> None:
    await site.add_account("ann")
    await replay(site, await site.sid("ann"), 50)
    assert await denials(site) == [*singles("ann", LIMIT), ("ann", None, {"more": 30})]


async def test_denied_events_have_a_new_limit_each_minute(site: HttpSite) -> None:
    await site.add_account("ann")
    sid = await site.sid("ann")
    await replay(site, sid, 22)
    site.pass_time(59.9)
    await replay(site, sid, 1, first=22)
    site.pass_time(0.1)
    await replay(site, sid, 21, first=23)
    counted = [("ann", None, {"more": 1}), ("ann", None, {"more": 3})]
    found = await denials(site)
    assert found[: 2 * LIMIT] == [*singles("ann", LIMIT), *singles("ann", LIMIT, first=23)]
    assert sorted(found[2 * LIMIT :], key=lambda row: row[2]["more"]) == counted


async def test_denied_events_are_limited_for_each_user(site: HttpSite) -> None:
    await site.add_account("ann")
    await site.add_account("bob")
    await replay(site, await site.sid("ann"), 30)
    await replay(site, await site.sid("bob"), 2)
    assert await denials(site) == [
        *singles("ann", LIMIT), *singles("bob", 2), ("ann", None, {"more": 10}),
    ]  # fmt: skip


async def test_denied_events_of_bulk_replays_count_like_single_ones(site: HttpSite) -> None:
    await site.add_account("ann")
    sid = await site.sid("ann")
    await replay(site, sid, 19)
    for _ in range(3):
        body = {"filters": [["status", "=", "Failed"]]}
        assert (await site.op("webhooks.replayMany", body, sid=sid)).status == 403
    assert await denials(site) == [
        ("ann", "Webhook Delivery", None), *singles("ann", 19), ("ann", None, {"more": 2}),
    ]  # fmt: skip


async def test_denied_events_are_counted_across_processes(tmp_path: Path) -> None:
    """The stored role decides, not the one that a process remembers."""
    async with http_site(tmp_path) as site:
        await site.add_account("ann")
        sid = await site.sid("ann")
        await replay(site, sid, 15)
    async with http_site(tmp_path, seed=2) as site, http_site(tmp_path, seed=3) as other:
        await replay(site, sid, 4, first=15)
        await replay(other, sid, 4, first=19)
        await replay(site, sid, 3)
        assert await denials(site) == [*singles("ann", LIMIT), ("ann", None, {"more": 6})]


async def test_denied_events_are_readable_by_a_system_manager(site: HttpSite) -> None:
    await site.add_account("ann")
    await site.add_account("boss", "System Manager")
    await replay(site, await site.sid("ann"), 25)
    filters = json.dumps([["action", "=", "Denied"], ["target", "is null", True]])
    path = f'/api/resource/Audit Event?filters={filters}&fields=["detail","actor"]'
    boss = await site.sid("boss")
    reply = await site.ask("GET", path, sid=boss)
    assert reply.status == 200, reply.body
    assert reply.json["data"] == [{"detail": {"more": 5}, "actor": "ann"}]
    page = await site.ask("GET", "/app/Audit Event?action=Denied", sid=boss, headers=BROWSER)
    assert (page.status, page.body.count(b">Denied</span>")) == (200, LIMIT + 1)
