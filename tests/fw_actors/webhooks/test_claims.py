"""Claims of due deliveries: their order, limits and contents (B-210, B-233, B-237)."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
import trio

from fw_actors.http import Origin, parse_endpoint
from fw_actors.rules.delivery import Backoff
from fw_actors.rules.receivers import ReceiverSlots
from fw_actors.store import StatementError, Tx
from fw_actors.webhooks.claims import (
    MAX_INLINE_BYTES,
    WEBHOOKS_PER_READ,
    ClaimPlan,
    Head,
    Lease,
    Leased,
    LeasedDelivery,
    Turn,
)
from fw_actors.webhooks.deliveries import Deliveries
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.fw_actors.webhooks.manual_dispatcher import ManualDispatcher, SlotsPerWebhook

pytestmark = pytest.mark.usefixtures("on_both_stores")


START = 1_800_000_000_000


@pytest.mark.parametrize("timeout", [1, 60])
async def test_lease_lasts_timeout_plus_30_seconds(
    dispatcher: ManualDispatcher, timeout: int
) -> None:
    """A lease lasts `timeout` + 30 s (B-210)."""
    await dispatcher.site.subscribe(timeout=timeout)
    await dispatcher.emit()
    assert (await dispatcher.due()).lease_end == START + (timeout + 30) * 1000
    await trio.sleep(timeout + 29.999)
    assert (await dispatcher.claim()).deliveries == []
    await trio.sleep(0.001)
    assert (await dispatcher.due()).job.expired_leases == 1


async def test_claim_returns_exact_payload_and_current_webhook(
    dispatcher: ManualDispatcher,
) -> None:
    """Each attempt uses the Webhook's url, secret and timeout of that moment (B-127)."""
    hook = await dispatcher.site.subscribe(max_attempts=4)
    delivery = await dispatcher.emit()

    def change(fw: Any) -> None:
        doc = fw.get_doc("Webhook", hook)
        doc.url, doc.timeout, doc.max_attempts, doc.enabled = "https://new.test/", 33, 9, 0
        doc.save()

    await dispatcher.site.do(change)
    due = await dispatcher.due()
    assert due.payload == (
        b'{"type":"note.shared","timestamp":"2027-01-15T08:00:00.000Z","data":{"a":"\xc3\xbc"}}'
    )
    assert due.stored is not None
    assert (due.stored.url, due.stored.timeout, due.stored.enabled) == (
        "https://new.test/",
        33,
        False,
    )
    assert (due.delivery, due.max_attempts, due.attempts, due.status) == (delivery, 4, 0, "Queued")
    site = dispatcher.site.site
    secret = site.vault.open(str(due.stored.secret), "Webhook", "secret", due.stored.row_id)
    assert secret == "a signing secret"


async def test_claim_returns_no_hook_for_deleted_webhook(dispatcher: ManualDispatcher) -> None:
    """The deliveries of a deleted Webhook stay (B-29)."""
    hook = await dispatcher.site.subscribe()
    await dispatcher.emit()
    await dispatcher.site.do(lambda fw: fw.get_doc("Webhook", hook).delete())
    due = await dispatcher.due()
    assert (due.stored, due.lease_end) == (None, START + 40_000)
    assert await dispatcher.settle(due, "WITHDRAWN") == "Failed"


async def test_claim_leases_no_more_than_free_slots(dispatcher: ManualDispatcher) -> None:
    hook = await dispatcher.site.subscribe()
    for _ in range(5):
        await dispatcher.emit()
    slots = SlotsPerWebhook(each=2)
    batches = [len((await dispatcher.claim(slots)).deliveries) for _ in range(4)]
    assert batches == [2, 2, 1, 0]
    assert slots.taken == [(hook, 2), (hook, 2), (hook, 1)]


async def test_claim_reports_whether_more_may_be_due(dispatcher: ManualDispatcher) -> None:
    full = await dispatcher.site.subscribe()
    for _ in range(3):
        await dispatcher.emit()
    offered = [
        SlotsPerWebhook(closed=(full,)),
        SlotsPerWebhook(each=2),
        SlotsPerWebhook(each=2),
        SlotsPerWebhook(each=2),
    ]
    assert [(await dispatcher.claim(slots)).more for slots in offered] == [True, True, False, False]


async def test_claim_reports_more_if_only_the_last_webhook_is_done(
    dispatcher: ManualDispatcher,
) -> None:
    """A due delivery does not wait for the regular scan while a slot is free (B-238)."""
    hooks = [await dispatcher.site.subscribe(event) for event in ("a.b", "c.d")]
    for event in ("a.b", "a.b", "a.b", "c.d"):
        await dispatcher.emit(event)
        await trio.sleep(1)
    slots = SlotsPerWebhook(each=2)
    batch = await dispatcher.claim(slots)
    assert (slots.taken, batch.more) == ([(hooks[0], 2), (hooks[1], 1)], True)


async def test_claim_reports_more_if_the_webhooks_read_took_all_slots(site: VirtualSite) -> None:
    """Of Webhooks that were not read for want of slots, some may be due (B-238)."""
    dispatcher = ManualDispatcher(site)
    for _ in range(WEBHOOKS_PER_READ + 1):
        await site.subscribe()
    await dispatcher.emit()
    assert (await dispatcher.claim(SlotsPerWebhook(limit=WEBHOOKS_PER_READ))).more
    assert not (await dispatcher.claim(SlotsPerWebhook(limit=WEBHOOKS_PER_READ))).more


async def test_claim_serves_longest_waiting_webhook_first(dispatcher: ManualDispatcher) -> None:
    names = []
    for event in ("b.c", "a.b", "c.d"):
        names.append(await dispatcher.site.subscribe(event))
        await dispatcher.emit(event)
        await trio.sleep(1)
    slots = SlotsPerWebhook()
    await dispatcher.claim(slots)
    assert [name for name, _ in slots.taken] == names


@pytest.mark.parametrize(
    ("due", "in_flight", "leased"),
    [
        ((20, 20), (0, 0), (4, 4)),
        ((20, 1), (0, 0), (7, 1)),
        ((1, 20), (0, 0), (1, 7)),
        ((20, 20), (6, 0), (1, 7)),
        ((20, 2), (20, 0), (6, 2)),
        ((3, 3), (0, 0), (3, 3)),
    ],
)
async def test_claim_divides_slots_of_a_receiver_among_its_webhooks(
    dispatcher: ManualDispatcher,
    due: tuple[int, int],
    in_flight: tuple[int, int],
    leased: tuple[int, int],
) -> None:
    """What one does not need is left to the other, in the same claim (B-237)."""
    hooks = await dispatcher.site.subscribe("a.b"), await dispatcher.site.subscribe("c.d")
    for event, count in zip(("a.b", "c.d"), due, strict=True):
        for _ in range(count):
            await dispatcher.emit(event)
    origin = parse_endpoint("https://receiver.test/hook", development=False).origin
    receivers: dict[Origin | None, ReceiverSlots] = {origin: ReceiverSlots(limit=8, window=8)}
    used = dict(zip(hooks, in_flight, strict=True))
    batch = await dispatcher.claim(ClaimPlan(receivers, 100, 100, 8, in_flight=used))
    claimed = Counter(each.job.partition for each in batch.deliveries)
    assert tuple(claimed[hook] for hook in hooks) == leased
    assert batch.more == (sum(due) > 8)


async def test_claim_in_two_passes_keeps_the_rate_limit(dispatcher: ManualDispatcher) -> None:
    """Of 60 requests a second six start at once, four of them on the Webhook's share (B-237)."""
    limited = await dispatcher.site.subscribe("a.b", rate_limit=60)
    await dispatcher.site.subscribe("c.d")
    for event in ["a.b"] * 20 + ["c.d"]:
        await dispatcher.emit(event)
    origin = parse_endpoint("https://receiver.test/hook", development=False).origin
    receivers: dict[Origin | None, ReceiverSlots] = {origin: ReceiverSlots(limit=8, window=8)}
    batch = await dispatcher.claim(ClaimPlan(receivers, 100, 100, 8))
    claimed = Counter(each.job.partition == limited for each in batch.deliveries)
    assert (claimed[True], claimed[False]) == (6, 1)


async def test_claim_passes_over_webhook_without_slot(dispatcher: ManualDispatcher) -> None:
    """Deliveries are claimed per receiver that has a free slot (B-237)."""
    full, open_ = await dispatcher.site.subscribe("a.b"), await dispatcher.site.subscribe("c.d")
    await dispatcher.emit("a.b")
    await dispatcher.emit("c.d")
    batch = await dispatcher.claim(SlotsPerWebhook(closed=(full,)))
    assert [due.job.partition for due in batch.deliveries] == [open_]


@pytest.mark.parametrize("packed", [True, False])
async def test_claim_serves_webhooks_that_are_not_read_with_the_first_ones(
    site: VirtualSite, packed: bool
) -> None:
    """Of thousands with pending deliveries, a claim reads those that it has slots for (B-237)."""
    hooks = sorted([await site.subscribe() for _ in range(WEBHOOKS_PER_READ + 3)])
    dispatcher = ManualDispatcher(site, packed=packed)
    await dispatcher.emit()
    *first, paused, deleted, last = hooks
    await site.sql("UPDATE doc_webhook SET paused_since = 1 WHERE name = :it", it=paused)
    await site.sql("DELETE FROM doc_webhook WHERE name = :it", it=deleted)
    all_but_last = SlotsPerWebhook(turns={last: Turn(-1)})  # served first
    batch = await dispatcher.claim(all_but_last)
    assert [name for name, _ in all_but_last.taken] == [last, *first, None]
    assert sorted(due.job.partition for due in batch.deliveries) == sorted([*first, deleted, last])
    assert {due.stored and due.stored.name for due in batch.deliveries} == {*first, None, last}
    assert not batch.more


async def test_claim_without_any_slot_left_stops(site: VirtualSite) -> None:
    hooks = sorted([await site.subscribe() for _ in range(3)])
    dispatcher = ManualDispatcher(site)
    await dispatcher.emit()
    slots = SlotsPerWebhook(limit=2)
    batch = await dispatcher.claim(slots)
    assert ([name for name, _ in slots.taken], batch.more) == (hooks[:2], True)
    slots = SlotsPerWebhook(limit=2)
    batch = await dispatcher.claim(slots)
    assert ([name for name, _ in slots.taken], batch.more) == (hooks[2:], False)
    assert not (await dispatcher.claim(SlotsPerWebhook(limit=0))).more


async def test_claim_reports_time_of_next_due_delivery(dispatcher: ManualDispatcher) -> None:
    await dispatcher.site.subscribe()
    assert (await dispatcher.claim()).next_at is None
    await dispatcher.emit()
    await dispatcher.settle(await dispatcher.due(), "TRANSIENT")
    batch = await dispatcher.claim()
    assert (batch.deliveries, batch.next_at) == ([], START + 30_000)
    await dispatcher.emit()  # what is due now stands before it
    batch = await dispatcher.claim()
    assert (len(batch.deliveries), batch.next_at) == (1, START + 30_000)


async def test_claim_drops_job_of_deleted_delivery(dispatcher: ManualDispatcher) -> None:
    await dispatcher.site.subscribe()
    await dispatcher.emit()
    await dispatcher.site.sql("DELETE FROM doc_webhook_delivery")
    assert (await dispatcher.claim()).deliveries == []
    assert await dispatcher.site.sql("SELECT count(*) FROM fw_job") == [(0,)]


async def test_claim_returns_stored_payload_of_any_length(dispatcher: ManualDispatcher) -> None:
    """The stored bytes are signed and sent (B-106)."""
    await dispatcher.site.subscribe()
    texts = ['short "quoted" \\ \u2028 \U0001f511', "long é" * 20_000, "longer" * 100_000]
    for text in texts:
        await dispatcher.site.do(lambda fw, text=text: fw.webhooks.emit("note.shared", {"a": text}))  # type: ignore[misc]
    stored = dict(await dispatcher.site.sql("SELECT name, payload FROM doc_webhook_delivery"))
    due = (await dispatcher.claim()).deliveries
    assert {one.delivery: one.payload.decode() for one in due} == stored
    assert [one.delivery for one in due] == sorted(stored)  # in the order of their jobs


async def test_leased_rows_are_equal_packed_and_row_by_row(site: VirtualSite) -> None:
    """The packed rows are the fast path of the plain ones."""
    await site.subscribe()
    await site.subscribe(ordering="document")
    for size in (
        1,
        MAX_INLINE_BYTES - 100,
        MAX_INLINE_BYTES,
        MAX_INLINE_BYTES + 1,
        10 * MAX_INLINE_BYTES,
    ):
        await site.do(partial(emit_text, text="é" * size))
    packed = ManualDispatcher(site)
    leased = (await packed.claim()).leased
    assert leased is not None
    names = [due.delivery for due in leased.deliveries()]
    await site.sql("UPDATE doc_webhook_delivery SET payload = NULL WHERE name = :it", it=names[0])
    await site.sql("DELETE FROM doc_webhook_delivery WHERE name = :it", it=names[1])

    def read(tx: Tx, deliveries: Deliveries) -> tuple[list[Head], list[LeasedDelivery], list[int]]:
        found = deliveries.leased(tx, leased.leases, leased.token)
        return deliveries.heads(tx), found.deliveries(), found.orphans

    plain = Deliveries(Backoff(30.0, 3600.0), packed=False)
    store = site.site.store
    one = await store.read(partial(read, deliveries=packed.deliveries))
    assert one == await store.read(partial(read, deliveries=plain))
    assert [len(part) for part in one] == [2, len(names) - 1, 1]


def emit_text(fw: Any, text: str) -> None:
    fw.webhooks.emit("note.shared", {"a": text})


async def test_claim_returns_empty_payload_for_null(dispatcher: ManualDispatcher) -> None:
    """Raw SQL is not checked (A-317); what is claimed beside it stays whole (B-217)."""
    await dispatcher.site.subscribe()
    names = [await dispatcher.emit() for _ in range(3)]
    await dispatcher.site.sql("UPDATE doc_webhook_delivery SET payload = NULL WHERE name = :it",
                           it=names[1])  # fmt: skip
    stored = dict(await dispatcher.site.sql("SELECT name, payload FROM doc_webhook_delivery"))
    due = (await dispatcher.claim()).deliveries
    assert [one.payload.decode() or None for one in due] == [stored[name] for name in names]


def test_leased_batch_refuses_missing_long_payload() -> None:
    frame = b'[1,null,"w",0,0,0,"msg_1",0,8,"Queued",0]\n\n1\n'
    with pytest.raises(StatementError, match="could not be read"):
        Leased([Lease("w", None, START, 1)], "t", frame, [], {}).deliveries()


def test_leased_batch_refuses_payloads_of_wrong_size() -> None:
    """The stored bytes are sent (B-106), and never those of another delivery (B-217)."""
    lease = Lease("w", None, START, 1)

    def frame(key: int, size: int, payload: str) -> bytes:
        return f'[{key},{size},"w",0,0,0,"msg_{key}",0,8,"Queued",0]\n{payload}\n{key}\n'.encode()

    def due(*frames: bytes) -> list[tuple[str, bytes]]:
        made = Leased([lease], "t", b"".join(frames), [], {}).deliveries()
        return [(each.delivery, each.payload) for each in made]

    second = frame(2, 4, "[22]")
    whole = [("msg_1", b"{}"), ("msg_2", b"[22]")]
    assert due(frame(1, 2, "{}"), second) == due(second, frame(1, 2, "{}")) == whole
    swallowed = 2 + len(b"\n1\n") + len(second) - len(b"\n2\n")  # ends where the second frame does
    for size in (0, 1, 3, 5, swallowed, 10_000):
        with pytest.raises(StatementError, match="fit together"):
            due(frame(1, size, "{}"), second)
    with pytest.raises(StatementError, match="fit together"):
        due(second, frame(1, 3, "{}"))
