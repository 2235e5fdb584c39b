"""A System Manager with access scopes over HTTP: gives and takes no more than the scopes leave.

Such a user is refused every permission on Webhook and Webhook Delivery (A-314), which no
other account, and no change of one, gets around (A-321, A-322).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.accounts_kit import PASSWORD
from tests.http_site import HttpSite, http_site
from tests.web.client import ClientResponse

pytestmark = pytest.mark.usefixtures("on_both_stores")
APPS = Path(__file__).parent.parent / "fw_actors" / "documents" / "apps"
BROWSER = [("Accept", "text/html")]
OTHER = "another decent passphrase"
TOKEN = "t0ken-of-the-receiver"
MANAGER = [{"role": "System Manager"}]
WATCHED = (
    "doc_user", "doc_has_role", "doc_role", "doc_user_permission", "doc_api_key", "fw_password",
    "fw_token", "fw_session", "fw_identifier",
)  # fmt: skip


@dataclass
class ScopedManagerSite:
    """`sam` is a System Manager limited to the customer Near; `boss` and `root` are without
    scopes, `off` is disabled and `new` was invited, all four System Managers; `ann` is none."""

    site: HttpSite
    sam: str
    boss: str
    hook: str

    async def ask(
        self, method: str, path: str, body: object = None, **given: Any
    ) -> ClientResponse:
        """Send a request as sam."""
        return await self.site.ask(method, path, body, sid=self.sam, **given)

    async def op(self, name: str, body: object) -> ClientResponse:
        return await self.site.op(name, body, sid=self.sam)

    async def rows(self) -> dict[str, list[dict[str, Any]]]:
        """All rows that make an account a System Manager."""
        found = {}
        for table in WATCHED:
            rows = await self.site.rows(f'SELECT * FROM "{table}"')
            found[table] = sorted(rows, key=repr)
        return found

    async def refused(self, reply: ClientResponse) -> None:
        assert (reply.status, reply.error["type"]) == (403, "PermissionDeniedError"), reply.body

    async def reads_webhooks(self, sid: str) -> bool:
        """Whether a session sees a Webhook in any of the ways there are."""
        path = f"/api/resource/Webhook/{self.hook}"
        replies = [
            await self.site.ask("GET", path, sid=sid),
            await self.site.ask("GET", "/api/resource/Webhook", sid=sid),
            await self.site.ask("GET", f"{path}/export", sid=sid),
        ]
        return any(reply.status == 200 for reply in replies)


@pytest.fixture
async def scoped_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ScopedManagerSite]:
    monkeypatch.syspath_prepend(APPS)
    async with http_site(tmp_path, apps=("shop",)) as site:
        for name in ("boss", "root", "off", "sam"):
            await site.add_account(name, "System Manager")
        await site.add_account("new", "System Manager", password=None)
        await site.add_account("ann")

        def add_records(fw: Any) -> str:
            for title in ("Near", "Far"):
                fw.new_doc("Customer", title=title).insert()
            fw.new_doc("User Permission", user="sam", allow="Customer", for_value="Near").insert()
            hook = fw.new_doc(
                "Webhook",
                url=f"https://receiver.test/{TOKEN}",
                event_type="Custom",
                custom_event="a.b",
                secret="s",
            ).insert()
            off = fw.get_doc("User", "off")
            off.enabled = 0
            off.save()
            return str(hook.name)

        hook = await site.do(add_records)
        yield ScopedManagerSite(site, await site.sid("sam"), await site.sid("boss"), hook)


async def test_scoped_manager_cannot_use_a_puppet_account(scoped_site: ScopedManagerSite) -> None:
    """A System Manager made by a scoped one would have no scopes."""
    before = await scoped_site.rows()
    made = {"name": "puppet", "email": "puppet@x.test", "roles": MANAGER, "new_password": OTHER}
    await scoped_site.refused(await scoped_site.ask("POST", "/api/resource/User", made))
    assert (await scoped_site.site.login("puppet", OTHER)).status == 401
    invited = {"email": "puppet@x.test", "roles": ["System Manager"]}
    await scoped_site.refused(await scoped_site.op("users.invite", invited))
    assert await scoped_site.rows() == before
    assert not await scoped_site.reads_webhooks(scoped_site.sam)


async def test_scoped_manager_cannot_set_another_managers_password(
    scoped_site: ScopedManagerSite,
) -> None:
    before = await scoped_site.rows()
    for user in ("root", "off", "new"):
        path = f"/api/resource/User/{user}"
        await scoped_site.refused(await scoped_site.ask("PUT", path, {"new_password": OTHER}))
        assert (await scoped_site.site.login(user, OTHER)).status == 401
    assert await scoped_site.rows() == before


async def test_scoped_manager_cannot_get_a_link_to_another_manager(
    scoped_site: ScopedManagerSite,
) -> None:
    """The transport `log` would put the link in the answer."""
    before = await scoped_site.rows()
    for name, user in (("sendPasswordReset", "root"), ("resendInvite", "new")):
        reply = await scoped_site.op(f"users.{name}", {"user": user})
        await scoped_site.refused(reply)
        assert b"link" not in reply.body
    assert await scoped_site.rows() == before


@pytest.mark.parametrize("user", ["root", "off", "new"])
async def test_scoped_manager_cannot_change_another_managers_account(
    scoped_site: ScopedManagerSite, user: str
) -> None:
    before = await scoped_site.rows()
    path = f"/api/resource/User/{user}"
    changes: list[dict[str, Any]] = [
        {"email": "sam2@x.test"}, {"enabled": 0}, {"enabled": 1}, {"roles": []},
        {"roles": MANAGER}, {"fullName": "Mine"}, {},
        {"new_password": "short"},  # before the password is validated or hashed
    ]  # fmt: skip
    for change in changes:
        await scoped_site.refused(await scoped_site.ask("PUT", path, change))
    await scoped_site.refused(await scoped_site.ask("DELETE", path))
    await scoped_site.refused(await scoped_site.ask("POST", f"{path}/rename", {"name": "mine"}))
    for act in ("resendInvite", "sendPasswordReset", "revokeUserSessions", "unlockUser"):
        await scoped_site.refused(await scoped_site.op(f"users.{act}", {"user": user}))
    await scoped_site.refused(
        await scoped_site.op("users.unlockUser", {"user": f"{user}@example.test"})
    )
    assert await scoped_site.rows() == before
    assert await scoped_site.site.alive(scoped_site.boss)


async def test_scoped_manager_cannot_grant_or_change_the_role(
    scoped_site: ScopedManagerSite,
) -> None:
    before = await scoped_site.rows()
    await scoped_site.refused(
        await scoped_site.ask("PUT", "/api/resource/User/ann", {"roles": MANAGER})
    )
    role = "/api/resource/Role/System%20Manager"
    await scoped_site.refused(await scoped_site.ask("DELETE", role))
    await scoped_site.refused(await scoped_site.ask("PUT", role, {}))
    await scoped_site.refused(await scoped_site.ask("POST", f"{role}/rename", {"name": "Clerk"}))
    other = "/api/resource/Role/Event%20Publisher/rename"
    await scoped_site.refused(await scoped_site.ask("POST", other, {"name": "System Manager"}))
    assert await scoped_site.rows() == before


async def test_scoped_manager_cannot_delete_another_managers_key(
    scoped_site: ScopedManagerSite,
) -> None:
    key = await scoped_site.site.key(scoped_site.boss)
    await scoped_site.refused(
        await scoped_site.ask("DELETE", f"/api/resource/API%20Key/{key['name']}")
    )
    assert (await scoped_site.site.op("profile.getMyProfile", key=key["key"])).status == 200


async def test_scoped_manager_cannot_write_scopes(scoped_site: ScopedManagerSite) -> None:
    ann = {"user": "ann", "allow": "Customer", "for_value": "Near"}
    made = await scoped_site.site.ask(
        "POST", "/api/resource/User%20Permission", ann, sid=scoped_site.boss
    )
    rows = await scoped_site.site.rows("SELECT name FROM doc_user_permission")
    before = await scoped_site.rows()
    assert (made.status, len(rows)) == (201, 2)
    for row in rows:
        path = f"/api/resource/User%20Permission/{row['name']}"
        await scoped_site.refused(await scoped_site.ask("DELETE", path))
        await scoped_site.refused(await scoped_site.ask("PUT", path, {"for_value": "Far"}))
        await scoped_site.refused(await scoped_site.ask("POST", f"{path}/rename", {"name": "x"}))
        await scoped_site.refused(await scoped_site.ask("POST", f"{path}/cancel", {}))
    for user in ("sam", "ann"):  # the scopes would go along
        await scoped_site.refused(await scoped_site.ask("DELETE", f"/api/resource/User/{user}"))
    other = {"user": "root", "allow": "Customer", "for_value": "Near"}
    await scoped_site.refused(
        await scoped_site.ask("POST", "/api/resource/User%20Permission", other)
    )
    assert await scoped_site.rows() == before


async def test_scoped_manager_administers_ordinary_accounts(scoped_site: ScopedManagerSite) -> None:
    """Invite, change, unlock, sign out, disable and delete work as without scopes."""
    invited = await scoped_site.op(
        "users.invite", {"email": "ida@x.test", "roles": ["Event Publisher"]}
    )
    assert (invited.status, "link" in invited.json) == (200, True)
    assert (await scoped_site.op("users.resendInvite", {"user": "ida@x.test"})).status == 200
    for act in ("sendPasswordReset", "revokeUserSessions", "unlockUser"):
        assert (await scoped_site.op(f"users.{act}", {"user": "ann"})).status == 200
    path = "/api/resource/User/ann"
    roles = {"roles": [{"role": "Event Publisher"}]}
    for change in ({"new_password": OTHER}, {"enabled": 0}, {"enabled": 1}, roles):
        assert (await scoped_site.ask("PUT", path, change)).status == 200
    assert (await scoped_site.ask("POST", f"{path}/rename", {"name": "anna"})).status == 200
    sid = await scoped_site.site.sid("anna", OTHER)
    key = await scoped_site.site.key(sid)
    assert not await scoped_site.reads_webhooks(sid)
    gone = await scoped_site.ask("DELETE", f"/api/resource/API%20Key/{key['name']}")
    assert gone.status == 200
    assert (await scoped_site.ask("DELETE", "/api/resource/User/anna")).status == 200
    assert (await scoped_site.ask("POST", "/api/resource/Role", {"name": "Clerk"})).status == 201
    renamed = await scoped_site.ask("POST", "/api/resource/Role/Clerk/rename", {"name": "Writer"})
    assert renamed.status == 200
    assert (await scoped_site.ask("DELETE", "/api/resource/Role/Writer")).status == 200


async def test_scoped_manager_keeps_the_own_account(scoped_site: ScopedManagerSite) -> None:
    """The own account stays with self-service (A-240, A-242)."""
    site = scoped_site.site
    response = await scoped_site.op(
        "profile.updateMyProfile", {"fullName": "Sam", "language": "de"}
    )
    assert (response.status, response.json["fullName"], response.json["language"]) == (
        200,
        "Sam",
        "de",
    )
    key = await site.key(scoped_site.sam)
    assert (await scoped_site.op("api_keys.revokeMyAPIKey", {"name": key["name"]})).status == 200
    change = {"current": PASSWORD, "password": OTHER}
    assert (await scoped_site.op("profile.changeMyPassword", change)).status == 200
    assert (await scoped_site.op("sessions.revokeMyOtherSessions", {})).status == 200
    assert not await scoped_site.reads_webhooks(await site.sid("sam", OTHER))


async def test_scoped_manager_may_accept_an_invitation(scoped_site: ScopedManagerSite) -> None:
    site = scoped_site.site
    scope = {"user": "new", "allow": "Customer", "for_value": "Near"}
    await site.do(lambda fw: fw.new_doc("User Permission", **scope).insert())
    sent = await site.op("users.resendInvite", {"user": "new"}, sid=scoped_site.boss)
    token = sent.json["link"].partition("#token=")[2]
    body = {"token": token, "password": OTHER, "fullName": "Newton"}
    assert (await site.ask("POST", "/api/auth/accept-invite", body)).status == 200
    assert not await scoped_site.reads_webhooks(await site.sid("new", OTHER))


RECORDS = ("Version", "Audit Event", "Email Delivery", "Error Log")


async def leave_records(scoped_site: ScopedManagerSite) -> None:
    """Have every kind of record name the Webhook, and a customer outside of the scopes."""
    site = scoped_site.site
    await site.ask(
        "PUT", f"/api/resource/Webhook/{scoped_site.hook}", {"timeout": 5}, sid=scoped_site.boss
    )
    url = {"url": f"https://receiver.test/{TOKEN}/2"}
    await site.ask("PUT", f"/api/resource/Webhook/{scoped_site.hook}", url, sid=scoped_site.boss)
    for customer in ("Near", "Far"):
        path = f"/api/resource/Customer/{customer}"
        assert (await site.ask("PUT", path, {"vat": customer}, sid=scoped_site.boss)).status == 200
    await site.op("users.sendPasswordReset", {"user": "root"}, sid=scoped_site.boss)
    site.site.errors.note("far.away", ValueError(f"no such {TOKEN}"), "r")
    await site.site.store.write(site.site.errors.flush)


def counted(fw: Any, doctype: str) -> tuple[int, list[Any]]:
    return fw.count(doctype), fw.get_all(doctype)


async def test_scoped_manager_sees_no_records_of_hidden_documents(
    scoped_site: ScopedManagerSite,
) -> None:
    """List, read, export, filter, total and Python all omit them."""
    await leave_records(scoped_site)
    for doctype in RECORDS:
        path = f"/api/resource/{quote(doctype)}"
        seen = (await scoped_site.site.ask("GET", path, sid=scoped_site.boss)).json
        assert seen["total"] > 0, doctype
        name = seen["data"][0]["name"]
        filters = quote('[["name","like","%"]]')
        for url in (
            path, f"{path}?filters={filters}&limit=1", f"{path}/{name}", f"{path}/{name}/export",
            f"{path}/nobody",
        ):  # fmt: skip
            await scoped_site.refused(await scoped_site.ask("GET", url))
        assert await scoped_site.site.do(partial(counted, doctype=doctype), "sam") == (0, [])


async def test_scoped_manager_sees_no_hidden_records_on_pages(
    scoped_site: ScopedManagerSite,
) -> None:
    """The record's own pages and the history of a visible document both omit it."""
    await leave_records(scoped_site)
    for doctype in RECORDS:
        page = await scoped_site.ask("GET", f"/app/{quote(doctype)}?_q={TOKEN}", headers=BROWSER)
        assert (page.status, TOKEN.encode() in page.body) == (403, False)
    for sid, shown in ((scoped_site.boss, True), (scoped_site.sam, False)):
        page = await scoped_site.site.ask("GET", "/app/Customer/Near", sid=sid, headers=BROWSER)
        parts = [part in page.body for part in (b"<p>Created</p>", b"<ins>")]
        assert (page.status, parts) == (200, [True, shown])  # the creation is shown to both
    home = await scoped_site.ask("GET", "/app", headers=BROWSER)
    assert not any(f"/app/{quote(doctype)}".encode() in home.body for doctype in RECORDS)
    described = await scoped_site.ask("GET", "/api/openapi.json")
    assert not any(f"/api/resource/{quote(d)}" in described.json["paths"] for d in RECORDS)


async def test_scoped_manager_sees_only_own_scopes(scoped_site: ScopedManagerSite) -> None:
    """Scopes of other users would name documents outside of the own scopes."""
    other = {"user": "ann", "allow": "Customer", "for_value": "Far"}
    foreign = await scoped_site.site.do(
        lambda fw: fw.new_doc("User Permission", **other).insert().name
    )
    fields = quote('["name","user","for_value"]')
    path = "/api/resource/User%20Permission"
    listed = (await scoped_site.ask("GET", f"{path}?fields={fields}")).json
    assert [(row["user"], row["for_value"]) for row in listed["data"]] == [("sam", "Near")]
    assert listed["total"] == 1
    assert (await scoped_site.ask("GET", f"{path}/{listed['data'][0]['name']}")).status == 200
    for url in (f"{path}/{foreign}", f"{path}/{foreign}/export"):
        await scoped_site.refused(await scoped_site.ask("GET", url))
    searched = quote('[["for_value","=","Far"]]')
    assert (await scoped_site.ask("GET", f"{path}?filters={searched}")).json == {
        "data": [],
        "total": 0,
    }
    page = await scoped_site.ask("GET", "/app/User%20Permission", headers=BROWSER)
    assert (page.status, b"Far" in page.body) == (200, False)


OFFERS = (b'data-act="delete"', b'data-act="rename"', b'type="submit" form="document"')


@pytest.mark.parametrize(
    ("path", "offered"),
    [
        ("User/root", False),
        ("User/ann", True),
        ("Role/System%20Manager", False),
        ("Role/Event%20Publisher", True),
        ("Customer/Near", True),
    ],
)
async def test_scoped_manager_is_offered_allowed_actions_only(
    scoped_site: ScopedManagerSite, path: str, offered: bool
) -> None:
    page = await scoped_site.ask("GET", f"/app/{path}", headers=BROWSER)
    assert page.status == 200
    assert [offer in page.body for offer in OFFERS] == [offered] * 3
    boss = await scoped_site.site.ask("GET", f"/app/{path}", sid=scoped_site.boss, headers=BROWSER)
    assert all(offer in boss.body for offer in OFFERS)


async def test_scoped_manager_is_offered_no_change_of_scopes(
    scoped_site: ScopedManagerSite,
) -> None:
    name = (await scoped_site.site.rows("SELECT name FROM doc_user_permission"))[0]["name"]
    page = await scoped_site.ask("GET", f"/app/User%20Permission/{name}", headers=BROWSER)
    assert (page.status, any(offer in page.body for offer in OFFERS)) == (200, False)
    listed = await scoped_site.ask("GET", "/app/User%20Permission", headers=BROWSER)
    assert (listed.status, b"/new/User" in listed.body) == (200, False)
    described = (await scoped_site.ask("GET", "/api/openapi.json")).json["paths"]
    verbs = {v for p, item in described.items() if "User%20Permission" in p for v in item}
    assert verbs == {"get"}


@pytest.mark.parametrize(
    "act", ["resendInvite", "sendPasswordReset", "revokeUserSessions", "unlockUser"]
)
async def test_scoped_manager_does_not_learn_which_accounts_exist(
    scoped_site: ScopedManagerSite, act: str
) -> None:
    """With a scope on User, names and e-mails of other accounts and of none are refused alike
    (A-312)."""
    await scoped_site.site.add_account("eve")
    scope = {"user": "sam", "allow": "User", "for_value": "ann"}
    made = await scoped_site.site.ask(
        "POST", "/api/resource/User%20Permission", scope, sid=scoped_site.boss
    )
    assert made.status == 201, made.body
    others = ("eve", "eve@example.test", "EVE", "nobody", "nobody@example.test", "\u200b")
    replies = [await scoped_site.op(f"users.{act}", {"user": user}) for user in others]
    for reply in replies:
        await scoped_site.refused(reply)
    assert len({reply.error["message"] for reply in replies}) == 1


async def test_scoped_manager_does_not_learn_what_prevents_a_deletion(
    scoped_site: ScopedManagerSite,
) -> None:
    """The refusal names a linking document, or a scope, only to users who may read it (D-128)."""
    site = scoped_site.site
    await site.add_account("eve")

    def add_records(fw: Any) -> None:
        fw.new_doc("Role", name="Helper").insert()
        eve = fw.get_doc("User", "eve")
        eve.roles = [{"role": "Helper"}]
        eve.save()
        for user, allow, value in (("sam", "User", "ann"), ("eve", "Role", "Event Publisher")):
            fw.new_doc("User Permission", user=user, allow=allow, for_value=value).insert()

    await site.do(add_records)
    scopes = (await site.do(lambda fw: fw.get_all("User Permission", {"user": "eve"})))[0]["name"]
    expected = {
        "Helper": ("User eve", "Another document", "links to Role Helper."),
        "Event Publisher": (
            f"User Permission {scopes}",
            "A User Permission",
            "names Role Event Publisher; delete the User Permission first.",
        ),
    }
    for role, (name, nameless, rest) in expected.items():
        path = f"/api/resource/Role/{quote(role)}"
        for sid, shown in ((scoped_site.boss, name), (scoped_site.sam, nameless)):
            reply = await site.ask("DELETE", path, sid=sid)
            assert (reply.status, reply.error["message"]) == (409, f"{shown} {rest}")


async def test_scoped_manager_does_not_learn_which_links_lead_to_documents(
    scoped_site: ScopedManagerSite,
) -> None:
    """A link beyond the scopes is refused alike, also beside another fault of the document and in a
    new name that is taken (A-312)."""

    def add_records(fw: Any) -> None:
        fw.new_doc("Customer", title="Away").insert()
        for customer in ("Near", "Far"):
            fw.new_doc("Profile", customer=customer).insert()

    await scoped_site.site.do(add_records)

    async def refusals_for(customer: str) -> list[str]:
        line = {"item": "Bolt", "customer": customer}
        orders: list[dict[str, Any]] = [
            {"title": "x", "lines": [line, {"rate": 2}]},  # the second item is missing
            {"title": "x", "lines": [line], "customer": "Nobody"},
        ]
        replies = [await scoped_site.ask("POST", "/api/resource/Sales%20Order", o) for o in orders]
        taken = {"title": "Near", "parent_customer": customer}
        replies.append(await scoped_site.ask("POST", "/api/resource/Customer", taken))
        replies.append(
            await scoped_site.ask("POST", "/api/resource/Profile", {"customer": customer})
        )
        path = "/api/resource/Profile/Near/rename"
        replies.append(await scoped_site.ask("POST", path, {"name": customer}))
        for reply in replies:
            await scoped_site.refused(reply)
        return [reply.error["message"] for reply in replies]

    assert await refusals_for("Far") == await refusals_for("Away") == await refusals_for("Nowhere")


async def test_scoped_manager_does_not_learn_which_webhook_has_a_key(
    scoped_site: ScopedManagerSite,
) -> None:
    """Nor does a publisher: the refusal of a key names the Webhook to its readers alone (B-78)."""
    site = scoped_site.site
    await site.add_account("pub", "Event Publisher")
    event = {"name": "a.b", "data": {}, "options": {"key": "k"}}
    assert (await site.op("webhooks.emit", event, sid=scoped_site.boss)).status == 200
    named = f"Webhook {scoped_site.hook}"
    for sid, shown in (
        (scoped_site.boss, named),
        (scoped_site.sam, "A Webhook"),
        (await site.sid("pub"), "A Webhook"),
    ):
        message = f"{shown} has already received an event with this key."
        one = await site.op("webhooks.emit", event, sid=sid)
        many = await site.op("webhooks.emitMany", {"events": [event]}, sid=sid)
        assert (one.status, one.error["message"]) == (409, message)
        assert many.json["events"][0]["error"]["message"] == message
