"""API keys: their form, their use, and what ends them (A-260 to A-277)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fw_actors.errors import AuthenticationError, PermissionDeniedError
from tests.access.link_kit import RESET, spend, token_for
from tests.accounts_kit import PASSWORD
from tests.http_site import HttpSite, http_site

pytestmark = pytest.mark.usefixtures("on_both_stores")

DAY = 86_400


@pytest.fixture
async def sid(site: HttpSite) -> str:
    await site.add_account("ann")
    return await site.sid("ann")


async def works(site: HttpSite, key: str, **given: Any) -> int:
    return (await site.op("profile.getMyProfile", key=key, csrf=False, **given)).status


async def listed(site: HttpSite, sid: str) -> list[dict[str, Any]]:
    keys: list[dict[str, Any]] = (await site.op("api_keys.listMyAPIKeys", sid=sid)).json["keys"]
    return keys


async def test_api_key_is_shown_once_and_acts_as_its_user(site: HttpSite, sid: str) -> None:
    """The key is shown this once (A-267); no CSRF header is needed with it (H-81)."""
    made = await site.key(sid, label="backup")
    assert set(made) == {"name", "label", "expires", "key"}
    assert (made["label"], made["expires"]) == ("backup", None)
    assert re.fullmatch(rf"fwk_{made['name']}_[0-9A-Za-z]{{32}}", made["key"])
    assert len(made["name"]) == 12
    reply = await site.op("profile.getMyProfile", key=made["key"], csrf=False)
    assert reply.json["name"] == "ann"
    assert (await site.ask("GET", "/api/boot", key=made["key"])).json["user"]["name"] == "ann"
    assert reply.header("set-cookie") is None
    secret = made["key"].rpartition("_")[2]
    for path in ("api_keys.listMyAPIKeys", "sessions.listMySessions"):
        assert secret not in (await site.op(path, sid=sid)).body.decode()


async def test_api_key_is_stored_as_sha_256(site: HttpSite, sid: str) -> None:
    """The id and the SHA-256 of the secret are stored, and nothing else of a key (A-260)."""
    made = await site.key(sid)
    secret = made["key"].rpartition("_")[2]
    (row,) = await site.rows("SELECT * FROM fw_api_key")
    assert row == {"id": made["name"], "secret_hash": hashlib.sha256(secret.encode()).digest()}
    dump = [await site.rows(f"SELECT * FROM {table}") for table in ("doc_api_key", "fw_session")]
    assert secret not in str(dump)


@pytest.mark.parametrize(
    "presented",
    [
        *("", "fwk_", "x", "{secret}", "fwk_{id}", "fwk_{id}_{other}", "fwk_{no}_{secret}"),
        *("fwk_{id}_{secret}x", "fwk_{id}_{swapped}", "fwk_{id}_{secret} "),
    ],
)
async def test_api_key_errors_are_alike(site: HttpSite, sid: str, presented: str) -> None:
    """A bad key is 401 (A-263); the body never names its user (A-262)."""
    made = await site.key(sid)
    secret = made["key"].rpartition("_")[2]
    text = presented.format(
        id=made["name"], secret=secret, no="0" * 12, other="x" * 32, swapped=secret.swapcase()
    )
    reply = await site.op("profile.getMyProfile", key=text)
    if presented.endswith(" "):
        assert reply.status == 200, "white space around a header's value is none of it"
        return
    assert reply.error == {
        "type": "AuthenticationError",
        "message": "This API key is not valid.",
    }


async def test_api_key_ends_at_once_when_revoked(site: HttpSite, sid: str) -> None:
    one, two = await site.key(sid), await site.key(sid)
    reply = await site.op("api_keys.revokeMyAPIKey", {"name": one["name"]}, sid=sid)
    assert reply.json == {"ok": True}
    assert [await works(site, key["key"]) for key in (one, two)] == [401, 200]
    assert [key["name"] for key in await listed(site, sid)] == [two["name"]]
    again = await site.op("api_keys.revokeMyAPIKey", {"name": one["name"]}, sid=sid)
    assert again.error["type"] == "NotFoundError"
    assert len(await site.rows("SELECT * FROM fw_api_key")) == 1


async def test_api_key_is_not_created_after_a_recovery(site: HttpSite, sid: str) -> None:
    """A recovery ends keys and sessions; one that is being made is no exception (A-221)."""
    gateway = site.service.gateway
    thief = await gateway.authenticate(sid)
    await site.add_account("bob", "System Manager")
    ended = await site.op(
        "users.revokeUserSessions", {"user": "ann", "keys": True}, sid=await site.sid("bob")
    )
    assert ended.json["keysEnded"] == 0
    with pytest.raises(AuthenticationError):
        await gateway.write(thief, lambda fw: gateway.own.make_key(fw, thief, "mine", None))
    assert await site.rows("SELECT * FROM fw_api_key") == []


async def test_api_key_of_another_user_looks_unknown(site: HttpSite, sid: str) -> None:
    await site.add_account("bob", "System Manager")
    theirs = await site.sid("bob")
    made = await site.key(theirs)
    replies = [
        await site.op("api_keys.revokeMyAPIKey", {"name": name}, sid=sid)
        for name in (made["name"], "0" * 12, "")
    ]
    assert {(r.status, r.body) for r in replies} == {(404, replies[0].body)}
    assert await works(site, made["key"]) == 200


@pytest.mark.parametrize(
    ("policy", "days", "lives"),
    [(0, None, None), (0, 1, 1), (0, 3650, 3650), (10, None, 10), (10, 100, 10), (10, 3, 3)],
)
async def test_api_key_expires_within_the_policy(
    tmp_path: Path, policy: int, days: int | None, lives: int | None
) -> None:
    """`days` is between 1 and 3650, and cut to `apiKeyDays` when that is not 0 (A-268, A-269)."""
    async with http_site(tmp_path, api_key_days=policy, scheduler=False) as site:
        await site.add_account("ann")
        sid = await site.sid("ann")
        made = await site.key(sid, **({} if days is None else {"days": days}))
        if lives is None:
            assert made["expires"] is None
            return
        (row,) = await site.rows("SELECT expires, creation FROM doc_api_key")
        assert row["expires"] - row["creation"] == lives * DAY * 1000
        site.pass_time(lives * DAY - 1)
        assert await works(site, made["key"]) == 200
        site.pass_time(1)
        assert await works(site, made["key"]) == 401


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"label": "x", "days": 0}, 422, "days"),
        ({"label": "x", "days": 3651}, 422, "days"),
        ({"label": "x", "days": 1.5}, 400, "days"),
        ({"label": "x", "days": True}, 400, "days"),
        ({"label": "x", "days": "7"}, 400, "days"),
        ({"label": "x", "days": 2**60}, 400, "days"),
        ({"days": 7}, 400, "label"),
        ({"label": "   "}, 422, "label"),
        ({"label": "x\x00"}, 400, "label"),
        ({"label": "x\ud800"}, 400, "label"),
        ({"label": "x" * 141}, 422, "label"),
        ({"label": ""}, 422, "label"),
        ({"label": " \u200b"}, 422, "label"),
        ({"label": "x", "user": "bob"}, 400, "user"),
    ],
)
async def test_api_key_is_not_created_with_bad_arguments(
    site: HttpSite, sid: str, body: Any, status: int, field: str
) -> None:
    reply = await site.op("api_keys.createMyAPIKey", body, sid=sid)
    assert (reply.status, reply.error["extra"]["field"]) == (status, field)
    assert await listed(site, sid) == []
    assert await site.rows("SELECT * FROM fw_api_key") == []


async def test_api_key_creation_may_be_disabled(tmp_path: Path) -> None:
    """The operation is 403 if self-service keys are switched off (A-270, C-26)."""
    async with http_site(tmp_path, self_service_api_keys=False) as site:
        await site.add_account("ann")
        sid = await site.sid("ann")
        reply = await site.op("api_keys.createMyAPIKey", {"label": "x"}, sid=sid)
        assert reply.error["type"] == "PermissionDeniedError"


async def test_api_keys_are_limited_to_a_hundred(site: HttpSite, sid: str) -> None:
    last, *_ = [await site.key(sid) for _ in range(100)]
    reply = await site.op("api_keys.createMyAPIKey", {"label": "x"}, sid=sid)
    assert reply.error["type"] == "ConflictError"
    await site.op("api_keys.revokeMyAPIKey", {"name": last["name"]}, sid=sid)
    await site.key(sid)


async def test_api_key_replaces_first_expired_one_at_limit(site: HttpSite, sid: str) -> None:
    """A-273: a program that makes a new key each day needs no other one that deletes keys."""
    made = [await site.key(sid, **kept) for kept in ({"days": 2}, {"days": 1}, *[{}] * 98)]
    site.pass_time(2 * DAY)
    sid = await site.sid("ann")
    names = [(await site.key(sid))["name"] for _ in range(2)]
    kept = {key["name"] for key in await listed(site, sid)}
    assert kept == {*names, *(key["name"] for key in made[2:])}
    reply = await site.op("api_keys.createMyAPIKey", {"label": "x"}, sid=sid)
    assert reply.error["type"] == "ConflictError"


async def test_api_key_below_limit_replaces_none(site: HttpSite, sid: str) -> None:
    """Expired keys stay in the list, which shows their last use (A-273)."""
    expired = await site.key(sid, days=1)
    site.pass_time(DAY)
    sid = await site.sid("ann")
    await site.key(sid)
    assert expired["name"] in {key["name"] for key in await listed(site, sid)}


async def test_api_key_last_used_is_written_once_a_minute(site: HttpSite, sid: str) -> None:
    made = await site.key(sid)
    assert [key["lastUsed"] for key in await listed(site, sid)] == [None]
    for wait, used_at in [(0, "08:00:00"), (59, "08:00:00"), (1, "08:01:00")]:
        site.pass_time(wait)
        await works(site, made["key"])
        (key,) = await listed(site, sid)
        assert key["lastUsed"] == f"2027-01-15T{used_at}.000Z"


@pytest.mark.parametrize("change", ["disabled", "deleted"])
async def test_api_keys_are_deleted_with_their_user(site: HttpSite, sid: str, change: str) -> None:
    """Disabling ends keys at once, and enabling revives none (A-20); deleting takes them along
    (A-21)."""
    made = await site.key(sid)
    await site.add_account("boss", "System Manager")
    boss = await site.sid("boss")
    path = "/api/resource/User/ann"
    if change == "deleted":
        assert (await site.ask("DELETE", path, sid=boss)).status == 200
    else:
        for enabled in (0, 1):
            assert (await site.ask("PUT", path, {"enabled": enabled}, sid=boss)).status == 200
    assert await works(site, made["key"]) == 401
    assert not await site.alive(sid)
    for table in ("fw_api_key", "doc_api_key"):
        assert await site.rows(f"SELECT * FROM {table}") == []


async def recover(site: HttpSite, boss: str) -> None:
    sent = await site.op("users.sendPasswordReset", {"user": "ann"}, sid=boss)
    token = sent.json["link"].partition("#token=")[2]
    body = {"token": token, "password": "another decent passphrase"}
    assert (await site.ask("POST", "/api/auth/reset-password", body)).status == 200


async def set_on_the_form(site: HttpSite, boss: str) -> None:
    body = {"new_password": "another decent passphrase"}
    assert (await site.ask("PUT", "/api/resource/User/ann", body, sid=boss)).status == 200


@pytest.mark.parametrize("set_password", [recover, set_on_the_form])
async def test_api_keys_end_with_a_password_set_without_the_old_one(
    site: HttpSite, sid: str, set_password: Callable[[HttpSite, str], Awaitable[None]]
) -> None:
    """A thief with a session makes keys, and a recovery follows a theft (A-274, A-221)."""
    made = [await site.key(sid, label=label) for label in ("CI", "the thief's")]
    await site.add_account("boss", "System Manager")
    boss = await site.sid("boss")
    other = await site.key(boss)
    await set_password(site, boss)
    assert [await works(site, each["key"]) for each in (*made, other)] == [401, 401, 200]
    left = await site.rows("SELECT name FROM doc_api_key")
    assert left == [{"name": other["name"]}]


async def test_api_keys_of_the_own_account_end_at_once(site: HttpSite, sid: str) -> None:
    keys = [(await site.key(sid, days=days))["key"] for days in (1, 2, 3)]
    site.pass_time(86_400 + 1)
    reply = await site.op("api_keys.revokeAllMyAPIKeys", sid=sid)
    assert (reply.status, reply.json) == (200, {"ok": True, "keysEnded": 2}), "one had expired"
    assert await listed(site, sid) == []
    assert [await works(site, key) for key in keys] == [401] * 3
    assert (await site.op("api_keys.revokeAllMyAPIKeys", sid=sid)).json["keysEnded"] == 0


async def test_api_keys_survive_other_changes_of_their_user(site: HttpSite, sid: str) -> None:
    """A change of one's own password leaves API keys (A-249)."""
    made = await site.key(sid)
    change = {"current": PASSWORD, "password": "another decent passphrase"}
    for operation, body in (
        ("profile.updateMyProfile", {"language": "de"}),
        ("profile.changeMyPassword", change),
    ):
        assert (await site.op(operation, body, sid=sid)).status == 200
        assert await works(site, made["key"]) == 200


async def test_api_key_of_a_disabled_account_is_rejected(site: HttpSite, sid: str) -> None:
    """Expiry, disabling and deletion are checked at every use of a key (A-265)."""
    made = await site.key(sid)
    await site.rows("UPDATE doc_user SET enabled = 0")
    assert await works(site, made["key"]) == 401


async def test_api_key_errors_of_an_address_are_429_after_fifty(site: HttpSite, sid: str) -> None:
    """The 50th wrong key is 401, the next 429; sign-ins are unaffected (A-98, A-99)."""
    made = await site.key(sid)
    wrong = [f"fwk_{n:012d}_{'x' * 32}" for n in range(52)]
    assert [await works(site, key, peer="192.0.2.1") for key in wrong] == [401] * 50 + [429] * 2
    reply = await site.op("profile.getMyProfile", key=made["key"], peer="192.0.2.1")
    assert (reply.status, reply.header("retry-after")) == (429, "900")
    assert await works(site, made["key"], peer="192.0.2.2") == 200
    assert (await site.login("ann", peer="192.0.2.1")).status == 200
    site.pass_time(15 * 60)
    assert await works(site, made["key"], peer="192.0.2.1") == 200


async def test_api_key_beside_another_credential_is_rejected(site: HttpSite, sid: str) -> None:
    """A request with both a key and a `sid` cookie is refused with 400 (A-172)."""
    key = (await site.key(sid))["key"]
    assert (await site.op("profile.getMyProfile", key=key, sid=sid)).status == 400
    twice = [("Authorization", f"Bearer {key}")]
    assert (await site.op("profile.getMyProfile", key=key, headers=twice)).status == 400


async def test_api_keys_are_listed_and_deleted_by_managers(site: HttpSite, sid: str) -> None:
    """API Key is a built-in DocType that only its operation inserts (A-276, D-220)."""
    made = await site.key(sid)
    await site.add_account("boss", "System Manager")
    boss = await site.sid("boss")
    path = "/api/resource/API%20Key"
    shown = (await site.ask("GET", f"{path}/{made['name']}", sid=boss)).json["data"]
    assert (shown["user"], shown["label"], "hash" in str(shown)) == ("ann", "test", False)
    assert (await site.ask("GET", path, sid=sid)).status == 403
    body = {"name": "0" * 12, "user": "boss", "label": "x"}
    assert (await site.ask("POST", path, body, sid=boss)).status == 400
    change = {"user": "boss"}
    assert (await site.ask("PUT", f"{path}/{made['name']}", change, sid=boss)).status == 400
    renamed = await site.ask("POST", f"{path}/{made['name']}/rename", {"name": "other"}, sid=boss)
    assert renamed.error["type"] == "ConflictError", "its name is a part of the key (A-276)"
    assert await works(site, made["key"]) == 200
    assert (await site.ask("DELETE", f"{path}/{made['name']}", sid=boss)).status == 200
    assert await works(site, made["key"]) == 401


async def test_api_key_is_not_created_by_app_code(site: HttpSite, sid: str) -> None:
    with pytest.raises(PermissionDeniedError):
        await site.do(
            lambda fw: fw.new_doc("API Key", name="0" * 12, user="ann", label="x").insert()
        )


ENDINGS = ["own", "recovery", "administration", "disabling"]


@pytest.mark.parametrize("ending", ENDINGS)
async def test_api_key_ends_even_if_documents_link_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """A thief with a session could otherwise prevent the recovery of the account (D-128, A-221)."""
    (tmp_path / "linking_app.py").write_text(LINKING_APP)
    monkeypatch.syspath_prepend(tmp_path)
    async with http_site(tmp_path, apps=("linking_app",)) as site:
        await site.add_account("boss", "System Manager")
        await site.add_account("ann", "Clerk")
        boss, thief = await site.sid("boss"), await site.sid("ann")
        made = await site.key(thief)
        body = {"used": made["name"]}
        assert (await site.ask("POST", "/api/resource/Connector", body, sid=thief)).status == 201
        if ending == "own":
            reply = await site.op("api_keys.revokeMyAPIKey", {"name": made["name"]}, sid=thief)
        elif ending == "recovery":
            reply = await spend(site, RESET, await token_for(site, "ann"))
        elif ending == "administration":
            expected = {"user": "ann", "keys": True}
            reply = await site.op("users.revokeUserSessions", expected, sid=boss)
        else:
            reply = await site.ask("PUT", "/api/resource/User/ann", {"enabled": 0}, sid=boss)
        assert reply.status == 200, reply.body
        assert await works(site, made["key"]) == 401
        assert await site.alive(thief) is (ending == "own")


LINKING_APP = """
from fw_actors.app import DocType, Link

class Connector(DocType, permissions={"Clerk": "list read create write delete"}):
    used = Link(options="API Key")
"""
