"""One delivery at a time for each document, in their order (B-320 to B-326)."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import partial
from random import Random
from typing import Any

import pytest
import trio

from fw_actors.documents import rest
from fw_actors.errors import ConflictError, FwError
from fw_actors.rules.delivery import Backoff, OutcomeKind, WaitReason, explain
from fw_actors.store import Tx, jobs, ordered_jobs
from fw_actors.webhooks.claims import LeasedDelivery
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.diagnostics import waiting_delivery
from fw_actors.webhooks.events import QUEUE
from fw_actors.webhooks.health import health_of
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.fw_actors.webhooks.claim_kit import (
    RUNS,
    ClaimingProcess,
    FreeSlots,
    delivery_names,
    emit,
)
from tests.plans import Access, accesses, statements_of, unsought

both_stores = pytest.mark.usefixtures("on_both_stores")
KINDS = (OutcomeKind.DELIVERED, OutcomeKind.DELIVERED, OutcomeKind.TRANSIENT, OutcomeKind.REFUSED)


@both_stores
async def test_ordered_claim_waits_for_final_predecessor(site: VirtualSite) -> None:
    await site.subscribe(ordering="document")
    a1, a2, b1, a3 = await emit(site, "a", "a", "b", "a")
    process = ClaimingProcess(site)
    first = await process.claim()
    assert delivery_names(first) == [a1, b1]
    assert await process.claim() == []
    await process.end(first[0], OutcomeKind.TRANSIENT)  # Retrying: it holds the others up
    assert await process.claim() == []
    await trio.sleep(0.2)
    [again] = await process.claim()
    assert again.delivery == a1
    await process.end(again, OutcomeKind.REFUSED)
    [second] = await process.claim()
    assert second.delivery == a2
    await process.end(second)
    assert delivery_names(await process.claim()) == [a3]


class RandomOutcomes:
    """Random outcomes of deliveries; no document ever has two in flight."""

    def __init__(self, site: VirtualSite, seed: int) -> None:
        self._site, self._random = site, Random(seed)
        self.processes = [ClaimingProcess(site), ClaimingProcess(site)]
        self.expected: dict[str, list[str]] = defaultdict(list)
        self.ended: dict[str, list[str]] = defaultdict(list)
        self._held: dict[str, LeasedDelivery] = {}

    async def emit(self) -> None:
        some = [self._random.choice("abc") for _ in range(3)]
        for name, delivery in zip(some, await emit(self._site, *some), strict=True):
            self.expected[name].append(delivery)

    async def claim(self) -> int:
        dues = await self._random.choice(self.processes).claim(self._random.randint(1, 4))
        for due in dues:
            name = json.loads(due.payload)["data"]["of"]
            assert name not in self._held
            self._held[name] = due
        return len(dues)

    async def end_some(self, *, surely: bool = False) -> None:
        process = self._random.choice(self.processes)
        for name, due in list(self._held.items()):
            fate = 1.0 if surely else self._random.random()
            if fate < 0.3:
                continue  # stays in flight
            del self._held[name]
            if fate < 0.4:
                await process.release(due)
                continue
            kind = OutcomeKind.REFUSED if surely else self._random.choice(KINDS)
            await process.end(due, kind)
            if kind is not OutcomeKind.TRANSIENT or due.attempts == 1:
                self.ended[name].append(due.delivery)

    async def cancel_some(self) -> None:
        """Cancel deliveries, one of which may be in flight."""
        site = self._site.site
        for name, deliveries in self.expected.items():
            waiting = [each for each in deliveries if each not in self.ended[name]]
            if not waiting or self._random.random() < 0.5:
                continue
            delivery = self._random.choice(waiting)
            cancel = partial(site.cancellations.cancel, delivery=delivery)
            try:
                await site.write("Administrator", cancel)
            except ConflictError:
                assert self._held[name].delivery == delivery
            else:
                deliveries.remove(delivery)

    async def kill(self) -> None:
        """All processes die: their leases end after a while."""
        self._held.clear()
        await trio.sleep(40)


@both_stores
@pytest.mark.parametrize("seed", [7, 8, 9])
async def test_ordered_claims_never_overlap_across_processes(site: VirtualSite, seed: int) -> None:
    """Under random outcomes, lost leases, cancellations and new events the order holds, and no
    delivery is left (B-367)."""
    await site.subscribe(ordering="document", timeout=1, max_attempts=2)
    outcomes = RandomOutcomes(site, seed)
    for step in range(60):
        if step % 3 == 0 and step < 40:
            await outcomes.emit()
        await outcomes.claim()
        await outcomes.end_some()
        if step % 7 == 0:
            await outcomes.cancel_some()
        if step in (10, 25):
            await outcomes.kill()
        await trio.sleep(0.2)
    await outcomes.end_some(surely=True)
    while await outcomes.claim():
        await outcomes.end_some(surely=True)
        await trio.sleep(0.2)
    assert outcomes.ended == outcomes.expected
    assert await site.sql("SELECT id FROM fw_job WHERE ordering_key IS NOT NULL") == []


@both_stores
async def test_ordered_claim_parks_followers_of_leased_delivery(site: VirtualSite) -> None:
    """B-325."""
    webhook = await site.subscribe(ordering="document")
    first, *_ = await emit(site, *["a"] * 300)
    [other] = await emit(site, "b")
    process = ClaimingProcess(site)
    assert delivery_names(await process.claim()) == [first, other]
    due = await site.sql("SELECT count(*) FROM fw_job WHERE next_at IS NOT NULL")
    assert due == [(2,)]  # both leased
    health = await site.site.store.read(lambda tx: health_of(tx, [webhook], RUNS)[webhook])
    assert health.waiting == 301
    [queue] = await site.site.store.read(jobs.stats)
    assert (queue.scheduled, queue.leased, queue.failed) == (299, 2, 0)


async def test_events_without_document_have_no_order(site: VirtualSite) -> None:
    await site.subscribe(ordering="document")
    for _ in range(3):
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    assert len(await ClaimingProcess(site).claim()) == 3


@both_stores
async def test_ordering_survives_rename_and_deletion_of_document(site: VirtualSite) -> None:
    """B-321."""
    await site.watch("Customer", "on_insert", "on_update", "on_trash", ordering="document")

    def save(fw: Any) -> None:
        fw.get_doc("Customer", "Lovelace").save()

    await site.do(lambda fw: fw.new_doc("Customer", title="Ada").insert())
    process = ClaimingProcess(site)
    [insert] = await process.claim()
    await site.do(lambda fw: fw.get_doc("Customer", "Ada").rename("Lovelace"))
    await site.do(save)
    await site.do(lambda fw: fw.get_doc("Customer", "Lovelace").delete())
    events, due = [], insert
    for _ in range(3):
        assert await process.claim() == []
        events.append(json.loads(due.payload)["type"])
        await process.end(due)
        due = next(iter(await process.claim()), due)
    assert events == ["doc.on_insert", "doc.on_update", "doc.on_trash"]


async def test_replay_is_queued_behind_waiting_delivery(site: VirtualSite) -> None:
    """B-324."""
    await site.subscribe(ordering="document")
    process = ClaimingProcess(site)
    a1, a2 = await emit(site, "a", "a")
    [due] = await process.claim()
    await process.end(due)
    [due] = await process.claim()
    opened = site.site
    await opened.write("Administrator", lambda fw: opened.replays.replay(fw, a1))
    assert await process.claim() == []
    await process.end(due)
    assert (due.delivery, delivery_names(await process.claim())) == (a2, [a1])


async def test_release_keeps_position_in_order(site: VirtualSite) -> None:
    await site.subscribe(ordering="document")
    a1, _ = await emit(site, "a", "a")
    process = ClaimingProcess(site)
    [due] = await process.claim()
    await process.release(due)
    assert delivery_names(await process.claim()) == [a1]


@both_stores
async def test_ordering_switched_off_releases_waiting_deliveries(site: VirtualSite) -> None:
    """B-322."""
    webhook = await site.subscribe(ordering="document")
    names = await emit(site, *["a"] * 5)
    process = ClaimingProcess(site)
    [due] = await process.claim()
    await site.do(lambda fw: rest.save(fw, "Webhook", webhook, {"ordering": "none"}))
    await process.end(due)
    [second] = await process.claim()  # leased before it is known
    await process.end(second)
    assert delivery_names(await process.claim()) == names[2:]


async def test_deleted_webhook_fails_all_ordered_deliveries(site: VirtualSite) -> None:
    webhook = await site.subscribe(ordering="document")
    await emit(site, *["a"] * 5)
    process = ClaimingProcess(site)
    [due] = await process.claim()
    await site.do(lambda fw: fw.get_doc("Webhook", webhook).delete())
    await process.end(due, OutcomeKind.WITHDRAWN)
    while dues := await process.claim():
        for each in dues:
            await process.end(each, OutcomeKind.WITHDRAWN)
    statuses = await site.sql("SELECT DISTINCT status FROM doc_webhook_delivery")
    assert statuses == [("Failed",)]


async def test_explain_names_delivery_that_blocks_order(site: VirtualSite) -> None:
    await site.subscribe(ordering="document")
    first, second = await emit(site, "a", "a")
    await ClaimingProcess(site).claim()
    found = await site.site.store.read(lambda tx: explain(waiting_delivery(tx, second), RUNS))
    assert found.reason is WaitReason.ORDER
    assert first in found.text


async def test_webhook_refuses_unknown_ordering_with_field(site: VirtualSite) -> None:
    with pytest.raises(FwError) as refused:
        await site.subscribe(ordering="strict")
    assert refused.value.extra["field"] == "ordering"


@both_stores
async def test_ordered_claim_is_not_repeated_for_delivery_behind_one_in_flight(
    site: VirtualSite,
) -> None:
    """A rename can merge two documents whose deliveries were begun; the later one stays due, and
    is not taken for one that another transaction has locked (B-238)."""
    await site.subscribe(ordering="document")
    await emit(site, "a", "a")
    [first] = await ClaimingProcess(site).claim()
    await site.sql("UPDATE fw_job SET attempts = 1, next_at = created WHERE lease IS NULL")
    deliveries = Deliveries(Backoff(30.0, 3600.0))
    batch = await site.site.store.write(lambda tx: deliveries.claim(tx, FreeSlots(), "t"))
    assert (batch.leased, batch.next_at) == (None, first.lease_end)


@both_stores
async def test_ordered_jobs_are_read_by_indexes_only(site: VirtualSite) -> None:
    """The plan is the same for any number of deliveries behind one document."""

    def read_plans(tx: Tx) -> list[Access]:
        claimed = accesses(tx, lambda: ordered_jobs.lease_first(tx, QUEUE, "w", 5, 1000, "t"))
        ended = [ordered_jobs.OrderedJob(1, "w", "Note\na")]
        return [
            *claimed,
            *accesses(tx, lambda: ordered_jobs.held_ordered(tx, [(1, "t")])),
            *accesses(tx, lambda: ordered_jobs.leave(tx, ended)),
            *accesses(tx, lambda: ordered_jobs.leave(tx, ended, limit=9)),
            *accesses(tx, lambda: ordered_jobs.first_of(tx, "w", "Note\na")),
            *accesses(tx, lambda: ordered_jobs.count_parked(tx, "w", 9)),
        ]

    found = await site.site.store.write(read_plans)
    aliases = dict.fromkeys({each.table for each in found} & {"other", "next"}, "ordering_key")
    assert unsought(found, fw_job="partition id rowid", **aliases) == []


@both_stores
async def test_claim_without_limits_runs_four_statements(site: VirtualSite) -> None:
    """A claim finds due jobs, leases them, finds the next due time and reads the rows (B-313)."""
    await site.subscribe()
    await emit(site, "a", "a")
    deliveries = Deliveries(Backoff(30.0, 3600.0))
    ran = await site.site.store.write(
        lambda tx: statements_of(tx, lambda: deliveries.claim(tx, FreeSlots(), "t"))
    )
    assert len(ran) == 4
    assert (ran[1][0], ran[2][0]) == (jobs.LEASE, jobs.NEXT_DUE)
