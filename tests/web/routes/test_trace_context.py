"""Traces that come with requests: taken in, carried through actors, stored with events (B-422)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fw_actors.config import ProxyTrustPolicy
from fw_actors.tracing import CURRENT_TRACE
from tests.http_site import HttpSite, http_site

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
STATE = "congo=t61rcWkgMzE"
REFUSING = "https://127.0.0.1:1/"  # no look-up that may take seconds, and no connection


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[HttpSite]:
    async with http_site(tmp_path, trace_context=True) as site:
        yield site


async def stored(site: HttpSite, *headers: tuple[str, str], peer: str = "203.0.113.9") -> str:
    """Emit an event by a request with these headers; return what is stored with its delivery."""
    await site.add_account("ada", "System Manager")
    sid = await site.sid("ada")
    body = {
        "url": REFUSING, "event_type": "Custom", "custom_event": "a.b",
        "secret": "a signing secret", "enabled": 1,
    }  # fmt: skip
    assert (await site.ask("POST", "/api/resource/Webhook", body, sid=sid)).status == 201
    reply = await site.op(
        "webhooks.emit", {"name": "a.b", "data": {}}, sid=sid, headers=headers, peer=peer
    )
    assert reply.status == 200, reply.body
    rows = await site.do(
        lambda fw: fw.db.sql("SELECT trace_context FROM doc_webhook_delivery ORDER BY name")
    )
    return str(rows[-1]["trace_context"])


async def test_trace_of_request_is_stored_with_event(site: HttpSite) -> None:
    assert await stored(site, ("TraceParent", PARENT), ("tracestate", STATE)) == f"{PARENT} {STATE}"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("traceparent", "nonsense"), ("tracestate", STATE)],
        [("traceparent", PARENT), ("traceparent", PARENT)],
        [("tracestate", STATE)],
    ],
)
async def test_request_without_valid_trace_begins_new_trace(
    site: HttpSite, headers: list[tuple[str, str]]
) -> None:
    context = await stored(site, *headers)
    assert TRACE not in context
    version, trace, parent, flags = context.split("-")
    assert (version, len(trace), len(parent), flags) == ("00", 32, 16, "00")


@pytest.mark.parametrize(("peer", "taken"), [("10.0.0.7", True), ("203.0.113.9", False)])
async def test_trace_is_accepted_only_from_trusted_proxy(
    tmp_path: Path, peer: str, taken: bool
) -> None:
    from ipaddress import ip_network

    trust = ProxyTrustPolicy(networks=(ip_network("10.0.0.0/8"),))
    async with http_site(tmp_path, trace_context=True, trust_proxy=trust) as site:
        context = await stored(site, ("traceparent", PARENT), peer=peer)
    assert (context == PARENT) is taken


async def test_trace_is_passed_to_actor_with_message(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of a sign-in is written by the actor of its identifier."""
    seen: dict[str, Any] = {}
    info = site.log.info

    def note(event: str, **fields: object) -> None:
        seen[event] = CURRENT_TRACE.get()
        info(event, **fields)

    monkeypatch.setattr(site.log, "info", note)
    await site.add_account("ada")
    await site.login("ada", headers=[("traceparent", PARENT)])
    assert seen["sign_in.ended"] is not None
    assert seen["sign_in.ended"].trace_id == TRACE
    assert CURRENT_TRACE.get() is None
