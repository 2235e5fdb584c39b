"""A request whose session or API key ends while it waits gives nobody access.

It waits for a hash, or for its turn to write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest
import trio

from fw_actors.access.passwords import NewPasswords
from fw_actors.actors.gateway import Gateway
from fw_actors.documents.handle import Fw
from tests.accounts_kit import PASSWORD
from tests.http_site import HttpSite
from tests.virtual_hashing import take_virtual_time
from tests.web.client import ClientResponse
from web import app, guard
from web.exchange import Exchange
from web.operations import Operation, Route

pytestmark = pytest.mark.usefixtures("on_both_stores")

NEW = "a password of the thief"


class HeldHashes:
    """Holds `NewPasswords.prepare` at its end, as a full queue for hashes would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hashed, self.go_on = trio.Event(), trio.Event()
        prepare: Callable[..., Awaitable[dict[str, Any]]] = NewPasswords.prepare

        async def held(*given: Any) -> dict[str, Any]:
            body = await prepare(*given)
            self.hashed.set()
            await self.go_on.wait()
            return body

        monkeypatch.setattr(NewPasswords, "prepare", held)


class AuthenticatedRequests:
    """Holds requests to one path after their authentication, as a full queue for writes would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
        self.authenticated, self.go_on = trio.Event(), trio.Event()
        check = guard.check_request

        async def held(
            exchange: Exchange, route: Route, gateway: Gateway, decoder: guard.BodyDecoder
        ) -> Operation:
            operation = await check(exchange, route, gateway, decoder)
            if exchange.request.path == path:
                self.authenticated.set()
                await self.go_on.wait()
            return operation

        monkeypatch.setattr(app, "check_request", held)


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("credential", ["session", "key"])
async def test_password_is_not_set_by_a_credential_that_ended_meanwhile(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch, method: str, credential: str
) -> None:
    await site.add_account("boss", "System Manager")
    await site.add_account("victim")
    owner, stolen = await site.sid("boss"), await site.sid("boss")
    made = await site.key(owner)
    given = {"sid": stolen} if credential == "session" else {"key": made["key"]}
    path, body = "/api/resource/User", {"new_password": NEW}
    if method == "PUT":
        path += "/victim"
    else:
        body |= {"name": "other", "email": "other@x.test"}
    held, replies = HeldHashes(monkeypatch), list[ClientResponse]()

    async def ask() -> None:
        replies.append(await site.ask(method, path, body, **given))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await held.hashed.wait()
        if credential == "session":
            ended = await site.op("sessions.revokeMyOtherSessions", sid=owner)
        else:
            ended = await site.op("api_keys.revokeMyAPIKey", {"name": made["name"]}, sid=owner)
        assert ended.status == 200
        held.go_on.set()
    assert replies[0].status == 401
    assert (await site.login("victim", PASSWORD)).status == 200
    assert (await site.login("other", NEW)).status == 401


async def test_password_is_set_by_a_credential_that_lives(site: HttpSite) -> None:
    await site.add_account("boss", "System Manager")
    await site.add_account("ann")
    sid = await site.sid("boss")
    key = (await site.key(sid))["key"]
    for given in ({"sid": sid}, {"key": key}):
        body = {"new_password": f"{NEW} {len(given)} {'sid' in given}"}
        reply = await site.ask("PUT", "/api/resource/User/ann", body, **given)
        assert reply.status == 200, reply.body
        assert (await site.login("ann", body["new_password"])).status == 200


async def test_own_password_is_not_changed_by_a_session_that_ended_meanwhile(
    site: HttpSite,
) -> None:
    """The current password alone changes nothing: the owner has ended the session (A-243)."""
    await site.add_account("ann")
    owner, ended = await site.sid("ann"), await site.sid("ann")
    replies = list[ClientResponse]()

    async def ask() -> None:
        body = {"current": PASSWORD, "password": NEW}
        replies.append(await site.op("profile.changeMyPassword", body, sid=ended))

    async with trio.open_nursery() as nursery:
        take_virtual_time(site.site.hasher, nursery, 1, seconds=5.0)
        nursery.start_soon(ask)
        await trio.sleep(1)
        revoked = await site.op("sessions.revokeMyOtherSessions", sid=owner)
        assert revoked.json == {"ok": True, "sessionsEnded": 1}
    assert (replies[0].status, replies[0].error["type"]) == (401, "AuthenticationError")
    assert await site.alive(owner)
    async with trio.open_nursery() as nursery:
        take_virtual_time(site.site.hasher, nursery, 1, seconds=0.1)
        assert (await site.login("ann", NEW)).status == 401
        assert (await site.login("ann", PASSWORD)).status == 200


RESOURCE, OPERATION = "/api/resource/", "/api/method/core.services."
HOOK = {
    "url": "https://thief.test/",
    "event_type": "Custom",
    "custom_event": "a.b",
    "secret": "of the thief",
}
SCOPE = {"user": "victim", "allow": "User", "for_value": "victim"}
PRIVILEGED: dict[str, tuple[str, str, object]] = {
    "invitation": (
        "POST",
        f"{OPERATION}users.invite",
        {"email": "thief@x.test", "roles": ["System Manager"]},
    ),
    "reset": ("POST", f"{OPERATION}users.sendPasswordReset", {"user": "victim"}),
    "signing out": ("POST", f"{OPERATION}users.revokeUserSessions", {"user": "victim"}),
    "account": ("POST", f"{RESOURCE}User", {"name": "thief", "email": "thief@x.test"}),
    "roles": ("PUT", f"{RESOURCE}User/thief's", {"roles": [{"role": "System Manager"}]}),
    "e-mail": ("PUT", f"{RESOURCE}User/victim", {"email": "thief@x.test"}),
    "rename": ("POST", f"{RESOURCE}User/victim/rename", {"name": "other"}),
    "deletion": ("DELETE", f"{RESOURCE}User/victim", None),
    "role": ("POST", f"{RESOURCE}Role", {"name": "Thief"}),
    "scope": ("POST", f"{RESOURCE}User Permission", SCOPE),
    "webhook": ("POST", f"{RESOURCE}Webhook", HOOK),
}
GIVING_ACCESS = ("doc_user", "doc_has_role", "doc_role", "doc_user_permission", "doc_webhook")


@pytest.mark.parametrize("act", PRIVILEGED)
@pytest.mark.parametrize("credential", ["session", "key"])
async def test_access_is_not_given_by_a_credential_that_ended_meanwhile(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch, act: str, credential: str
) -> None:
    """What a thief had sent before the owner ended the session or key takes no effect (A-300)."""
    await site.add_account("boss", "System Manager")
    await site.add_account("victim")
    await site.add_account("thief's")
    owner, stolen = await site.sid("boss"), await site.sid("boss")
    victim = await site.sid("victim")
    made = await site.key(owner)
    given = {"sid": stolen} if credential == "session" else {"key": made["key"]}
    method, path, body = PRIVILEGED[act]
    held, replies = AuthenticatedRequests(monkeypatch, path), list[ClientResponse]()

    async def rows() -> list[object]:
        return [await site.rows(f'SELECT * FROM "{table}"') for table in GIVING_ACCESS]

    async def ask() -> None:
        replies.append(await site.ask(method, quote(path), body, **given))

    before = await rows()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await held.authenticated.wait()
        if credential == "session":
            ended = await site.op("sessions.revokeMyOtherSessions", sid=owner)
        else:
            ended = await site.op("api_keys.revokeMyAPIKey", {"name": made["name"]}, sid=owner)
        assert ended.status == 200
        held.go_on.set()
    assert (replies[0].status, replies[0].error["type"]) == (401, "AuthenticationError")
    assert await rows() == before
    assert await site.alive(victim)


async def test_secret_is_not_rotated_by_a_session_that_ended_meanwhile(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer would hold the new secret (A-300)."""
    await site.add_account("boss", "System Manager")
    owner, stolen = await site.sid("boss"), await site.sid("boss")
    hook = await site.ask("POST", f"{RESOURCE}Webhook", HOOK, sid=owner)
    name = hook.json["data"]["name"]
    held = AuthenticatedRequests(monkeypatch, f"{OPERATION}webhooks.rotate")
    replies = list[ClientResponse]()

    async def ask() -> None:
        replies.append(await site.op("webhooks.rotate", {"webhook": name}, sid=stolen))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await held.authenticated.wait()
        assert (await site.op("sessions.revokeMyOtherSessions", sid=owner)).status == 200
        held.go_on.set()
    assert (replies[0].status, replies[0].error["type"]) == (401, "AuthenticationError")
    assert (await site.ask("GET", f"{RESOURCE}Webhook/{name}", sid=owner)).json == hook.json


OWN = {
    "invitation": PRIVILEGED["invitation"],
    "key": ("POST", f"{OPERATION}api_keys.createMyAPIKey", {"label": "mine"}),
    "profile": ("POST", f"{OPERATION}profile.updateMyProfile", {"fullName": "Thief"}),
    "signing out": ("POST", f"{OPERATION}sessions.revokeMyOtherSessions", {}),
    "keys": ("POST", f"{OPERATION}api_keys.revokeAllMyAPIKeys", {}),
    "sessions": ("GET", f"{OPERATION}sessions.listMySessions", None),
    "list of keys": ("GET", f"{OPERATION}api_keys.listMyAPIKeys", None),
}


BY_KEY = ("invitation", "profile")  # the others need a session


@pytest.mark.parametrize(
    ("act", "credential"), [*((act, "session") for act in OWN), *((act, "key") for act in BY_KEY)]
)
async def test_session_and_key_do_not_act_for_another_user_of_the_name(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch, act: str, credential: str
) -> None:
    """The user was renamed meanwhile, and another one got the name (A-300, A-240)."""
    await site.add_account("boss", "System Manager")
    await site.add_account("ann")
    boss, ann = await site.sid("boss"), await site.sid("ann")
    given = {"sid": ann} if credential == "session" else {"key": (await site.key(ann))["key"]}
    of_boss = await site.key(boss)
    method, path, body = OWN[act]
    held, replies = AuthenticatedRequests(monkeypatch, path), list[ClientResponse]()

    async def ask() -> None:
        replies.append(await site.ask(method, path, body, **given))

    def rename(fw: Fw) -> None:
        fw.get_doc("User", "ann").rename("ann.former")
        fw.get_doc("User", "boss").rename("ann")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await held.authenticated.wait()
        await site.do(rename)
        held.go_on.set()
    assert (replies[0].status, replies[0].error["type"]) == (401, "AuthenticationError")
    profile = (await site.op("profile.getMyProfile", sid=boss)).json
    assert (profile["name"], profile["fullName"]) == ("ann", "Boss")
    assert [
        key["name"] for key in (await site.op("api_keys.listMyAPIKeys", sid=boss)).json["keys"]
    ] == [of_boss["name"]]
    assert (await site.rows("SELECT name FROM doc_user WHERE email = 'thief@x.test'")) == []
    assert await site.alive(ann)
