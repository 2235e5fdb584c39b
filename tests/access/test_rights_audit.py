"""Each act that changes rights leaves one Audit Event: docs/operating.md, "Audit Events"."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import argon2
import pytest

from fw_actors.errors import ConflictError
from tests.access.audit_kit import new_events
from tests.access.link_kit import ACCEPT, RESET, spend, token_for
from tests.accounts_kit import PASSWORD
from tests.http_site import HttpSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

OTHER = "another decent passphrase"
USER, SCOPE, ROLE = "/api/resource/User", "/api/resource/User Permission", "/api/resource/Role"
HOOK = "/api/resource/Webhook"
URL = "https://hooks.example/T0K3N-in-the-path"
SECRET = "a signing secret of the tests"

MADE = "?"
"""The target of what an act has made."""

ID = ("X-Request-Id", "r-7")

Act = Callable[["RightsAuditSite"], Awaitable[Any]]


class RightsAuditSite:
    """A System Manager's session, and a user `ann` with a session, an API key and a scope."""

    def __init__(self, site: HttpSite) -> None:
        self.site = site
        self.boss = self.ann = self.key = self.key_text = self.scope = self.hook = ""

    async def add_records(self) -> RightsAuditSite:
        await self.site.add_account("boss", "System Manager")
        await self.site.add_account("ann", "Event Publisher")
        await self.site.add_account("ben", "Event Publisher")
        self.boss, self.ann = await self.site.sid("boss"), await self.site.sid("ann")
        made = await self.site.key(self.ann)
        self.key, self.key_text = made["name"], made["key"]
        for role in ("Clerk", "Idle"):
            await self.send("POST", ROLE, {"name": role})
        self.scope = await self.send(
            "POST", SCOPE, {"user": "ann", "allow": "Role", "for_value": "Clerk"}
        )
        self.hook = await self.send("POST", HOOK, hook())
        return self

    async def send(self, method: str, path: str, body: object = None) -> str:
        """Send a request of the System Manager; the document's name."""
        reply = await self.site.ask(method, path, body, sid=self.boss)
        assert reply.status in (200, 201), reply.body
        return str(reply.json.get("data", {}).get("name"))

    async def put(self, name: str, body: object) -> None:
        await self.send("PUT", f"{USER}/{name}", body)

    async def make_key(self) -> str:
        """Make a key as ann; its name."""
        return str((await self.site.key(self.ann))["name"])

    async def use_key(self) -> None:
        """Use ann's key, which notes when that was."""
        assert (await self.site.op("profile.getMyProfile", key=self.key_text)).status == 200

    async def sign_in_by_an_old_hash(self) -> None:
        """Sign in with a hash of other parameters, which is made anew by that."""
        old = argon2.PasswordHasher(time_cost=2, memory_cost=64, parallelism=1).hash(PASSWORD)
        await self.site.rows("UPDATE fw_password SET hash = :old WHERE \"user\" = 'ann'", old=old)
        await self.site.sid("ann")
        (row,) = await self.site.rows("SELECT hash FROM fw_password WHERE \"user\" = 'ann'")
        assert row["hash"] != old

    async def recover(self) -> None:
        """Set a new password by a recovery link."""
        assert (await spend(self.site, RESET, await token_for(self.site, "ann"))).status == 200

    async def own(self, operation: str, body: object = None) -> None:
        """Call an operation as ann."""
        reply = await self.site.op(operation, body, sid=self.ann)
        assert reply.status == 200, reply.body


@pytest.fixture
async def audit_site(site: HttpSite) -> RightsAuditSite:
    return await RightsAuditSite(site).add_records()


def hook(**changes: Any) -> dict[str, Any]:
    body = {"url": URL, "event_type": "Document", "webhook_doctype": "User", "on_update": 1}
    return {**body, "secret": SECRET, **changes}


NEW = {"name": "new", "email": "new@example.test", "roles": [{"role": "System Manager"}]}
CLERK = {"user": "ann", "allow": "Role", "for_value": "Clerk"}
WATCHED = {"event_type": "Document", "webhook_doctype": "User"}

BY_MANAGER: dict[str, tuple[Act, str, str, Any]] = {
    "an account with a password": (
        lambda d: d.send("POST", USER, {**NEW, "new_password": PASSWORD}),
        "user.create", "new", {"roles": ["System Manager"]},
    ),
    "an invitation": (
        lambda d: d.site.op("users.invite", {"email": "i@example.test"}, sid=d.boss),
        "user.invite", "i@example.test", {"roles": []},
    ),
    "a role given, one taken, and the account disabled": (
        lambda d: d.put("ann", {"roles": [{"role": "Clerk"}], "enabled": 0}),
        "user.change", "ann",
        {"changed": ["enabled", "roles"], "enabled": False, "roles_added": ["Clerk"],
         "roles_removed": ["Event Publisher"]},
    ),
    "another's password": (
        lambda d: d.put("ann", {"new_password": OTHER}),
        "user.change", "ann", {"changed": ["new_password"]},
    ),
    "another's e-mail": (
        lambda d: d.put("ann", {"email": "anna@example.test", "fullName": "Anna"}),
        "user.change", "ann", {"changed": ["email"]},
    ),
    "an account renamed": (
        lambda d: d.send("POST", f"{USER}/ann/rename", {"name": "anna"}),
        "user.rename", "anna", {"old": "ann", "new": "anna"},
    ),
    "an account deleted, with its key and its scope": (
        lambda d: d.send("DELETE", f"{USER}/ann"),
        "user.delete", "ann", {"roles": ["Event Publisher"]},
    ),
    "a role": (
        lambda d: d.send("POST", ROLE, {"name": "Scribe"}), "role.create", "Scribe", None,
    ),
    "a role renamed": (
        lambda d: d.send("POST", f"{ROLE}/Idle/rename", {"name": "Scribe"}),
        "role.rename", "Scribe", {"old": "Idle", "new": "Scribe"},
    ),
    "a role deleted": (lambda d: d.send("DELETE", f"{ROLE}/Idle"), "role.delete", "Idle", None),
    "a scope": (
        lambda d: d.send("POST", SCOPE, {**CLERK, "for_value": "Idle"}),
        "user_permission.create", MADE, {**CLERK, "for_value": "Idle"},
    ),
    "a scope that leads elsewhere": (
        lambda d: d.send("PUT", f"{SCOPE}/{d.scope}", {"for_value": "Idle"}),
        "user_permission.change", "{scope}",
        {"changed": ["for_value"], **CLERK, "for_value": "Idle"},
    ),
    "a scope renamed": (
        lambda d: d.send("POST", f"{SCOPE}/{d.scope}/rename", {"name": "limit"}),
        "user_permission.rename", "limit", {"old": "{scope}", "new": "limit"},
    ),
    "a scope lifted": (
        lambda d: d.send("DELETE", f"{SCOPE}/{d.scope}"),
        "user_permission.delete", "{scope}", CLERK,
    ),
    "another's key ended": (
        lambda d: d.send("DELETE", f"/api/resource/API Key/{d.key}"),
        "api_key.delete", "{key}", {"user": "ann"},
    ),
    "a Webhook": (lambda d: d.send("POST", HOOK, hook()), "webhook.create", MADE, WATCHED),
    "a Webhook's url and secret": (
        lambda d: d.send("PUT", f"{HOOK}/{d.hook}", {"url": URL + "/2", "secret": SECRET + "2"}),
        "webhook.change", "{hook}", {"changed": ["secret", "url"], **WATCHED},
    ),
    "a Webhook's secret, set to what it was": (
        lambda d: d.send("PUT", f"{HOOK}/{d.hook}", {"secret": SECRET}),
        "webhook.change", "{hook}", {"changed": ["secret"], **WATCHED},
    ),
    "a Webhook renamed": (
        lambda d: d.send("POST", f"{HOOK}/{d.hook}/rename", {"name": "desk"}),
        "webhook.rename", "desk", {"old": "{hook}", "new": "desk"},
    ),
    "a Webhook deleted": (
        lambda d: d.send("DELETE", f"{HOOK}/{d.hook}"), "webhook.delete", "{hook}", WATCHED,
    ),
}  # fmt: skip

BY_OWNER: dict[str, tuple[Act, str, str, Any]] = {
    "the own password": (
        lambda d: d.own("profile.changeMyPassword", {"current": PASSWORD, "password": OTHER}),
        "user.change_password", "ann", None,
    ),
    "an own key": (
        lambda d: d.make_key(), "api_key.create", MADE, {"user": "ann"},
    ),
    "an own key revoked": (
        lambda d: d.own("api_keys.revokeMyAPIKey", {"name": d.key}),
        "api_key.delete", "{key}", {"user": "ann"},
    ),
    "all own keys revoked": (
        lambda d: d.own("api_keys.revokeAllMyAPIKeys", {}),
        "user.revoke_keys", "ann", {"keys_ended": 1},
    ),
    "a recovery": (
        lambda d: d.recover(), "user.reset_password", "ann", {"keys_ended": 1},
    ),
}  # fmt: skip

IN_PYTHON: dict[str, tuple[Callable[[RightsAuditSite, Any], Any], str, str, Any]] = {
    "an account": (
        lambda d, fw: fw.new_doc("User", name="new", email="new@example.test").insert(),
        "user.create", "new", {"roles": []},
    ),
    "a role given": (
        lambda d, fw: save(fw, "User", "ann", roles=["Event Publisher", "System Manager"]),
        "user.change", "ann",
        {"changed": ["roles"], "roles_added": ["System Manager"]},
    ),
    "an account disabled by db_set, with its key": (
        lambda d, fw: fw.get_doc("User", "ann").db_set("enabled", 0),
        "user.change", "ann", {"changed": ["enabled"], "enabled": False},
    ),
    "an e-mail changed by db_set": (
        lambda d, fw: fw.get_doc("User", "ann").db_set("email", "anna@example.test"),
        "user.change", "ann", {"changed": ["email"]},
    ),
    "a password": (
        lambda d, fw: save(fw, "User", "ann", new_password=OTHER),
        "user.change", "ann", {"changed": ["new_password"]},
    ),
    "a scope given to another user by db_set": (
        lambda d, fw: fw.get_doc("User Permission", d.scope).db_set("user", "ben"),
        "user_permission.change", "{scope}", {"changed": ["user"], **CLERK, "user": "ben"},
    ),
    "a key that lives longer by db_set": (
        lambda d, fw: fw.get_doc("API Key", d.key).db_set("expires", "2099-01-01T00:00:00.000Z"),
        "api_key.change", "{key}", {"changed": ["expires"], "user": "ann"},
    ),
    "a url changed by db_set": (
        lambda d, fw: fw.get_doc("Webhook", d.hook).db_set("url", URL + "/2"),
        "webhook.change", "{hook}", {"changed": ["url"], **WATCHED},
    ),
    "permissions ignored": (
        lambda d, fw: fw.as_user("boss").get_doc("Role", "Idle").delete(ignore_permissions=True),
        "role.delete", "Idle", None,
    ),
}  # fmt: skip

NO_CHANGE_OF_RIGHTS: dict[str, Act] = {
    "the own profile": lambda d: d.own("profile.updateMyProfile", {"fullName": "Ann A."}),
    "another's profile": lambda d: d.put("ann", {"fullName": "Ann A.", "language": "en"}),
    "a save of what is there": lambda d: d.put("ann", {"enabled": 1}),
    "the same roles again": lambda d: d.put("ann", {"roles": [{"role": "Event Publisher"}]}),
    "a Webhook saved as it is": lambda d: d.send("PUT", f"{HOOK}/{d.hook}", {"url": URL}),
    "a key in use": lambda d: d.use_key(),
    "a sign-in": lambda d: d.sign_in_by_an_old_hash(),
    "a taken name": lambda d: d.site.ask(
        "POST", USER, {"name": "ann", "email": "x@example.test"}, sid=d.boss
    ),
    "a wrong current password": lambda d: d.site.op(
        "profile.changeMyPassword", {"current": OTHER, "password": OTHER}, sid=d.ann
    ),
    "a spent link": lambda d: spend(d.site, RESET, "x" * 32),
    "an act that is not allowed": lambda d: d.site.ask(
        "POST", ROLE, {"name": "Scribe"}, sid=d.ann
    ),
}  # fmt: skip


def save(fw: Any, doctype: str, name: str, **values: Any) -> None:
    doc = fw.get_doc(doctype, name)
    if "roles" in values:
        values["roles"] = [{"role": role} for role in values["roles"]]
    for field, value in values.items():
        setattr(doc, field, value)
    doc.save()


def filled(audit_site: RightsAuditSite, value: Any) -> Any:
    """Put the generated names of the desk's documents into the expected values."""
    if isinstance(value, dict):
        return {key: filled(audit_site, each) for key, each in value.items()}
    return value.format(**vars(audit_site)) if isinstance(value, str) else value


async def check_events(
    audit_site: RightsAuditSite, act: Act, expected: Sequence[Any], actor: str
) -> None:
    """Compare the events of an act with the expected action, target and detail."""
    action, target, detail = (filled(audit_site, each) for each in expected)
    async with new_events(audit_site.site) as events:
        made = await act(audit_site)
    assert events == [(action, made if target == MADE else target, detail, actor)]


@pytest.mark.parametrize("name", BY_MANAGER)
async def test_audit_has_one_event_for_each_act_of_a_manager(
    audit_site: RightsAuditSite, name: str
) -> None:
    """O-83."""
    act, *expected = BY_MANAGER[name]
    await check_events(audit_site, act, expected, "boss")


@pytest.mark.parametrize("name", BY_OWNER)
async def test_audit_has_one_event_for_each_act_of_an_owner(
    audit_site: RightsAuditSite, name: str
) -> None:
    act, *expected = BY_OWNER[name]
    await check_events(audit_site, act, expected, "ann")


@pytest.mark.parametrize("name", IN_PYTHON)
async def test_audit_has_one_event_for_each_act_in_python(
    audit_site: RightsAuditSite, name: str
) -> None:
    act, *expected = IN_PYTHON[name]
    actor = "boss" if name == "permissions ignored" else "Administrator"
    await check_events(audit_site, lambda d: d.site.do(partial(act, d)), expected, actor)


async def test_audit_has_the_invited_user_as_actor(audit_site: RightsAuditSite) -> None:
    body = {"email": "ida@example.test", "name": "ida"}
    invited = await audit_site.site.op("users.invite", body, sid=audit_site.boss)
    token = str(invited.json["link"]).partition("#token=")[2]
    accepted = {"token": token, "password": OTHER, "fullName": "Ida"}
    async with new_events(audit_site.site) as events:
        assert (await audit_site.site.ask("POST", ACCEPT, accepted)).status == 200
    assert events == [("user.accept_invite", "ida", None, "ida")]


@pytest.mark.parametrize("name", NO_CHANGE_OF_RIGHTS)
async def test_audit_has_no_event_without_a_change_of_rights(
    audit_site: RightsAuditSite, name: str
) -> None:
    async with new_events(audit_site.site) as events:
        await NO_CHANGE_OF_RIGHTS[name](audit_site)
    assert events == []


async def test_audit_event_is_undone_with_its_act(audit_site: RightsAuditSite) -> None:
    async with new_events(audit_site.site) as events:
        await audit_site.site.site.rollback(
            "Administrator", lambda fw: save(fw, "User", "ann", new_password=OTHER)
        )
    assert events == []


async def test_audit_is_complete_after_an_error_that_an_app_catches(
    audit_site: RightsAuditSite,
) -> None:
    """Keys deleted with their User leave no events; a deletion of a single key leaves one."""

    def work(fw: Any) -> None:
        fw.new_doc("User Permission", user="ben", allow="User", for_value="ann").insert()
        with pytest.raises(ConflictError):  # a scope names it
            fw.get_doc("User", "ann").delete()
        fw.get_doc("API Key", audit_site.key).delete()

    async with new_events(audit_site.site) as events:
        await audit_site.site.do(work)
    assert sorted(event[0] for event in events) == ["api_key.delete", "user_permission.create"]


async def test_audit_events_of_passwords_have_the_request_id(audit_site: RightsAuditSite) -> None:
    token, site = await token_for(audit_site.site, "ann"), audit_site.site
    await site.ask("POST", RESET, {"token": token, "password": OTHER}, headers=[ID], csrf=False)
    ann = await site.sid("ann", OTHER)
    body = {"current": OTHER, "password": PASSWORD}
    await site.op("profile.changeMyPassword", body, sid=ann, headers=[ID])
    await site.ask("PUT", f"{USER}/ann", {"new_password": OTHER}, sid=audit_site.boss, headers=[ID])
    rows = await site.rows("SELECT action FROM doc_audit_event WHERE request_id = 'r-7'")
    assert sorted(row["action"] for row in rows) == [
        "user.change", "user.change_password", "user.reset_password",
    ]  # fmt: skip


async def test_audit_events_hold_no_secrets(audit_site: RightsAuditSite) -> None:
    """O-85."""
    await audit_site.put("ann", {"new_password": OTHER, "email": "anna@example.test"})
    await audit_site.recover()
    await audit_site.send(
        "PUT", f"{HOOK}/{audit_site.hook}", {"url": URL + "/2", "secret": SECRET + "2"}
    )
    await audit_site.send("DELETE", f"{HOOK}/{audit_site.hook}")
    text = str(await audit_site.site.rows("SELECT * FROM doc_audit_event"))
    for value in ("T0K3N", SECRET, "anna@example.test", OTHER, PASSWORD, "$argon2"):
        assert value not in text


async def test_version_is_not_written_for_a_password(audit_site: RightsAuditSite) -> None:
    """A password is not a stored field; only its Audit Event records the change."""
    await audit_site.put("ann", {"new_password": OTHER})
    versions = "SELECT name FROM doc_version WHERE ref_doctype = 'User' AND docname = 'ann'"
    assert await audit_site.site.rows(versions) == []


async def test_audit_is_empty_after_the_first_start(site: HttpSite) -> None:
    assert await site.rows("SELECT name FROM doc_audit_event") == []
