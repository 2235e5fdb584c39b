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
from tests.fw_actors.office import Office

pytestmark = pytest.mark.usefixtures("on_both_stores")

DAY = 86_400
START = 1_800_000_000_000


async def begin(office: Office, sid: str = "a sid", days: int = 30, **values: Any) -> int:
    given = {"handle": f"h-{sid}", "user": "ada", "ip": "192.0.2.1", "user_agent": "A", **values}
    return await office.site.store.write(partial(sessions.begin, sid=sid, days=days, **given))


async def live(office: Office, sid: str = "a sid", idle_days: int = 0) -> LiveSession:
    found = Sessions(office.site.registry, idle_days)
    return await office.site.store.read(lambda tx: found.live(tx, sid))


async def test_session_is_found_by_sid_and_named_by_handle(office: Office) -> None:
    await office.hire("ada")
    await begin(office)
    assert await live(office) == LiveSession("h-a sid", "ada", START)


async def test_sid_is_stored_as_its_sha_256_only(office: Office) -> None:
    """A `sid` is stored as its SHA-256 only (A-150)."""
    await begin(office, handle="handle")
    (row,) = await office.sql("SELECT * FROM fw_session")
    assert hashlib.sha256(b"a sid").digest() in row
    assert "a sid" not in str(row)


@pytest.mark.parametrize("sid", ["", "another", "h-a sid", "\ud800", "x" * 10_000])
async def test_unknown_sid_is_no_session(office: Office, sid: str) -> None:
    await office.hire("ada")
    await begin(office)
    with pytest.raises(AuthenticationError):
        await live(office, sid)


async def test_idle_session_ends_if_the_policy_limits_idleness(office: Office) -> None:
    """ASVS 7.3.1; each use restarts the idle days, and the expiry stays."""
    await office.hire("ada")
    await begin(office, days=5)
    store = office.site.store
    for _ in range(2):
        await trio.sleep(2 * DAY - 1)
        await live(office, idle_days=2)
        await store.write(partial(sessions.record_use, session="h-a sid"))
    assert await store.read(lambda tx: sessions.of_user(tx, "ada", 1))
    await trio.sleep(DAY + 1)
    with pytest.raises(AuthenticationError):
        await live(office, idle_days=1)
    assert await store.read(lambda tx: sessions.of_user(tx, "ada", 1)) == []
    with pytest.raises(NotFoundError):
        await store.write(lambda tx: sessions.revoke(tx, "ada", "h-a sid", 1))
    await trio.sleep(1)
    with pytest.raises(AuthenticationError):
        await live(office, idle_days=2)


async def test_session_never_idles_by_default(office: Office) -> None:
    await office.hire("ada")
    await begin(office)
    await trio.sleep(30 * DAY - 1)
    await live(office)


async def test_session_limit_ends_the_least_recently_used(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS_PER_USER", 3)
    await begin(office, "of bob", user="bob")
    for sid in ("a", "b", "c"):
        await begin(office, sid)
        await trio.sleep(1)
    await office.site.store.write(partial(sessions.record_use, session="h-a"))
    await trio.sleep(1)
    await begin(office, "d")
    rows = await office.sql("SELECT id FROM fw_session ORDER BY id")
    assert rows == [("h-a",), ("h-c",), ("h-d",), ("h-of bob",)]


async def test_session_limit_ends_expired_sessions_first(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live session ends because of live ones only, even if no sweep runs (A-159)."""
    monkeypatch.setattr(sessions, "MAX_SESSIONS_PER_USER", 3)
    await begin(office, "live")
    await begin(office, "short", days=1)
    await trio.sleep(DAY - 1)
    await office.site.store.write(partial(sessions.record_use, session="h-short"))
    await trio.sleep(1)
    for sid in ("c", "d"):
        await begin(office, sid)
    rows = await office.sql("SELECT id FROM fw_session ORDER BY id")
    assert rows == [("h-c",), ("h-d",), ("h-live",)]


async def test_session_ends_after_its_days(office: Office) -> None:
    """One lifetime is used for the stored expiry and the cookie (A-152)."""
    await office.hire("ada")
    assert await begin(office, days=2) == START + 2 * DAY * 1000
    await trio.sleep(2 * DAY - 0.001)
    await live(office)
    await trio.sleep(0.001)
    with pytest.raises(AuthenticationError):
        await live(office)


async def test_ended_session_is_not_listed_revoked_or_counted(office: Office) -> None:
    """A session that has ended is not listed, revoked or counted (A-250)."""
    await office.hire("ada")
    await begin(office, "brief", days=1)
    await begin(office, "long", days=2)
    store = office.site.store

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
    office: Office,
) -> None:
    """A session that has expired by `sessionIdleDays` has ended before (A-252)."""
    await office.hire("ada")
    await begin(office, "idle")
    await trio.sleep(DAY)
    await begin(office, "own")
    await begin(office, "other")
    site = office.site
    policy = replace(site.config.auth, session_idle_days=1)
    own = SelfService(policy, site.accounts, site.api_keys, site.mail_queue)
    caller = Caller("ada", frozenset(), session="h-own")
    assert await site.write("ada", lambda fw: own.revoke_other_sessions(fw, caller)) == 1
    assert await office.sql("SELECT id FROM fw_session") == [("h-own",)]


async def test_session_of_a_disabled_or_deleted_user_is_refused(office: Office) -> None:
    """Expiry, disabling and deletion are checked at every use (A-153)."""
    await office.hire("ada")
    await begin(office)
    await office.sql("UPDATE doc_user SET enabled = 0")  # behind the back of every rule
    with pytest.raises(AuthenticationError):
        await live(office)
    await office.sql("DELETE FROM doc_user")
    with pytest.raises(AuthenticationError):
        await live(office)


async def test_session_end_ends_that_session_only(office: Office) -> None:
    await office.hire("ada")
    for sid in ("one", "two"):
        await begin(office, sid)
    await office.site.store.write(lambda tx: sessions.end(tx, "one"))
    await office.site.store.write(lambda tx: sessions.end(tx, "unknown"))
    with pytest.raises(AuthenticationError):
        await live(office, "one")
    await live(office, "two")


async def test_session_seen_updates_the_last_use(office: Office) -> None:
    await office.hire("ada")
    await begin(office)
    await trio.sleep(90)
    await office.site.store.write(lambda tx: sessions.record_use(tx, "h-a sid"))
    assert (await live(office)).last_seen == START + 90_000


async def test_user_agent_is_cut_to_512_characters(office: Office) -> None:
    await begin(office, user_agent="x" * 10_000)
    assert await office.sql("SELECT length(user_agent) FROM fw_session") == [(512,)]
