"""Sessions: their `sid`, their expiry and their use (A-150 to A-163)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio

from fw_actors.access import sessions
from fw_actors.access.administration import SelfService
from fw_actors.access.sessions import Caller, LiveSession, Sessions
from fw_actors.errors import AuthenticationError, NotFoundError
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

DAY = 86_400
START = 1_800_000_000_000


async def begin(site: VirtualSite, sid: str = "a sid", days: int = 30, **values: Any) -> int:
    given = {"handle": f"h-{sid}", "user": "ada", "ip": "192.0.2.1", "user_agent": "A", **values}
    return await site.site.store.write(partial(sessions.begin, sid=sid, days=days, **given))


async def live(site: VirtualSite, sid: str = "a sid", idle_days: int = 0) -> LiveSession:
    found = Sessions(idle_days)
    return await site.site.store.read(lambda tx: found.live(tx, sid))


async def test_session_is_found_by_sid_and_named_by_handle(site: VirtualSite) -> None:
    await site.add_account("ada", "Note Writer", "Event Publisher")
    await begin(site)
    roles = frozenset({"Note Writer", "Event Publisher"})
    assert await live(site) == LiveSession("h-a sid", "ada", START, roles)


async def test_session_of_user_without_roles_has_none(site: VirtualSite) -> None:
    await site.add_account("ada")
    await begin(site)
    assert (await live(site)).roles == frozenset()


async def test_sid_is_stored_as_its_sha_256_only(site: VirtualSite) -> None:
    """A `sid` is stored as its SHA-256 only (A-150)."""
    await begin(site, handle="handle")
    (row,) = await site.sql("SELECT * FROM fw_session")
    assert hashlib.sha256(b"a sid").digest() in row
    assert "a sid" not in str(row)


@pytest.mark.parametrize("sid", ["", "another", "h-a sid", "\ud800", "x" * 10_000])
async def test_unknown_sid_is_no_session(site: VirtualSite, sid: str) -> None:
    await site.add_account("ada")
    await begin(site)
    with pytest.raises(AuthenticationError):
        await live(site, sid)


async def test_idle_session_ends_if_the_policy_limits_idleness(site: VirtualSite) -> None:
    """ASVS 7.3.1; each use restarts the idle days, and the expiry stays."""
    await site.add_account("ada")
    await begin(site, days=5)
    store = site.site.store
    for _ in range(2):
        await trio.sleep(2 * DAY - 1)
        await live(site, idle_days=2)
        await store.write(partial(sessions.record_use, session="h-a sid"))
    assert await store.read(lambda tx: sessions.of_user(tx, "ada", 1))
    await trio.sleep(DAY + 1)
    with pytest.raises(AuthenticationError):
        await live(site, idle_days=1)
    assert await store.read(lambda tx: sessions.of_user(tx, "ada", 1)) == []
    with pytest.raises(NotFoundError):
        await store.write(lambda tx: sessions.revoke(tx, "ada", "h-a sid", 1))
    await trio.sleep(1)
    with pytest.raises(AuthenticationError):
        await live(site, idle_days=2)


async def test_session_never_idles_by_default(site: VirtualSite) -> None:
    await site.add_account("ada")
    await begin(site)
    await trio.sleep(30 * DAY - 1)
    await live(site)


async def test_session_limit_ends_the_least_recently_used(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS_PER_USER", 3)
    await begin(site, "of bob", user="bob")
    for sid in ("a", "b", "c"):
        await begin(site, sid)
        await trio.sleep(1)
    await site.site.store.write(partial(sessions.record_use, session="h-a"))
    await trio.sleep(1)
    await begin(site, "d")
    rows = await site.sql("SELECT id FROM fw_session ORDER BY id")
    assert rows == [("h-a",), ("h-c",), ("h-d",), ("h-of bob",)]


async def test_session_limit_ends_expired_sessions_first(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live session ends because of live ones only, even if no sweep runs (A-159)."""
    monkeypatch.setattr(sessions, "MAX_SESSIONS_PER_USER", 3)
    await begin(site, "live")
    await begin(site, "short", days=1)
    await trio.sleep(DAY - 1)
    await site.site.store.write(partial(sessions.record_use, session="h-short"))
    await trio.sleep(1)
    for sid in ("c", "d"):
        await begin(site, sid)
    rows = await site.sql("SELECT id FROM fw_session ORDER BY id")
    assert rows == [("h-c",), ("h-d",), ("h-live",)]


async def test_session_ends_after_its_days(site: VirtualSite) -> None:
    """One lifetime is used for the stored expiry and the cookie (A-152)."""
    await site.add_account("ada")
    assert await begin(site, days=2) == START + 2 * DAY * 1000
    await trio.sleep(2 * DAY - 0.001)
    await live(site)
    await trio.sleep(0.001)
    with pytest.raises(AuthenticationError):
        await live(site)


async def test_ended_session_is_not_listed_revoked_or_counted(site: VirtualSite) -> None:
    """A session that has ended is not listed, revoked or counted (A-250)."""
    await site.add_account("ada")
    await begin(site, "brief", days=1)
    await begin(site, "long", days=2)
    store = site.site.store

    async def listed() -> list[str]:
        return [each.id for each in await store.read(lambda tx: sessions.of_user(tx, "ada", 0))]

    await trio.sleep(DAY - 0.001)
    assert sorted(await listed()) == ["h-brief", "h-long"]
    await trio.sleep(0.001)
    assert await listed() == ["h-long"]
    with pytest.raises(NotFoundError):
        await store.write(partial(sessions.revoke, idle_days=0, user="ada", handle="h-brief"))
    assert await store.write(partial(sessions.end_all, user="ada", idle_days=0)) == 1


async def test_idle_session_is_not_counted_by_revoke_other_sessions(
    site: VirtualSite,
) -> None:
    """A session that has expired by `sessionIdleDays` has ended before (A-252)."""
    await site.add_account("ada")
    await begin(site, "idle")
    await trio.sleep(DAY)
    await begin(site, "own")
    await begin(site, "other")
    opened = site.site
    policy = replace(opened.config.auth, session_idle_days=1)
    own = SelfService(policy, opened.accounts, opened.api_keys, opened.mail_queue)
    caller = Caller("ada", frozenset(), session="h-own")
    assert await opened.write("ada", lambda fw: own.revoke_other_sessions(fw, caller)) == 1
    assert await site.sql("SELECT id FROM fw_session") == [("h-own",)]


async def test_session_of_a_disabled_or_deleted_user_is_refused(site: VirtualSite) -> None:
    """Expiry, disabling and deletion are checked at every use (A-153)."""
    await site.add_account("ada")
    await begin(site)
    await site.sql("UPDATE doc_user SET enabled = 0")  # behind the back of every rule
    with pytest.raises(AuthenticationError):
        await live(site)
    await site.sql("DELETE FROM doc_user")
    with pytest.raises(AuthenticationError):
        await live(site)


async def test_session_end_ends_that_session_only(site: VirtualSite) -> None:
    await site.add_account("ada")
    for sid in ("one", "two"):
        await begin(site, sid)
    await site.site.store.write(lambda tx: sessions.end(tx, "one"))
    await site.site.store.write(lambda tx: sessions.end(tx, "unknown"))
    with pytest.raises(AuthenticationError):
        await live(site, "one")
    await live(site, "two")


async def test_session_seen_updates_the_last_use(site: VirtualSite) -> None:
    await site.add_account("ada")
    await begin(site)
    await trio.sleep(90)
    await site.site.store.write(lambda tx: sessions.record_use(tx, "h-a sid"))
    assert (await live(site)).last_seen == START + 90_000


async def test_user_agent_is_cut_to_512_characters(site: VirtualSite) -> None:
    await begin(site, user_agent="x" * 10_000)
    assert await site.sql("SELECT length(user_agent) FROM fw_session") == [(512,)]
