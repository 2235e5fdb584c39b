"""A request whose session or API key ends while it waits for a hash changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from fw_actors.access.passwords import NewPasswords
from tests.http_site import HttpSite
from tests.staff import PASSWORD
from tests.virtual_hashing import take_virtual_time
from tests.web.client import ClientResponse

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


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("credential", ["session", "key"])
async def test_password_is_not_set_by_a_credential_that_ended_meanwhile(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch, method: str, credential: str
) -> None:
    await site.hire("boss", "System Manager")
    await site.hire("victim")
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
    await site.hire("boss", "System Manager")
    await site.hire("ann")
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
    await site.hire("ann")
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
