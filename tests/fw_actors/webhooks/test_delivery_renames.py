"""Deliveries of renamed documents follow the name (B-184)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.errors import DuplicateError
from fw_actors.rules.delivery import OutcomeKind
from fw_actors.webhooks.claims import LeasedDelivery
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.fw_actors.webhooks.claim_kit import ClaimingProcess

pytestmark = pytest.mark.usefixtures("on_both_stores")


async def references(site: VirtualSite) -> list[tuple[str, str]]:
    return [(row["reference_doctype"], row["reference_name"]) for row in await site.deliveries()]


async def test_delivery_references_follow_renamed_document(site: VirtualSite) -> None:
    await site.watch("Customer", "on_insert")

    def work(fw: Any) -> None:
        for title in ("Ada", "Bob"):
            fw.new_doc("Customer", title=title).insert()
        fw.get_doc("Customer", "Ada").rename("Lovelace")

    await site.do(work)
    assert await references(site) == [("Customer", "Lovelace"), ("Customer", "Bob")]


async def test_delivery_payload_is_unchanged_by_rename(site: VirtualSite) -> None:
    """The stored bytes are signed and sent (B-106)."""
    await site.watch("Customer", "on_insert")
    await site.do(lambda fw: fw.new_doc("Customer", title="Ada").insert().rename("Lovelace"))
    (delivery,) = await site.deliveries()
    assert delivery["payload"]["data"]["name"] == "Ada"


async def test_rename_keeps_references_of_other_doctypes(site: VirtualSite) -> None:
    await site.subscribe("a.b")

    def work(fw: Any) -> None:
        fw.new_doc("Customer", title="Ada").insert()
        for doctype in ("Customer", "Sales Order"):
            fw.webhooks.emit("a.b", {}, reference={"doctype": doctype, "name": "Ada"})
        fw.get_doc("Customer", "Ada").rename("Lovelace")

    await site.do(work)
    assert await references(site) == [("Customer", "Lovelace"), ("Sales Order", "Ada")]


async def test_rename_emits_no_document_event(site: VirtualSite) -> None:
    """`db_set` and rename are no events (B-58)."""
    await site.do(lambda fw: fw.new_doc("Customer", title="Ada").insert())
    events = ("on_insert", "on_update", "on_submit", "on_cancel", "on_trash")
    await site.watch("Customer", *events)
    await site.do(lambda fw: fw.get_doc("Customer", "Ada").rename("Lovelace"))
    assert await site.deliveries() == []


async def test_deliveries_and_jobs_follow_renamed_webhook(site: VirtualSite) -> None:
    name = await site.subscribe("a.b")

    def work(fw: Any) -> None:
        fw.webhooks.emit("a.b", {"n": 1})
        fw.get_doc("Webhook", name).rename("our receiver")

    await site.do(work)
    await site.do(lambda fw: fw.webhooks.emit("a.b", {"n": 2}))
    assert [row["webhook"] for row in await site.deliveries()] == ["our receiver"] * 2
    assert await site.sql("SELECT partition FROM fw_job") == [("our receiver",)] * 2


async def test_emit_after_rename_uses_new_webhook_name(site: VirtualSite) -> None:
    """A transaction keeps the subscriptions that it began with, except for their names."""
    name = await site.subscribe("a.b")

    def work(fw: Any) -> None:
        fw.get_doc("Webhook", name).rename("our receiver")
        fw.webhooks.emit("a.b", {"n": 1})

    await site.do(work)
    assert [row["webhook"] for row in await site.deliveries()] == ["our receiver"]


async def test_rename_refuses_name_of_deleted_webhook_with_deliveries(
    site: VirtualSite,
) -> None:
    """A deleted Webhook fails its deliveries (B-166); their Webhook's name is taken (B-30)."""
    gone, left = await site.subscribe("a.b"), await site.subscribe("a.b")
    await site.do(lambda fw: fw.webhooks.emit("a.b", {}, key="k"))
    await site.do(lambda fw: fw.get_doc("Webhook", gone).delete())
    with pytest.raises(DuplicateError):
        await site.do(lambda fw: fw.get_doc("Webhook", left).rename(gone))
    assert sorted(row["webhook"] for row in await site.deliveries()) == sorted([gone, left])


async def test_insert_refuses_name_of_deleted_webhook_until_deliveries_end(
    site: VirtualSite,
) -> None:
    """The new receiver would get events of the deleted Webhook (B-30)."""
    gone = await site.subscribe("a.b")
    await site.do(lambda fw: fw.webhooks.emit("a.b", {}))
    await site.do(lambda fw: fw.get_doc("Webhook", gone).delete())

    def again(fw: Any) -> None:
        fw.new_doc(
            "Webhook", name=gone, url="https://new.example/", event_type="Custom",
            custom_event="c.d", secret="whsec_YSBzZWNyZXQgb2YgYW5vdGhlciB3ZWJob29rIQ==",
        ).insert()  # fmt: skip

    with pytest.raises(DuplicateError, match="deleted Webhook whose deliveries still wait"):
        await site.do(again)
    await site.do(lambda fw: fw.db.sql("DELETE FROM fw_job"))  # as their last outcomes do
    await site.do(again)
    assert [row["webhook"] for row in await site.deliveries()] == [gone]


async def test_insert_refuses_name_of_deleted_webhook_with_delivery_ahead_of_clock(
    site: VirtualSite,
) -> None:
    """Its deliveries would count as those of the deleted Webhook until then (B-30, B-253)."""
    gone = await site.subscribe("a.b")
    await site.do(lambda fw: fw.webhooks.emit("a.b", {}))
    await site.do(lambda fw: fw.get_doc("Webhook", gone).delete())
    await site.do(lambda fw: fw.db.sql("DELETE FROM fw_job"))
    move = "UPDATE doc_webhook_delivery SET creation = creation + :by"

    def again(fw: Any) -> None:
        fw.new_doc(
            "Webhook", name=gone, url="https://new.example/", event_type="Custom",
            custom_event="c.d", secret="whsec_YSBzZWNyZXQgb2YgYW5vdGhlciB3ZWJob29rIQ==",
        ).insert()  # fmt: skip

    await site.sql(move, by=3_600_000)
    with pytest.raises(DuplicateError, match=r"dated 20.*Z, because the clock was ahead"):
        await site.do(again)
    await site.sql(move, by=-3_600_000)
    await site.do(again)


async def test_key_of_deleted_webhook_stays_used_for_namesake(site: VirtualSite) -> None:
    """A key is unique for each name of a Webhook, until its delivery is swept (B-78, B-81)."""
    gone = await site.subscribe("a.b")
    await site.do(lambda fw: fw.webhooks.emit("a.b", {}, key="k"))
    await site.do(lambda fw: fw.get_doc("Webhook", gone).delete())
    await site.do(lambda fw: fw.db.sql("DELETE FROM fw_job"))
    await site.subscribe("a.b", name=gone)
    with pytest.raises(DuplicateError):
        await site.do(lambda fw: fw.webhooks.emit("a.b", {}, key="k"))
    await site.do(lambda fw: fw.db.sql("DELETE FROM doc_webhook_delivery"))
    emitted = await site.do(lambda fw: fw.webhooks.emit("a.b", {}, key="k"))
    assert len(emitted["deliveries"]) == 1


async def other_process(site: VirtualSite, hook: str, text: str) -> None:
    """Change a Webhook in the database between two events, as another process does."""
    await site.do(lambda fw: fw.webhooks.emit("a.b", {"n": 1}))
    await site.do(lambda fw: fw.db.sql(text, {"hook": hook}))
    await site.do(lambda fw: fw.webhooks.emit("a.b", {"n": 2}))


async def test_emit_reaches_webhook_renamed_by_other_process(site: VirtualSite) -> None:
    """The change is not seen (B-42), but its deliveries are found (B-45)."""
    hook = await site.subscribe("a.b")
    await other_process(site, hook, "UPDATE doc_webhook SET name = 'new' WHERE name = :hook")
    assert [row["webhook"] for row in await site.deliveries()] == [hook, "new"]
    assert await site.sql("SELECT partition FROM fw_job ORDER BY id") == [(hook,), ("new",)]


async def test_emit_records_delivery_for_webhook_deleted_by_other_process(
    site: VirtualSite,
) -> None:
    """A change of another process is not seen until a restart (B-42)."""
    hook = await site.subscribe("a.b")
    await other_process(site, hook, "DELETE FROM doc_webhook WHERE name = :hook")
    assert [row["webhook"] for row in await site.deliveries()] == [hook, hook]


async def test_emit_skips_other_webhook_with_reused_name(site: VirtualSite) -> None:
    hook = await site.subscribe("a.b")
    await site.subscribe("c.d")
    await other_process(
        site, hook,
        "UPDATE doc_webhook SET name = CASE name WHEN :hook THEN 'new' ELSE 'odd' END",
    )  # fmt: skip
    await site.do(lambda fw: fw.db.sql(
        "UPDATE doc_webhook SET name = :hook WHERE name = 'odd'", {"hook": hook}
    ))  # fmt: skip
    await site.do(lambda fw: fw.webhooks.emit("a.b", {"n": 3}))
    assert [row["webhook"] for row in await site.deliveries()] == [hook, "new", "new"]


async def counts(site: VirtualSite) -> list[tuple[str, int, int]]:
    """Return the counts of sent and failed deliveries by Webhook."""
    rows = await site.sql("SELECT webhook, sent, failed FROM fw_webhook_hour ORDER BY webhook")
    return [(str(webhook), int(sent), int(failed)) for webhook, sent, failed in rows]


async def leased_by(process: ClaimingProcess, site: VirtualSite) -> LeasedDelivery:
    await site.do(lambda fw: fw.webhooks.emit("a.b", {}))
    (due,) = await process.claim()
    return due


async def test_outcome_in_flight_counts_for_renamed_webhook(site: VirtualSite) -> None:
    """Otherwise the Webhook goes on failing, and the counts belong to nothing (B-242)."""
    name = await site.subscribe("a.b")
    process = ClaimingProcess(site)
    for _ in range(3):
        await process.end(await leased_by(process, site), OutcomeKind.REFUSED)
    due = await leased_by(process, site)
    await site.do(lambda fw: fw.get_doc("Webhook", name).rename("renamed"))
    await process.end(due)
    assert await site.sql("SELECT webhook, failures FROM fw_webhook_health") == [("renamed", 0)]
    assert await counts(site) == [("renamed", 1, 3)]


async def test_outcomes_of_one_batch_count_by_current_names(site: VirtualSite) -> None:
    """Leased under the old name, under the new one, and by a new Webhook of the old name."""
    name = await site.subscribe("a.b")
    process = ClaimingProcess(site)
    dues = [await leased_by(process, site)]
    await site.do(lambda fw: fw.get_doc("Webhook", name).rename("renamed"))
    dues.append(await leased_by(process, site))
    await site.do(lambda fw: fw.webhooks.emit("a.b", {}))
    await site.subscribe("c.d", name=name)
    await site.do(lambda fw: fw.webhooks.emit("c.d", {}))
    dues += await process.claim()
    await process.end_all(dues)
    assert await counts(site) == sorted([("renamed", 3, 0), (name, 1, 0)])


async def test_lost_outcome_is_not_counted_beside_renamed_webhook(site: VirtualSite) -> None:
    name = await site.subscribe("a.b")
    process = ClaimingProcess(site)
    lost, due = await leased_by(process, site), await leased_by(process, site)
    await process.end(lost)
    await site.do(lambda fw: fw.get_doc("Webhook", name).rename("renamed"))
    assert await process.end_all([lost, due], OutcomeKind.REFUSED) == [None, "Failed"]
    assert await counts(site) == [("renamed", 1, 1)]


async def test_emit_records_nothing_for_namesake_of_deleted_webhook(site: VirtualSite) -> None:
    """The other Webhook has not subscribed to the event (B-45)."""
    hook, odd = await site.subscribe("a.b"), await site.subscribe("c.d")
    await site.do(lambda fw: fw.webhooks.emit("a.b", {"n": 1}))
    await site.sql("DELETE FROM doc_webhook WHERE name = :hook", hook=hook)
    await site.sql("UPDATE doc_webhook SET name = :hook WHERE name = :odd", hook=hook, odd=odd)
    events = [{"name": "a.b", "data": {"n": n}} for n in (2, 3)]
    emitted = await site.do(lambda fw: fw.webhooks.emit_many(events))
    keyed = await site.do(lambda fw: fw.webhooks.emit("a.b", {"n": 4}, key="k"))
    alone = await site.do(lambda fw: fw.webhooks.emit("a.b", {"n": 5}))
    [batch] = await site.do(lambda fw: fw.webhooks.emit_many([events[0]]))
    assert [*emitted, keyed, alone, batch] == [{"deliveries": []}] * 5
    assert [row["payload"]["data"] for row in await site.deliveries()] == [{"n": 1}]
    assert len(await site.sql("SELECT id FROM fw_job")) == 1
