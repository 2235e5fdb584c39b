"""Access after the clock was set back: nothing lasts longer by the time it was ahead (O-163)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from fw_actors.webhooks.pacing import paused_webhooks
from tests.access.link_kit import RESET, spend, token_for
from tests.accounts_kit import PASSWORD
from tests.http_site import HttpSite, http_site

pytestmark = pytest.mark.usefixtures("on_both_stores")

DAY = 86_400
YEAR = 365 * DAY
WINDOW = 15 * 60
PROFILE = "profile.getMyProfile"
HOOK = {
    "url": "https://receiver.test/", "event_type": "Custom", "custom_event": "note.shared",
    "secret": "a signing secret",
}  # fmt: skip


async def noticed() -> None:
    """Wait until the clock of the service was seen to be set back, and times corrected."""
    await trio.sleep(120)


async def mails(site: HttpSite, template: str) -> int:
    await trio.sleep(3)
    found = await site.rows("SELECT template FROM doc_email_delivery")
    return sum(row["template"] == template for row in found)


async def test_lock_ends_after_its_minutes(site: HttpSite) -> None:
    await site.add_account("ann")
    site.pass_time(YEAR)
    assert [(await site.login("ann", "wrong")).status for _ in range(5)] == [401] * 4 + [429]
    site.pass_time(-YEAR)
    assert (await site.login("ann")).status == 429, "a lock does not end early"
    await noticed()
    wait = int((await site.login("ann")).header("retry-after") or "")
    assert wait <= WINDOW
    site.pass_time(WINDOW)
    assert (await site.login("ann")).status == 200


async def test_failures_still_count_for_their_window(site: HttpSite) -> None:
    await site.add_account("ann")
    site.pass_time(YEAR)
    assert [(await site.login("ann", "wrong")).status for _ in range(4)] == [401] * 4
    site.pass_time(-YEAR)
    await noticed()
    assert (await site.login("ann", "wrong")).status == 429


async def test_address_is_admitted_again(site: HttpSite) -> None:
    await site.add_account("ann")
    site.pass_time(YEAR)
    for number in range(50):
        await site.login(f"nobody{number}", "wrong", peer="192.0.2.9")
    site.pass_time(-YEAR)
    assert (await site.login("ann", peer="192.0.2.9")).status == 429
    await noticed()
    site.pass_time(WINDOW)
    assert (await site.login("ann", peer="192.0.2.9")).status == 200


async def test_recovery_is_mailed_again(site: HttpSite) -> None:
    await site.add_account("ann")
    site.pass_time(YEAR)
    body = {"usr": "ann"}
    for _ in range(3):
        await site.ask("POST", "/api/auth/forgot-password", body, csrf=False)
    assert await mails(site, "recovery") == 3
    site.pass_time(-YEAR)
    await noticed()
    site.pass_time(3600)
    await site.ask("POST", "/api/auth/forgot-password", body, csrf=False)
    assert await mails(site, "recovery") == 4


async def test_session_and_link_keep_their_duration(site: HttpSite) -> None:
    await site.add_account("ann")
    await site.add_account("bob")
    before = await site.sid("bob")
    site.pass_time(20 * DAY)
    sid, token = await site.sid("ann"), await token_for(site, "ann")
    site.pass_time(-20 * DAY)
    await noticed()
    assert await site.alive(sid)
    site.pass_time(3600)
    assert (await spend(site, RESET, token, PASSWORD)).status == 400
    site.pass_time(29 * DAY)
    assert await site.alive(sid)
    site.pass_time(DAY)
    assert [await site.alive(each) for each in (sid, before)] == [False, False]


async def test_idle_session_ends_after_its_days(tmp_path: Path) -> None:
    """Its last use, while the clock was ahead, counts as one now (A-158)."""
    async with http_site(tmp_path, session_idle_days=7) as site:
        await site.add_account("ann")
        sid = await site.sid("ann")
        site.pass_time(6 * DAY)
        assert await site.alive(sid)
        site.pass_time(-6 * DAY)
        await noticed()
        site.pass_time(7 * DAY)
        assert not await site.alive(sid)


async def test_api_key_keeps_its_lifetime(site: HttpSite) -> None:
    await site.add_account("ann")
    site.pass_time(YEAR)
    sid = await site.sid("ann")
    keys = [await site.key(sid, days=1), await site.key(sid)]
    site.pass_time(-YEAR)
    await noticed()

    async def statuses() -> list[int]:
        return [(await site.op(PROFILE, key=each["key"])).status for each in keys]

    site.pass_time(DAY - WINDOW)
    assert await statuses() == [200, 200]
    site.pass_time(WINDOW)
    assert await statuses() == [401, 200]


async def test_pause_of_webhook_keeps_its_duration(site: HttpSite) -> None:
    """Its deliveries would wait for as long as the clock was ahead (B-300)."""
    await site.add_account("ann", "System Manager")
    for name in ("timed", "endless"):
        await site.do(lambda fw, name=name: fw.new_doc("Webhook", name=name, **HOOK).insert())  # type: ignore[misc]
    site.pass_time(YEAR)
    await site.do(lambda fw: site.site.pauses.pause(fw, "timed", WINDOW))
    await site.do(lambda fw: site.site.pauses.pause(fw, "endless", None))
    site.pass_time(-YEAR)
    await noticed()

    async def paused() -> list[str]:
        found = await site.site.store.read(paused_webhooks)
        assert all(each.since is not None and each.since <= site.site.clock.now() for each in found)
        return sorted(each.webhook for each in found)

    assert await paused() == ["endless", "timed"]
    site.pass_time(WINDOW)
    assert await paused() == ["endless"]


async def test_overlap_of_rotation_ends_at_the_latest_after_the_maximum(site: HttpSite) -> None:
    """The old secret would sign for as long as the clock was ahead (B-352)."""
    await site.add_account("ann", "System Manager")
    await site.do(lambda fw: fw.new_doc("Webhook", name="hook", **HOOK).insert())
    site.pass_time(YEAR)
    sid, body = await site.sid("ann"), {"webhook": "hook", "overlap": 720}
    path = "/api/method/core.services.webhooks.rotate"
    assert (await site.ask("POST", path, body, sid=sid)).status == 200
    site.pass_time(-YEAR)
    await noticed()
    site.pass_time(30 * DAY)
    await trio.sleep(120)
    hook = await site.do(lambda fw: fw.get_doc("Webhook", "hook"))
    assert (hook.old_secret, hook.old_secret_until) == (None, None)


async def test_times_ahead_are_corrected_after_a_restart(tmp_path: Path) -> None:
    async with http_site(tmp_path) as site:
        await site.add_account("ann")
        site.pass_time(YEAR)
        for _ in range(5):
            await site.login("ann", "wrong")
    async with http_site(tmp_path, seed=2) as site:
        await noticed()
        site.pass_time(WINDOW)
        assert (await site.login("ann")).status == 200
        assert [entry["rows"] for entry in site.log.of("clock.corrected")] == [10]


async def test_times_within_the_skew_of_nodes_stay(site: HttpSite) -> None:
    await site.add_account("ann")
    site.pass_time(240)
    sid = await site.sid("ann")
    site.pass_time(-240)
    await noticed()
    assert await site.alive(sid)
    assert site.log.of("clock.corrected") == []
