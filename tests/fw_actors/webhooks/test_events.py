"""Events become deliveries (B-50 to B-81, B-90 to B-106)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from fw_actors.errors import ValidationError
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site

pytestmark = pytest.mark.usefixtures("on_both_stores")

NOW = "2027-01-15T08:00:00.000Z"
ALL = ("on_insert", "on_update", "on_submit", "on_cancel", "on_trash")


def order(fw: Any, **fields: Any) -> Any:
    return fw.new_doc("Sales Order", **{"title": "t", **fields}).insert()


async def types(site: VirtualSite) -> list[str]:
    return [each["payload"]["type"] for each in await site.deliveries()]


async def test_document_verbs_emit_their_events(site: VirtualSite) -> None:
    """Each verb is one event (B-50, B-51, B-52, B-53, B-54)."""

    def live(fw: Any) -> None:
        doc = order(fw)
        doc.title = "other"
        doc.save()
        doc.submit()
        doc.remark = "allowed on submit"
        doc.save()
        doc.cancel()
        doc.delete()

    await site.watch("Sales Order", *ALL)
    await site.do(live)
    assert await types(site) == [
        "doc.on_insert", "doc.on_update", "doc.on_submit", "doc.on_update", "doc.on_cancel",
        "doc.on_trash",
    ]  # fmt: skip
    status = [each["payload"]["data"]["doc"]["docstatus"] for each in await site.deliveries()]
    assert status == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("event", ALL)
async def test_webhook_queues_only_subscribed_events(site: VirtualSite, event: str) -> None:
    """Only subscribed events are queued (B-55)."""
    await site.watch("Sales Order", event)
    await site.do(lambda fw: order(fw).save().submit().cancel().delete())
    assert await types(site) == [f"doc.{event}"]


async def test_webhook_ignores_other_doctypes(site: VirtualSite) -> None:
    await site.watch("Customer", *ALL)
    await site.do(order)
    assert await site.deliveries() == []


async def test_submitting_insert_emits_insert_and_submit(site: VirtualSite) -> None:
    """An insert that submits sends on_insert and on_submit (B-52)."""
    await site.watch("Sales Order", *ALL)
    await site.do(lambda fw: order(fw).submit())
    assert await types(site) == ["doc.on_insert", "doc.on_submit"]


async def test_saves_in_same_transaction_emit_separate_events(site: VirtualSite) -> None:
    """Two saves of one document in one transaction are two events (B-59)."""

    def twice(fw: Any) -> None:
        doc = order(fw)
        for title in ("a", "b"):
            doc.title = title
            doc.save()

    await site.watch("Sales Order", "on_update")
    await site.do(twice)
    shown = [each["payload"]["data"]["doc"]["title"] for each in await site.deliveries()]
    assert shown == ["a", "b"]


async def test_child_row_change_emits_parent_update(site: VirtualSite) -> None:
    """A change of a child row is an update of its parent (B-19)."""

    def change(fw: Any) -> None:
        doc = fw.get_doc("Sales Order", name)
        doc.lines[0].item = "other"
        doc.save()

    name = (await site.do(lambda fw: order(fw, lines=[{"item": "one"}]))).name
    await site.watch("Sales Order", *ALL)
    await site.do(change)
    [delivery] = await site.deliveries()
    assert delivery["payload"]["type"] == "doc.on_update"
    assert [row["item"] for row in delivery["payload"]["data"]["doc"]["lines"]] == ["other"]


async def test_deleting_document_keeps_its_deliveries(site: VirtualSite) -> None:
    """Deleting the referenced document keeps the delivery (B-184)."""
    await site.watch("Sales Order", "on_insert")
    name = (await site.do(order)).name
    await site.do(lambda fw: fw.get_doc("Sales Order", name).delete())
    [delivery] = await site.deliveries()
    assert (delivery["reference_doctype"], delivery["reference_name"]) == ("Sales Order", name)


async def test_db_set_emits_no_event(site: VirtualSite) -> None:
    """`db_set` runs no hook and is no event (D-130, B-58)."""
    await site.watch("Sales Order", "on_update")
    await site.do(lambda fw: order(fw).db_set("title", "x"))
    assert await site.deliveries() == []


async def test_unchanged_save_of_submitted_document_emits_no_event(site: VirtualSite) -> None:
    """A submitted document saved without a change is no event; a draft is (B-60)."""
    await site.watch("Sales Order", "on_update")
    await site.do(lambda fw: order(fw).submit().save())
    assert await site.deliveries() == []
    await site.do(lambda fw: order(fw).save())
    assert await types(site) == ["doc.on_update"]


async def test_delivery_and_job_are_written_together(site: VirtualSite) -> None:
    """Record and job are written together (B-57)."""
    hook = await site.watch("Sales Order", "on_insert")
    await site.do(order)
    (delivery,) = await site.deliveries()
    rows = await site.sql("SELECT queue, partition, subject, next_at, attempts FROM fw_job")
    assert rows == [("webhook", hook, delivery["name"], 1_800_000_000_000, 0)]


async def test_rollback_leaves_no_delivery_or_job(site: VirtualSite) -> None:
    """A rollback removes record and job (B-57)."""
    await site.watch("Sales Order", "on_insert")
    await site.subscribe()
    await site.site.rollback("Administrator", order)
    await site.site.rollback("Administrator", lambda fw: fw.webhooks.emit("note.shared", {}))
    assert await site.counts() == (0, 0)


async def test_raising_hook_removes_event_with_write(site: VirtualSite) -> None:
    """A hook that raises removes the event with the write (B-56)."""
    await site.watch("Sales Order", *ALL)

    def caught(fw: Any) -> None:
        with pytest.raises(ValidationError):
            order(fw, title="refuse late")
        order(fw)

    await site.do(caught)
    assert len(await site.deliveries()) == 1


async def test_event_shows_changes_of_controller_hooks(site: VirtualSite) -> None:
    """The event is queued after the hooks of its verb (B-56)."""
    await site.watch("Sales Order", "on_insert")
    await site.do(lambda fw: order(fw, title="fill in"))
    (delivery,) = await site.deliveries()
    assert delivery["payload"]["data"]["doc"]["title"] == "filled in"


async def test_delivery_begins_with_documented_fields(site: VirtualSite) -> None:
    """A delivery begins with its fields (B-180, B-161); `max_attempts` is copied (B-127)."""
    hook = await site.watch("Sales Order", "on_insert", max_attempts=3)
    sam = await site.add_account("sam", "Seller")
    await site.do(order, user=sam)
    (row,) = await site.deliveries()
    at = 1_800_000_000_000
    expected = {
        "owner": "sam", "creation": at, "webhook": hook, "event": "doc.on_insert",
        "status": "Queued", "attempts": 0, "max_attempts": 3, "next_attempt": at, "key": None,
        "last_attempt": None, "response_status": None, "response_body": None, "error": None,
        "sent": None, "reference_doctype": "Sales Order", "reference_name": "SO-00001",
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert row["name"].startswith("msg_")
    assert len(row["name"]) == 31


async def test_event_body_has_documented_members(site: VirtualSite) -> None:
    """The body has `type`, `timestamp` and `data` = {doc, name, doctype} (B-100, B-101, B-102)."""
    await site.watch("Sales Order", "on_insert")
    await site.do(lambda fw: order(fw, remark="ü \U0001f511 \u2028"))
    (row,) = await site.deliveries()
    payload = row["payload"]
    assert list(payload) == ["type", "timestamp", "data"]
    assert (payload["type"], payload["timestamp"]) == ("doc.on_insert", NOW)
    data = payload["data"]
    assert (sorted(data), data["name"], data["doctype"]) == (
        ["doc", "doctype", "name"], "SO-00001", "Sales Order",
    )  # fmt: skip
    assert data["doc"]["remark"] == "ü \U0001f511 \u2028"


async def test_event_body_shows_document_at_event_time(site: VirtualSite) -> None:
    """`data.doc` is the document as it was when the event happened (B-104)."""

    def work(fw: Any) -> None:
        doc = order(fw)
        doc.title = "later"
        doc.save()

    await site.watch("Sales Order", "on_insert")
    await site.do(work)
    (row,) = await site.deliveries()
    assert row["payload"]["data"]["doc"]["title"] == "t"


async def test_event_redacts_secrets_in_document_and_rows(site: VirtualSite) -> None:
    """The rules of redaction, for the document and its child rows (B-92, B-94)."""
    line = {"item": "i", "token": "s1", "pin": "s2", "cost": 3.5, "line_secret": "s4"}
    await site.watch("Sales Order", "on_insert")
    await site.do(lambda fw: order(fw, margin=7.5, token="s6", lines=[line, {"item": "j"}]))
    (row,) = await site.deliveries()
    doc = row["payload"]["data"]["doc"]
    assert "margin" not in doc
    assert doc["token"] == {"configured": True}
    first, second = doc["lines"]
    assert "cost" not in first
    assert (first["token"], first["pin"], first["line_secret"]) == (
        {"configured": True},
        None,
        None,
    )
    assert (second["token"], second["item"], second["rate"]) == (None, "j", 1.5)
    for secret in ("s1", "s2", "s4", "s6", "7.5", "3.5"):
        assert secret not in json.dumps(row["payload"]).replace(row["name"], "")


async def test_event_omits_fields_above_level_0_for_any_user(site: VirtualSite) -> None:
    """Fields above level 0 are removed, for every user (B-90)."""
    boss = await site.add_account("boss", "System Manager")
    await site.watch("Sales Order", "on_insert")
    await site.do(lambda fw: order(fw, margin=7.5), user=boss)
    assert "margin" not in (await site.deliveries())[0]["payload"]["data"]["doc"]


async def test_event_keeps_all_other_fields(site: VirtualSite) -> None:
    """No other field is removed (B-93)."""
    fields = {"data": "d", "count": 2**53, "ratio": 0.1, "day": "2026-01-02", "extra": {"a": [1]}}
    await site.watch("Sample", "on_insert")
    shown = await site.do(lambda fw: fw.new_doc("Sample", **fields).insert().as_dict())
    assert (await site.deliveries())[0]["payload"]["data"]["doc"] == shown


async def test_webhooks_off_queues_nothing_and_leaves_no_backlog(
    tmp_path: Path,
) -> None:
    """`FW_WEBHOOKS=off` queues nothing, and turning it on releases no backlog (B-61)."""
    async with open_virtual_site(tmp_path, webhooks_off=True) as site:
        await site.watch("Sales Order", "on_insert")
        await site.subscribe()
        await site.do(order)
        emitted = await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
        assert (emitted, await site.counts()) == ({"deliveries": []}, (0, 0))
    async with open_virtual_site(tmp_path) as site:
        await site.do(order)
        assert await site.counts() == (1, 1)


async def test_subscriptions_ignore_unwatchable_doctype_set_by_sql(tmp_path: Path) -> None:
    """Webhook, Webhook Delivery and the records cannot be watched (B-18)."""
    async with open_virtual_site(tmp_path) as site:
        await site.watch("Customer", "on_insert")
        await site.sql("UPDATE doc_webhook SET webhook_doctype = 'Webhook'")
    async with open_virtual_site(tmp_path, seed=2) as restarted:
        await restarted.subscribe()
        assert await restarted.deliveries() == []


async def test_delivery_ids_sort_by_time(site: VirtualSite) -> None:
    """Ids sort by time (B-181)."""
    await site.subscribe()
    ids: list[str] = []
    for _ in range(3):
        for _ in range(3):
            emitted = await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
            ids += emitted["deliveries"]
        await trio.sleep(0.5)
    assert ids == sorted(ids)


async def test_commit_with_event_wakes_dispatcher(tmp_path: Path) -> None:
    """A commit that records an event wakes the Dispatcher; other transactions do not."""
    nudges: list[int] = []
    async with open_virtual_site(tmp_path, recorded=lambda *queue: nudges.append(1)) as site:
        await site.subscribe()
        await site.do(order)
        await site.site.rollback("Administrator", lambda fw: fw.webhooks.emit("note.shared", {}))
        assert nudges == []
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
        assert nudges == [1]
        await site.sql("UPDATE doc_webhook_delivery SET status = 'Failed'")
        [delivery] = await site.deliveries()
        await site.do(lambda fw: site.site.replays.replay(fw, delivery["name"]))
        assert nudges == [1, 1]


async def test_document_event_with_webhooks_off_queues_nothing(tmp_path: Path) -> None:
    """`FW_WEBHOOKS=off` stops new events (B-61)."""
    async with open_virtual_site(tmp_path, webhooks_off=True) as site:
        await site.watch("Sales Order", "on_insert", "on_trash")
        await site.do(lambda fw: order(fw).delete())
        assert await site.counts() == (0, 0)


async def test_event_for_several_webhooks_wakes_dispatcher(tmp_path: Path) -> None:
    recorded: list[str] = []
    async with open_virtual_site(tmp_path, recorded=recorded.append) as site:
        for _ in range(2):
            await site.subscribe()
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    assert recorded == ["webhook"]


async def test_role_change_emits_user_update_event(site: VirtualSite) -> None:
    """A change of a child row is an update of its parent (B-19)."""
    await site.add_account("ada")
    await site.watch("User", "on_update")

    def promote(fw: Any) -> None:
        doc = fw.get_doc("User", "ada")
        doc.roles = [{"role": "Seller"}]
        doc.save()

    await site.do(promote)
    (row,) = await site.deliveries()
    assert row["payload"]["data"]["doc"]["roles"][0]["role"] == "Seller"


@pytest.mark.parametrize("end", ["deleted", "disabled"])
async def test_ended_user_emits_events_of_dependent_documents(site: VirtualSite, end: str) -> None:
    """A User's keys and scopes end with the User (A-21), each with its event (B-62)."""
    await site.add_account("ada", "System Manager", password=None)
    await site.add_account("bob", password=None)

    def add_records(fw: Any) -> None:
        fw.new_doc("Customer", title="Near").insert()
        fw.new_doc("User Permission", user="bob", allow="Customer", for_value="Near").insert()

    await site.do(add_records)
    key = await site.do(lambda fw: site.site.api_keys.make(fw, "mine", None, 0).name, "bob")
    await site.watch("API Key", "on_trash")
    await site.watch("User Permission", "on_trash")

    def finish(fw: Any) -> None:
        user = fw.get_doc("User", "bob")
        if end == "deleted":
            user.delete()
        else:
            user.enabled = 0
            user.save()

    await site.do(finish, "ada")
    result = [d["payload"]["data"]["doc"] for d in await site.deliveries()]
    gone = ["API Key", "User Permission"] if end == "deleted" else ["API Key"]
    assert [(doc["doctype"], doc["user"]) for doc in result] == [(each, "bob") for each in gone]
    assert result[0]["name"] == key


async def test_events_of_transaction_wake_up_dispatcher_once(tmp_path: Path) -> None:
    """A notice for each event of a large transaction would fill the Dispatcher's mailbox."""
    recorded: list[str] = []
    async with open_virtual_site(tmp_path, recorded=recorded.append) as site:
        for _ in range(2):
            await site.subscribe("a.b")
        await site.watch("Sales Order", "on_insert")

        def work(fw: Any) -> None:
            for _ in range(3):
                fw.webhooks.emit("a.b", {})
                order(fw)

        await site.do(work)
        assert len(await site.deliveries()) == 9
    assert recorded == ["webhook"]
