"""Profile, password and sessions by self-service (A-240 to A-253)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fw_actors.access import sessions
from fw_actors.access.api_keys import ApiKeys
from fw_actors.errors import OverloadedError
from tests.accounts_kit import PASSWORD
from tests.http_site import SERVICES, HttpSite, http_site

pytestmark = pytest.mark.usefixtures("on_both_stores")

OTHER = "another decent passphrase"
ONLY_SESSIONS: tuple[tuple[str, dict[str, str]], ...] = (
    ("profile.changeMyPassword", {"current": PASSWORD, "password": OTHER}),
    ("sessions.listMySessions", {}),
    ("sessions.revokeMySession", {"id": "x"}),
    ("sessions.revokeMyOtherSessions", {}),
    ("api_keys.listMyAPIKeys", {}),
    ("api_keys.createMyAPIKey", {"label": "x"}),
    ("api_keys.revokeMyAPIKey", {"name": "x"}),
    ("api_keys.revokeAllMyAPIKeys", {}),
)
ALL: tuple[tuple[str, dict[str, str]], ...] = (
    *ONLY_SESSIONS,
    ("profile.getMyProfile", {}),
    ("profile.updateMyProfile", {}),
)


@pytest.mark.parametrize(("name", "body"), ALL)
async def test_self_service_requires_a_session(site: HttpSite, name: str, body: Any) -> None:
    """Each operation acts on the account of its session, and asks for one (A-240)."""
    assert (await site.op(name, body)).error["type"] == "AuthenticationError"
    assert (await site.op(name, body, sid="x" * 32)).status == 401
    assert (await site.op(name, body, sid="x" * 32, csrf=False)).error["type"] == "CSRFError"


async def test_refusal_without_a_session_has_a_reason(site: HttpSite) -> None:
    """Programs and pages tell it from a wrong password by `extra.reason` (H-53)."""
    await site.add_account("ann")
    sid = await site.sid("ann")
    change = {"current": "wrong", "password": "a new password"}
    wrong = await site.op("profile.changeMyPassword", change, sid=sid)
    guest = await site.op("profile.getMyProfile")
    assert (await site.ask("POST", "/api/logout", sid=sid)).status == 200
    ended = await site.op("profile.getMyProfile", sid=sid)
    assert [reply.status for reply in (wrong, guest, ended)] == [401, 401, 401]
    assert [reply.error.get("extra") for reply in (wrong, guest, ended)] == [
        None,
        {"reason": "noSession"},
        {"reason": "noSession"},
    ]


@pytest.mark.parametrize(("name", "body"), ONLY_SESSIONS)
async def test_self_service_is_closed_to_api_keys(site: HttpSite, name: str, body: Any) -> None:
    """A key does not call the operations on password, sessions and keys (A-264)."""
    await site.add_account("ann")
    sid = await site.sid("ann")
    key = (await site.key(sid))["key"]
    assert (await site.op(name, body, key=key)).error["type"] == "PermissionDeniedError"
    assert await site.alive(sid)


async def test_openapi_offers_no_api_key_for_operations_that_refuse_it(site: HttpSite) -> None:
    """H-106: neither as their security nor as a reason to leave out the CSRF header."""
    document = (await site.ask("GET", "/api/openapi.json")).json
    only_sessions = {
        (path.removeprefix(SERVICES), verb): operation
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
        if operation.get("security") == [{"session": []}]
    }
    posts = {name for name, verb in only_sessions if verb == "post"}
    gets = {name for name, verb in only_sessions if verb == "get"}
    assert posts == {name for name, _ in ONLY_SESSIONS}
    assert gets == {"sessions.listMySessions", "api_keys.listMyAPIKeys"}
    assert all(
        [each["required"] for each in only_sessions[name, "post"]["parameters"]] == [True]
        for name in posts
    )


async def test_profile_has_two_writable_fields(site: HttpSite) -> None:
    """No other field is ever written (A-242, A-241)."""
    await site.add_account("ann", "Event Publisher")
    sid = await site.sid("ann")
    reply = await site.op("profile.updateMyProfile", {"language": "de"}, sid=sid)
    expected = {
        "name": "ann", "email": "ann@example.test", "fullName": "Ann", "language": "de",
        "roles": ["Event Publisher"],
    }  # fmt: skip
    assert (reply.status, reply.json) == (200, expected)
    await site.op("profile.updateMyProfile", {"fullName": " Ann O'Hara "}, sid=sid)
    reply = await site.ask("GET", "/api/method/core.services.profile.getMyProfile", sid=sid)
    assert reply.json == {**expected, "fullName": "Ann O'Hara"}
    emptied = await site.op("profile.updateMyProfile", {"fullName": ""}, sid=sid)
    assert emptied.json["fullName"] == ""


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"fullName": "x", "roles": []}, 400, "roles"),
        ({"fullName": "x", "email": "x@example.test"}, 400, "email"),
        ({"fullName": 7}, 400, "fullName"),
        ({"fullName": None}, 400, "fullName"),
        ({"fullName": "a\nb"}, 400, "fullName"),
        ({"fullName": "x" * 141}, 422, "fullName"),
        ({"language": "x" * 21}, 422, "language"),
    ],
)
async def test_profile_rejects_other_fields(
    site: HttpSite, body: Any, status: int, field: str
) -> None:
    await site.add_account("ann")
    sid = await site.sid("ann")
    reply = await site.op("profile.updateMyProfile", body, sid=sid)
    assert (reply.status, reply.error["extra"]["field"]) == (status, field)
    assert (await site.op("profile.getMyProfile", sid=sid)).json["fullName"] == "Ann"


@pytest.mark.parametrize("role", ["Event Publisher", "System Manager"])
async def test_user_record_is_not_writable_by_its_user(site: HttpSite, role: str) -> None:
    """A user has no write permission on the own User record (A-24, A-25)."""
    await site.add_account("ann", role)
    await site.add_account("boss", "System Manager")
    sid = await site.sid("ann")
    path = "/api/resource/User/ann"
    for body in ({"roles": [{"role": "System Manager"}]}, {"fullName": "x"}, {"enabled": 0}):
        assert (await site.ask("PUT", path, body, sid=sid)).error["type"] == "PermissionDeniedError"
    assert (await site.ask("DELETE", path, sid=sid)).status == 403
    (user,) = await site.rows("SELECT \"fullName\", enabled FROM doc_user WHERE name = 'ann'")
    assert user == {"fullName": "Ann", "enabled": 1}


@pytest.mark.parametrize(
    ("user", "body", "kind"),
    [
        ("boss", {"new_password": "short"}, "PermissionDeniedError"),
        ("boss", {"new_password": OTHER}, "PermissionDeniedError"),
        ("ann", {"new_password": "short", "hash": "x"}, "BadRequestError"),
        ("ann", {"new_password": OTHER, "email": 5}, "BadRequestError"),
        ("ann", {"new_password": OTHER, "modified": "2020-01-01T00:00:00.000Z"}, "ConflictError"),
        ("nobody", {"new_password": "short"}, "NotFoundError"),
    ],
)
async def test_user_write_is_denied_before_its_password_is_hashed(
    site: HttpSite, user: str, body: Any, kind: str
) -> None:
    """A malformed body is 400 and a role or scope 403, before the work is done (H-21)."""
    await site.add_account("ann")
    await site.add_account("boss", "System Manager")
    sid = await site.sid("boss")
    before = site.service.site.hasher.statistics().hashes
    reply = await site.ask("PUT", f"/api/resource/User/{user}", body, sid=sid)
    assert reply.error["type"] == kind
    assert site.service.site.hasher.statistics().hashes == before


async def test_password_change_ends_all_sessions_but_its_own(site: HttpSite) -> None:
    """Self-service spares the caller's own session (A-248, A-243)."""
    await site.add_account("ann")
    mine, *others = [await site.sid("ann") for _ in range(3)]
    key = (await site.key(mine))["key"]
    body = {"current": PASSWORD, "password": OTHER}
    reply = await site.op("profile.changeMyPassword", body, sid=mine)
    assert (reply.status, reply.json) == (200, {"ok": True, "sessionsEnded": 2})
    assert [await site.alive(sid) for sid in (mine, *others)] == [True, False, False]
    assert (await site.op("profile.getMyProfile", key=key)).status == 200, "A-249"
    assert [(await site.login("ann", pwd)).status for pwd in (PASSWORD, OTHER)] == [401, 200]
    mails = await site.rows("SELECT template, recipient, owner FROM doc_email_delivery")
    expected = {"recipient": "ann@example.test", "owner": "ann"}
    assert sorted(mails, key=str) == [
        {"template": "api_key_made", **expected}, {"template": "password_changed", **expected}
    ]  # fmt: skip


async def test_password_change_shares_the_budget_of_sign_ins(site: HttpSite) -> None:
    """A wrong `current` is 401 and counts as a failed sign-in for the account's name (A-244,
    A-245)."""
    await site.add_account("ann")
    sid = await site.sid("ann")
    body = {"current": "wrong", "password": OTHER}
    assert (await site.login("ann", "wrong")).status == 401
    replies = [await site.op("profile.changeMyPassword", body, sid=sid) for _ in range(5)]
    assert [reply.status for reply in replies] == [401, 401, 401, 429, 429]
    right = {"current": PASSWORD, "password": OTHER}
    assert (await site.op("profile.changeMyPassword", right, sid=sid)).status == 429
    assert (await site.login("ann")).status == 429
    assert (await site.login("ann@example.test")).status == 200, "the e-mail has its own budget"
    site.pass_time(15 * 60 + 1)
    assert (await site.op("profile.changeMyPassword", right, sid=sid)).status == 200


async def test_password_change_clears_the_failures(site: HttpSite) -> None:
    """A-246."""
    await site.add_account("ann")
    sid = await site.sid("ann")
    for _ in range(4):
        await site.login("ann", "wrong")
    body = {"current": PASSWORD, "password": "short"}
    reply = await site.op("profile.changeMyPassword", body, sid=sid)
    assert (reply.status, reply.error["extra"]) == (422, {"rule": "tooShort"})
    assert [(await site.login("ann", "wrong")).status for _ in range(4)] == [401] * 4


@pytest.mark.parametrize(
    ("password", "rule"),
    [
        ("seven77", "tooShort"),
        ("\U0001f600" * 7, "tooShort"),
        ("", "blank"),
        ("\u3000" * 12, "blank"),
        ("x" * 257, "tooLong"),
        ("ANN", "equalsAccountName"),
        ("ann@EXAMPLE.test", "equalsAccountName"),
    ],
)
async def test_password_change_meets_the_policy(site: HttpSite, password: str, rule: str) -> None:
    """The policy holds for a changed password too (A-130, A-138)."""
    await site.add_account("ann")
    sid = await site.sid("ann")
    body = {"current": PASSWORD, "password": password}
    reply = await site.op("profile.changeMyPassword", body, sid=sid)
    assert (reply.error["type"], reply.error["extra"]) == ("PasswordPolicyError", {"rule": rule})
    assert (await site.login("ann")).status == 200


async def test_password_policy_may_reject_common_ones_everywhere(tmp_path: Path) -> None:
    """The policy is applied where hashing happens, so that all call sites obey it (A-135,
    A-130)."""
    async with http_site(tmp_path, refuse_common_passwords=True) as site:
        await site.add_account("ann")
        await site.add_account("ida", password=None)
        await site.add_account("boss", "System Manager")
        sid, boss = await site.sid("ann"), await site.sid("boss")
        new = {"password": "Password1"}
        links = [
            (await site.op(name, {"user": user}, sid=boss)).json["link"].partition("#token=")[2]
            for name, user in (("users.sendPasswordReset", "ann"), ("users.resendInvite", "ida"))
        ]
        form = {"new_password": "Password1"}
        replies = [
            await site.op("profile.changeMyPassword", {"current": PASSWORD, **new}, sid=sid),
            await site.ask("POST", "/api/auth/reset-password", {"token": links[0], **new}),
            await site.ask("POST", "/api/auth/accept-invite", {"token": links[1], **new}),
            await site.ask("PUT", "/api/resource/User/ann", form, sid=boss),
        ]
        for reply in replies:
            assert (reply.status, reply.error["extra"]) == (422, {"rule": "common"})


async def test_sessions_are_listed_by_handles(site: HttpSite) -> None:
    """Sessions are listed by handles, with address, browser and times (A-250, A-155)."""
    await site.add_account("ann")
    await site.add_account("bob")
    await site.sid("bob")
    agent = [("User-Agent", "Firefox/First")]
    first = await site.sid("ann", peer="2001:db8::1", headers=agent)
    site.pass_time(61)
    second = await site.sid("ann")
    site.pass_time(61)
    reply = await site.op("sessions.listMySessions", sid=first)
    mine, other = reply.json["sessions"]
    assert mine == {
        "id": mine["id"], "ip": "2001:db8::1", "userAgent": "Firefox/First", "current": True,
        "created": "2027-01-15T08:00:00.000Z", "lastSeen": "2027-01-15T08:02:02.000Z",
        "expires": "2027-02-14T08:00:00.000Z",
    }  # fmt: skip
    assert (other["ip"], other["current"], other["lastSeen"]) == (
        "203.0.113.9", False, "2027-01-15T08:01:01.000Z",
    )  # fmt: skip
    assert first not in reply.body.decode()
    assert second not in reply.body.decode()


async def test_session_is_ended_by_its_handle(site: HttpSite) -> None:
    await site.add_account("ann")
    mine, other = await site.sid("ann"), await site.sid("ann")
    listed = (await site.op("sessions.listMySessions", sid=other)).json["sessions"]
    handle = next(each["id"] for each in listed if each["current"])
    assert (await site.op("sessions.revokeMySession", {"id": handle}, sid=mine)).json == {
        "ok": True
    }
    assert [await site.alive(sid) for sid in (mine, other)] == [True, False]
    again = await site.op("sessions.revokeMySession", {"id": handle}, sid=mine)
    assert again.error["type"] == "NotFoundError"


async def test_session_is_not_ended_by_a_sid_or_a_foreign_handle(site: HttpSite) -> None:
    """Another user's handle is 404, in the words for one that never was (A-251, A-157)."""
    await site.add_account("ann", "System Manager")
    await site.add_account("bob")
    mine, theirs = await site.sid("ann"), await site.sid("bob")
    (session,) = (await site.op("sessions.listMySessions", sid=theirs)).json["sessions"]
    replies = [
        await site.op("sessions.revokeMySession", {"id": id}, sid=mine)
        for id in (session["id"], "never", theirs, mine)
    ]
    assert {(reply.status, reply.body) for reply in replies} == {(404, replies[0].body)}
    assert await site.alive(theirs)
    assert await site.alive(mine)


async def test_sessions_other_than_this_one_end_at_once(site: HttpSite) -> None:
    await site.add_account("ann")
    await site.add_account("bob")
    theirs = await site.sid("bob")
    mine, *others = [await site.sid("ann") for _ in range(3)]
    for ended in (2, 0):
        reply = await site.op("sessions.revokeMyOtherSessions", sid=mine)
        assert reply.json == {"ok": True, "sessionsEnded": ended}
    assert [await site.alive(sid) for sid in (mine, theirs, *others)] == [True, True, False, False]


async def test_sessions_that_expired_are_neither_listed_nor_counted(tmp_path: Path) -> None:
    async with http_site(tmp_path, session_days=1, scheduler=False) as site:
        await site.add_account("ann")
        await site.sid("ann")
        site.pass_time(86_400)
        mine = await site.sid("ann")
        assert len((await site.op("sessions.listMySessions", sid=mine)).json["sessions"]) == 1
        reply = await site.op("sessions.revokeMyOtherSessions", sid=mine)
        assert reply.json["sessionsEnded"] == 0


async def test_session_last_seen_is_written_once_a_minute(site: HttpSite) -> None:
    """`lastSeen` is written at most once a minute (A-156)."""
    await site.add_account("ann")
    sid = await site.sid("ann")
    commits = site.site.store.statistics
    before = commits().committed
    for _ in range(59):
        site.pass_time(1)
        assert await site.alive(sid)
    assert commits().committed == before
    site.pass_time(1)
    assert await site.alive(sid)
    assert commits().committed == before + 1


async def test_session_is_read_while_the_store_takes_no_writes(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lastSeen` and `lastUsed` are optional, so that a full disk signs no user out."""
    await site.add_account("ann")
    sid = await site.sid("ann")
    key = (await site.key(sid))["key"]

    def full(*args: object, **given: object) -> None:
        raise OverloadedError

    monkeypatch.setattr(sessions, "record_use", full)
    monkeypatch.setattr(ApiKeys, "record_use", full)
    site.pass_time(61)
    assert await site.alive(sid)
    assert (await site.op("profile.getMyProfile", key=key)).status == 200
    (mine,) = (await site.op("sessions.listMySessions", sid=sid)).json["sessions"]
    assert mine["lastSeen"] == mine["created"]
