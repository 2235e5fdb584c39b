"""The page of a delivery offers what can be done with it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http_site import HttpSite


@pytest.mark.parametrize("gone", ["", "webhook", "body"])
async def test_delivery_page_offers_a_replay_only_where_one_is_possible(
    site: HttpSite, gone: str
) -> None:
    """A replay is refused without its Webhook and without its body (B-253, B-361)."""
    await site.add_account("admin", "System Manager")
    sid = await site.sid("admin")
    fields: dict[str, Any] = {
        "url": "https://receiver.test/", "event_type": "Custom", "custom_event": "a.b",
        "secret": "a signing secret",
    }  # fmt: skip
    made = await site.ask("POST", "/api/resource/Webhook", fields, sid=sid)
    webhook = made.json["data"]["name"]
    await site.op("webhooks.pause", {"webhook": webhook}, sid=sid)
    emitted = await site.op("webhooks.emit", {"name": "a.b", "data": {}}, sid=sid)
    [delivery] = emitted.json["deliveries"]
    assert (await site.op("webhooks.cancel", {"delivery": delivery}, sid=sid)).status == 200
    if gone == "webhook":
        await site.ask("DELETE", f"/api/resource/Webhook/{webhook}", sid=sid)
    if gone == "body":
        await site.op("webhooks.erase", {"delivery": delivery}, sid=sid)
    path = f"/app/Webhook%20Delivery/{delivery}"
    page = await site.ask("GET", path, sid=sid, headers=[("Accept", "text/html")])
    assert (page.status, b"data-replay-one" in page.body) == (200, not gone)
