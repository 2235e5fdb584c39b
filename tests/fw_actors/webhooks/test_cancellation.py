"""Cancellations of waiting deliveries (B-365 to B-368)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from fw_actors.errors import ConflictError, NotFoundError, PermissionDeniedError, ValidationError
from fw_actors.rules.delivery import OutcomeKind
from fw_actors.webhooks.attempts import attempts_of, trigger_in_words
from fw_actors.webhooks.cancellation import MAX_EXAMINED_DELIVERIES
from fw_actors.webhooks.diagnostics import waiting_delivery
from fw_actors.webhooks.health import health_of
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.fw_actors.webhooks.claim_kit import RUNS, ClaimingProcess, delivery_names, emit
from tests.plans import Access, accesses, unsought

pytestmark = pytest.mark.usefixtures("on_both_stores")

EVENTS = "SELECT target, actor, detail FROM doc_audit_event WHERE action = 'webhook.cancel'"


async def cancel(site: VirtualSite, delivery: str, user: str = "Administrator") -> Any:
    opened = site.site
    return await opened.write(user, lambda fw: opened.cancellations.cancel(fw, delivery))


async def row(site: VirtualSite, delivery: str) -> dict[str, Any]:
    return next(each for each in await site.deliveries() if each["name"] == delivery)


async def test_cancel_fails_queued_delivery_without_sending(site: VirtualSite) -> None:
    """The error names the user; one Audit Event has the previous status (B-365)."""
    webhook = await site.subscribe()
    (delivery,) = await emit(site, "a")
    assert await cancel(site, delivery) == "Failed"
    stored = await row(site, delivery)
    assert (stored["status"], stored["error"], stored["next_attempt"]) == (
        "Failed", "cancelled: Administrator cancelled this delivery.", None
    )  # fmt: skip
    assert await ClaimingProcess(site).claim() == []
    ((target, actor, detail),) = await site.sql(EVENTS)
    assert (target, actor) == (delivery, "Administrator")
    assert json.loads(detail) == {"webhook": webhook, "previous_status": "Queued"}


async def test_cancel_is_recorded_after_earlier_attempts(site: VirtualSite) -> None:
    """A cancellation is recorded like an attempt; earlier attempts stay (B-367)."""
    await site.subscribe(max_attempts=5)
    (delivery,) = await emit(site, "a")
    process = ClaimingProcess(site)
    (due,) = await process.claim()
    await process.end(due, OutcomeKind.TRANSIENT)
    await cancel(site, delivery)
    history = await site.site.store.read(lambda tx: attempts_of(tx, delivery))
    assert [(each.number, each.error) for each in history.attempts] == [
        (2, "cancelled: Administrator cancelled this delivery."), (1, "status: 400."),
    ]  # fmt: skip
    words = [trigger_in_words(each.trigger, each.error, None) for each in history.attempts]
    assert words == ["cancelled", "event"]
    found = await site.site.store.read(lambda tx: waiting_delivery(tx, delivery))
    assert (found.attempts, found.cancelled) == (2, True)
    assert json.loads((await site.sql(EVENTS))[0][2])["previous_status"] == "Retrying"


async def test_cancel_is_not_counted_as_webhook_failure(site: VirtualSite) -> None:
    """The state of a Webhook shows how its receiver answers (B-367)."""
    webhook = await site.subscribe()
    for delivery in await emit(site, *"abcd"):
        await cancel(site, delivery)
    health = await site.site.store.read(lambda tx: health_of(tx, [webhook], RUNS)[webhook])
    assert health.failures == 0
    assert health.waiting == 0


async def test_cancel_refuses_delivery_in_progress_until_lease_ends(site: VirtualSite) -> None:
    """A delivery with a valid lease is in progress; afterwards it waits again (B-366)."""
    await site.subscribe(timeout=1)
    (delivery,) = await emit(site, "a")
    process = ClaimingProcess(site)
    (due,) = await process.claim()
    with pytest.raises(ConflictError, match="is being sent"):
        await cancel(site, delivery)
    await trio.sleep(40)
    await cancel(site, delivery)
    with pytest.raises(AssertionError):  # the sender has lost its lease
        await process.end(due)
    assert (await row(site, delivery))["status"] == "Failed"
    assert len(await site.sql(EVENTS)) == 1


async def test_cancel_refuses_final_and_unknown_deliveries(site: VirtualSite) -> None:
    """Each refusal states the status, and leaves no Audit Event (B-366)."""
    await site.subscribe()
    sent, failed, cancelled = await emit(site, *"abc")
    process = ClaimingProcess(site)
    await cancel(site, cancelled)
    for due, kind in zip(
        await process.claim(), (OutcomeKind.DELIVERED, OutcomeKind.REFUSED), strict=True
    ):
        await process.end(due, kind)
    for delivery, status in ((sent, "Sent"), (failed, "Failed"), (cancelled, "Failed")):
        with pytest.raises(ConflictError, match=f"is {status}; only Queued and Retrying"):
            await cancel(site, delivery)
    with pytest.raises(NotFoundError, match="There is no Webhook Delivery msg_none"):
        await cancel(site, "msg_none")
    assert len(await site.sql(EVENTS)) == 1


async def test_cancel_denies_unauthorized_user_on_record(site: VirtualSite) -> None:
    """Only System Managers without access scopes cancel (B-365)."""
    await site.subscribe()
    (delivery,) = await emit(site, "a")
    await site.add_account("clerk", password=None)
    assert isinstance(await cancel(site, delivery, "clerk"), PermissionDeniedError)
    denied = "SELECT target, actor FROM doc_audit_event WHERE action = 'Denied'"
    assert await site.sql(denied) == [(delivery, "clerk")]
    opened = site.site
    with pytest.raises(PermissionDeniedError):
        await opened.write(
            "clerk", lambda fw: opened.cancellations.cancel_matching(fw, reference=("Note", "a"))
        )
    assert (await row(site, delivery))["status"] == "Queued"


async def test_cancel_releases_next_delivery_of_same_document(site: VirtualSite) -> None:
    """The cancelled delivery waits for a retry, or is parked behind another (B-367)."""
    await site.subscribe(ordering="document", max_attempts=3)
    first, second, third, fourth = await emit(site, *"aaaa")
    process = ClaimingProcess(site)
    (due,) = await process.claim()
    assert due.delivery == first
    await cancel(site, second)  # parked behind the first, which is being sent
    assert await process.claim() == []
    await process.end(due, OutcomeKind.TRANSIENT)
    await cancel(site, first)  # waits for its retry
    (due,) = await process.claim()
    assert due.delivery == third
    await process.end(due)
    assert delivery_names(await process.claim()) == [fourth]
    assert [(await row(site, each))["status"] for each in (first, second)] == ["Failed"] * 2


async def test_cancel_ends_deliveries_of_deleted_webhook(site: VirtualSite) -> None:
    webhook = await site.subscribe(ordering="document")
    first, second = await emit(site, *"aa")
    await site.do(lambda fw: fw.get_doc("Webhook", webhook).delete())
    await cancel(site, first)
    await cancel(site, second)
    assert await ClaimingProcess(site).claim() == []


async def test_replay_restarts_cancelled_delivery(site: VirtualSite) -> None:
    await site.subscribe()
    (delivery,) = await emit(site, "a")
    await cancel(site, delivery)
    opened = site.site
    await opened.write("Administrator", lambda fw: opened.replays.replay(fw, delivery))
    assert delivery_names(await ClaimingProcess(site).claim()) == [delivery]


async def test_cancel_matching_proceeds_in_steps_and_skips_leased_deliveries(
    site: VirtualSite,
) -> None:
    """Deliveries in progress are skipped and counted (B-368)."""
    webhook = await site.subscribe()
    await emit(site, *["a"] * (MAX_EXAMINED_DELIVERIES + 50), *["b"] * 30)
    held = delivery_names(await ClaimingProcess(site).claim(7))
    cancellations, write = site.site.cancellations, site.site.write

    async def matching(**criteria: Any) -> tuple[int, int, bool]:
        found = await write(
            "Administrator", lambda fw: cancellations.cancel_matching(fw, **criteria)
        )
        return len(found.cancelled), found.in_flight, found.more

    with pytest.raises(ValidationError, match="Select the deliveries to cancel"):
        await matching()
    assert await matching(webhook="other") == (0, 0, False)
    assert await matching(reference=("Note", "c")) == (0, 0, False)
    assert await matching(webhook="other", reference=("Note", "b")) == (0, 0, False)
    cancelled, _, more = await matching(reference=("Note", "b"))
    assert (cancelled >= 30 - len(held), more) == (True, False)
    assert await matching(webhook=webhook) == (MAX_EXAMINED_DELIVERIES, 0, True)
    assert await matching(webhook=webhook) == (
        180 - 7 - cancelled - MAX_EXAMINED_DELIVERIES,
        7,
        False,
    )
    left = await site.sql("SELECT name FROM doc_webhook_delivery WHERE status = 'Queued'")
    assert sorted(name for (name,) in left) == sorted(held)


async def test_cancel_reads_only_matching_deliveries_by_index(site: VirtualSite) -> None:
    """An index finds the deliveries to cancel among any number of deliveries and jobs."""
    webhook = await site.subscribe()
    (delivery,) = await emit(site, "a")
    cancellations = site.site.cancellations

    def seen(fw: Any) -> list[Access]:
        return [
            *accesses(fw.tx, lambda: cancellations.cancel(fw, delivery)),
            *accesses(fw.tx, lambda: cancellations.cancel_matching(fw, webhook=webhook)),
            *accesses(fw.tx, lambda: cancellations.cancel_matching(fw, reference=("Note", "a"))),
        ]

    found = await site.do(seen)
    by_name = "name webhook reference_doctype reference_name"
    assert unsought(found, doc_webhook_delivery=by_name, fw_job="rowid id subject") == []
