"""The actors that no request waits for do their work, as clients see it over HTTP."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import structlog
import trio

from fw_actors.actors.sweeper import FIRST_AFTER_SECONDS
from fw_actors.documents.handle import Fw
from tests.http_site import HttpSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

DAY = 86_400


async def deliveries(site: HttpSite, sid: str) -> int:
    """Return the number of deliveries in their list."""
    reply = await site.ask("GET", "/api/resource/Webhook%20Delivery", sid=sid)
    assert reply.status == 200, reply.body
    total: int = reply.json["total"]
    return total


async def test_sweeper_deletes_final_deliveries_after_their_retention(site: HttpSite) -> None:
    """Final deliveries are deleted after `webhookRetentionDays` (B-280), without a request."""
    await site.add_account("boss", "System Manager")

    def subscribe(fw: Fw) -> None:
        fields = {"event_type": "Custom", "custom_event": "a.b", "secret": "a signing secret"}
        fw.new_doc("Webhook", url="https://receiver.test/", **fields).insert()

    await site.do(subscribe)
    await site.do(lambda fw: fw.webhooks.emit("a.b", {}))
    await site.rows(
        "UPDATE doc_webhook_delivery SET status = 'Failed', next_attempt = NULL, "
        f"last_attempt = {site.clock.now()}"
    )
    await site.rows("DELETE FROM fw_job")
    sid = await site.sid("boss")
    assert await deliveries(site, sid) == 1
    site.pass_time(31 * DAY)
    await trio.sleep(FIRST_AFTER_SECONDS + 10)
    assert await deliveries(site, await site.sid("boss")) == 0


async def test_delivery_actor_records_attempt_that_failed(site: HttpSite) -> None:
    """An attempt ends with the outcome that its actor saw, and the next one is due (B-163)."""
    await site.add_account("boss", "System Manager")
    sid = await site.sid("boss")
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        port = nobody_listens.getsockname()[1]
        hook = {"event_type": "Custom", "custom_event": "a.b", "secret": "a signing secret",
                "url": f"https://127.0.0.1:{port}/", "max_attempts": 3}  # fmt: skip
        assert (await site.ask("POST", "/api/resource/Webhook", hook, sid=sid)).status == 201
        emitted = await site.op("webhooks.emit", {"name": "a.b", "data": {}}, sid=sid)
        (delivery,) = emitted.json["deliveries"]
        path = f"/api/resource/Webhook%20Delivery/{delivery}"
        await site.log.wait("delivery.attempted", 1)
    shown = (await site.ask("GET", path, sid=sid)).json["data"]
    assert (shown["status"], shown["attempts"]) == ("Retrying", 1)
    assert shown["error"].startswith("connect:")
    assert shown["next_attempt"] is not None


async def test_mailer_sends_a_recovery_mail_after_the_response(site: HttpSite) -> None:
    """A message is queued in the request's transaction and sent by the Mailer (O-51)."""
    await site.add_account("ann")

    def into_the_log_of_the_service(_logger: object, _method: str, entry: Any) -> Any:
        site.log.info(entry["event"])
        return entry

    with structlog.testing.capture_logs([into_the_log_of_the_service]):
        reply = await site.ask("POST", "/api/auth/forgot-password", {"usr": "ann"})
    assert reply.status == 200
    with trio.fail_after(60):
        await site.log.wait("mail.sent", 1)
    [sent] = site.log.of("mail.sent")
    assert sent["template"] == "recovery"
    assert [event for event, _ in site.log.entries if event in ("web.request", "mail.sent")] == [
        "web.request",  # written before the response is sent
        "mail.sent",
    ]
