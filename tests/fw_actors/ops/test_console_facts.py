"""The facts that the console reads from the store (O-225 to O-227)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.access.attempts import IDENTIFIER as IDENTIFIER_KIND
from fw_actors.access.attempts import counter_key
from fw_actors.ops.console_facts import ConsoleFacts, StoreFacts
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.store import Tx
from fw_actors.store.schema import IDENTIFIER, JOB, LOGIN_ATTEMPT
from fw_actors.webhooks.health import add_tallies, tallies_of
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")
FAILED, SENT = DeliveryStatus.FAILED, DeliveryStatus.SENT


async def facts(site: VirtualSite) -> StoreFacts:
    opened = site.site
    return await opened.store.read(ConsoleFacts(opened.installation_key).read)


async def end(site: VirtualSite, delivery: str, **values: Any) -> None:
    columns = ", ".join(f"{name} = :{name}" for name in values)
    await site.sql(
        f"UPDATE doc_webhook_delivery SET {columns} WHERE name = :delivery",
        **values, delivery=delivery,
    )  # fmt: skip


async def emitted(site: VirtualSite, count: int) -> list[str]:
    def work(fw: Any) -> list[str]:
        return [d for _ in range(count) for d in fw.webhooks.emit("note.shared", {})["deliveries"]]

    names: list[str] = await site.do(work)
    return names


async def test_console_facts_group_failures_by_webhook_and_cause(site: VirtualSite) -> None:
    hook = await site.subscribe(title="Shop")
    names = await emitted(site, 4)
    for at, (name, error) in enumerate(zip(names, ("503", "503", "timeout", None), strict=True)):
        await end(site, name, status="Failed", last_attempt=100 + at, error=error)
    found = [(g.webhook, g.label, g.error, g.deliveries, g.first, g.last)
             for g in (await facts(site)).failures]  # fmt: skip
    assert found == [
        (hook, "Shop", "503", 2, 100, 101),
        (hook, "Shop", "", 1, 103, 103),
        (hook, "Shop", "timeout", 1, 102, 102),
    ]


async def test_console_facts_label_a_deleted_webhook_by_its_id(site: VirtualSite) -> None:
    hook = await site.subscribe()
    (name,) = await emitted(site, 1)
    await end(site, name, status="Failed", last_attempt=1, error="gone")
    await site.do(lambda fw: fw.db.sql("DELETE FROM doc_webhook"))
    assert [(g.webhook, g.label) for g in (await facts(site)).failures] == [(hook, hook)]


async def test_console_facts_label_the_webhooks_of_each_list(site: VirtualSite) -> None:
    """By title, or by URL; a deleted one has no label."""
    titled = await site.subscribe(title="Shop")
    untitled = await site.subscribe("note.kept", url="https://receiver.test/kept")
    paused = await site.subscribe("note.paused", title="Paused")
    gone = await site.subscribe("note.gone", title="Gone")

    def emit(fw: Any) -> None:
        for event in ("note.shared", "note.kept", "note.gone"):
            fw.webhooks.emit(event, {})

    await site.do(emit)
    await site.sql("UPDATE doc_webhook_delivery SET status = 'Failed', last_attempt = 1"
                   " WHERE webhook = :name", name=untitled)  # fmt: skip
    opened = site.site
    await site.do(lambda fw: opened.pauses.pause(fw, paused, None))
    await site.sql("DELETE FROM doc_webhook WHERE name = :name", name=gone)
    found = await facts(site)
    assert found.webhook_labels == {
        titled: "Shop",
        untitled: "receiver.test/kept",
        paused: "Paused",
    }


async def test_console_facts_sum_waiting_deliveries_and_failures_per_receiver(
    site: VirtualSite,
) -> None:
    first = await site.subscribe(url="https://receiver.test/a")
    await site.subscribe(url="https://receiver.test/b")
    await site.subscribe(url="https://other.test/", enabled=0)
    await emitted(site, 2)
    now = site.site.clock.now()

    def fail(tx: Tx) -> None:
        add_tallies(tx, tallies_of([(first, FAILED, now, "status: 503")] * 3))

    await site.site.store.write(fail)
    (found,) = (await facts(site)).receivers
    assert (found.origin, found.webhooks, found.waiting) == ("https://receiver.test:443", 2, 4)
    assert (found.failures, found.failing_since, found.last_error) == (3, now, "status: 503")
    assert (found.more_wait, found.last_success) == (False, None)


async def test_console_facts_of_a_receiver_are_those_of_all_its_webhooks(
    site: VirtualSite,
) -> None:
    """The latest success of any counts, and a Webhook whose deliveries are not counted to their
    end."""
    hooks = [await site.subscribe(url=f"https://receiver.test/{path}") for path in "abc"]
    await emitted(site, 10)
    await site.sql(
        "INSERT INTO fw_job (queue, partition, subject, created, next_at)"
        " SELECT a.queue, a.partition, 'x', a.created, a.next_at FROM fw_job a, fw_job b, fw_job c"
        " WHERE a.partition = :hook AND b.partition = :hook AND c.partition = :hook",
        hook=hooks[1],
    )
    now = site.site.clock.now()
    ends = [(hooks[0], SENT, now - 5, ""), (hooks[1], SENT, now, ""), (hooks[2], SENT, now - 9, "")]
    await site.site.store.write(lambda tx: add_tallies(tx, tallies_of(ends)))
    (found,) = (await facts(site)).receivers
    assert (found.waiting, found.more_wait, found.last_success) == (1_020, True, now)


async def test_console_facts_leave_out_webhooks_without_a_receiver(site: VirtualSite) -> None:
    """A URL that is damaged in the store names none."""
    await site.subscribe()
    await site.sql("UPDATE doc_webhook SET url = :url", url="nowhere")
    assert (await facts(site)).receivers == []


async def test_console_facts_list_the_latest_failures_only(site: VirtualSite) -> None:
    hook = await site.subscribe()
    names = await emitted(site, 4)
    for at, status in enumerate(("Failed", "Retrying", "Sent", "Failed")):
        error = None if at == 3 else "503"
        await end(site, names[at], status=status, last_attempt=100 + at, error=error)
    found = (await facts(site)).failed
    assert [(each.delivery, each.webhook, each.error, each.at) for each in found] == [
        (names[3], hook, "", 103),
        (names[0], hook, "503", 100),
    ]
    assert {each.event for each in found} == {"note.shared"}


async def test_console_facts_name_the_account_of_a_locked_identifier(site: VirtualSite) -> None:
    """An identifier that no account has is unknown: typed text is never stored."""
    until = site.site.clock.now() + 1000

    def lock(tx: Tx) -> None:
        tx.run(IDENTIFIER.insert().values(key="ann@x.test", user="ann"))
        for at, identifier in enumerate(("ann@x.test", "nobody")):
            key = counter_key(site.site.installation_key, IDENTIFIER_KIND, identifier)
            row = {"id": identifier, "key": key, "at": 0, "state": 1, "until": until - at}
            tx.run(LOGIN_ATTEMPT.insert().values(**row))

    await site.site.store.write(lock)
    locks = (await facts(site)).locks
    assert [(each.account, each.identifier, each.until) for each in locks] == [
        ("ann", "ann@x.test", until),
        ("", "", until - 1),
    ]
    assert len({each.key for each in locks}) == 2


async def due_in(site: VirtualSite, delivery: str, ms: int, lease: str | None = None) -> None:
    await site.sql(
        "UPDATE fw_job SET next_at = :at, lease = :lease WHERE subject = :delivery",
        at=site.site.clock.now() + ms, lease=lease, delivery=delivery,
    )  # fmt: skip


async def test_console_facts_list_the_first_waiting_deliveries_of_all_webhooks(
    site: VirtualSite,
) -> None:
    """Also of a Webhook with more of them than are listed, and behind leased ones."""
    for _ in range(3):
        await site.subscribe()
    names = await emitted(site, 12)
    for at, name in enumerate(names):
        lease = "a token" if at % 7 == 0 else None
        await due_in(site, name, (at * 5) % len(names) * 10 - 100, lease)
    at_once = [n for n in range(len(names)) if n % 7]
    expected = [names[n] for n in sorted(at_once, key=lambda n: (n * 5) % len(names))][:20]
    found = (await facts(site)).upcoming
    assert [each.delivery for each in found] == expected
    assert found[0].at < found[-1].at


async def test_console_facts_list_deliveries_with_valid_leases(site: VirtualSite) -> None:
    await site.subscribe()
    await site.subscribe()
    names = await emitted(site, 3)
    for at, name in enumerate(names):
        await due_in(site, name, 90_000 - at * 1000, "a token")
    await due_in(site, names[0], -1, "a token")
    await due_in(site, names[1], 90_000)
    found = (await facts(site)).in_flight
    assert [each.delivery for each in found] == list(reversed(names[2:]))
    assert found[-1].at == site.site.clock.now() + 88_000


async def test_console_facts_name_the_processes_that_sent_lately(site: VirtualSite) -> None:
    await site.subscribe()
    now = site.site.clock.now()
    for at, (name, host) in enumerate(zip(await emitted(site, 3), "aab", strict=True)):
        trace = f"0 0 0 0 - - - - {host}.test:7"
        await end(site, name, status="Sent", last_attempt=now - 9 + at, trace=trace)
    found = [(each.name, each.attempts, each.last) for each in (await facts(site)).senders]
    assert found == [("b.test:7", 1, now - 7), ("a.test:7", 2, now - 8)]


async def test_console_facts_list_the_newest_jobs_without_deliveries(site: VirtualSite) -> None:
    await site.subscribe()
    await emitted(site, 1)

    def add(tx: Tx) -> None:
        tx.run(JOB.insert().values(queue="app", function="notes.x", created=tx.now, next_at=tx.now))

    await site.site.store.write(add)
    assert [job.function for job in (await facts(site)).jobs] == ["notes.x"]
