"""The lines of the desk about what needs attention (H-164)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fw_actors.mail import Template
from fw_actors.rules.findings import ServiceState
from fw_actors.runtime import SeededEntropy
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site
from tests.http_site import URL, HttpSite, http_site
from web.app import make_app
from web.pages import webhooks
from web.pages.webhooks import AttentionLine, attention
from web.settings import Settings


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[VirtualSite]:
    async with open_virtual_site(tmp_path) as site:
        await site.add_account("ada")
        yield site


async def lines(site: VirtualSite, user: str = "Administrator") -> tuple[AttentionLine, ...]:
    return await site.do(lambda fw: attention(fw, ServiceState(running=True)), user)


async def fail_mails(site: VirtualSite, count: int) -> None:
    mail_queue = site.site.mail_queue
    for _ in range(count):
        await site.do(
            lambda fw: mail_queue.to_user(fw.tx, Template.PASSWORD_CHANGED, "ada", owner="ada")
        )
    await site.sql("UPDATE doc_email_delivery SET status = 'Failed'")


async def test_attention_counts_failed_mails_up_to_a_limit(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_WAITING_DELIVERIES", 3)
    path = "/app/Email%20Delivery?status=Failed"
    await fail_mails(site, 1)
    assert await lines(site) == (AttentionLine("1 mail has failed", path),)
    await fail_mails(site, 1)
    assert await lines(site) == (AttentionLine("2 mails have failed", path),)
    await fail_mails(site, 2)
    assert await lines(site) == (AttentionLine("3 or more mails have failed", path),)


async def test_attention_names_a_webhook_that_was_changed_on_another_server(
    site: VirtualSite,
) -> None:
    """The service uses it after a restart (B-42)."""
    tail = "changed on another server; this one uses the change after a restart"

    async def attention_lines(*stale: str) -> tuple[AttentionLine, ...]:
        service = ServiceState(running=True, stale_webhooks=stale)
        return await site.do(lambda fw: attention(fw, service))

    assert await attention_lines() == ()
    assert await attention_lines("erp") == (
        AttentionLine(f"The Webhook erp was {tail}", "/app/Webhook/erp"),
    )
    assert await attention_lines("erp", "crm") == (
        AttentionLine(f"2 Webhooks were {tail}", "/app/Webhook"),
    )


async def test_attention_counts_locked_identifiers(site: VirtualSite) -> None:
    until = site.site.clock.now() + 60_000
    for identifier in ("a", "b"):
        await site.sql(
            "INSERT INTO fw_login_attempt (id, key, at, state, until) "
            "VALUES (:id, :key, 0, 1, :until)",
            id=identifier, key=identifier.encode(), until=until,
        )  # fmt: skip
    assert await lines(site) == (
        AttentionLine("2 identifiers are locked", "/app/console#locks-title"),
    )


async def test_attention_is_for_system_managers(site: VirtualSite) -> None:
    await fail_mails(site, 1)
    assert await lines(site, "ada") == ()


@pytest.mark.parametrize("waits", [False, True])
async def test_webhook_form_notes_restart_of_other_servers(tmp_path: Path, waits: bool) -> None:
    """Its form has the sentence that follows "Saved." (B-42)."""
    async with http_site(tmp_path) as plain:
        settings = Settings("tests", URL, other_nodes_wait=waits)
        app = make_app(plain.service.gateway, settings, SeededEntropy(2))
        site = HttpSite(plain.site, plain.service, app, plain.clock, plain.log)
        sid = await site.sid(await site.add_account("boss", "System Manager"))
        for doctype in ("Webhook", "Role"):
            page = (await site.ask("GET", f"/new/{doctype}", sid=sid)).body.decode()
            shows_note = (
                'data-note="Other servers of the site use the change after a restart."' in page
            )
            assert shows_note is (waits and doctype == "Webhook")


async def test_desk_names_webhook_saved_on_other_server(tmp_path: Path) -> None:
    async with http_site(tmp_path) as site:
        sid = await site.sid(await site.add_account("boss", "System Manager"))
        hook = {"name": "erp", "url": "https://erp.example/", "event_type": "Custom"}
        made = {**hook, "custom_event": "a.b", "secret": "a signing secret"}
        assert (await site.ask("POST", "/api/resource/Webhook", made, sid=sid)).status == 201
        await site.site.write("Administrator", lambda fw: fw.webhooks.emit("x.y", {}))
        home = "was changed on another server"
        assert home not in (await site.ask("GET", "/app", sid=sid)).body.decode()
        change = "UPDATE doc_webhook SET custom_event = 'b.c' WHERE name = 'erp'"
        await site.site.write("Administrator", lambda fw: fw.db.sql(change))
        assert f"The Webhook erp {home}" in (await site.ask("GET", "/app", sid=sid)).body.decode()
