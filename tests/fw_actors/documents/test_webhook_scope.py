"""A user with access scopes is refused Webhook and Webhook Delivery, also as System Manager, in
Python and over HTTP (A-314, A-316).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from fw_actors.errors import PermissionDeniedError
from tests.http_site import SERVICES, HttpSite, http_site

pytestmark = pytest.mark.usefixtures("on_both_stores")
APPS = Path(__file__).parent / "apps"
HOOK = {"url": "https://x.test", "event_type": "Custom", "custom_event": "a.b", "secret": "s"}
WATCH = {**HOOK, "event_type": "Document", "webhook_doctype": "Customer", "on_insert": 1}
SAM = "sam"


@dataclass
class Scoped:
    """A site with Webhooks and deliveries, and a System Manager with one User Permission."""

    site: HttpSite
    sid: str
    names: dict[str, str]

    async def as_sam(self, fn: Callable[[Any], Any]) -> Any:
        return await self.site.do(fn, SAM)

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        return await self.site.ask(method, path, body, sid=self.sid)

    async def rows(self) -> list[Any]:
        """Return all rows that must not change."""
        hooks = await self.site.rows("SELECT * FROM doc_webhook ORDER BY name")
        return [*hooks, *await self.site.rows("SELECT * FROM doc_webhook_delivery ORDER BY name")]


@pytest.fixture
async def scoped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scoped]:
    monkeypatch.syspath_prepend(APPS)
    async with http_site(tmp_path, apps=("shop",)) as site:
        await site.add_account("boss", "System Manager")
        sid = await site.sid(await site.add_account(SAM, "System Manager"))

        def add_records(fw: Any) -> dict[str, str]:
            hook = fw.new_doc("Webhook", **HOOK).insert()
            fw.new_doc("Webhook", **WATCH).insert()
            fw.new_doc("Customer", title="Ada").insert()
            return {"Webhook": hook.name}

        names = await site.do(add_records)
        sent = await site.do(lambda fw: fw.webhooks.emit("a.b", {}))
        names["Webhook Delivery"] = sent["deliveries"][0]
        scope = {"user": SAM, "allow": "Customer", "for_value": "Ada"}
        await site.do(lambda fw: fw.new_doc("User Permission", **scope).insert())
        unsent = "SELECT name FROM doc_webhook_delivery WHERE attempts = 0"
        for _ in range(200):  # the first attempts fail, and the next ones are far away
            if not await site.rows(unsent):
                break
            await trio.sleep(0.1)
        yield Scoped(site, sid, names)


BOTH = pytest.mark.parametrize("doctype", ["Webhook", "Webhook Delivery"])


@BOTH
async def test_scoped_reads_ignoring_permissions_return_no_rows(
    scoped: Scoped, doctype: str
) -> None:
    """ "`getAll` and `getList({ignorePermissions:true})` return no rows, `getValue` returns
    nothing, `exists` returns null"."""
    name = scoped.names[doctype]

    def read(fw: Any) -> list[Any]:
        return [
            fw.get_all(doctype),
            fw.get_list(doctype, ignore_permissions=True),
            fw.get_value(doctype, name, "name"),
            fw.get_value(doctype, {"name": name}, "modified"),
            fw.exists(doctype, name),
            fw.exists(doctype, {"name": name}),
            fw.count(doctype),
        ]

    assert await scoped.as_sam(read) == [[], [], None, None, None, None, 0]


@BOTH
async def test_scoped_reads_with_permissions_are_refused(scoped: Scoped, doctype: str) -> None:
    """`get_list` without the flag and `get_doc` raise (A-315)."""

    def read(fw: Any) -> None:
        with pytest.raises(PermissionDeniedError):
            fw.get_list(doctype)
        for name in (scoped.names[doctype], "nobody"):
            with pytest.raises(PermissionDeniedError):
                fw.get_doc(doctype, name)

    await scoped.as_sam(read)


VERBS: dict[str, Callable[[Any, Any, bool], Any]] = {
    "insert": lambda fw, doc, flag: type(doc)(fw).insert(ignore_permissions=flag),
    "save": lambda fw, doc, flag: doc.save(ignore_permissions=flag),
    "save of a new one": lambda fw, doc, flag: type(doc)(fw).save(ignore_permissions=flag),
    "delete": lambda fw, doc, flag: doc.delete(ignore_permissions=flag),
    "dbSet": lambda fw, doc, flag: doc.db_set("modified", None, ignore_permissions=flag),
    "rename": lambda fw, doc, flag: doc.rename("other", ignore_permissions=flag),
    "submit": lambda fw, doc, flag: doc.submit(ignore_permissions=flag),
    "cancel": lambda fw, doc, flag: doc.cancel(ignore_permissions=flag),
    "reload": lambda fw, doc, flag: doc.reload(ignore_permissions=flag),
}


@BOTH
async def test_scoped_verbs_are_refused_despite_ignored_permissions(
    scoped: Scoped, doctype: str
) -> None:
    """ "`insert`, `save`, `delete`, `dbSet` are refused", and the other verbs too."""
    before = await scoped.rows()

    def work(fw: Any) -> None:
        doc = fw.get_doc(doctype, scoped.names[doctype])
        fw.rights = scoped.site.site.accounts.rights(fw.tx, SAM)
        for call in VERBS.values():
            for flag in (False, True):
                with pytest.raises(PermissionDeniedError):
                    call(fw, doc, flag)

    await scoped.site.do(work)
    assert await scoped.rows() == before


@BOTH
async def test_scoped_requests_are_refused_for_any_name(scoped: Scoped, doctype: str) -> None:
    """Over HTTP every verb is 403, also for names that do not exist (A-315)."""
    before = await scoped.rows()
    path = f"/api/resource/{doctype.replace(' ', '%20')}"
    requests: list[tuple[str, str, object]] = [("GET", path, None), ("POST", path, HOOK)]
    for name in (scoped.names[doctype], "nobody"):
        one = f"{path}/{name}"
        requests += [
            ("GET", one, None), ("PUT", one, {"timeout": 5}), ("PUT", one, {}),
            ("DELETE", one, None), ("GET", f"{one}/export", None), ("POST", f"{one}/submit", None),
            ("POST", f"{one}/cancel", None), ("POST", f"{one}/rename", {"name": "x"}),
        ]  # fmt: skip
    for request in requests:
        reply = await scoped.ask(*request)
        assert (reply.status, reply.error["type"]) == (403, "PermissionDeniedError"), request
    assert await scoped.rows() == before


async def test_scoped_replay_is_refused_and_audited_as_denied(scoped: Scoped) -> None:
    """A replay is refused (B-255) and recorded as Denied, without a detail (O-81)."""
    for delivery in (scoped.names["Webhook Delivery"], "nobody"):
        reply = await scoped.ask("POST", SERVICES + "webhooks.replay", {"delivery": delivery})
        assert reply.status == 403
    text = "SELECT action, target, detail, actor FROM doc_audit_event WHERE actor = :actor"
    events = await scoped.site.rows(text, actor=SAM)
    assert [(row["action"], row["detail"], row["actor"]) for row in events] == [
        ("Denied", None, SAM)
    ] * 2
    assert {row["target"] for row in events} == {scoped.names["Webhook Delivery"], "nobody"}


async def test_scoped_test_event_is_refused(scoped: Scoped) -> None:
    reply = await scoped.ask(
        "POST", SERVICES + "webhooks.test", {"webhook": scoped.names["Webhook"]}
    )
    assert reply.status == 403


async def test_raw_sql_bypasses_webhook_scopes(scoped: Scoped) -> None:
    """ "Raw `fw.db.sql` is not checked"."""
    found = await scoped.as_sam(lambda fw: fw.db.sql("SELECT name FROM doc_webhook"))
    assert len(found) == 2


async def test_scoped_writes_queue_deliveries(scoped: Scoped) -> None:
    """ "Such a user's own document writes still queue deliveries on their behalf"."""
    text = "SELECT count(*) AS n FROM doc_webhook_delivery WHERE event = 'doc.on_insert'"
    await scoped.as_sam(
        lambda fw: fw.new_doc("Customer", title="Bob").insert(ignore_permissions=True)
    )
    assert await scoped.site.rows(text) == [{"n": 1}]


async def test_unscoped_system_manager_may_use_webhooks(scoped: Scoped) -> None:
    """The refusals above have no cause but the scope."""
    await scoped.site.do(lambda fw: fw.db.sql("DELETE FROM doc_user_permission"))
    assert len(await scoped.as_sam(lambda fw: fw.get_list("Webhook"))) == 2
    for path in ("/api/resource/Webhook", "/api/resource/Webhook%20Delivery"):
        assert (await scoped.ask("GET", path)).status == 200
    one = f"/api/resource/Webhook/{scoped.names['Webhook']}"
    assert (await scoped.ask("PUT", one, {"timeout": 5})).status == 200
    assert (await scoped.ask("DELETE", one)).status == 200
