"""Notices about failing receivers, and the disabling of Webhooks (B-340 to B-346, B-400)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fw_actors.mail import FailingWebhook, Notice, Template, TemplateValues, render
from fw_actors.ops.doctor.delivery import WebhookSince, webhook_facts
from fw_actors.rules.delivery import error_of_response
from fw_actors.rules.receivers import OutageAction
from fw_actors.webhooks.health import correct_times
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site
from tests.site_kit import START_MS

pytestmark = pytest.mark.usefixtures("on_both_stores")
HOUR, DAY = 3_600_000, 86_400_000
AHEAD_MS = 300_000


@asynccontextmanager
async def failing_site(folder: Path, **settings: Any) -> AsyncIterator[tuple[VirtualSite, str]]:
    """Open a site with a Webhook whose attempts have failed for two days."""
    async with open_virtual_site(folder, **settings) as site:
        await site.add_account("mona", "System Manager", password=None)
        await site.add_account("gone", "System Manager", password=None)
        await site.sql("UPDATE doc_user SET enabled = 0 WHERE name = 'gone'")
        name = await site.subscribe(url="https://receiver.test/hook/t0ken")
        await fail(site, name)
        yield site, name


async def fail(
    site: VirtualSite, name: str, since: int = START_MS - 2 * DAY, last: int = 0
) -> None:
    await site.sql("DELETE FROM fw_webhook_health WHERE webhook = :name", name=name)
    await site.sql(
        "INSERT INTO fw_webhook_health (webhook, failures, failing_since, last_error, last_failure)"
        " VALUES (:name, 7, :since, 'connect: the connection was refused.', :last)",
        name=name, since=since, last=last or START_MS - HOUR,
    )  # fmt: skip


async def succeed(site: VirtualSite, name: str) -> None:
    await site.sql(
        "UPDATE fw_webhook_health SET failures = 0, failing_since = NULL, last_success = :at"
        " WHERE webhook = :name", at=START_MS, name=name,
    )  # fmt: skip


async def sweep(site: VirtualSite) -> list[tuple[OutageAction, str]]:
    """Take steps until nothing is due; return the reported acts."""
    reported: list[tuple[OutageAction, str]] = []
    opened = site.site
    for _ in range(20):
        if not await opened.store.write(
            lambda tx: opened.notices.step(
                tx, lambda tx: opened.handle(tx, "Administrator"), lambda *act: reported.append(act)
            )
        ):
            return reported
    raise AssertionError("the steps do not end")


async def mails(site: VirtualSite) -> list[tuple[Any, ...]]:
    return await site.sql("SELECT recipient, template FROM doc_email_delivery ORDER BY recipient")


async def audited(site: VirtualSite) -> list[tuple[str, str, dict[str, Any]]]:
    rows = await site.sql(
        "SELECT action, target, detail FROM doc_audit_event WHERE action LIKE 'webhook.notice%'"
        " OR action = 'webhook.disable' OR action = 'webhook.change' ORDER BY creation, action"
    )
    return [(action, target, json.loads(detail)) for action, target, detail in rows]


async def test_failing_webhook_is_reported_once(tmp_path: Path) -> None:
    """A notice is a mail to owner and System Managers, an event, an Audit Event and a metric."""
    async with failing_site(tmp_path) as (site, name):
        watcher = await site.subscribe("webhook.failing", url="https://pager.test/")
        first, again = await sweep(site), await sweep(site)
        [event] = await site.deliveries()
        actions = dict(site.site.notices.actions)
        since = "2027-01-13T08:00:00.000Z"
        assert (first, again) == ([(OutageAction.NOTICE, name)], [])
        assert await mails(site) == [("mona@x.test", "webhook_failing")]
        assert (event["webhook"], event["event"]) == (watcher, "webhook.failing")
        assert event["payload"]["data"] == {
            "webhook": name, "title": "receiver.test", "since": since, "failures": 7,
            "error": "connect: the connection was refused.",
        }  # fmt: skip
        assert await audited(site) == [("webhook.notice", name, {"since": since, "failures": 7})]
        assert actions == {"ended": 0, "failing": 1, "disabled": 0}
        facts = await webhook_facts(site.site)
        assert facts.failing == (WebhookSince(name, START_MS - 2 * DAY),)
        assert facts.disabled == ()


@pytest.mark.parametrize("days", [0, 1])
async def test_notice_hides_redirect_target(tmp_path: Path, days: int) -> None:
    """A redirect often repeats the path of the URL, which may be a token (B-343)."""
    async with failing_site(tmp_path, disable_after_days=days) as (site, name):
        await site.subscribe("webhook.failing", url="https://pager.test/")
        await site.sql(
            "UPDATE fw_webhook_health SET last_error = :error",
            error=error_of_response(301, "https://receiver.test/hook/t0ken/"),
        )
        await sweep(site)
        errors = [event["payload"]["data"]["error"] for event in await site.deliveries()]
        errors += await site.do(
            lambda fw: fw.get_all("Webhook", {"name": name}, ["disabled_reason"])
        )
        [(mail,)] = await site.sql("SELECT arguments FROM fw_job WHERE queue = 'mail'")
    shown = "status: the receiver answered 301, and pointed elsewhere."
    assert shown in str(errors)
    assert shown in mail
    assert "t0ken" not in f"{errors} {mail}"


async def test_notice_goes_to_owner_but_not_scoped_users(tmp_path: Path) -> None:
    async with failing_site(tmp_path) as (site, name):
        await site.add_account("olive", password=None)
        await site.add_account("scoped", "System Manager", password=None)
        await site.do(
            lambda fw: fw.new_doc(
                "User Permission", user="scoped", allow="User", for_value="scoped"
            ).insert()
        )
        await site.sql("UPDATE doc_webhook SET owner = 'olive' WHERE name = :name", name=name)
        await sweep(site)
        assert [row[0] for row in await mails(site)] == ["mona@x.test", "olive@x.test"]


async def test_notice_goes_to_no_later_account_of_the_owners_name(tmp_path: Path) -> None:
    """B-340: the owner was deleted, and another user has the name now."""
    async with failing_site(tmp_path) as (site, _):
        await site.sql("UPDATE doc_webhook SET owner = 'olive', creation = creation - 1")
        await site.add_account("olive", password=None)
        await sweep(site)
        assert [row[0] for row in await mails(site)] == ["mona@x.test"]


async def test_notice_goes_to_renamed_owner(tmp_path: Path) -> None:
    """B-340: a Webhook of an earlier account of the old name does not get this owner."""
    async with failing_site(tmp_path) as (site, name):
        await site.sql("UPDATE doc_webhook SET owner = 'olive', creation = creation - 1")
        await site.add_account("olive", password=None)
        later = await site.subscribe(url="https://receiver.test/later")
        await site.sql("UPDATE doc_webhook SET owner = 'olive' WHERE name = :name", name=later)
        await site.do(lambda fw: fw.get_doc("User", "olive").rename("oliver"))
        assert await site.sql("SELECT name, owner FROM doc_webhook ORDER BY owner") == [
            (name, "olive"),
            (later, "oliver"),
        ]
        await fail(site, later)
        await sweep(site)
        assert "olive@x.test" in [row[0] for row in await mails(site)]


async def test_notice_is_sent_once_by_two_processes(tmp_path: Path) -> None:
    """The later process finds the notice recorded (B-341)."""
    async with failing_site(tmp_path) as (site, name), open_virtual_site(tmp_path) as other:
        counts = await sweep(site) + await sweep(other)
        assert counts == [(OutageAction.NOTICE, name)]
        assert len(await mails(site)) == 1


async def test_notice_end_is_sent_once_and_new_failure_notified(tmp_path: Path) -> None:
    async with failing_site(tmp_path) as (site, name):
        await site.subscribe("webhook.failing.ended", url="https://pager.test/")
        await sweep(site)
        await succeed(site, name)
        ended = await sweep(site) + await sweep(site)
        [event] = await site.deliveries()
        await site.sql("UPDATE fw_webhook_health SET failures = 7, failing_since = :at",
                         at=START_MS - DAY)  # fmt: skip
        again = await sweep(site)
        assert ended == [(OutageAction.END, name)]
        assert again == [(OutageAction.NOTICE, name)]
        assert event["payload"]["data"]["reason"] == "delivered"


async def test_failing_webhook_gets_no_notice_about_itself(tmp_path: Path) -> None:
    """A notice to the failing Webhook would fail and queue the next one (B-343)."""
    async with failing_site(tmp_path) as (site, _):
        own = await site.subscribe("webhook.failing", url="https://receiver.test/other")
        await fail(site, own)
        await sweep(site)
        notices = [(each["webhook"], each["payload"]["data"]["webhook"])
                for each in await site.deliveries()]  # fmt: skip
        assert all(to == own and about != own for to, about in notices)
        assert len(notices) == 1


async def test_failing_webhook_gets_no_notice_about_itself_under_another_name(
    tmp_path: Path,
) -> None:
    """Another process has renamed it, which this one does not know (B-42, B-343)."""
    async with failing_site(tmp_path) as (site, _):
        own = await site.subscribe("webhook.failing", url="https://receiver.test/other")
        await fail(site, own)
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))  # reads the subscriptions
        async with open_virtual_site(tmp_path, seed=2) as other:
            await other.do(lambda fw: fw.get_doc("Webhook", own).rename("renamed"))
        await sweep(site)
        notices = [each for each in await site.deliveries() if each["event"] == "webhook.failing"]
        assert [each["webhook"] for each in notices] == ["renamed"]
        assert notices[0]["payload"]["data"]["webhook"] != "renamed"


async def test_notice_hours_of_zero_send_nothing(tmp_path: Path) -> None:
    async with failing_site(tmp_path, receiver_notice=0) as (site, _):
        assert await sweep(site) == []
        assert await mails(site) == []


async def test_webhook_is_disabled_after_days_of_failures(tmp_path: Path) -> None:
    """Disabling records the reason, a mail, and one audit event (B-344)."""
    async with failing_site(tmp_path, receiver_notice=0, disable_after_days=1) as (site, name):
        counts = await sweep(site) + await sweep(site)
        hook = await site.do(lambda fw: fw.get_doc("Webhook", name))
        assert counts == [(OutageAction.DISABLE, name)]
        assert not hook.enabled
        assert hook.disabled_reason == (
            "Disabled by ops.disableAfterDays: 7 attempts in a row have failed since "
            "2027-01-13T08:00:00.000Z. connect: the connection was refused."
        )
        assert await mails(site) == [("mona@x.test", "webhook_disabled")]
        assert [row[0] for row in await audited(site)] == ["webhook.disable"]
        facts = await webhook_facts(site.site)
        assert facts.disabled == (WebhookSince(name, START_MS - 2 * DAY),)
        assert facts.failing == ()


async def test_enabled_webhook_starts_without_earlier_failures(tmp_path: Path) -> None:
    """The earlier reason and failures no longer count (B-345)."""
    async with failing_site(tmp_path, disable_after_days=1) as (site, name):
        await sweep(site)

        def enable(fw: Any) -> None:
            doc = fw.get_doc("Webhook", name)
            doc.enabled = 1
            doc.save()

        await site.do(enable)
        hook = await site.do(lambda fw: fw.get_doc("Webhook", name))
        assert hook.disabled_reason is None
        assert await sweep(site) == []
        assert await site.sql("SELECT failures, failing_since FROM fw_webhook_health") == [
            (0, None)
        ]


async def test_notice_ends_with_disabled_or_deleted_webhook(tmp_path: Path) -> None:
    async with failing_site(tmp_path) as (site, name):
        await site.subscribe("webhook.failing.ended", url="https://pager.test/")
        other = await site.subscribe()
        await fail(site, other)
        await sweep(site)
        await site.do(lambda fw: fw.get_doc("Webhook", name).db_set("enabled", 0))
        await site.do(lambda fw: fw.get_doc("Webhook", other).delete())
        await sweep(site)
        reasons = {e["payload"]["data"]["webhook"]: e["payload"]["data"]["reason"]
                   for e in await site.deliveries()}  # fmt: skip
        assert reasons == {name: "disabled", other: "deleted"}


async def test_refused_disabling_does_not_block_other_webhooks(tmp_path: Path) -> None:
    """Raw SQL can leave an invalid Webhook; its refusal is recorded and not repeated."""
    async with failing_site(tmp_path, receiver_notice=0, disable_after_days=1) as (site, broken):
        await site.sql("UPDATE doc_webhook SET timeout = NULL WHERE name = :name", name=broken)
        other = await site.subscribe()
        await fail(site, other)
        assert await sweep(site) == [(OutageAction.DISABLE, other)]
        refused = {target: "refused" in detail for _, target, detail in await audited(site)}
        assert refused == {broken: True, other: False}


@pytest.mark.parametrize("template", [Template.WEBHOOK_FAILING, Template.WEBHOOK_DISABLED])
def test_failing_webhook_mail_names_cause_and_remedy(template: Template) -> None:
    about = FailingWebhook("Billing", "h1", START_MS, 7, "status: the receiver answered 503.")
    values = TemplateValues(
        "tests", "mona", "Mona", "mona@x.test", notice=Notice(failing_webhook=about)
    )
    text = render(template, values).text
    for part in ("Billing", "h1", "7 attempts", "2027-01-15 08:00 UTC", "answered 503", "replay"):
        assert part in text


async def corrected(site: VirtualSite) -> tuple[Any, ...]:
    """Correct the times as the Sweeper does; return them."""
    await site.site.store.write(lambda tx: correct_times(tx, START_MS + AHEAD_MS, 10))
    [row] = await site.sql(
        "SELECT failing_since, last_failure, last_success, noticed, disabled FROM fw_webhook_health"
    )
    return row


async def test_failure_period_ahead_of_clock_keeps_duration(tmp_path: Path) -> None:
    """Its notice comes after the hours of failure, not after the time of the clock (O-163)."""
    async with failing_site(tmp_path) as (site, name):
        await fail(site, name, since=START_MS + 8 * DAY, last=START_MS + 9 * DAY)
        assert await sweep(site) == []
        assert await corrected(site) == (START_MS - DAY, START_MS, None, None, None)
        assert await sweep(site) == [(OutageAction.NOTICE, name)]


async def test_failure_period_with_last_failure_before_its_beginning_begins_now(
    tmp_path: Path,
) -> None:
    """Its last failure came after the clock was set back (O-163)."""
    async with failing_site(tmp_path) as (site, name):
        await fail(site, name, since=START_MS + DAY, last=START_MS - 1)
        assert (await corrected(site))[:2] == (START_MS, START_MS - 1)


async def test_correction_of_failure_period_repeats_no_notice(tmp_path: Path) -> None:
    """Neither the notice nor its end is sent for the corrected time (B-341, O-163)."""
    async with failing_site(tmp_path) as (site, name):
        await fail(site, name, since=START_MS + 8 * DAY, last=START_MS + 9 * DAY)
        await site.sql("UPDATE fw_webhook_health SET noticed = failing_since, notice_open = 1")
        assert (await corrected(site))[3] == START_MS - DAY
        assert await sweep(site) == []
        await succeed(site, name)
        assert await sweep(site) == [(OutageAction.END, name)]


async def test_correction_leaves_times_of_failures_in_the_past(tmp_path: Path) -> None:
    """Also those that are ahead by as much as the clocks of nodes may differ (O-163)."""
    async with failing_site(tmp_path) as (site, name):
        since, last = START_MS - 2 * DAY, START_MS + AHEAD_MS
        await fail(site, name, since=since, last=last)
        assert (await corrected(site))[:2] == (since, last)
