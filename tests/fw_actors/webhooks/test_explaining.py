"""The facts behind `fw webhooks explain`."""

from __future__ import annotations

import pytest
import trio

from fw_actors.errors import NotFoundError
from fw_actors.rules.delivery import WaitingDelivery, WaitReason, explain
from fw_actors.rules.findings import ServiceState
from fw_actors.store import jobs
from fw_actors.webhooks.diagnostics import waiting
from tests.fw_actors.office import Office

STOPPED = ServiceState(running=False)


async def emit(office: Office) -> str:
    told = await office.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    await trio.sleep(1)
    delivery: str = told["deliveries"][0]
    return delivery


async def look(office: Office, delivery: str) -> WaitingDelivery:
    site = office.site
    return await site.store.read(lambda tx: waiting(tx, site.registry, delivery))


async def test_waiting_counts_earlier_deliveries_of_same_webhook(office: Office) -> None:
    await office.subscribe()
    first, second = await emit(office), await emit(office)
    assert [(await look(office, each)).ahead for each in (first, second)] == [0, 1]


async def test_waiting_counts_deliveries_of_same_receiver(
    office: Office,
) -> None:
    """A receiver is scheme, host and port, however many Webhooks point there (B-230, C-117)."""
    hook = await office.subscribe()
    await office.hook(
        url="https://RECEIVER.test:443/other", event_type="Custom", custom_event="note.other"
    )
    await office.hook(
        url="https://elsewhere.test/", event_type="Custom", custom_event="note.elsewhere"
    )
    first = await emit(office)
    await office.site.store.write(lambda tx: jobs.claim(tx, "webhook", hook, 1, 9000, "token"))
    await office.do(lambda fw: fw.webhooks.emit("note.other", {}))
    await office.do(lambda fw: fw.webhooks.emit("note.elsewhere", {}))
    await trio.sleep(1)
    last = await emit(office)
    facts = await look(office, last)
    assert (facts.receiver, facts.ahead, facts.in_flight) == ("https://receiver.test:443", 1, 1)
    assert (await look(office, first)).leased


async def test_explain_reports_lease_and_its_end(office: Office) -> None:
    hook = await office.subscribe()
    delivery = await emit(office)
    await office.site.store.write(lambda tx: jobs.claim(tx, "webhook", hook, 1, 5000, "token"))
    assert explain(await look(office, delivery), STOPPED).reason is WaitReason.LEASED
    await trio.sleep(5)
    assert explain(await look(office, delivery), STOPPED).reason is WaitReason.LEASE_ENDED


async def test_waiting_shows_disabled_or_deleted_webhook(office: Office) -> None:
    hook = await office.subscribe()
    delivery = await emit(office)
    await office.sql("UPDATE doc_webhook SET enabled = 0")
    assert (await look(office, delivery)).webhook_enabled is False
    await office.do(lambda fw: fw.get_doc("Webhook", hook).delete())
    assert (await look(office, delivery)).webhook_enabled is None


async def test_waiting_does_not_take_another_webhook_of_the_name_for_its_own(
    office: Office,
) -> None:
    """A replay of such a delivery is refused, because its Webhook was deleted (B-253)."""
    hook = await office.subscribe()
    delivery = await emit(office)
    await office.do(lambda fw: fw.get_doc("Webhook", hook).delete())
    await office.sql("UPDATE doc_webhook_delivery SET status = 'Failed', attempts = 1")
    await office.sql("DELETE FROM fw_job")
    await office.subscribe(name=hook)
    assert (await look(office, delivery)).webhook_enabled is None


async def test_waiting_of_unknown_delivery_is_not_found(office: Office) -> None:
    with pytest.raises(NotFoundError):
        await look(office, "msg_none")
