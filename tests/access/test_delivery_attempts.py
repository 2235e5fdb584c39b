"""The attempts of a delivery over HTTP: their readers and their fields (B-189)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.http_site import SERVICES, HttpSite, http_site

pytestmark = pytest.mark.usefixtures("on_both_stores")
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
EXPLAIN = SERVICES + "webhooks.explain"


async def emitted(site: HttpSite, sid: str) -> str:
    """Emit an event to a webhook whose port is closed; its delivery's id."""
    hook = {"event_type": "Custom", "custom_event": "a.b", "secret": SECRET,
            "url": "http://127.0.0.1:9/hook?token=hunter2", "max_attempts": 1}  # fmt: skip
    made = await site.ask("POST", "/api/resource/Webhook", hook, sid=sid)
    assert made.status == 201, made.body
    response = await site.op("webhooks.emit", {"name": "a.b", "data": {}}, sid=sid)
    delivery: str = response.json["deliveries"][0]
    return delivery


async def test_explain_shows_a_manager_the_attempts(tmp_path: Path) -> None:
    async with http_site(tmp_path) as site:
        await site.add_account("boss", "System Manager")
        sid = await site.sid("boss")
        delivery = await emitted(site, sid)
        reply = await site.op("webhooks.explain", {"delivery": delivery}, sid=sid)
        again = await site.ask("GET", f"{EXPLAIN}?delivery={delivery}", sid=sid)
    assert reply.status == again.status == 200
    assert reply.json["delivery"] == delivery
    assert (reply.json["user"], reply.json["attempts"]) == (None, len(reply.json["recorded"]))
    assert "hunter2" not in reply.body.decode()


async def test_explain_requires_a_manager(tmp_path: Path) -> None:
    """The refusal is that of the delivery itself, also for one that does not exist (A-314)."""
    async with http_site(tmp_path) as site:
        await site.add_account("boss", "System Manager")
        await site.add_account("ann")
        delivery = await emitted(site, await site.sid("boss"))
        ann = await site.sid("ann")
        for name in (delivery, "msg_none"):
            reply = await site.op("webhooks.explain", {"delivery": name}, sid=ann)
            assert (reply.status, reply.error["type"]) == (403, "PermissionDeniedError")
        boss = await site.sid("boss")
        missing = await site.op("webhooks.explain", {"delivery": "msg_none"}, sid=boss)
        assert missing.status == 404
        without = await site.ask("GET", EXPLAIN, sid=boss)
        assert (without.status, without.error["extra"]["field"]) == (400, "delivery")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("responseStatus=null", "responseStatus"),
        ("responseStatus=99", "responseStatus"),
        ("limit=null", "limit"),
        ("limit=-1", "limit"),
        pytest.param(f"limit={'9' * 5000}", "limit", id="limit with 5,000 digits"),
        ("limit=501", "limit"),
        ("before=x", "before"),
        ("result=x", "result"),
        ("since=x", "since"),
    ],
)
async def test_attempt_list_names_a_bad_parameter(tmp_path: Path, query: str, field: str) -> None:
    """The refusal names the field (O-302)."""
    async with http_site(tmp_path) as site:
        sid = await site.sid(await site.add_account("boss", "System Manager"))
        listed = await site.ask("GET", f"{SERVICES}webhooks.attempts?limit=5", sid=sid)
        reply = await site.ask("GET", f"{SERVICES}webhooks.attempts?{query}", sid=sid)
    assert (listed.status, listed.json["attempts"]) == (200, [])
    assert reply.status == 400
    assert reply.json["error"]["extra"]["field"] == field


async def test_attempts_page_refuses_unknown_parameter(tmp_path: Path) -> None:
    """H-17: a filter that is ignored would show the attempts that it should leave out."""
    known = "webhook=a&result=failed&code=404&error=a&_from=&_to=&_before="
    async with http_site(tmp_path) as site:
        sid = await site.sid(await site.add_account("boss", "System Manager"))
        filtered = await site.ask("GET", f"/app/attempts?{known}", sid=sid)
        refused = await site.ask("GET", "/app/attempts?status=404", sid=sid)
    assert (filtered.status, refused.status) == (200, 400)
