"""Free slots are used: deliveries that are due do not wait for the next regular poll (B-237).

A poll at least once a second finds everything that a wake-up has missed (B-197), so that a defect
of a wake-up shows only as a pause. Here the store and the receivers take random times, and no pause
may be longer than these times explain.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fw_actors.documents import rest
from fw_actors.errors import OverloadedError
from fw_actors.http import Endpoint, ReceiverResponse, parse_endpoint
from fw_actors.http.exchange import MakeHeaders
from fw_actors.rules.receivers import ReceiverSlots, startable
from fw_actors.store import Tx, jobs
from fw_actors.webhooks import claims
from fw_actors.webhooks.claims import DeliveryClaims
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.events import QUEUE
from tests.fw_actors.actors.delivery_kit import DeliverySite, ScriptedReceiver, delivering
from tests.fw_actors.actors.store_delays import delay_writes, delay_writes_randomly
from tests.mail_kit import RecordingLog

MAX_ANSWER_SECONDS = 0.2
MAX_WRITE_SECONDS = 0.05
EXPLAINED_SECONDS = MAX_ANSWER_SECONDS + 4 * MAX_WRITE_SECONDS + 0.05
"""An answer, its outcome, a poll without slots, the next poll, each behind another write."""


class RandomDelayReceiver(ScriptedReceiver):
    """Answers each POST after a random time."""

    def __init__(self, random: Random) -> None:
        super().__init__(["200"])
        self._random = random
        self._slowest = random.choice([0.0, 0.01, MAX_ANSWER_SECONDS])

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        self.busy = self._random.uniform(0.0, self._slowest)
        self.answers = [self._random.choice(["200", "200", "200", "410"])]
        return await super().post(target, body, make_headers, timeout=timeout)


def about(document: int) -> dict[str, Any]:
    """Return an event about one of some documents."""
    reference = {"doctype": "Invoice", "name": f"INV-{document}"}
    return {"name": "invoice.paid", "data": {}, "reference": reference}


@pytest.mark.parametrize("seed", range(20))
async def test_due_deliveries_do_not_pause_while_slots_are_free(
    seed: int, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    receiver = RandomDelayReceiver(random)
    slots = random.choice([1, 2, 4, 16, 64])
    slowest_write = random.choice([0.0, 0.005, MAX_WRITE_SECONDS])
    async with delivering(
        tmp_path,
        receiver,
        delivery_concurrency=slots,
        per_receiver_concurrency=random.randint(1, slots),
    ) as post:
        for number in range(random.randint(1, 8)):
            ordering = random.choice(["none", "document"])
            await post.webhook(f"https://h{number}.test/hook", ordering=ordering)
        documents = random.randint(1, 10)
        events = [about(random.randrange(documents)) for _ in range(random.randint(20, 60))]

        def emit_many(tx: Tx) -> list[str]:
            emitted = post.site.handle(tx, "Administrator").webhooks.emit_many(events)
            return list(chain.from_iterable(each["deliveries"] for each in emitted))

        write = delay_writes_randomly(monkeypatch, post.site.store, random, slowest_write)
        deliveries = await write(emit_many)
        with trio.fail_after(600):
            for delivery in deliveries:
                await post.settled(delivery)
    times = [got.at for got in receiver.posts]
    assert max(after - before for before, after in pairwise(times)) < EXPLAINED_SECONDS


class ReceiverWithPauses(ScriptedReceiver):
    """Answers some POSTs late."""

    def __init__(self, random: Random) -> None:
        super().__init__(["200"])
        self._random = random
        self._times = random.choice([[0.01], [0.01, 3.0], [0.01, 0.01, 0.01, 6.0], [0.9, 1.1]])

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        self.busy = self._random.choice(self._times)
        return await super().post(target, body, make_headers, timeout=timeout)


async def may_start(post: DeliverySite, webhooks: Mapping[str, str]) -> bool:
    """Return whether a delivery is due and has a slot; `webhooks` are the receivers by name."""
    due = await post.site.store.read(
        lambda tx: {head.partition for head in jobs.heads(tx, QUEUE) if head.next_at <= tx.now}
    )
    facts: Any = (await post.runtime.ref("dispatcher").inspect()).described
    known = {
        each["origin"]: ReceiverSlots(
            each["limit"], each["window"], each["health"] == "slow", each["in_flight"]
        )
        for each in facts["receivers"]
    }
    new = ReceiverSlots(limit=1)
    return any(
        startable(known.get(webhooks[name], new), facts["free"], facts["slots"])
        for name in due & webhooks.keys()
    )


@pytest.mark.parametrize("seed", range(16))
async def test_delivery_that_may_start_waits_for_no_regular_poll(
    seed: int, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside deliveries whose payloads are too long to be in flight together (B-237)."""
    random = Random(seed)
    monkeypatch.setattr(claims, "MAX_BYTES_IN_FLIGHT", 3 * claims.MAX_INLINE_BYTES)
    claim, claimed_at, longest = DeliveryClaims.claim, 0.0, 0.0

    def noted(self: DeliveryClaims, *args: Any) -> Any:
        nonlocal claimed_at
        claimed_at = trio.current_time()
        return claim(self, *args)

    monkeypatch.setattr(DeliveryClaims, "claim", noted)
    slots = random.choice([2, 4, 8, 16])
    slowest_write = random.choice([0.0, 0.005, MAX_WRITE_SECONDS])
    async with delivering(
        tmp_path,
        ReceiverWithPauses(random),
        delivery_concurrency=slots,
        per_receiver_concurrency=random.randint(1, slots),
    ) as post:
        webhooks = {}
        for number in range(random.randint(2, 6)):
            await post.webhook(f"https://long{number}.test/hook", "invoice.drawn")
            url = f"https://short{number}.test/hook"
            name = await post.webhook(url, "invoice.paid")
            webhooks[name] = str(parse_endpoint(url).origin)
        drawn = {"name": "invoice.drawn", "data": {"text": "x" * claims.MAX_INLINE_BYTES}}
        events = random.choices([drawn, {"name": "invoice.paid", "data": {}}], k=10)
        write = delay_writes_randomly(monkeypatch, post.site.store, random, slowest_write)
        await write(lambda tx: post.site.handle(tx, "Administrator").webhooks.emit_many(events))
        since = trio.current_time()
        for _ in range(300):
            await trio.sleep(0.02)
            if not await may_start(post, webhooks):
                since = trio.current_time()
            longest = max(longest, trio.current_time() - max(since, claimed_at))
    assert longest < 0.1 + 3 * slowest_write


async def test_slots_that_come_free_during_a_claim_are_used(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of four slots wait for outcomes, which are recorded while a claim takes the others."""
    receiver = ScriptedReceiver(["200"], busy=0.5)
    async with delivering(
        tmp_path, receiver, delivery_concurrency=4, per_receiver_concurrency=1
    ) as post:
        for number in range(2):
            await post.webhook(f"https://fast{number}.test/hook", "invoice.paid")
        for number in range(4):
            await post.webhook(f"https://slow{number}.test/hook", "invoice.sent")
        await post.emit("invoice.paid")
        await trio.sleep(0.45)
        write = delay_writes(monkeypatch, post.site.store, after=lambda answer: 0.1)
        receiver.busy = 5.0
        await trio.sleep(0.1)
        assert len(post.pool) == 2  # their outcomes are being written
        await write(
            lambda tx: post.site.handle(tx, "Administrator").webhooks.emit("invoice.sent", {})
        )
        await trio.sleep(3.0)
    slow = [got.at for got in receiver.posts if "slow" in got.url]
    assert len(slow) == 4
    assert max(slow) - min(slow) < 0.5


async def test_payloads_that_are_too_long_for_now_keep_no_slots(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes in flight are at their limit, and the turn is that of long payloads (B-218)."""
    long = {"text": "x" * 2 * claims.MAX_INLINE_BYTES}
    monkeypatch.setattr(claims, "MAX_BYTES_IN_FLIGHT", claims.MAX_INLINE_BYTES)
    receiver = ScriptedReceiver(["200"])
    async with delivering(
        tmp_path, receiver, delivery_concurrency=8, per_receiver_concurrency=8
    ) as post:
        await post.webhook("https://hanging.test/hook", "invoice.drawn")
        await post.webhook("https://many.test/hook", "invoice.paid")
        await post.webhook("https://short.test/hook", "invoice.sent")
        for event in ["invoice.paid"] * 3 + ["invoice.sent"]:  # the window grows to all slots
            await post.emit(event)
            await trio.sleep(0.1)
        receiver.busy = 9.0
        await post.emit("invoice.drawn", long)
        await trio.sleep(0.1)
        receiver.busy = 0.0
        began = trio.current_time()
        paid = [{"name": "invoice.paid", "data": long}] * 8

        def emit_many(tx: Tx) -> None:
            sent = {"name": "invoice.sent", "data": {}}
            post.site.handle(tx, "Administrator").webhooks.emit_many([*paid, sent])

        await post.site.store.write(emit_many)
        await trio.sleep(12.0)
    times = {got.url: got.at + receiver.began - began for got in receiver.posts}
    assert times["https://short.test/hook"] < 0.1
    assert 8.5 < times["https://many.test/hook"] < 9.5  # when the long one has ended


@pytest.mark.parametrize(
    ("change", "status"),
    [({"url": "https://other.test/hook"}, "Sent"), ({"enabled": 0}, "Failed"), (None, "Failed")],
)
async def test_deliveries_of_changed_webhook_do_not_pause(
    change: dict[str, Any] | None, status: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """They wait for a receiver that hangs; those of a disabled or deleted Webhook end (B-238)."""
    receiver = ScriptedReceiver(["hang", "200"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook("https://hanging.test/hook", timeout=60)
        await post.emit()
        [waiting] = await post.emit()
        await trio.sleep(0.35)
        if change is None:
            await post.site.write("Administrator", lambda fw: rest.delete(fw, "Webhook", webhook))
        else:
            await post.change(webhook, **change)
        await trio.sleep(0.05)
        assert (await post.read(waiting))["status"] == status


async def test_dispatcher_starts_while_store_is_overloaded(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first statements are only planned then, when a claim needs them."""

    def overloaded(*_: object) -> None:
        raise OverloadedError

    monkeypatch.setattr(Deliveries, "warm_up", overloaded)
    receiver, log = ScriptedReceiver(["200"]), RecordingLog()
    async with delivering(tmp_path, receiver, log=log) as post:
        await post.webhook()
        [delivery] = await post.emit()
        assert (await post.settled(delivery))["status"] == "Sent"
    assert log.of("actor_failed") == []
