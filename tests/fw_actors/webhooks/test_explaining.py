"""The facts behind `fw webhooks explain`."""

from __future__ import annotations

import pytest
import trio

from fw_actors.errors import NotFoundError
from fw_actors.rules.delivery import WaitingDelivery, WaitReason, explain
from fw_actors.rules.findings import ServiceState
from fw_actors.store import jobs
from fw_actors.webhooks.diagnostics import waiting_delivery
from tests.fw_actors.virtual_site_kit import VirtualSite

STOPPED = ServiceState(running=False)


async def emit(site: VirtualSite) -> str:
    emitted = await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    await trio.sleep(1)
    delivery: str = emitted["deliveries"][0]
    return delivery


async def read_facts(site: VirtualSite, delivery: str) -> WaitingDelivery:
    opened = site.site
    return await opened.store.read(lambda tx: waiting_delivery(tx, delivery))


async def test_waiting_counts_earlier_deliveries_of_same_webhook(site: VirtualSite) -> None:
    await site.subscribe()
    first, second = await emit(site), await emit(site)
    assert [(await read_facts(site, each)).ahead for each in (first, second)] == [0, 1]


async def test_waiting_counts_deliveries_of_same_receiver(
    site: VirtualSite,
) -> None:
    """A receiver is scheme, host and port, however many Webhooks point there (B-230, C-117)."""
    hook = await site.subscribe()
    await site.hook(
        url="https://RECEIVER.test:443/other", event_type="Custom", custom_event="note.other"
    )
    await site.hook(
        url="https://elsewhere.test/", event_type="Custom", custom_event="note.elsewhere"
    )
    first = await emit(site)
    await site.site.store.write(lambda tx: jobs.claim(tx, "webhook", hook, 1, 9000, "token"))
    await site.do(lambda fw: fw.webhooks.emit("note.other", {}))
    await site.do(lambda fw: fw.webhooks.emit("note.elsewhere", {}))
    await trio.sleep(1)
    last = await emit(site)
    facts = await read_facts(site, last)
    assert (facts.receiver, facts.ahead, facts.in_flight) == ("https://receiver.test:443", 1, 1)
    assert (await read_facts(site, first)).leased


@pytest.mark.usefixtures("on_both_stores")
async def test_waiting_counts_deliveries_of_receiver_with_any_number_of_webhooks(
    site: VirtualSite,
) -> None:
    """A statement may bind 65,535 values on PostgreSQL, and 32,766 on SQLite."""
    await site.subscribe(url="https://receiver.test/")
    first, second = await emit(site), await emit(site)
    await site.sql(
        "INSERT INTO doc_webhook (name, url) WITH RECURSIVE each (n) AS "
        "(SELECT 1 UNION ALL SELECT n + 1 FROM each WHERE n < 66000) "
        "SELECT 'hook-' || n, 'https://receiver.test/' FROM each"
    )
    assert [(await read_facts(site, each)).ahead for each in (first, second)] == [0, 1]


async def test_explain_reports_lease_and_its_end(site: VirtualSite) -> None:
    hook = await site.subscribe()
    delivery = await emit(site)
    await site.site.store.write(lambda tx: jobs.claim(tx, "webhook", hook, 1, 5000, "token"))
    assert explain(await read_facts(site, delivery), STOPPED).reason is WaitReason.LEASED
    await trio.sleep(5)
    assert explain(await read_facts(site, delivery), STOPPED).reason is WaitReason.LEASE_ENDED


async def test_waiting_shows_disabled_or_deleted_webhook(site: VirtualSite) -> None:
    hook = await site.subscribe()
    delivery = await emit(site)
    await site.sql("UPDATE doc_webhook SET enabled = 0")
    assert (await read_facts(site, delivery)).webhook_enabled is False
    await site.do(lambda fw: fw.get_doc("Webhook", hook).delete())
    assert (await read_facts(site, delivery)).webhook_enabled is None


async def test_waiting_does_not_take_another_webhook_of_the_name_for_its_own(
    site: VirtualSite,
) -> None:
    """A replay of such a delivery is refused, because its Webhook was deleted (B-253)."""
    hook = await site.subscribe()
    delivery = await emit(site)
    await site.do(lambda fw: fw.get_doc("Webhook", hook).delete())
    await site.sql("UPDATE doc_webhook_delivery SET status = 'Failed', attempts = 1")
    await site.sql("DELETE FROM fw_job")
    await site.subscribe(name=hook)
    assert (await read_facts(site, delivery)).webhook_enabled is None


async def test_waiting_of_unknown_delivery_is_not_found(site: VirtualSite) -> None:
    with pytest.raises(NotFoundError):
        await read_facts(site, "msg_none")
