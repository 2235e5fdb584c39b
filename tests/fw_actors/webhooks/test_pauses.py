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
from fw_actors.webhooks.diagnostics import waiting_delivery
from fw_actors.webhooks.health import health_of
from fw_actors.webhooks.pacing import WebhookPause, paused_webhooks
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site
from tests.fw_actors.webhooks.claim_kit import UnlimitedSlots

RUNS = ServiceState(running=True)


async def pause(
    site: VirtualSite, webhook: str, seconds: int | None = None, user: str = "boss"
) -> Any:
    return await site.site.write(user, lambda fw: site.site.pauses.pause(fw, webhook, seconds))


async def resume(site: VirtualSite, webhook: str, user: str = "boss") -> Any:
    return await site.site.write(user, lambda fw: site.site.pauses.resume(fw, webhook))


async def claim(site: VirtualSite) -> ClaimedBatch:
    deliveries = Deliveries(Backoff(30.0, 3600.0))
    return await site.site.store.write(lambda tx: deliveries.claim(tx, UnlimitedSlots(), "token"))


async def audit(site: VirtualSite) -> list[tuple[Any, ...]]:
    return await site.sql(
        "SELECT action, target, detail, actor FROM doc_audit_event WHERE action IN"
        " ('webhook.pause', 'webhook.resume', 'Denied') ORDER BY creation, name"
    )


@pytest.fixture
async def webhook(site: VirtualSite) -> str:
    await site.add_account("boss", "System Manager", password=None)
    return await site.subscribe()


@pytest.mark.usefixtures("on_both_stores")
async def test_claim_of_paused_webhook_reads_no_delivery(
    site: VirtualSite, webhook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    found = await pause(site, webhook, 60)

    def never(*_given: object) -> int:
        raise AssertionError("the queue of a paused Webhook was looked at")

    with monkeypatch.context() as patched:
        patched.setattr(jobs, "lease", never)
        assert await claim(site) == ClaimedBatch(None, False, found.until)
    await resume(site, webhook)
    [due] = (await claim(site)).deliveries
    assert (due.attempts, due.job.expired_leases) == (0, 0)


async def test_pause_outlives_process_restart(tmp_path: Path) -> None:
    async with open_virtual_site(tmp_path) as site:
        webhook = await site.subscribe()
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
        await pause(site, webhook, user="Administrator")
    async with open_virtual_site(tmp_path) as site:
        assert (await claim(site)).leased is None


async def test_pause_writes_audit_events_but_no_modification(
    site: VirtualSite, webhook: str
) -> None:
    [before] = await site.sql("SELECT modified FROM doc_webhook")
    await pause(site, webhook, 60)
    await trio.sleep(1)
    await pause(site, webhook)
    await trio.sleep(1)
    assert await resume(site, webhook) == WebhookPause(webhook)
    await resume(site, webhook)  # is not paused: no event
    events = [(action, json.loads(detail)) for action, _, detail, _ in await audit(site)]
    assert [action for action, _ in events] == ["webhook.pause", "webhook.pause", "webhook.resume"]
    assert events[0][1]["until"] is not None
    assert events[1][1] == {"until": None}
    assert await site.sql("SELECT modified FROM doc_webhook") == [before]


@pytest.mark.usefixtures("on_both_stores")
async def test_save_of_webhook_read_before_pause_keeps_pause(
    site: VirtualSite, webhook: str
) -> None:
    """On PostgreSQL another transaction may pause it between the reading and the save (B-304)."""

    def around(fw: Any) -> Any:
        doc = fw.get_doc("Webhook", webhook)
        paused = site.site.pauses.pause(fw, webhook, 60)
        doc.timeout = 20
        doc.save()
        return paused, doc.paused_until

    paused, shown = await site.do(around)
    assert await site.site.store.read(paused_webhooks) == [paused]
    assert await site.sql("SELECT timeout FROM doc_webhook") == [(20,)]
    assert shown is not None


async def test_pause_with_new_end_keeps_beginning(site: VirtualSite, webhook: str) -> None:
    first = await pause(site, webhook, 60)
    await trio.sleep(1)
    later = await pause(site, webhook)
    assert (later.since, later.until) == (first.since, None)


async def test_pause_after_end_of_another_has_new_beginning(
    site: VirtualSite, webhook: str
) -> None:
    """One that has ended by itself is no pause (B-303), and so resuming it writes no event."""
    first = await pause(site, webhook, 60)
    await trio.sleep(61)
    await resume(site, webhook)
    assert [action for action, *_ in await audit(site)] == ["webhook.pause"]
    await pause(site, webhook, 60)
    await trio.sleep(61)
    later = await pause(site, webhook)
    assert later.since == first.since + 122_000


@pytest.mark.parametrize("seconds", [1, 366 * 86_400])
async def test_pause_accepts_limits_of_its_duration(
    site: VirtualSite, webhook: str, seconds: int
) -> None:
    """Between 1 and 31,622,400 seconds (B-303)."""
    paused = await pause(site, webhook, seconds)
    assert paused.until - paused.since == seconds * 1000


@pytest.mark.parametrize("seconds", [0, -1, 366 * 86_400 + 1])
async def test_pause_refuses_duration_out_of_range_with_field(
    site: VirtualSite, webhook: str, seconds: int
) -> None:
    with pytest.raises(ValidationError) as refused:
        await pause(site, webhook, seconds)
    assert refused.value.extra["field"] == "seconds"


async def test_pause_of_unknown_webhook_is_not_found(site: VirtualSite, webhook: str) -> None:
    for act in (pause, resume):
        with pytest.raises(NotFoundError):
            await act(site, "nosuch")


async def test_pause_denies_unauthorized_user_on_record(site: VirtualSite, webhook: str) -> None:
    await site.add_account("clerk", password=None)
    assert isinstance(await pause(site, webhook, user="clerk"), PermissionDeniedError)
    assert isinstance(await resume(site, webhook, user="clerk"), PermissionDeniedError)
    assert [row[0] for row in await audit(site)] == ["Denied", "Denied"]
    assert await site.site.store.read(paused_webhooks) == []


async def test_pause_fields_are_not_writable(site: VirtualSite, webhook: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        await site.do(
            lambda fw: rest.save(
                fw, "Webhook", webhook, {"paused_since": "2026-01-01T00:00:00.000Z"}
            )
        )
    assert refused.value.extra["field"] == "paused_since"


async def test_pause_is_shown_in_state_list_and_explanation(
    site: VirtualSite, webhook: str
) -> None:
    emitted = await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    paused = await pause(site, webhook, 60)

    def explained(tx: Tx) -> tuple[Any, ...]:
        health = health_of(tx, [webhook], RUNS)[webhook]
        explained = explain(waiting_delivery(tx, emitted["deliveries"][0]), RUNS)
        return health.state, health.paused_until, explained.reason, explained.due_at

    found = await site.site.store.read(explained)
    assert found == ("paused", paused.until, WaitReason.PAUSED, paused.until)
    assert await site.site.store.read(paused_webhooks) == [paused]
    await site.do(lambda fw: rest.save(fw, "Webhook", webhook, {"enabled": 0}))
    assert await site.site.store.read(explained) == found, (
        "its deliveries wait although it is disabled"
    )
    assert await site.site.store.read(paused_webhooks) == [paused]
    await site.do(lambda fw: rest.save(fw, "Webhook", webhook, {"enabled": 1}))
    await resume(site, webhook)
    state, until, reason, _ = await site.site.store.read(explained)
    assert (state, until, reason) == ("untried", None, WaitReason.SLOT)
