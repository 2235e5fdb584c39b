"""Recovery and invitation as a client meets them (A-180 to A-235)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from fw_actors.errors import PasswordPolicyError
from tests.access.link_kit import ACCEPT, FORGOT, OTHER, RESET, links, spend, token_for
from tests.accounts_kit import PASSWORD
from tests.http_site import HttpSite
from tests.web.client import ClientResponse

pytestmark = pytest.mark.usefixtures("on_both_stores")

Path = Callable[[HttpSite, str], Awaitable[str]]


async def invited(site: HttpSite) -> str:
    """Have a System Manager invite ida; the token."""
    await site.add_account("boss", "System Manager")
    body = {"email": "ida@example.test", "name": "ida"}
    reply = await site.op("users.invite", body, sid=await site.sid("boss"))
    return str(reply.json["link"]).partition("#token=")[2]


async def test_recovery_sets_the_password_and_ends_all_sessions(
    site: HttpSite,
) -> None:
    """A recovery ends all of the user's sessions (A-221) and makes none (A-222)."""
    await site.add_account("ann")
    sids = [await site.sid("ann") for _ in range(2)]
    reply = await spend(site, RESET, await token_for(site, "ann"))
    assert (reply.status, reply.json, reply.header("set-cookie")) == (200, {"ok": True}, None)
    assert [await site.alive(sid) for sid in sids] == [False, False]
    assert await site.rows("SELECT * FROM fw_session") == []
    assert [(await site.login("ann", pwd)).status for pwd in (PASSWORD, OTHER)] == [401, 200]


async def test_invitation_makes_no_session(site: HttpSite) -> None:
    """An invited account refuses every sign-in until a password is set (A-230, A-231)."""
    token = await invited(site)
    assert [(await site.login("ida", pwd)).status for pwd in ("", PASSWORD)] == [401, 401]
    reply = await spend(site, ACCEPT, token)
    assert (reply.status, reply.json, reply.header("set-cookie")) == (200, {"ok": True}, None)
    assert (await site.login("ida", OTHER)).status == 200


async def test_link_tokens_that_are_unusable_get_the_same_response(site: HttpSite) -> None:
    """A token that is unknown, expired, spent or of the other kind gets one identical answer
    (A-185, A-184)."""
    await site.add_account("ann")
    invitation = await invited(site)
    spent = await token_for(site, "ann")
    assert (await spend(site, RESET, spent)).status == 200
    expired = await token_for(site, "ann")
    site.pass_time(60 * 60)
    ended, fresh = await token_for(site, "ann"), await token_for(site, "ann")
    unusable = (spent, expired, ended, invitation, "x" * 32, "", "\u00fc" * 9000)
    answers = {(r.status, r.body) for r in [await spend(site, RESET, t) for t in unusable]}
    (only,) = answers
    assert only[0] == 400
    assert b"InvalidTokenError" in only[1]
    assert (await spend(site, ACCEPT, fresh)).body == only[1]
    for token, path in ((fresh, RESET), (invitation, ACCEPT)):
        assert (await spend(site, path, token)).status == 200, "the other kind's try spent nothing"


async def test_invitation_expires_after_its_hours(site: HttpSite) -> None:
    """An invitation link is valid for `inviteHours` (A-183)."""
    token = await invited(site)
    site.pass_time(72 * 3600 - 1)
    body = (await site.ask("POST", "/api/auth/token", {"token": token}, csrf=False)).json
    assert body == {
        "kind": "invitation", "user": "ida", "fullName": "", "expires": "2027-01-18T08:00:00.000Z",
    }  # fmt: skip
    site.pass_time(1)
    assert (await spend(site, ACCEPT, token)).error["type"] == "InvalidTokenError"


async def test_link_begins_with_the_sites_url(site: HttpSite) -> None:
    """The base of a link comes from the configuration, never from the Host header (A-190)."""
    await site.add_account("ann")
    forged = [("Host", "evil.example"), ("X-Forwarded-Host", "evil.example"),
              ("Origin", "https://evil.example"), ("Referer", "https://evil.example/")]  # fmt: skip
    await token_for(site, "ann", headers=forged)
    (link,) = links(site)
    assert link.startswith("http://127.0.0.1:")
    assert "evil" not in str(site.log.of("mail.sent"))


async def test_link_mail_goes_to_the_stored_address(site: HttpSite) -> None:
    """Mail goes to the stored address, never to the typed one (A-217)."""
    await site.add_account("ann", email="Ann.L@Example.test")
    await site.ask("POST", FORGOT, {"usr": "\uff41nn.l@EXAMPLE.TEST"}, csrf=False)
    await site.log.wait("mail.sent", 1)
    assert [line["recipient"] for line in site.log.of("mail.sent")] == ["Ann.L@Example.test"]


@pytest.mark.parametrize("verb", ["GET", "HEAD"])
async def test_link_is_not_spent_by_its_page(site: HttpSite, verb: str) -> None:
    """Only a POST with the password spends a link; GET and HEAD of the page never do (A-188)."""
    await site.add_account("ann")
    token = await token_for(site, "ann")
    for path in ("/reset-password", RESET, "/api/auth/token"):
        await site.ask(verb, path)
        await site.ask(verb, f"{path}?token={token}")
    assert (await spend(site, RESET, token)).status == 200


async def test_link_token_is_read_from_the_body_only(site: HttpSite) -> None:
    await site.add_account("ann")
    token = await token_for(site, "ann")
    body = {"token": token, "password": OTHER}
    assert (await site.ask("POST", f"{RESET}?token={token}", body, csrf=False)).status == 400
    assert (await spend(site, RESET, token)).status == 200


async def test_link_is_spent_once_by_two_submissions(site: HttpSite) -> None:
    """Two submissions of one link do not both succeed (A-182)."""
    await site.add_account("ann")
    token = await token_for(site, "ann")
    statuses: list[int] = []

    async def submit(password: str) -> None:
        statuses.append((await spend(site, RESET, token, password)).status)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(submit, f"{OTHER} {number}")
    assert sorted(statuses) == [200] + [400] * 4


def refusal(reply: ClientResponse) -> str:
    """Return the error type of a reply; an empty text if it succeeded."""
    return "" if reply.status == 200 else str(reply.error["type"])


async def by_form(site: HttpSite, password: str) -> str:
    boss = await site.sid("boss")
    body = {"new_password": password}
    return refusal(await site.ask("PUT", "/api/resource/User/ann", body, sid=boss))


async def by_code(site: HttpSite, password: str) -> str:
    def change(fw: Any) -> None:
        doc = fw.get_doc("User", "ann")
        doc.new_password = password
        doc.save()

    try:
        await site.do(change)
    except PasswordPolicyError as error:
        return type(error).__name__
    return ""


async def by_recovery(site: HttpSite, password: str) -> str:
    return refusal(await spend(site, RESET, await token_for(site, "ann"), password))


async def by_self_service(site: HttpSite, password: str) -> str:
    body = {"current": PASSWORD, "password": password}
    sid = await site.sid("ann")
    message = refusal(await site.op("profile.changeMyPassword", body, sid=sid))
    assert await site.alive(sid), "the caller's own is spared"
    return message


async def by_a_managers_link(site: HttpSite, password: str) -> str:
    boss = await site.sid("boss")
    reply = await site.op("users.sendPasswordReset", {"user": "ann"}, sid=boss)
    return refusal(await spend(site, RESET, str(reply.json["link"])[-32:], password))


PATHS = (by_form, by_code, by_recovery, by_self_service, by_a_managers_link)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
async def test_password_change_of_any_kind_ends_other_sessions(site: HttpSite, path: Path) -> None:
    """Each path ends the sessions (A-162); the command line's own is in
    `tests/fw_cli/test_user.py`. Links end as well (A-194), keys unless the owner set it by the old
    one (A-274), and the owner gets a mail (A-297)."""
    await site.add_account("ann")
    await site.add_account("boss", "System Manager")
    sids = [await site.sid("ann") for _ in range(2)]
    key = (await site.key(sids[0]))["key"]
    assert await path(site, OTHER) == ""
    assert [await site.alive(sid) for sid in sids] == [False, False]
    stays = path is by_self_service
    assert (await site.op("profile.getMyProfile", key=key)).status == (200 if stays else 401)
    assert [(await site.login("ann", pwd)).status for pwd in (PASSWORD, OTHER)] == [401, 200]
    recipients = await site.rows(
        "SELECT recipient FROM doc_email_delivery WHERE template = 'password_changed'"
    )
    assert recipients == [{"recipient": "ann@example.test"}]
    assert await site.rows("SELECT * FROM fw_token WHERE spent IS NULL") == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
async def test_password_change_of_any_kind_meets_the_policy(site: HttpSite, path: Path) -> None:
    """The policy is applied where hashing happens, so that all call sites obey it (A-130)."""
    await site.add_account("ann")
    await site.add_account("boss", "System Manager")
    sid = await site.sid("ann")
    assert await path(site, "seven77") == "PasswordPolicyError"
    assert await site.alive(sid)
    assert (await site.login("ann", PASSWORD)).status == 200


async def test_recovery_routes_share_the_budget_of_an_address(site: HttpSite) -> None:
    """20 requests of an address in 15 minutes, then 429 (A-95); `forgot-password` goes on
    answering `{ok: true}` and does nothing (A-96)."""
    await site.add_account("ann")
    for _ in range(20):
        assert (await spend(site, RESET, "x" * 32)).status == 400
    assert [(await spend(site, path, "x" * 32)).status for path in (RESET, ACCEPT)] == [429, 429]
    assert (await site.ask("POST", "/api/auth/token", {"token": "x"}, csrf=False)).status == 429
    reply = await site.ask("POST", FORGOT, {"usr": "ann"}, csrf=False)
    assert (reply.status, reply.json) == (200, {"ok": True})
    assert await site.rows("SELECT * FROM fw_job") == []
    assert await site.rows("SELECT * FROM doc_email_delivery") == []
    assert (await spend(site, RESET, "x" * 32)).header("retry-after") == "900"
    assert (await site.login("ann")).status == 200, "sign-ins have a bucket of their own"
