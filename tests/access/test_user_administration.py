"""Operations of System Managers on accounts (A-290 to A-298)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fw_actors.errors import ConflictError
from tests.accounts_kit import PASSWORD
from tests.http_site import HttpSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

OTHER = "another decent passphrase"
ON_ONE = ("resendInvite", "sendPasswordReset", "revokeUserSessions", "unlockUser")


@pytest.fixture
async def boss(site: HttpSite) -> str:
    await site.add_account("boss", "System Manager")
    return await site.sid("boss")


async def test_invitation_returns_its_link_if_mail_is_logged(site: HttpSite, boss: str) -> None:
    """`link` is handed back only to a System Manager's request, and only when the transport is
    `log` (A-195, A-232)."""
    body = {"email": "Ida@Example.Test", "fullName": "Ida", "roles": ["Event Publisher"]}
    reply = await site.op("users.invite", body, sid=boss)
    account = reply.json
    assert (account["user"], account["email"]) == ("ida@example.test", "Ida@Example.Test")
    assert account["expires"] == "2027-01-18T08:00:00.000Z"
    token = account["link"].partition("#token=")[2]
    assert account["link"].partition("#")[0].endswith("/accept-invite")
    looked = await site.ask("POST", "/api/auth/token", {"token": token})
    assert (looked.json["kind"], looked.json["user"]) == ("invitation", "ida@example.test")
    accept = {"token": token, "password": OTHER}
    assert (await site.ask("POST", "/api/auth/accept-invite", accept)).json == {"ok": True}
    sid = await site.sid("ida@example.test", OTHER)
    mine = (await site.op("profile.getMyProfile", sid=sid)).json
    assert mine["roles"] == ["Event Publisher"]


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"email": "boss@EXAMPLE.test"}, 409, "DuplicateError"),
        ({"email": "new@example.test", "name": "BOSS"}, 409, "DuplicateError"),
        ({"email": "new@example.test", "name": "Administrator"}, 422, "ValidationError"),
        ({"email": "new@example.test", "roles": ["No Such"]}, 422, "ValidationError"),
        ({"email": "new@example.test", "roles": "System Manager"}, 400, "BadRequestError"),
        ({"email": "new@example.test", "enabled": 1}, 400, "BadRequestError"),
        ({"email": "a@example.test\nBcc: b@example.test"}, 400, "BadRequestError"),
        ({"email": "new@example.test", "fullName": "A\r\nBcc: x"}, 400, "BadRequestError"),
        ({"email": "no address"}, 422, "ValidationError"),
        ({"email": "x" * 140 + "@example.test"}, 422, "ValidationError"),
        ({"name": "new"}, 400, "BadRequestError"),
    ],
)
async def test_invitation_that_fails_leaves_nothing(
    site: HttpSite, boss: str, body: Any, status: int, kind: str
) -> None:
    reply = await site.op("users.invite", body, sid=boss)
    assert (reply.status, reply.error["type"]) == (status, kind)
    for table in ("doc_user WHERE name <> 'boss'", "fw_token", "doc_email_delivery", "fw_job"):
        assert await site.rows(f"SELECT * FROM {table}") == []


@pytest.mark.parametrize("email", ["", "   ", "no address", "hidden\u200b@example.test"])
async def test_invitation_names_the_email_of_an_unusable_address(
    site: HttpSite, boss: str, email: str
) -> None:
    """A value that breaks a rule is 422 with its field (H-63), also where the canonical e-mail
    becomes the name (A-233)."""
    reply = await site.op("users.invite", {"email": email}, sid=boss)
    assert (reply.status, reply.error["extra"]) == (422, {"field": "email"})


@pytest.mark.parametrize("name", ["invite", *ON_ONE])
async def test_user_administration_requires_a_system_manager(
    site: HttpSite, boss: str, name: str
) -> None:
    """The operations `users.*` are for System Managers only (A-290)."""
    await site.add_account("ann", "Event Publisher")
    sid = await site.sid("ann")
    body = {"email": "new@example.test"} if name == "invite" else {"user": "boss"}
    reply = await site.op(f"users.{name}", body, sid=sid)
    assert reply.error["type"] == "PermissionDeniedError"
    assert await site.alive(boss)
    assert (await site.op(f"users.{name}", body)).status == 401


@pytest.mark.parametrize("name", ON_ONE)
async def test_user_administration_answers_404_for_an_unknown_user(
    site: HttpSite, boss: str, name: str
) -> None:
    for user in ("nobody", "x" * 1000, "\u202e"):
        reply = await site.op(f"users.{name}", {"user": user}, sid=boss)
        assert reply.error["type"] == "NotFoundError"


async def test_user_administration_accepts_a_managers_key(site: HttpSite, boss: str) -> None:
    """A key acts as its user (A-261)."""
    key = (await site.key(boss))["key"]
    reply = await site.op("users.invite", {"email": "ida@example.test"}, key=key, csrf=False)
    assert reply.status == 200


@pytest.mark.parametrize(
    ("name", "user"),
    [("resendInvite", "ann"), ("sendPasswordReset", "ida"), ("sendPasswordReset", "off"),
     ("resendInvite", "off")],
)  # fmt: skip
async def test_user_administration_answers_409_for_the_wrong_link(
    site: HttpSite, boss: str, name: str, user: str
) -> None:
    """A resend to an account with a password, and a reset of an invited or disabled one, are 409
    (A-235, A-291)."""
    await site.add_account("ann")
    await site.add_account("ida", password=None)
    await site.add_account("off")
    off = {"enabled": 0}
    assert (await site.ask("PUT", "/api/resource/User/off", off, sid=boss)).status == 200
    reply = await site.op(f"users.{name}", {"user": user}, sid=boss)
    assert reply.error["type"] == "ConflictError"


async def test_reset_link_sets_a_password_and_ends_sessions(site: HttpSite, boss: str) -> None:
    await site.add_account("ann")
    sid = await site.sid("ann")
    reply = await site.op("users.sendPasswordReset", {"user": "ann"}, sid=boss)
    assert (reply.json["ok"], reply.json["expires"]) == (True, "2027-01-15T09:00:00.000Z")
    assert await site.alive(sid), "sending alone ends nothing"
    token = reply.json["link"].partition("#token=")[2]
    body = {"token": token, "password": OTHER}
    assert (await site.ask("POST", "/api/auth/reset-password", body)).status == 200
    assert not await site.alive(sid)


async def test_revoke_ends_a_users_sessions(site: HttpSite, boss: str) -> None:
    await site.add_account("ann")
    sids = [await site.sid("ann") for _ in range(3)]
    key = (await site.key(sids[0]))["key"]
    reply = await site.op("users.revokeUserSessions", {"user": "ann"}, sid=boss)
    assert reply.json == {"ok": True, "sessionsEnded": 3}
    assert [await site.alive(sid) for sid in (*sids, boss)] == [False] * 3 + [True]
    assert (await site.op("profile.getMyProfile", key=key)).status == 200


async def test_revoke_ends_keys_on_request(site: HttpSite, boss: str) -> None:
    await site.add_account("ann")
    sid, mine = await site.sid("ann"), (await site.key(boss))["key"]
    keys = [(await site.key(sid))["key"] for _ in range(2)]
    body: dict[str, Any] = {"user": "ann", "keys": True}
    reply = await site.op("users.revokeUserSessions", body, sid=boss)
    assert reply.json == {"ok": True, "sessionsEnded": 1, "keysEnded": 2}
    statuses = [(await site.op("profile.getMyProfile", key=key)).status for key in (*keys, mine)]
    assert statuses == [401, 401, 200]
    (row,) = await site.rows(
        "SELECT detail FROM doc_audit_event"
        " WHERE target = 'ann' AND action = 'user.revoke_sessions'"
    )
    assert row == {"detail": '{"sessions_ended":1,"keys_ended":2}'}
    reply = await site.op("users.revokeUserSessions", {**body, "keys": "yes"}, sid=boss)
    assert (reply.status, reply.error["extra"]["field"]) == (400, "keys")


@pytest.mark.parametrize("spelling", ["ann", " ANN@example.TEST "])
async def test_unlock_clears_name_and_email(site: HttpSite, boss: str, spelling: str) -> None:
    """An unlock clears both spellings, name and e-mail (A-293, A-76)."""
    await site.add_account("ann")
    await site.add_account("bob")
    for usr in ("ann", "ann@example.test", "bob"):
        for _ in range(5):
            await site.login(usr, "wrong")
    reply = await site.op("users.unlockUser", {"user": spelling}, sid=boss)
    assert reply.json == {"ok": True}
    users = ("ann", "ann@example.test", "bob")
    assert [(await site.login(usr, PASSWORD)).status for usr in users] == [200, 200, 429]
    again = await site.op("users.unlockUser", {"user": "ann"}, sid=boss)
    assert again.status == 200, "to unlock what is open is done already"


async def test_disable_spares_the_last_system_manager(site: HttpSite, boss: str) -> None:
    """The last System Manager is not disabled, deleted or deprived of the role (A-22)."""
    await site.add_account("second", "System Manager")
    second = await site.sid("second")
    path = "/api/resource/User/boss"
    assert (await site.ask("PUT", path, {"roles": []}, sid=second)).status == 200
    changes: list[dict[str, Any]] = [{"enabled": 0}, {"roles": []}]
    for change in changes:
        with pytest.raises(ConflictError):
            await site.do(partial(_change, "second", change))
    with pytest.raises(ConflictError):
        await site.do(lambda fw: fw.get_doc("User", "second").delete())
    with pytest.raises(ConflictError):
        await site.do(lambda fw: fw.get_doc("User", "second").db_set("enabled", 0))
    assert await site.alive(second)


def _change(user: str, values: dict[str, Any], fw: Any) -> None:
    doc = fw.get_doc("User", user)
    for name, value in values.items():
        setattr(doc, name, value)
    doc.save()


async def test_user_administration_leaves_audit_events_of_successes(
    site: HttpSite, boss: str
) -> None:
    await site.add_account("ann")
    await site.add_account("ida", password=None)
    body: dict[str, Any] = {"email": "new@example.test", "roles": ["Event Publisher"] * 2}
    await site.op("users.invite", body, sid=boss, headers=[("X-Request-Id", "r-1")])
    assert (await site.op("users.invite", body, sid=boss)).status == 409
    done = [("resendInvite", "ida"), ("sendPasswordReset", "ann"), ("revokeUserSessions", "ann")]
    for name, user in (*done, ("unlockUser", "ANN@example.test")):
        site.pass_time(1)
        assert (await site.op(f"users.{name}", {"user": user}, sid=boss)).status == 200
    rows = await site.rows(
        "SELECT action, target, detail, actor FROM doc_audit_event"
        " WHERE actor <> 'Administrator' ORDER BY creation"
    )
    assert [(row["action"], row["target"], row["detail"]) for row in rows] == [
        ("user.invite", "new@example.test", '{"roles":["Event Publisher"]}'),
        ("user.resend_invite", "ida", None),
        ("user.send_password_reset", "ann", None),
        ("user.revoke_sessions", "ann", '{"sessions_ended":0}'),
        ("user.unlock", "ann", None),
    ]
    assert {row["actor"] for row in rows} == {"boss"}
    (first,) = await site.rows("SELECT request_id FROM doc_audit_event WHERE action='user.invite'")
    assert first == {"request_id": "r-1"}
