"""Pause, rotate and erase over HTTP: the required role, and refusals with their field."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.http_site import HttpSite, http_site

pytestmark = pytest.mark.usefixtures("on_both_stores")
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
HOOK = "/api/resource/Webhook"


@dataclass
class ReceiverDesk:
    """A site with a Webhook and a delivery that has failed, seen by `boss`."""

    site: HttpSite
    boss: str
    hook: str
    delivery: str

    async def op(self, name: str, **body: Any) -> Any:
        return await self.site.op(f"webhooks.{name}", body, sid=self.boss)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[ReceiverDesk]:
    async with http_site(tmp_path) as site:
        await site.add_account("boss", "System Manager")
        boss = await site.sid("boss")
        hook = {"event_type": "Custom", "custom_event": "a.b", "secret": SECRET,
                "url": "http://127.0.0.1:9/hook", "max_attempts": 1}  # fmt: skip
        made = await site.ask("POST", HOOK, hook, sid=boss)
        told = await site.op("webhooks.emit", {"name": "a.b", "data": {"n": 1}}, sid=boss)
        (delivery,) = told.json["deliveries"]
        await site.rows(
            "UPDATE doc_webhook_delivery SET status = 'Failed', attempts = 1, next_attempt = NULL"
        )
        await site.rows("DELETE FROM fw_job")
        yield ReceiverDesk(site, boss, made.json["data"]["name"], delivery)


async def test_rotated_secret_is_shown_once_and_never_read(desk: ReceiverDesk) -> None:
    """The one that the service made; neither it nor the old one is in any answer after (B-354)."""
    rotated = await desk.op("rotate", webhook=desk.hook, overlap=24)
    assert rotated.status == 200
    assert rotated.json["secret"].startswith("whsec_")
    assert rotated.json["old_secret_until"] is not None
    shown = await desk.site.ask("GET", f"{HOOK}/{desk.hook}", sid=desk.boss)
    exported = await desk.site.ask("GET", f"{HOOK}/{desk.hook}/export", sid=desk.boss)
    for secret in (rotated.json["secret"], SECRET):
        assert secret.encode() not in shown.body + exported.body


async def test_rotated_secret_makes_a_version_that_is_answered(desk: ReceiverDesk) -> None:
    """Of another version than the one that was read no secret is replaced (B-350)."""
    path = f"{HOOK}/{desk.hook}"
    read = (await desk.site.ask("GET", path, sid=desk.boss)).json["data"]["modified"]
    saved = await desk.site.ask("PUT", path, {"title": "unseen"}, sid=desk.boss)
    refused = await desk.op("rotate", webhook=desk.hook, overlap=1, modified=read)
    assert (refused.status, refused.error["type"]) == (409, "ConflictError")
    stored = (await desk.site.ask("GET", path, sid=desk.boss)).json["data"]
    assert stored == saved.json["data"]
    rotated = await desk.op("rotate", webhook=desk.hook, overlap=1, modified=stored["modified"])
    now = (await desk.site.ask("GET", path, sid=desk.boss)).json["data"]["modified"]
    assert rotated.json["modified"] == now > stored["modified"]


async def test_erase_removes_the_body_and_refuses_replay(desk: ReceiverDesk) -> None:
    """The record stays, a replay is refused with 409 (B-360, B-361)."""
    erased = await desk.op("erase", delivery=desk.delivery)
    again = await desk.op("erase", delivery=desk.delivery)
    assert (erased.status, again.json) == (200, erased.json)
    path = f"/api/resource/Webhook%20Delivery/{desk.delivery}"
    shown = await desk.site.ask("GET", path, sid=desk.boss)
    assert (shown.json["data"]["payload"], shown.json["data"]["status"]) == (None, "Failed")
    replay = await desk.op("replay", delivery=desk.delivery)
    assert (replay.status, replay.error["type"]) == (409, "ConflictError")
    assert erased.json["erased"] in replay.error["message"]


async def test_cancelled_delivery_names_its_user(desk: ReceiverDesk) -> None:
    """One that waits becomes Failed; one that has ended is refused with 409 (B-365, B-366)."""
    refused = await desk.op("cancel", delivery=desk.delivery)
    assert (refused.status, refused.error["message"]) == (
        409, "This delivery is Failed; only Queued and Retrying deliveries can be cancelled."
    )  # fmt: skip
    await desk.op("pause", webhook=desk.hook)
    told = await desk.site.op("webhooks.emit", {"name": "a.b", "data": {}}, sid=desk.boss)
    (waiting,) = told.json["deliveries"]
    cancelled = await desk.op("cancel", delivery=waiting)
    assert (cancelled.status, cancelled.json) == (200, {"delivery": waiting, "status": "Failed"})
    shown = await desk.site.ask("GET", f"/api/resource/Webhook%20Delivery/{waiting}", sid=desk.boss)
    assert shown.json["data"]["error"] == "cancelled: boss cancelled this delivery."
    missing = await desk.op("cancel", delivery="msg_none")
    assert missing.status == 404


async def test_webhook_operations_refuse_bad_input_with_its_field(desk: ReceiverDesk) -> None:
    """Bad values are 422, bad forms 400, unknown names 404; nothing is stored."""
    bad: list[tuple[str, dict[str, Any], int, str | None]] = [
        ("rotate", {"webhook": desk.hook, "overlap": -1}, 422, "overlap"),
        ("rotate", {"webhook": desk.hook, "overlap": 721}, 422, "overlap"),
        ("rotate", {"webhook": desk.hook, "overlap": 1.5}, 400, "overlap"),
        ("rotate", {"webhook": desk.hook, "overlap": 1, "secret": SECRET}, 422, "secret"),
        ("rotate", {"webhook": desk.hook, "secret": ""}, 422, "secret"),
        ("rotate", {"webhook": desk.hook, "secret": "whsec_no base64"}, 422, "secret"),
        ("rotate", {"webhook": desk.hook, "secret": 5}, 400, "secret"),
        ("rotate", {"webhook": "nosuch"}, 404, None),
        ("rotate", {"overlap": 1}, 400, "webhook"),
        ("rotate", {"webhook": desk.hook, "hours": 1}, 400, "hours"),
        ("pause", {"webhook": desk.hook, "seconds": 0}, 422, "seconds"),
        ("pause", {"webhook": desk.hook, "seconds": "1"}, 400, "seconds"),
        ("pause", {"webhook": "nosuch"}, 404, None),
        ("erase", {"delivery": "nosuch"}, 404, None),
        ("erase", {"delivery": ["a"]}, 400, "delivery"),
        ("erase", {}, 400, "delivery"),
    ]
    found = []
    for name, body, *_ in bad:
        reply = await desk.op(name, **body)
        field = reply.error.get("extra", {}).get("field")
        found.append((name, body, reply.status, field))
    assert found == bad
    acts = "('webhook.rotate', 'webhook.pause', 'webhook.erase', 'webhook.cancel')"
    assert not await desk.site.rows(f"SELECT 1 FROM doc_audit_event WHERE action IN {acts}")


async def test_webhook_operations_require_an_id_that_is_not_empty(desk: ReceiverDesk) -> None:
    """H-18: an empty id is 422 with its field, also for a GET."""
    fields = {
        "replay": "delivery", "explain": "delivery", "cancel": "delivery", "erase": "delivery",
        "rotate": "webhook", "test": "webhook", "pause": "webhook", "resume": "webhook",
    }  # fmt: skip
    replies = [(await desk.op(name, **{field: ""}), field) for name, field in fields.items()]
    path = "/api/method/core.services.webhooks.explain?delivery="
    replies.append((await desk.site.ask("GET", path, sid=desk.boss), "delivery"))
    for reply, field in replies:
        assert reply.status == 422
        assert reply.error["message"] == f"{field} is required."
        assert reply.error["extra"] == {"field": field}


async def test_webhook_operations_require_a_manager_and_record_refusals(desk: ReceiverDesk) -> None:
    """Users without the role, managers with access scopes, and guests (B-270, B-304, B-350,
    B-360)."""
    await desk.site.add_account("ann")
    await desk.site.add_account("sam", "System Manager")
    scope = {"user": "sam", "allow": "Role", "for_value": "System Manager"}
    await desk.site.ask("POST", "/api/resource/User%20Permission", scope, sid=desk.boss)
    acts = {
        "pause": {"webhook": desk.hook}, "resume": {"webhook": desk.hook},
        "rotate": {"webhook": desk.hook}, "erase": {"delivery": desk.delivery},
        "cancel": {"delivery": desk.delivery}, "test": {"webhook": desk.hook},
    }  # fmt: skip
    for user in ("ann", "sam"):
        sid = await desk.site.sid(user)
        for name, body in acts.items():
            reply = await desk.site.op(f"webhooks.{name}", body, sid=sid)
            assert (reply.status, reply.error["type"]) == (403, "PermissionDeniedError"), name
    for name, body in acts.items():
        assert (await desk.site.op(f"webhooks.{name}", body)).status == 401
    denied = await desk.site.rows(
        "SELECT target, actor FROM doc_audit_event WHERE action = 'Denied' ORDER BY creation"
    )
    assert sorted((row["actor"], row["target"]) for row in denied) == sorted(
        (user, *body.values()) for user in ("ann", "sam") for body in acts.values()
    )
    (kept,) = await desk.site.rows("SELECT payload, erased FROM doc_webhook_delivery")
    assert (bool(kept["payload"]), kept["erased"]) == (True, None)
