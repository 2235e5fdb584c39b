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
class FailedDeliverySite:
    """A site with a Webhook and a delivery that has failed, seen by `boss`."""

    site: HttpSite
    boss: str
    hook: str
    delivery: str

    async def op(self, name: str, **body: Any) -> Any:
        return await self.site.op(f"webhooks.{name}", body, sid=self.boss)


@pytest.fixture
async def failed_site(tmp_path: Path) -> AsyncIterator[FailedDeliverySite]:
    async with http_site(tmp_path) as site:
        await site.add_account("boss", "System Manager")
        boss = await site.sid("boss")
        hook = {"event_type": "Custom", "custom_event": "a.b", "secret": SECRET,
                "url": "http://127.0.0.1:9/hook", "max_attempts": 1}  # fmt: skip
        made = await site.ask("POST", HOOK, hook, sid=boss)
        emitted = await site.op("webhooks.emit", {"name": "a.b", "data": {"n": 1}}, sid=boss)
        (delivery,) = emitted.json["deliveries"]
        await site.rows(
            "UPDATE doc_webhook_delivery SET status = 'Failed', attempts = 1, next_attempt = NULL"
        )
        await site.rows("DELETE FROM fw_job")
        yield FailedDeliverySite(site, boss, made.json["data"]["name"], delivery)


async def test_rotated_secret_is_shown_once_and_never_read(failed_site: FailedDeliverySite) -> None:
    """The one that the service made; neither it nor the old one is in any answer after (B-354)."""
    rotated = await failed_site.op("rotate", webhook=failed_site.hook, overlap=24)
    assert rotated.status == 200
    assert rotated.json["secret"].startswith("whsec_")
    assert rotated.json["old_secret_until"] is not None
    shown = await failed_site.site.ask("GET", f"{HOOK}/{failed_site.hook}", sid=failed_site.boss)
    exported = await failed_site.site.ask(
        "GET", f"{HOOK}/{failed_site.hook}/export", sid=failed_site.boss
    )
    for secret in (rotated.json["secret"], SECRET):
        assert secret.encode() not in shown.body + exported.body


async def test_rotated_secret_makes_a_version_that_is_answered(
    failed_site: FailedDeliverySite,
) -> None:
    """Of another version than the one that was read no secret is replaced (B-350)."""
    path = f"{HOOK}/{failed_site.hook}"
    read = (await failed_site.site.ask("GET", path, sid=failed_site.boss)).json["data"]["modified"]
    saved = await failed_site.site.ask("PUT", path, {"title": "unseen"}, sid=failed_site.boss)
    refused = await failed_site.op("rotate", webhook=failed_site.hook, overlap=1, modified=read)
    assert (refused.status, refused.error["type"]) == (409, "ConflictError")
    stored = (await failed_site.site.ask("GET", path, sid=failed_site.boss)).json["data"]
    assert stored == saved.json["data"]
    rotated = await failed_site.op(
        "rotate", webhook=failed_site.hook, overlap=1, modified=stored["modified"]
    )
    now = (await failed_site.site.ask("GET", path, sid=failed_site.boss)).json["data"]["modified"]
    assert rotated.json["modified"] == now > stored["modified"]


async def test_erase_removes_the_body_and_refuses_replay(failed_site: FailedDeliverySite) -> None:
    """The record stays, a replay is refused with 409 (B-360, B-361)."""
    erased = await failed_site.op("erase", delivery=failed_site.delivery)
    again = await failed_site.op("erase", delivery=failed_site.delivery)
    assert (erased.status, again.json) == (200, erased.json)
    path = f"/api/resource/Webhook%20Delivery/{failed_site.delivery}"
    shown = await failed_site.site.ask("GET", path, sid=failed_site.boss)
    assert (shown.json["data"]["payload"], shown.json["data"]["status"]) == (None, "Failed")
    replay = await failed_site.op("replay", delivery=failed_site.delivery)
    assert (replay.status, replay.error["type"]) == (409, "ConflictError")
    assert erased.json["erased"] in replay.error["message"]


async def test_cancelled_delivery_names_its_user(failed_site: FailedDeliverySite) -> None:
    """One that waits becomes Failed; one that has ended is refused with 409 (B-365, B-366)."""
    refused = await failed_site.op("cancel", delivery=failed_site.delivery)
    assert (refused.status, refused.error["message"]) == (
        409, "This delivery is Failed; only Queued and Retrying deliveries can be cancelled."
    )  # fmt: skip
    await failed_site.op("pause", webhook=failed_site.hook)
    emitted = await failed_site.site.op(
        "webhooks.emit", {"name": "a.b", "data": {}}, sid=failed_site.boss
    )
    (waiting,) = emitted.json["deliveries"]
    cancelled = await failed_site.op("cancel", delivery=waiting)
    assert (cancelled.status, cancelled.json) == (200, {"delivery": waiting, "status": "Failed"})
    shown = await failed_site.site.ask(
        "GET", f"/api/resource/Webhook%20Delivery/{waiting}", sid=failed_site.boss
    )
    assert shown.json["data"]["error"] == "cancelled: boss cancelled this delivery."
    missing = await failed_site.op("cancel", delivery="msg_none")
    assert missing.status == 404


async def test_webhook_operations_refuse_bad_input_with_its_field(
    failed_site: FailedDeliverySite,
) -> None:
    """Bad values are 422, bad forms 400, unknown names 404; nothing is stored."""
    bad: list[tuple[str, dict[str, Any], int, str | None]] = [
        ("rotate", {"webhook": failed_site.hook, "overlap": -1}, 422, "overlap"),
        ("rotate", {"webhook": failed_site.hook, "overlap": 721}, 422, "overlap"),
        ("rotate", {"webhook": failed_site.hook, "overlap": 1.5}, 400, "overlap"),
        ("rotate", {"webhook": failed_site.hook, "overlap": 1, "secret": SECRET}, 422, "secret"),
        ("rotate", {"webhook": failed_site.hook, "secret": ""}, 422, "secret"),
        ("rotate", {"webhook": failed_site.hook, "secret": "whsec_no base64"}, 422, "secret"),
        ("rotate", {"webhook": failed_site.hook, "secret": 5}, 400, "secret"),
        ("rotate", {"webhook": "nosuch"}, 404, None),
        ("rotate", {"overlap": 1}, 400, "webhook"),
        ("rotate", {"webhook": failed_site.hook, "hours": 1}, 400, "hours"),
        ("pause", {"webhook": failed_site.hook, "seconds": 0}, 422, "seconds"),
        ("pause", {"webhook": failed_site.hook, "seconds": "1"}, 400, "seconds"),
        ("pause", {"webhook": "nosuch"}, 404, None),
        ("erase", {"delivery": "nosuch"}, 404, None),
        ("erase", {"delivery": ["a"]}, 400, "delivery"),
        ("erase", {}, 400, "delivery"),
    ]
    found = []
    for name, body, *_ in bad:
        reply = await failed_site.op(name, **body)
        field = reply.error.get("extra", {}).get("field")
        found.append((name, body, reply.status, field))
    assert found == bad
    acts = "('webhook.rotate', 'webhook.pause', 'webhook.erase', 'webhook.cancel')"
    assert not await failed_site.site.rows(f"SELECT 1 FROM doc_audit_event WHERE action IN {acts}")


async def test_webhook_operations_require_an_id_that_is_not_empty(
    failed_site: FailedDeliverySite,
) -> None:
    """H-18: an empty id is 422 with its field, also for a GET."""
    fields = {
        "replay": "delivery", "explain": "delivery", "cancel": "delivery", "erase": "delivery",
        "rotate": "webhook", "test": "webhook", "pause": "webhook", "resume": "webhook",
    }  # fmt: skip
    replies = [(await failed_site.op(name, **{field: ""}), field) for name, field in fields.items()]
    path = "/api/method/core.services.webhooks.explain?delivery="
    replies.append((await failed_site.site.ask("GET", path, sid=failed_site.boss), "delivery"))
    for reply, field in replies:
        assert reply.status == 422
        assert reply.error["message"] == f"{field} is required."
        assert reply.error["extra"] == {"field": field}


async def test_webhook_operations_require_a_manager_and_record_refusals(
    failed_site: FailedDeliverySite,
) -> None:
    """Users without the role, managers with access scopes, and guests (B-270, B-304, B-350,
    B-360)."""
    await failed_site.site.add_account("ann")
    await failed_site.site.add_account("sam", "System Manager")
    scope = {"user": "sam", "allow": "Role", "for_value": "System Manager"}
    await failed_site.site.ask(
        "POST", "/api/resource/User%20Permission", scope, sid=failed_site.boss
    )
    acts = {
        "pause": {"webhook": failed_site.hook}, "resume": {"webhook": failed_site.hook},
        "rotate": {"webhook": failed_site.hook}, "erase": {"delivery": failed_site.delivery},
        "cancel": {"delivery": failed_site.delivery}, "test": {"webhook": failed_site.hook},
    }  # fmt: skip
    for user in ("ann", "sam"):
        sid = await failed_site.site.sid(user)
        for name, body in acts.items():
            reply = await failed_site.site.op(f"webhooks.{name}", body, sid=sid)
            assert (reply.status, reply.error["type"]) == (403, "PermissionDeniedError"), name
    for name, body in acts.items():
        assert (await failed_site.site.op(f"webhooks.{name}", body)).status == 401
    denied = await failed_site.site.rows(
        "SELECT target, actor FROM doc_audit_event WHERE action = 'Denied' ORDER BY creation"
    )
    assert sorted((row["actor"], row["target"]) for row in denied) == sorted(
        (user, *body.values()) for user in ("ann", "sam") for body in acts.values()
    )
    (kept,) = await failed_site.site.rows("SELECT payload, erased FROM doc_webhook_delivery")
    assert (bool(kept["payload"]), kept["erased"]) == (True, None)
