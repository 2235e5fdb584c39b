"""The responses of the operations of bulk replays (B-257, O-300, O-301)."""

from __future__ import annotations

from typing import Any

import trio

from tests.http_site import HttpSite


async def test_replay_runs_state_their_results(site: HttpSite) -> None:
    """Of one delivery that cannot be replayed, and one that waits, since its Webhook is paused."""
    await site.add_account("admin", "System Manager")
    sid = await site.sid("admin")
    fields: dict[str, Any] = {
        "url": "https://receiver.test/", "event_type": "Custom", "custom_event": "a.b",
        "secret": "a signing secret",
    }  # fmt: skip
    made = await site.ask("POST", "/api/resource/Webhook", fields, sid=sid)
    webhook = made.json["data"]["name"]
    await site.op("webhooks.pause", {"webhook": webhook}, sid=sid)
    deliveries = []
    for _ in range(2):
        emitted = await site.op("webhooks.emit", {"name": "a.b", "data": {}}, sid=sid)
        deliveries += emitted.json["deliveries"]
    for delivery in deliveries:
        await site.op("webhooks.cancel", {"delivery": delivery}, sid=sid)
    await site.op("webhooks.erase", {"delivery": deliveries[0]}, sid=sid)
    filters = [["webhook", "=", webhook]]
    begun = await site.op("webhooks.replayMany", {"filters": filters}, sid=sid)
    run = begun.json["run"]["id"]
    await trio.sleep(5)  # of virtual time
    of_last = await site.op("webhooks.replayProgress", {}, sid=sid)
    of_one = await site.op("webhooks.replayProgress", {"run": run}, sid=sid)
    of_all = await site.ask("GET", "/api/method/core.services.webhooks.replayRuns", sid=sid)
    shown = of_last.json["run"]
    assert (of_one.json["run"], of_all.json["runs"]) == (shown, [shown])
    assert shown.pop("refused").popitem()[1] == 1
    assert shown.pop("begun") <= shown.pop("ended")
    assert shown == {
        "id": run, "user": "admin", "filters": filters, "state": "done", "total": 2, "done": 2,
        "replayed": 1, "error": "", "arrived": 0, "failedAgain": 0, "open": 1,
        "gone": 0, "more": False,
    }  # fmt: skip
    unknown = await site.op("webhooks.replayProgress", {"run": "unknown"}, sid=sid)
    assert unknown.status == 404
