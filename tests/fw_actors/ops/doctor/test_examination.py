"""The facts that the examination of a real site gathers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import trio

from fw_actors.config import LoginPolicy
from fw_actors.mail import Template
from fw_actors.ops.doctor import examine
from fw_actors.ops.doctor.access import DemoFacts, sign_in_facts
from fw_actors.ops.doctor.delivery import WebhookSince, queue_facts, webhook_facts
from fw_actors.ops.doctor.system import (
    ClockFacts,
    MailFacts,
    app_facts,
    clock_facts,
    database_facts,
    evaluate_apps,
    mail_facts,
)
from fw_actors.ops.stored_secrets import BATCH, secret_facts
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.rules.findings import Level, ServiceState
from fw_actors.store import jobs
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site
from tests.fw_actors.webhooks.claim_kit import ClaimingProcess, ScriptedDeliveries
from tests.site_kit import inline_site

DAY = 86_400


async def end(site: VirtualSite, delivery: str, status: DeliveryStatus) -> None:
    now = site.site.clock.now()
    await site.do(
        lambda fw: fw.db.sql(
            "UPDATE doc_webhook_delivery SET status = :s, last_attempt = :t WHERE name = :n",
            {"s": status.value, "t": now, "n": delivery},
        )
    )


async def emit(site: VirtualSite) -> str:
    emitted = await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    delivery: str = emitted["deliveries"][0]
    return delivery


async def test_webhook_facts_count_enabled_retrying_and_recently_failed(site: VirtualSite) -> None:
    """The doctor counts enabled, retrying, and failed in the last 24 hours (O-131)."""
    await site.subscribe()
    await site.subscribe("never.sent", enabled=0)
    await end(site, await emit(site), DeliveryStatus.FAILED)
    await trio.sleep(DAY - 1)
    await end(site, await emit(site), DeliveryStatus.FAILED)
    await end(site, await emit(site), DeliveryStatus.RETRYING)
    facts = await webhook_facts(site.site)
    assert (facts.off, facts.enabled, facts.retrying, facts.failed) == (False, 1, 1, 2)
    await trio.sleep(1)
    assert (await webhook_facts(site.site)).failed == 1


async def test_webhook_facts_name_enabled_webhooks_with_several_failures(
    site: VirtualSite,
) -> None:
    """A bulk replay of their deliveries begins at the first event of these (O-132)."""
    failing = await site.subscribe()
    first = site.site.clock.now()
    for _ in range(2):
        await end(site, await emit(site), DeliveryStatus.FAILED)
        await trio.sleep(DAY / 2 - 1)
    assert (await webhook_facts(site.site)).resendable == ((failing, first),)
    await site.do(lambda fw: fw.get_doc("Webhook", failing).db_set("enabled", 0))
    assert (await webhook_facts(site.site)).resendable == ()
    await site.do(lambda fw: fw.get_doc("Webhook", failing).db_set("enabled", 1))
    await trio.sleep(10)  # the first one has failed more than a day ago
    assert (await webhook_facts(site.site)).resendable == ()


async def test_webhook_facts_list_misconfigured_enabled_webhooks(tmp_path: Path) -> None:
    """Lengths other than 24 to 64 bytes pass with a warning in doctor (B-25, O-140)."""
    async with open_virtual_site(tmp_path, mode="development") as site:
        short = await site.subscribe(secret="x" * 23)
        await site.subscribe(secret="whsec_" + "A" * 32)
        plain = await site.subscribe(secret="x" * 24, url="http://receiver.test/")
        lost = await site.watch("Note", "on_insert", secret="x" * 24)
        await site.do(
            lambda fw: fw.db.sql(
                "UPDATE doc_webhook SET webhook_doctype = 'Gone' WHERE name = :n", {"n": lost}
            )
        )
        assert (await webhook_facts(site.site)).refused_urls == ()
    async with open_virtual_site(tmp_path) as site:
        facts = await webhook_facts(site.site)
    assert (facts.odd_secrets, facts.refused_urls, facts.lost_doctypes) == (
        (short,), (plain,), (lost,),
    )  # fmt: skip


async def test_webhook_facts_list_webhooks_of_child_tables(site: VirtualSite) -> None:
    """A DocType that an app has made a child table causes no events (B-19)."""
    name = await site.watch("Note", "on_insert")
    await site.sql("UPDATE doc_webhook SET webhook_doctype = 'Decision' WHERE name = :n", n=name)
    facts = await webhook_facts(site.site)
    assert (facts.child_doctypes, facts.lost_doctypes) == ((name,), ())


async def test_webhook_facts_list_no_unreadable_secret_as_too_short(tmp_path: Path) -> None:
    """The section of secrets reports it."""
    async with open_virtual_site(tmp_path) as site:
        await site.subscribe(secret="x" * 64)
        await site.subscribe(secret="x" * 23)
        assert len((await webhook_facts(site.site)).odd_secrets) == 1
    async with open_virtual_site(tmp_path, secrets={"key": "another"}) as site:
        assert (await webhook_facts(site.site)).odd_secrets == ()


async def test_webhook_facts_state_when_a_pause_began(site: VirtualSite) -> None:
    hook = await site.subscribe()
    began = site.site.clock.now()
    await site.do(lambda fw: site.site.pauses.pause(fw, hook, None))
    await trio.sleep(60)
    assert (await webhook_facts(site.site)).paused == (WebhookSince(hook, began),)


async def test_secret_facts_open_all_secrets_in_batches(tmp_path: Path) -> None:
    async with open_virtual_site(tmp_path) as site:
        first = await site.subscribe()
        await site.do(
            lambda fw: fw.db.sql(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :more)"
                " INSERT INTO doc_webhook (name, secret, row_id)"
                " SELECT printf('w%06d', i), secret, row_id FROM n, doc_webhook WHERE name = :n",
                {"more": BATCH + 1, "n": first},
            )
        )
        facts = await secret_facts(site.site)
        assert (facts.stored, facts.unreadable) == (BATCH + 2, {})
    async with open_virtual_site(tmp_path, secrets={"key": "another"}) as site:
        facts = await secret_facts(site.site)
        at_start = await secret_facts(site.site, first_batches=True)
    assert list(facts.unreadable.values()) == [BATCH + 2]
    assert (at_start.stored, list(at_start.unreadable.values())) == (BATCH, [BATCH])


async def test_queue_facts_count_a_lease_as_stuck_after_a_minute(site: VirtualSite) -> None:
    store = site.site.store
    await store.write(lambda tx: jobs.enqueue(tx, queue="mail"))
    await store.write(lambda tx: jobs.claim(tx, "mail", "", 1, 1000, "token"))
    await trio.sleep(60.5)
    assert (await queue_facts(site.site)).stuck == {}
    await trio.sleep(0.6)
    assert (await queue_facts(site.site)).stuck == {"mail": 1}


async def test_queue_facts_count_no_lease_of_a_paused_webhook_as_stuck(site: VirtualSite) -> None:
    """Its deliveries wait for the end of the pause, whatever became of a process (O-142)."""
    hook = await site.subscribe()
    for _ in range(2):
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    store = site.site.store
    await store.write(lambda tx: jobs.claim(tx, "webhook", hook, 1, 1000, "token"))
    await site.do(lambda fw: site.site.pauses.pause(fw, hook, None))
    await trio.sleep(62)
    assert (await queue_facts(site.site)).stuck == {}
    await site.do(lambda fw: site.site.pauses.resume(fw, hook))
    assert (await queue_facts(site.site)).stuck == {"webhook": 1}


async def test_queue_facts_name_webhooks_with_pauses_and_limits(site: VirtualSite) -> None:
    """Of those with late deliveries; a disabled Webhook has no limit (B-310)."""
    paused = await site.subscribe()
    limited = await site.subscribe(rate_limit=1)
    off = await site.subscribe(rate_limit=1)
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    await site.do(lambda fw: fw.get_doc("Webhook", off).db_set("enabled", 0))
    await site.do(lambda fw: site.site.pauses.pause(fw, paused, None))
    await trio.sleep(301)
    (receiver,) = (await queue_facts(site.site)).receivers
    assert (receiver.paused, receiver.limited) == ((paused,), (limited,))


@pytest.mark.parametrize(
    ("endings", "error"),
    [
        ((), None),
        (("REFUSED",), "status: 400."),
        (("DELIVERED", "TRANSIENT"), "status: 400."),
        (("TRANSIENT", "DELIVERED"), ""),
    ],
)
async def test_queue_facts_name_the_error_of_the_last_attempt(
    site: VirtualSite, endings: tuple[str, ...], error: str | None
) -> None:
    """Of a receiver whose deliveries are due for more than five minutes; empty after a 2xx."""
    deliveries = ScriptedDeliveries(site)
    await site.subscribe()
    for ending in endings:
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
        await deliveries.attempt(ending, limit=1)
        await trio.sleep(1)
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    await trio.sleep(301)
    (receiver,) = (await queue_facts(site.site)).receivers
    assert receiver.last_error == error


async def test_queue_facts_count_due_and_leased_deliveries_of_each_receiver(
    site: VirtualSite,
) -> None:
    for name in ("one", "two"):
        await site.subscribe(url=f"https://{name}.test/")
    for _ in range(2):
        await emit(site)
    await trio.sleep(301)
    [lease] = await ClaimingProcess(site).claim(limit=1)
    other, begun = (await queue_facts(site.site)).receivers  # the largest backlog first
    assert (begun.webhooks, begun.due, begun.leased) == ((lease.job.partition,), 1, 1)
    assert (other.due, other.leased) == (2, 0)


async def test_queue_facts_read_receivers_only_if_deliveries_are_late(site: VirtualSite) -> None:
    """Counting the due deliveries of each receiver reads them all."""
    await site.subscribe()
    await site.site.store.write(lambda tx: jobs.enqueue(tx, queue="mail"))
    await trio.sleep(301)
    await emit(site)
    assert (await queue_facts(site.site)).receivers == ()


@pytest.mark.parametrize("table", ["fw_session", "fw_job", "doc_webhook_delivery"])
async def test_clock_facts_have_the_newest_time_of_any_row(site: VirtualSite, table: str) -> None:
    """A clock that was set back is seen by what was written before."""
    assert (await clock_facts(site.site)).latest == 0
    await site.subscribe()
    await emit(site)
    now = site.site.clock.now()
    await site.sql(
        'INSERT INTO fw_session (id, sid_hash, "user", created, last_seen, expires)'
        " VALUES ('s', :hash, 'ada', :now, :now, :now)",
        hash=b"h", now=now,
    )  # fmt: skip
    column = "creation" if table.startswith("doc_") else "created"
    await site.sql(f"UPDATE {table} SET {column} = :at", at=now + 7000)
    assert await clock_facts(site.site) == ClockFacts(now, now + 7000)


async def test_database_facts_of_a_small_file_are_complete(site: VirtualSite) -> None:
    facts = await database_facts(site.site)
    assert (facts.kind, facts.checked, facts.faults) == ("sqlite", "completely", ())
    assert facts.size > 0
    assert facts.free_disk is not None


async def test_mail_facts_count_messages_that_fail_again_and_again(site: VirtualSite) -> None:
    """A server that defers unknown senders accepts a message at its second or third attempt."""
    for user, attempts in (("ada", 2), ("bob", 3), ("cid", 4)):
        await site.do(
            lambda fw, user=user: site.site.mail_queue.to_user(  # type: ignore[misc]
                fw.tx, Template.PASSWORD_CHANGED, user, owner=user
            )
        )
        await site.sql(
            "UPDATE doc_email_delivery SET status = 'Retrying', attempts = :n, error = :error,"
            " modified = :at WHERE owner = :user",
            n=attempts, error=f"{user}: 451", at=-attempts, user=user,
        )  # fmt: skip
    facts = await mail_facts(site.site)
    assert (facts.retrying, facts.last_error) == (2, "bob: 451")


async def test_mail_facts_ignore_a_function_that_no_transport_calls(site: VirtualSite) -> None:
    config = site.site.config
    mail = dataclasses.replace(config.mail, transport="log", method="no.such")
    logged = dataclasses.replace(config.deployment, log_level="info")
    config = dataclasses.replace(config, mail=mail, deployment=logged)
    assert await mail_facts(dataclasses.replace(site.site, config=config)) == MailFacts("", 0)


@pytest.mark.parametrize(
    ("user", "roles"), [("DEMO", ("System Manager",)), ("demo@x.test", ("System Manager",))]
)
async def test_sign_in_facts_find_the_demo_account_by_identifier(
    site: VirtualSite, user: str, roles: tuple[str, ...]
) -> None:
    await site.add_account("demo", "System Manager")
    await site.add_account("other", "System Manager", "Event Publisher")
    await site.add_account("plain", "Event Publisher")
    config = dataclasses.replace(site.site.config, login=LoginPolicy(None, user, "public"))
    facts = await sign_in_facts(dataclasses.replace(site.site, config=config))
    assert (facts.managers, facts.locked) == (2, 0)
    assert facts.demo == DemoFacts(exists=True, enabled=True, roles=roles)
    assert facts.hash_ms > 0


@pytest.mark.parametrize(
    ("user", "password", "demo"),
    [
        ("demo", None, None),
        (None, "public", None),
        ("nobody", "public", DemoFacts(False, False, ())),
        ("no\u200bbody", "public", DemoFacts(False, False, ())),
    ],
)
async def test_sign_in_facts_state_why_no_demo_account_is_usable(
    site: VirtualSite, user: str | None, password: str | None, demo: DemoFacts | None
) -> None:
    """None is configured, or nobody has its name, or nobody can have it."""
    login = LoginPolicy(None, user, password)
    config = dataclasses.replace(site.site.config, login=login)
    assert (await sign_in_facts(dataclasses.replace(site.site, config=config))).demo == demo


async def test_examination_has_all_sections_and_writes_nothing(site: VirtualSite) -> None:
    before = site.site.store.statistics().committed
    sections = await examine(site.site, ServiceState(running=False))
    assert site.site.store.statistics().committed == before
    assert [section.name for section in sections] == [
        "signIn", "mail", "webhooks", "secrets", "queues", "database", "clock", "apps",
    ]  # fmt: skip
    assert not any(section.texts(Level.PROBLEM) for section in sections)


async def test_doctor_names_apps_that_declare_nothing(tmp_path: Path) -> None:
    """D-166; an app of jobs defines functions."""
    package = tmp_path / "doctored_empty"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "doctypes.py").write_text("def job(fw): ...\n")
    (tmp_path / "doctored_jobs.py").write_text("def job(fw): ...\n")
    async with inline_site(tmp_path, apps=("doctored_empty", "doctored_jobs")) as site:
        section = evaluate_apps(await app_facts(site))
    assert section.texts(Level.WARNING) == [
        "the app doctored_empty declares nothing: no DocType, function or data migration"
    ]


async def test_doctor_names_installed_libraries_that_are_no_apps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-166; an app of jobs may be installed, and every library has functions."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "doctored_library.py").write_text("def get(url, fw=None): ...\n")
    (installed / "doctored_app.py").write_text("def job(fw, name): ...\n")
    monkeypatch.syspath_prepend(installed)
    async with inline_site(tmp_path, apps=("doctored_library", "doctored_app")) as site:
        section = evaluate_apps(await app_facts(site))
    (text,) = section.texts(Level.WARNING)
    assert text.startswith("the app doctored_library declares nothing")
