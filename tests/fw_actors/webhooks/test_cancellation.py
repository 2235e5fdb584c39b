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
from fw_actors.webhooks.diagnostics import waiting
from fw_actors.webhooks.health import health_of
from tests.fw_actors.office import Office
from tests.fw_actors.webhooks.claim_kit import RUNS, ClaimingProcess, emit, of
from tests.plans import Access, accesses, unsought

pytestmark = pytest.mark.usefixtures("on_both_stores")

EVENTS = "SELECT target, actor, detail FROM doc_audit_event WHERE action = 'webhook.cancel'"


async def cancel(office: Office, delivery: str, user: str = "Administrator") -> Any:
    site = office.site
    return await site.write(user, lambda fw: site.cancellations.cancel(fw, delivery))


async def row(office: Office, delivery: str) -> dict[str, Any]:
    return next(each for each in await office.deliveries() if each["name"] == delivery)


async def test_cancel_fails_queued_delivery_without_sending(office: Office) -> None:
    """The error names the user; one Audit Event has the previous status (B-365)."""
    webhook = await office.subscribe()
    (delivery,) = await emit(office, "a")
    assert await cancel(office, delivery) == "Failed"
    stored = await row(office, delivery)
    assert (stored["status"], stored["error"], stored["next_attempt"]) == (
        "Failed", "cancelled: Administrator cancelled this delivery.", None
    )  # fmt: skip
    assert await ClaimingProcess(office).claim() == []
    ((target, actor, detail),) = await office.sql(EVENTS)
    assert (target, actor) == (delivery, "Administrator")
    assert json.loads(detail) == {"webhook": webhook, "previous_status": "Queued"}


async def test_cancel_is_recorded_after_earlier_attempts(office: Office) -> None:
    """A cancellation is recorded like an attempt; earlier attempts stay (B-367)."""
    await office.subscribe(max_attempts=5)
    (delivery,) = await emit(office, "a")
    process = ClaimingProcess(office)
    (due,) = await process.claim()
    await process.end(due, OutcomeKind.TRANSIENT)
    await cancel(office, delivery)
    history = await office.site.store.read(lambda tx: attempts_of(tx, delivery))
    assert [(each.number, each.error) for each in history.attempts] == [
        (2, "cancelled: Administrator cancelled this delivery."), (1, "status: 400."),
    ]  # fmt: skip
    words = [trigger_in_words(each.trigger, each.error, None) for each in history.attempts]
    assert words == ["cancelled", "event"]
    found = await office.site.store.read(lambda tx: waiting(tx, office.site.registry, delivery))
    assert (found.attempts, found.cancelled) == (2, True)
    assert json.loads((await office.sql(EVENTS))[0][2])["previous_status"] == "Retrying"


async def test_cancel_is_not_counted_as_webhook_failure(office: Office) -> None:
    """The state of a Webhook shows how its receiver answers (B-367)."""
    webhook = await office.subscribe()
    for delivery in await emit(office, *"abcd"):
        await cancel(office, delivery)
    health = await office.site.store.read(lambda tx: health_of(tx, [webhook], RUNS)[webhook])
    assert health.failures == 0
    assert health.waiting == 0


async def test_cancel_refuses_delivery_in_progress_until_lease_ends(office: Office) -> None:
    """A delivery with a valid lease is in progress; afterwards it waits again (B-366)."""
    await office.subscribe(timeout=1)
    (delivery,) = await emit(office, "a")
    process = ClaimingProcess(office)
    (due,) = await process.claim()
    with pytest.raises(ConflictError, match="is being sent"):
        await cancel(office, delivery)
    await trio.sleep(40)
    await cancel(office, delivery)
    with pytest.raises(AssertionError):  # the sender has lost its lease
        await process.end(due)
    assert (await row(office, delivery))["status"] == "Failed"
    assert len(await office.sql(EVENTS)) == 1


async def test_cancel_refuses_final_and_unknown_deliveries(office: Office) -> None:
    """Each refusal states the status, and leaves no Audit Event (B-366)."""
    await office.subscribe()
    sent, failed, cancelled = await emit(office, *"abc")
    process = ClaimingProcess(office)
    await cancel(office, cancelled)
    for due, kind in zip(
        await process.claim(), (OutcomeKind.DELIVERED, OutcomeKind.REFUSED), strict=True
    ):
        await process.end(due, kind)
    for delivery, status in ((sent, "Sent"), (failed, "Failed"), (cancelled, "Failed")):
        with pytest.raises(ConflictError, match=f"is {status}; only Queued and Retrying"):
            await cancel(office, delivery)
    with pytest.raises(NotFoundError, match="There is no Webhook Delivery msg_none"):
        await cancel(office, "msg_none")
    assert len(await office.sql(EVENTS)) == 1


async def test_cancel_denies_unauthorized_user_on_record(office: Office) -> None:
    """Only System Managers without access scopes cancel (B-365)."""
    await office.subscribe()
    (delivery,) = await emit(office, "a")
    await office.hire("clerk", password=None)
    assert isinstance(await cancel(office, delivery, "clerk"), PermissionDeniedError)
    denied = "SELECT target, actor FROM doc_audit_event WHERE action = 'Denied'"
    assert await office.sql(denied) == [(delivery, "clerk")]
    site = office.site
    with pytest.raises(PermissionDeniedError):
        await site.write(
            "clerk", lambda fw: site.cancellations.cancel_matching(fw, reference=("Note", "a"))
        )
    assert (await row(office, delivery))["status"] == "Queued"


async def test_cancel_releases_next_delivery_of_same_document(office: Office) -> None:
    """The cancelled delivery waits for a retry, or is parked behind another (B-367)."""
    await office.subscribe(ordering="document", max_attempts=3)
    first, second, third, fourth = await emit(office, *"aaaa")
    process = ClaimingProcess(office)
    (due,) = await process.claim()
    assert due.delivery == first
    await cancel(office, second)  # parked behind the first, which is being sent
    assert await process.claim() == []
    await process.end(due, OutcomeKind.TRANSIENT)
    await cancel(office, first)  # waits for its retry
    (due,) = await process.claim()
    assert due.delivery == third
    await process.end(due)
    assert of(await process.claim()) == [fourth]
    assert [(await row(office, each))["status"] for each in (first, second)] == ["Failed"] * 2


async def test_cancel_ends_deliveries_of_deleted_webhook(office: Office) -> None:
    webhook = await office.subscribe(ordering="document")
    first, second = await emit(office, *"aa")
    await office.do(lambda fw: fw.get_doc("Webhook", webhook).delete())
    await cancel(office, first)
    await cancel(office, second)
    assert await ClaimingProcess(office).claim() == []


async def test_replay_restarts_cancelled_delivery(office: Office) -> None:
    await office.subscribe()
    (delivery,) = await emit(office, "a")
    await cancel(office, delivery)
    site = office.site
    await site.write("Administrator", lambda fw: site.replays.replay(fw, delivery))
    assert of(await ClaimingProcess(office).claim()) == [delivery]


async def test_cancel_matching_proceeds_in_steps_and_skips_leased_deliveries(
    office: Office,
) -> None:
    """Deliveries in progress are skipped and counted (B-368)."""
    webhook = await office.subscribe()
    await emit(office, *["a"] * (MAX_EXAMINED_DELIVERIES + 50), *["b"] * 30)
    held = of(await ClaimingProcess(office).claim(7))
    cancellations, write = office.site.cancellations, office.site.write

    async def matching(**wanted: Any) -> tuple[int, int, bool]:
        found = await write("Administrator", lambda fw: cancellations.cancel_matching(fw, **wanted))
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
    left = await office.sql("SELECT name FROM doc_webhook_delivery WHERE status = 'Queued'")
    assert sorted(name for (name,) in left) == sorted(held)


async def test_cancel_reads_only_matching_deliveries_by_index(office: Office) -> None:
    """An index finds the deliveries to cancel among any number of deliveries and jobs."""
    webhook = await office.subscribe()
    (delivery,) = await emit(office, "a")
    cancellations = office.site.cancellations

    def seen(fw: Any) -> list[Access]:
        return [
            *accesses(fw.tx, lambda: cancellations.cancel(fw, delivery)),
            *accesses(fw.tx, lambda: cancellations.cancel_matching(fw, webhook=webhook)),
            *accesses(fw.tx, lambda: cancellations.cancel_matching(fw, reference=("Note", "a"))),
        ]

    found = await office.do(seen)
    by_name = "name webhook reference_doctype reference_name"
    assert unsought(found, doc_webhook_delivery=by_name, fw_job="rowid id subject") == []
