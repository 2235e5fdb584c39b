"""The Webhooks of one receiver share its slots (B-237)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from fw_actors.http import Endpoint, ReceiverResponse
from fw_actors.http.exchange import MakeHeaders
from fw_actors.store import Tx
from tests.fw_actors.actors.delivery_kit import DeliverySite, ScriptedReceiver, delivering

pytestmark = pytest.mark.usefixtures("on_both_stores")


class PathReceiver(ScriptedReceiver):
    """A receiver with several paths: `/slow` answers after 0.9 s, the others after 0.1 s."""

    def __init__(self) -> None:
        super().__init__(["200"])
        self.posts_to = Counter[str]()
        self.slow_in_flight = 0

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        path = target.display.rpartition("/")[2]
        self.posts_to[path] += 1
        is_slow = path == "slow"
        self.slow_in_flight += is_slow
        try:
            await trio.sleep(0.9 if is_slow else 0.1)
            return await super().post(target, body, make_headers, timeout=timeout)
        finally:
            self.slow_in_flight -= is_slow


async def emit_many(post: DeliverySite, event: str, count: int) -> None:
    def work(tx: Tx) -> None:
        webhooks = post.site.handle(tx, "Administrator").webhooks
        webhooks.emit_many([{"name": event, "data": {}}] * count)

    await post.site.store.write(work)


async def test_slow_webhook_uses_half_of_the_slots_of_its_receiver(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A slot that the other Webhook frees is not for the slow one, which keeps its own."""
    receiver = PathReceiver()
    async with delivering(tmp_path, receiver, per_receiver_concurrency=8) as post:
        await post.webhook("https://one.example/slow", event="both.made")
        await post.webhook("https://one.example/fast", event="both.made")
        await emit_many(post, "both.made", 800)
        await trio.sleep(2)
        receiver.posts_to.clear()
        for _ in range(90):
            await trio.sleep(0.1)
            assert receiver.slow_in_flight <= 4
    slow, fast = receiver.posts_to["slow"], receiver.posts_to["fast"]
    assert slow >= 30
    assert fast > 6 * slow


async def test_slots_that_a_webhook_does_not_need_are_used_by_others(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    receiver = PathReceiver()
    async with delivering(tmp_path, receiver, per_receiver_concurrency=8) as post:
        await post.webhook("https://one.example/slow", event="slow.made")
        await post.webhook("https://one.example/fast", event="fast.made")
        await emit_many(post, "slow.made", 60)
        await trio.sleep(4)
        (fast,) = await post.emit("fast.made")
        await trio.sleep(0.5)
        assert receiver.slow_in_flight == 8
        await post.settled(fast)
        assert receiver.slow_in_flight >= 7
        assert len(await post.jobs()) > 16


async def test_webhooks_of_same_receiver_get_equally_many_deliveries(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    receiver = PathReceiver()
    async with delivering(tmp_path, receiver, per_receiver_concurrency=8) as post:
        for name in "abc":
            await post.webhook(f"https://one.example/{name}", event="all.made")
        await emit_many(post, "all.made", 300)
        await trio.sleep(6)
        counts = receiver.posts_to.values()
        assert max(counts) - min(counts) <= 8
        assert min(counts) > 100
