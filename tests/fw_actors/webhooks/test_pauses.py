"""Pauses of Webhooks: permissions, refusals, records and display (B-300 to B-305)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from fw_actors.documents import rest
from fw_actors.errors import (
    BadRequestError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from fw_actors.rules.delivery import Backoff, WaitReason, explain
from fw_actors.rules.findings import ServiceState
from fw_actors.store import Tx, jobs
from fw_actors.webhooks.claims import ClaimedBatch
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.diagnostics import waiting
from fw_actors.webhooks.health import health_of
from fw_actors.webhooks.pacing import WebhookPause, paused_webhooks
from tests.fw_actors.office import Office, open_office
from tests.fw_actors.webhooks.claim_kit import UnlimitedSlots

RUNS = ServiceState(running=True)


async def pause(
    office: Office, webhook: str, seconds: int | None = None, user: str = "boss"
) -> Any:
    return await office.site.write(user, lambda fw: office.site.pauses.pause(fw, webhook, seconds))


async def resume(office: Office, webhook: str, user: str = "boss") -> Any:
    return await office.site.write(user, lambda fw: office.site.pauses.resume(fw, webhook))


async def claim(office: Office) -> ClaimedBatch:
    deliveries = Deliveries(office.site.registry, Backoff(30.0, 3600.0))
    return await office.site.store.write(lambda tx: deliveries.claim(tx, UnlimitedSlots(), "token"))


async def audit(office: Office) -> list[tuple[Any, ...]]:
    return await office.sql(
        "SELECT action, target, detail, actor FROM doc_audit_event WHERE action IN"
        " ('webhook.pause', 'webhook.resume', 'Denied') ORDER BY creation, name"
    )


@pytest.fixture
async def webhook(office: Office) -> str:
    await office.hire("boss", "System Manager", password=None)
    return await office.subscribe()


@pytest.mark.usefixtures("on_both_stores")
async def test_claim_of_paused_webhook_reads_no_delivery(
    office: Office, webhook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await office.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    found = await pause(office, webhook, 60)

    def never(*_given: object) -> int:
        raise AssertionError("the queue of a paused Webhook was looked at")

    with monkeypatch.context() as patched:
        patched.setattr(jobs, "lease", never)
        assert await claim(office) == ClaimedBatch(None, False, found.until)
    await resume(office, webhook)
    [due] = (await claim(office)).deliveries
    assert (due.attempts, due.job.expired_leases) == (0, 0)


async def test_pause_outlives_process_restart(tmp_path: Path) -> None:
    async with open_office(tmp_path) as office:
        webhook = await office.subscribe()
        await office.do(lambda fw: fw.webhooks.emit("note.shared", {}))
        await pause(office, webhook, user="Administrator")
    async with open_office(tmp_path) as office:
        assert (await claim(office)).leased is None


async def test_pause_writes_audit_events_but_no_modification(office: Office, webhook: str) -> None:
    [before] = await office.sql("SELECT modified FROM doc_webhook")
    await pause(office, webhook, 60)
    await trio.sleep(1)
    await pause(office, webhook)
    await trio.sleep(1)
    assert await resume(office, webhook) == WebhookPause(webhook)
    await resume(office, webhook)  # is not paused: no event
    events = [(action, json.loads(detail)) for action, _, detail, _ in await audit(office)]
    assert [action for action, _ in events] == ["webhook.pause", "webhook.pause", "webhook.resume"]
    assert events[0][1]["until"] is not None
    assert events[1][1] == {"until": None}
    assert await office.sql("SELECT modified FROM doc_webhook") == [before]


@pytest.mark.usefixtures("on_both_stores")
async def test_save_of_webhook_read_before_pause_keeps_pause(office: Office, webhook: str) -> None:
    """On PostgreSQL another transaction may pause it between the reading and the save (B-304)."""

    def around(fw: Any) -> Any:
        doc = fw.get_doc("Webhook", webhook)
        paused = office.site.pauses.pause(fw, webhook, 60)
        doc.timeout = 20
        doc.save()
        return paused, doc.paused_until

    paused, shown = await office.do(around)
    assert await office.site.store.read(paused_webhooks) == [paused]
    assert await office.sql("SELECT timeout FROM doc_webhook") == [(20,)]
    assert shown is not None


async def test_pause_with_new_end_keeps_beginning(office: Office, webhook: str) -> None:
    first = await pause(office, webhook, 60)
    await trio.sleep(1)
    later = await pause(office, webhook)
    assert (later.since, later.until) == (first.since, None)


async def test_pause_after_end_of_another_has_new_beginning(office: Office, webhook: str) -> None:
    """One that has ended by itself is no pause (B-303), and so resuming it writes no event."""
    first = await pause(office, webhook, 60)
    await trio.sleep(61)
    await resume(office, webhook)
    assert [action for action, *_ in await audit(office)] == ["webhook.pause"]
    await pause(office, webhook, 60)
    await trio.sleep(61)
    later = await pause(office, webhook)
    assert later.since == first.since + 122_000


@pytest.mark.parametrize("seconds", [1, 366 * 86_400])
async def test_pause_accepts_limits_of_its_duration(
    office: Office, webhook: str, seconds: int
) -> None:
    """Between 1 and 31,622,400 seconds (B-303)."""
    paused = await pause(office, webhook, seconds)
    assert paused.until - paused.since == seconds * 1000


@pytest.mark.parametrize("seconds", [0, -1, 366 * 86_400 + 1])
async def test_pause_refuses_duration_out_of_range_with_field(
    office: Office, webhook: str, seconds: int
) -> None:
    with pytest.raises(ValidationError) as refused:
        await pause(office, webhook, seconds)
    assert refused.value.extra["field"] == "seconds"


async def test_pause_of_unknown_webhook_is_not_found(office: Office, webhook: str) -> None:
    for act in (pause, resume):
        with pytest.raises(NotFoundError):
            await act(office, "nosuch")


async def test_pause_denies_unauthorized_user_on_record(office: Office, webhook: str) -> None:
    await office.hire("clerk", password=None)
    assert isinstance(await pause(office, webhook, user="clerk"), PermissionDeniedError)
    assert isinstance(await resume(office, webhook, user="clerk"), PermissionDeniedError)
    assert [row[0] for row in await audit(office)] == ["Denied", "Denied"]
    assert await office.site.store.read(paused_webhooks) == []


async def test_pause_fields_are_not_writable(office: Office, webhook: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        await office.do(
            lambda fw: rest.save(
                fw, "Webhook", webhook, {"paused_since": "2026-01-01T00:00:00.000Z"}
            )
        )
    assert refused.value.extra["field"] == "paused_since"


async def test_pause_is_shown_in_state_list_and_explanation(office: Office, webhook: str) -> None:
    told = await office.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    paused = await pause(office, webhook, 60)

    def look(tx: Tx) -> tuple[Any, ...]:
        health = health_of(tx, [webhook], RUNS)[webhook]
        explained = explain(waiting(tx, office.site.registry, told["deliveries"][0]), RUNS)
        return health.state, health.paused_until, explained.reason, explained.due_at

    found = await office.site.store.read(look)
    assert found == ("paused", paused.until, WaitReason.PAUSED, paused.until)
    assert await office.site.store.read(paused_webhooks) == [paused]
    await office.do(lambda fw: rest.save(fw, "Webhook", webhook, {"enabled": 0}))
    assert await office.site.store.read(look) == found, (
        "its deliveries wait although it is disabled"
    )
    assert await office.site.store.read(paused_webhooks) == [paused]
    await office.do(lambda fw: rest.save(fw, "Webhook", webhook, {"enabled": 1}))
    await resume(office, webhook)
    state, until, reason, _ = await office.site.store.read(look)
    assert (state, until, reason) == ("untried", None, WaitReason.SLOT)
