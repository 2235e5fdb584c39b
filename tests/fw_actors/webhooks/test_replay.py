"""Replays: permissions, effects and records (B-250 to B-256, O-80)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fw_actors.documents.fields import iso
from fw_actors.errors import ConflictError, FwError, NotFoundError, PermissionDeniedError
from fw_actors.webhooks.replay import Replayed
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.fw_actors.webhooks.claim_kit import ScriptedDeliveries


@pytest.fixture
async def deliveries(site: VirtualSite) -> ScriptedDeliveries:
    await site.add_account("boss", "System Manager", password=None)
    return ScriptedDeliveries(site)


@pytest.mark.parametrize(
    ("kinds", "previous"),
    [(["DELIVERED"], "Sent"), (["REFUSED"], "Failed"), (["WITHDRAWN"], "Failed")],
)
@pytest.mark.usefixtures("on_both_stores")
async def test_replay_restarts_final_delivery_with_same_id_and_body(
    deliveries: ScriptedDeliveries, kinds: list[str], previous: str
) -> None:
    """Sent or Failed begins fresh attempts; id and body are kept (B-251, B-122)."""
    delivery = await deliveries.ended(*kinds, max_attempts=3)
    before = await deliveries.row()
    assert before["status"] == previous
    hook = before["webhook"]
    await deliveries.site.do(lambda fw: fw.get_doc("Webhook", hook).db_set("max_attempts", 9))
    assert await deliveries.replay(delivery) == Replayed(delivery, "Queued")
    row = await deliveries.row()
    assert (row["name"], row["payload"]) == (delivery, before["payload"])
    assert (row["status"], row["attempts"], row["max_attempts"]) == ("Queued", 0, 9)
    assert (row["next_attempt"], row["error"], row["sent"]) == (row["modified"], None, None)
    assert await deliveries.site.sql("SELECT partition, subject, lease FROM fw_job") == [
        (hook, delivery, None)
    ]
    await deliveries.attempt("DELIVERED")
    assert [(await deliveries.row())[key] for key in ("status", "attempts")] == ["Sent", 1]


@pytest.mark.parametrize(("kinds", "status"), [([], "Queued"), (["TRANSIENT"], "Retrying")])
async def test_replay_refuses_delivery_in_progress(
    deliveries: ScriptedDeliveries, kinds: list[str], status: str
) -> None:
    """Queued or Retrying is refused and unchanged (B-252), without an Audit Event (O-82)."""
    delivery = await deliveries.ended(*kinds)
    before = await deliveries.row()
    with pytest.raises(ConflictError, match=f"This delivery is {status}; only Sent and Failed"):
        await deliveries.replay(delivery)
    assert before["status"] == status
    assert (await deliveries.row(), await deliveries.audit()) == (before, [])


@pytest.mark.usefixtures("on_both_stores")
async def test_replay_refuses_second_replay_while_queued(deliveries: ScriptedDeliveries) -> None:
    delivery = await deliveries.ended("DELIVERED")
    await deliveries.replay(delivery)
    with pytest.raises(ConflictError):
        await deliveries.replay(delivery)
    assert len(await deliveries.audit()) == 1
    assert await deliveries.site.sql("SELECT count(*) FROM fw_job") == [(1,)]


async def test_replay_of_unknown_delivery_leaves_no_audit_event(
    deliveries: ScriptedDeliveries,
) -> None:
    with pytest.raises(NotFoundError):
        await deliveries.replay("msg_" + "0" * 27)
    assert await deliveries.audit() == []


async def test_replay_refuses_delivery_of_deleted_webhook(
    deliveries: ScriptedDeliveries,
) -> None:
    delivery = await deliveries.ended("DELIVERED")
    hook = (await deliveries.row())["webhook"]
    await deliveries.site.do(lambda fw: fw.get_doc("Webhook", hook).delete())
    with pytest.raises(ConflictError):
        await deliveries.replay(delivery)
    assert ((await deliveries.row())["status"], await deliveries.audit()) == ("Sent", [])


@pytest.mark.usefixtures("on_both_stores")
async def test_replay_refuses_delivery_of_deleted_namesake(deliveries: ScriptedDeliveries) -> None:
    """Another Webhook has the name by now, and its receiver must not get the event (B-253)."""
    old = await deliveries.ended("DELIVERED", name="erp")
    await deliveries.site.do(lambda fw: fw.get_doc("Webhook", "erp").delete())
    fresh = await deliveries.ended("DELIVERED", name="erp")
    with pytest.raises(ConflictError, match="was deleted"):
        await deliveries.replay(old)
    await deliveries.site.do(lambda fw: fw.get_doc("Webhook", "erp").rename("crm"))
    with pytest.raises(ConflictError, match="was deleted"):
        await deliveries.replay(old)
    assert await deliveries.audit() == []
    assert await deliveries.replay(fresh) == Replayed(fresh, "Queued")


async def test_replay_accepts_delivery_of_disabled_webhook(deliveries: ScriptedDeliveries) -> None:
    """A replay for a disabled Webhook is allowed, and fails as disabled (B-254)."""
    delivery = await deliveries.ended("DELIVERED")
    hook = (await deliveries.row())["webhook"]
    await deliveries.site.do(lambda fw: fw.get_doc("Webhook", hook).db_set("enabled", 0))
    assert await deliveries.replay(delivery) == Replayed(delivery, "Queued")


async def test_replay_audit_event_has_only_named_columns(deliveries: ScriptedDeliveries) -> None:
    """The detail is `{webhook, previous_status}`, never payload or secret (O-80, O-88)."""
    delivery = await deliveries.ended("REFUSED")
    await deliveries.replay(delivery)
    [(action, target, detail, actor, request_id)] = await deliveries.audit()
    assert (action, target, actor, request_id) == ("webhook.replay", delivery, "boss", "r-1")
    hook = (await deliveries.row())["webhook"]
    assert json.loads(detail) == {"webhook": hook, "previous_status": "Failed"}


@pytest.mark.parametrize("delivery", ["one that is there", "msg_nowhere", "x" * 300])
@pytest.mark.parametrize("scoped", [False, True])
async def test_replay_denies_unauthorized_user_on_record(
    deliveries: ScriptedDeliveries, delivery: str, scoped: bool
) -> None:
    """A user without the role, or with access scopes, is refused (B-255) and audited (O-81)."""
    if delivery == "one that is there":
        delivery = await deliveries.ended("DELIVERED")
    await deliveries.site.add_account(
        "clerk", *(["System Manager"] if scoped else []), password=None
    )
    if scoped:
        await deliveries.site.do(
            lambda fw: fw.new_doc(
                "User Permission", user="clerk", allow="User", for_value="clerk"
            ).insert()
        )
    refusal = await deliveries.replay(delivery, "clerk")
    assert isinstance(refusal, PermissionDeniedError)
    assert await deliveries.audit() == [("Denied", delivery[:140], None, "clerk", "r-1")]
    assert await deliveries.site.sql("SELECT count(*) FROM fw_job") == [(0,)]


@pytest.mark.usefixtures("on_both_stores")
async def test_replay_many_answers_and_audits_each_delivery(deliveries: ScriptedDeliveries) -> None:
    """Each delivery is replayed with its own Audit Event (C-116)."""
    final = await deliveries.ended("REFUSED")
    emitted = await deliveries.site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    under_way = emitted["deliveries"][0]
    site = deliveries.site.site
    result = await deliveries.site.do(
        lambda fw: site.replays.replay_many(fw, [under_way, final, "nowhere", final])
    )
    kinds = [type(each).__name__ for each in result]
    assert kinds == ["ConflictError", "Replayed", "NotFoundError", "ConflictError"]
    assert all(isinstance(each, (Replayed, FwError)) for each in result)
    assert [row[:2] for row in await deliveries.audit()] == [("webhook.replay", final)]


@pytest.mark.usefixtures("on_both_stores")
async def test_replay_find_lists_matching_deliveries_oldest_first(
    deliveries: ScriptedDeliveries,
) -> None:
    await deliveries.ended("REFUSED")
    hook = (await deliveries.row())["webhook"]
    for _ in range(3):
        await deliveries.site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    await deliveries.attempt("REFUSED")
    ids = [row["name"] for row in await deliveries.site.deliveries()]
    at = (await deliveries.row())["creation"]

    async def find(*filters: list[Any], limit: int | None = None, status: str = "Failed") -> Any:
        query = [["status", "=", status], *filters]
        site = deliveries.site.site
        return await site.read("boss", lambda fw: [*site.replays.find(fw, query, limit)])

    assert await find() == await find(["webhook", "=", hook]) == ids
    assert await find(["creation", ">=", iso(at - 10_000)]) == ids
    assert await find(limit=2) == ids[:2]
    assert await find(status="Sent") == await find(["webhook", "=", "other"]) == []
    assert await find(["creation", ">=", iso(at + 1)]) == []
