"""All processes share a Webhook's rate limit; other Webhooks are not limited (B-310 to B-314)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from fw_actors.documents import rest
from fw_actors.errors import ValidationError
from fw_actors.rules.delivery import Backoff, WaitReason, explain
from fw_actors.rules.findings import ServiceState
from fw_actors.store import Tx
from fw_actors.webhooks.claims import ClaimedBatch
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.diagnostics import waiting_delivery
from fw_actors.webhooks.pacing import webhooks_at_limit
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site
from tests.fw_actors.webhooks.claim_kit import ClaimingProcess, UnlimitedSlots


class ClaimingNode:
    """A process that claims as much as the limits allow."""

    def __init__(self, site: VirtualSite) -> None:
        self._site = site
        self._deliveries = Deliveries(Backoff(30.0, 3600.0))
        self.times: list[float] = []

    async def claim(self) -> ClaimedBatch:
        batch = await self._site.site.store.write(
            lambda tx: self._deliveries.claim(tx, UnlimitedSlots(), "token")
        )
        self.times += [trio.current_time()] * len(batch.deliveries)
        return batch

    async def run(self, seconds: float) -> None:
        """Claim whenever something may be due."""
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            batch = await self.claim()
            now = self._site.site.clock.now()
            wait = 1000 if batch.next_at is None else batch.next_at - now
            await trio.sleep(min(1.0, max(0.001, wait / 1000)))


async def emit(site: VirtualSite, count: int) -> list[str]:
    events = [{"name": "note.shared", "data": {}}] * min(count, 1000)
    emitted = await site.do(lambda fw: fw.webhooks.emit_many(events))
    return [name for each in emitted for name in each["deliveries"]]


@pytest.mark.usefixtures("on_both_stores")
async def test_rate_limit_is_shared_by_processes(site: VirtualSite) -> None:
    await site.subscribe(rate_limit=40)
    await emit(site, 400)
    nodes = [ClaimingNode(site), ClaimingNode(site)]
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(node.run, 5)
    times = sorted(at - began for node in nodes for at in node.times if at - began < 5)
    assert 180 <= len(times) <= 220
    for second in range(5):  # also in each second by itself
        assert 36 <= sum(second <= at < second + 1 for at in times) <= 44


async def test_claim_names_time_at_which_rate_limit_allows_next(site: VirtualSite) -> None:
    """The Dispatcher sleeps until then; a due delivery would have it claim without a pause."""
    await site.subscribe(rate_limit=2)
    await emit(site, 5)
    node = ClaimingNode(site)
    for _ in range(2):  # the second one leases nothing
        batch = await node.claim()
        assert (batch.more, batch.next_at) == (False, site.site.clock.now() + 500)
    assert len(node.times) == 1


async def test_rate_limit_continues_after_clock_set_back(site: VirtualSite) -> None:
    """The stored time is hours ahead until the next claim replaces it (B-312)."""
    await site.subscribe(rate_limit=10)
    await emit(site, 100)
    node = ClaimingNode(site)
    await node.run(1)
    await site.sql("UPDATE fw_webhook_claim SET used_until = used_until + 7200000000")
    sent = len(node.times)
    await node.run(4)
    assert 36 <= len(node.times) - sent <= 44


async def test_rate_limit_change_applies_while_running(site: VirtualSite) -> None:
    webhook = await site.subscribe(rate_limit=1)
    await emit(site, 200)
    node = ClaimingNode(site)
    await node.run(5)
    assert 4 <= len(node.times) <= 6
    await site.do(lambda fw: rest.save(fw, "Webhook", webhook, {"rate_limit": 0}))
    await trio.sleep(1)
    assert len((await node.claim()).deliveries) == 100


async def test_rate_limit_leaves_other_webhooks_unlimited(site: VirtualSite) -> None:
    """B-311."""
    await site.subscribe(rate_limit=1)
    await emit(site, 50)
    await trio.sleep(1)
    await site.subscribe("other.event")
    await site.do(lambda fw: fw.webhooks.emit("other.event", {}))
    events = [
        each.stored.rate_limit
        for each in (await ClaimingNode(site).claim()).deliveries
        if each.stored
    ]
    assert sorted(events) == [0, 1]


async def test_claim_without_rate_limit_writes_no_row(site: VirtualSite) -> None:
    await site.subscribe()
    await emit(site, 5)
    assert len((await ClaimingNode(site).claim()).deliveries) == 5
    assert await site.sql("SELECT * FROM fw_webhook_claim") == []


async def test_disabled_webhook_fails_regardless_of_rate_limit(site: VirtualSite) -> None:
    """No request is sent for a disabled Webhook."""
    webhook = await site.subscribe(rate_limit=1)
    await emit(site, 50)
    await site.do(lambda fw: rest.save(fw, "Webhook", webhook, {"enabled": 0}))
    assert len((await ClaimingNode(site).claim()).deliveries) == 50


async def test_rate_limit_follows_rename_and_ends_with_webhook(site: VirtualSite) -> None:
    webhook = await site.subscribe(rate_limit=1)
    await emit(site, 2)
    await ClaimingNode(site).claim()
    await site.do(lambda fw: fw.get_doc("Webhook", webhook).rename("renamed"))
    assert await site.sql("SELECT webhook FROM fw_webhook_claim") == [("renamed",)]
    await site.do(lambda fw: fw.get_doc("Webhook", "renamed").delete())
    assert await site.sql("SELECT webhook FROM fw_webhook_claim") == []


@pytest.mark.parametrize("value", [-1, 10_001])
async def test_webhook_refuses_rate_limit_out_of_range(site: VirtualSite, value: int) -> None:
    with pytest.raises(ValidationError) as refused:
        await site.subscribe(rate_limit=value)
    assert refused.value.extra["field"] == "rate_limit"


async def test_webhooks_at_limit_counts_those_with_due_deliveries(site: VirtualSite) -> None:
    await site.subscribe(rate_limit=1)
    assert await site.site.store.read(webhooks_at_limit) == 0
    await emit(site, 3)
    assert await site.site.store.read(webhooks_at_limit) == 1


async def test_webhooks_at_limit_leaves_out_paused_ones(site: VirtualSite) -> None:
    """The pause and not the limit delays their deliveries (B-314)."""
    webhook = await site.subscribe(rate_limit=1)
    await emit(site, 3)
    await site.do(lambda fw: site.site.pauses.pause(fw, webhook, 60))
    assert await site.site.store.read(webhooks_at_limit) == 0
    await trio.sleep(61)
    assert await site.site.store.read(webhooks_at_limit) == 1


async def test_explain_names_rate_limit_of_webhook(site: VirtualSite) -> None:
    await site.subscribe(rate_limit=5)
    [delivery] = await emit(site, 1)

    def explained(tx: Tx) -> object:
        return explain(waiting_delivery(tx, delivery), ServiceState(running=True))

    found = await site.site.store.read(explained)
    assert found.reason is WaitReason.SLOT  # type: ignore[attr-defined]
    assert "at most 5 requests a second" in found.text  # type: ignore[attr-defined]


TEXTS = ("max_attempts", "timeout", "rate_limit", "paused_since", "paused_until")


async def test_claim_reads_text_in_webhook_numbers_as_defaults(tmp_path: Path) -> None:
    """SQLite stores text in any column; the Webhook must not delay others (B-28)."""
    async with open_virtual_site(tmp_path) as site:
        bad, good = await site.subscribe(), await site.subscribe()
        changes = ", ".join(f"{column} = 'soon'" for column in (*TEXTS, "old_secret_until"))
        await site.sql(f"UPDATE doc_webhook SET {changes} WHERE name = :bad", bad=bad)
    async with open_virtual_site(tmp_path) as site:
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
        found = {due.job.partition: due for due in await ClaimingProcess(site).claim()}
    assert set(found) == {bad, good}
    hook = found[bad].stored
    assert hook is not None
    assert (hook.timeout, hook.rate_limit, found[bad].max_attempts) == (10, 0, 6)
