"""Each refusal is one line of the log: with the user, the path, the address and the status."""

from __future__ import annotations

from typing import Any

import structlog

from tests.http_site import PEER, HttpSite


def refused(logs: list[Any]) -> list[tuple[int, str | None, str, str]]:
    """Return the log lines of the refused requests."""
    return [
        (line["status"], line["user"], line["path"], line["address"])
        for line in logs
        if line["event"] == "web.request" and line["status"] >= 400
    ]


async def test_log_names_the_user_of_a_403(site: HttpSite) -> None:
    await site.add_account("ann")
    sid = await site.sid("ann")
    with structlog.testing.capture_logs() as logs:
        await site.ask("GET", "/api/resource/User", sid=sid)
        await site.op("users.unlockUser", {"user": "ann"}, sid=sid)
        await site.ask("GET", "/api/resource/User")
    assert refused(logs) == [
        (403, "ann", "/api/resource/User", PEER),
        (403, "ann", "/api/method/core.services.users.unlockUser", PEER),
        (401, None, "/api/resource/User", PEER),
    ]


async def test_log_names_the_user_of_a_bypassed_check(site: HttpSite) -> None:
    await site.add_account("ann")
    sid = await site.sid("ann")
    own = "/api/method/core.services.profile.updateMyProfile"
    with structlog.testing.capture_logs() as logs:
        await site.ask("POST", own, {"fullName": "A"}, sid=sid, csrf=False)
        await site.ask("POST", own, {"roles": []}, sid=sid)
        await site.ask("PUT", "/api/resource/User/ann", {"fullName": "A"}, sid=sid)
        await site.ask("POST", "/api/login", {"usr": "ann", "pwd": "wrong"})
    assert [(status, user) for status, user, _, _ in refused(logs)] == [
        (403, None),
        (400, "ann"),
        (403, "ann"),
        (401, None),
    ]
