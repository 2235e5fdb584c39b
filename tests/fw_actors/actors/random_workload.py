"""A random workload of processes that deliver from one store, and a monitor of the waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
import trio

from fw_actors.actors.queue_worker import MAX_SLEEP_SECONDS, Waker
from fw_actors.documents import rest
from fw_actors.documents.handle import Fw
from fw_actors.errors import FwError
from fw_actors.http import Endpoint, ReceiverResponse, parse_endpoint
from fw_actors.http.exchange import MakeHeaders
from fw_actors.ops.site import Site
from fw_actors.rules.receivers import NOT_PAUSED, ReceiverSlots, pause_end, startable
from fw_actors.rules.signing import SignedHeaders
from fw_actors.runtime import ActorError
from fw_actors.store import Tx
from fw_actors.webhooks.claims import ClaimedBatch, DeliveryClaims, new_receiver
from tests.fw_actors.actors.delivery_kit import (
    SECRET,
    DeliverySite,
    ScriptedReceiver,
    delivering,
)
from tests.fw_actors.actors.node_kit import VirtualNode, VirtualNodes
from tests.site_kit import inline_site

SAMPLE_SECONDS = 0.04
DUE = (
    "SELECT DISTINCT partition FROM fw_job j WHERE queue = 'webhook' AND next_at <= :now"
    " AND NOT EXISTS (SELECT 1 FROM fw_job o WHERE o.partition = j.partition"
    " AND o.ordering_key = j.ordering_key AND o.lease IS NOT NULL AND o.next_at > :now)"
)
"""Without deliveries behind one in flight about the same document (B-320)."""
LOCK_DUE = (
    "SELECT id FROM fw_job WHERE queue = 'webhook' AND next_at <= %s AND lease IS NULL"
    " FOR UPDATE SKIP LOCKED"
)


class RandomReceivers(ScriptedReceiver):
    """Answers after random times: with success, with errors to retry, or with final errors."""

    def __init__(self, random: Random) -> None:
        super().__init__(["200"])
        self._random = random
        self._durations = random.choice([[0.0], [0.01], [0.01, 3.0], [0.01, 0.01, 6.0], [0.9, 1.1]])
        self._answers = random.choice([["200"], ["200", "200", "503", "410"]])
        self._in_flight: set[str] = set()
        self.accepted: set[str] = set()
        """Deliveries that were answered 200."""
        self.repeated: list[str] = []
        """Deliveries that were sent again during or after an attempt that was answered 200."""

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        self.busy, answer = self._random.choice(self._durations), self._random.choice(self._answers)
        self.answers = [answer]
        delivery = ""

        def headers() -> SignedHeaders:
            nonlocal delivery
            made = tuple(make_headers())
            delivery = dict(made)[b"webhook-id"].decode()
            if delivery in self._in_flight | self.accepted:
                self.repeated.append(delivery)
            self._in_flight.add(delivery)
            return made

        try:
            answered = await super().post(target, body, headers, timeout=timeout)
        finally:
            self._in_flight.discard(delivery)
        if answer == "200":
            self.accepted.add(delivery)
        return answered


class DeliveringNode:
    """The parts of a process that delivers."""

    def __init__(self, post: DeliverySite) -> None:
        self.post, self.store = post, post.site.store
        self._waker = Waker(post.runtime.ref("dispatcher"), elsewhere=True)

    def woken(self) -> None:
        """See `NodeParts`."""
        self._waker()


DeliveringNodes = VirtualNodes[DeliveringNode]


class WaitMonitor:
    """Measures how long a delivery waits although it is due and some process may start it."""

    def __init__(
        self, operator: Site, nodes: DeliveringNodes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._operator, self._nodes = operator, nodes
        self._since: dict[str, float] = {}
        self._claimed_at: dict[str, float] = defaultdict(lambda: -inf)
        self.locks = 0
        """The number of transactions that lock due deliveries."""
        self.unlocked_at = -inf
        self.longest, self.report = 0.0, ""
        claim = DeliveryClaims.claim

        def record_claims(claims: DeliveryClaims, *args: Any) -> ClaimedBatch:
            batch = claim(claims, *args)
            for lease in batch.leased.leases if batch.leased is not None else ():
                self._claimed_at[lease.webhook] = trio.current_time()
            return batch

        monkeypatch.setattr(DeliveryClaims, "claim", record_claims)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await trio.sleep(SAMPLE_SECONDS)
            dispatchers: list[Any] = []
            async with trio.open_nursery() as nursery:
                for node in self._nodes.up:
                    nursery.start_soon(self._inspect, node, dispatchers)
            due = await self._operator.store.read(_due)
            if not self.locks:
                self._measure(due, dispatchers)

    def _measure(self, due: dict[str, Any], dispatchers: list[Any]) -> None:
        now = trio.current_time()
        free = {
            name for name, row in due.items() if any(self._may_start(row, at) for at in dispatchers)
        }
        self._since = {name: self._since.get(name, now) for name in free}
        for webhook, since in self._since.items():
            begun = max(since, self._claimed_at[webhook], self.unlocked_at)
            if since <= self._nodes.killed_at + SAMPLE_SECONDS:  # a wake-up was lost with it
                begun = max(begun, self._nodes.killed_at + MAX_SLEEP_SECONDS)
            if now - begun > self.longest:
                self.longest = now - begun
                self.report = f"{webhook} waits from {begun:.3f} to {now:.3f}: {dispatchers}"

    async def _inspect(self, node: VirtualNode[DeliveringNode], dispatchers: list[Any]) -> None:
        with suppress(ActorError):
            found = await node.parts.post.runtime.ref("dispatcher").inspect()
            if node.is_up:
                dispatchers.append(found.described)

    def _may_start(self, row: Any, facts: Any) -> bool:
        ops = self._operator.config.ops
        receiver = new_receiver(None, ops.delivery_concurrency, ops.per_receiver_concurrency)
        if row is not None and row["enabled"]:
            origin = str(parse_endpoint(row["url"]).origin)
            receiver = next(
                (_slots(each) for each in facts["receivers"] if each["origin"] == origin),
                ReceiverSlots(limit=ops.per_receiver_concurrency),
            )
        return startable(receiver, facts["free"], facts["slots"]) > 0


def _slots(facts: Any) -> ReceiverSlots:
    """Return the slots of a receiver; a failing one may be slow too."""
    slow = facts["window"] == 1 and facts["health"] in ("slow", "failing")
    return ReceiverSlots(facts["limit"], facts["window"], slow, facts["in_flight"])


def _due(tx: Tx) -> dict[str, Any]:
    """Return the rows of the Webhooks with due deliveries; None for those that were deleted."""
    rows = tx.raw("SELECT name, url, enabled, paused_since, paused_until FROM doc_webhook")
    stored: dict[str, Any] = {row["name"]: row for row in rows}
    paused = {
        name
        for name, row in stored.items()
        if pause_end(row["paused_since"], row["paused_until"], tx.now) != NOT_PAUSED
    }
    due = {row["partition"] for row in tx.raw(DUE, {"now": tx.now})}
    return {name: stored.get(name) for name in due - paused}


def _inserted(body: dict[str, Any], fw: Fw) -> dict[str, Any]:
    return rest.insert(fw, "Webhook", body)


class RandomWorkload:
    """Random operations in processes that deliver from one store, and on the command line."""

    def __init__(
        self, operator: Site, nodes: DeliveringNodes, random: Random, monitor: WaitMonitor
    ) -> None:
        self._operator, self._nodes = operator, nodes
        self._random, self._monitor = random, monitor
        self._webhooks: list[str] = []
        self._deliveries: list[str] = []
        self.replayed: set[str] = set()
        self.kills = 0
        self.history: list[str] = []
        """The operations, with their times (s)."""

    async def create_webhooks(self) -> None:
        """Create from one to six Webhooks."""
        for number in range(self._random.randint(1, 6)):
            body = {
                "url": f"https://h{self._random.randrange(4)}.test/hook", "event_type": "Custom",
                "custom_event": self._random.choice(["to.all", f"to.w{number}"]),
                "secret": SECRET, "max_attempts": self._random.choice([1, 3]),
                "ordering": self._random.choice(["none", "none", "document"]),
            }  # fmt: skip
            made = await self._operator.write("Administrator", partial(_inserted, body))
            self._webhooks.append(made["name"])

    async def run_operation(self, nursery: trio.Nursery) -> None:
        """Run one random operation, in one of the processes or on the command line."""
        operations = [self._emit] * 6 + [self._pause, self._resume, self._edit, self._switch]
        operation = self._random.choice([*operations, self._delete, self._replay, None, None])
        if operation is None and self._nodes.each_commit and self._random.random() < 0.7:
            self._record("lock")
            nursery.start_soon(self._lock)
        elif operation is None:
            await self._change_nodes()
        elif self._nodes.up and self._random.random() < 0.8:
            node = self._random.choice(self._nodes.up)
            self._record(f"{operation.__name__} in {node.number}")
            await self._apply(operation, node.parts.post.site)
        else:
            self._record(f"{operation.__name__} on the command line")
            await self._apply(operation, self._operator)
            self._nodes.notify()

    def _record(self, operation: str) -> None:
        self.history.append(f"{trio.current_time():.3f} {operation}")

    async def _apply(self, operation: Any, site: Site) -> None:
        with suppress(FwError):  # a deleted Webhook, a delivery that is not final, …
            await operation(partial(site.write, "Administrator"), site, self._random_webhook())

    def _random_webhook(self) -> str:
        return self._random.choice(self._webhooks)

    async def _emit(self, write: Any, site: Site, webhook: str) -> None:
        name = self._random.choice(["to.all", f"to.w{self._webhooks.index(webhook)}"])
        events = [
            {"name": name, "data": {}, "reference": {"doctype": "Invoice", "name": f"I-{number}"}}
            for number in self._random.choices(range(3), k=self._random.choice([1, 1, 2, 10]))
        ]
        found = await write(lambda fw: fw.webhooks.emit_many(events))
        self._deliveries += [name for each in found for name in each["deliveries"]]

    async def _pause(self, write: Any, site: Site, webhook: str) -> None:
        seconds = self._random.choice([None, 1, 2])
        await write(lambda fw: site.pauses.pause(fw, webhook, seconds))

    async def _resume(self, write: Any, site: Site, webhook: str) -> None:
        await write(lambda fw: site.pauses.resume(fw, webhook))

    async def _edit(self, write: Any, site: Site, webhook: str) -> None:
        change = {
            "url": f"https://h{self._random.randrange(4)}.test/hook",
            "ordering": self._random.choice(["none", "document"]),
        }
        await write(lambda fw: rest.save(fw, "Webhook", webhook, change))

    async def _switch(self, write: Any, site: Site, webhook: str) -> None:
        change = {"enabled": self._random.choice([0, 1, 1])}
        await write(lambda fw: rest.save(fw, "Webhook", webhook, change))

    async def _delete(self, write: Any, site: Site, webhook: str) -> None:
        if self._random.random() < 0.2:
            await write(lambda fw: rest.delete(fw, "Webhook", webhook))

    async def _replay(self, write: Any, site: Site, webhook: str) -> None:
        if self._deliveries:
            delivery = self._random.choice(self._deliveries)
            self.replayed.add(delivery)
            await write(lambda fw: site.replays.replay(fw, delivery))

    async def _lock(self) -> None:
        """Let another transaction lock due deliveries, and then undo what it has done."""
        with psycopg.connect(self._operator.config.deployment.database) as connection:
            connection.execute(LOCK_DUE, [self._operator.clock.now()])
            self._monitor.locks += 1
            await trio.sleep(self._random.uniform(0.0, 0.2))
            connection.rollback()
        self._monitor.locks -= 1
        self._monitor.unlocked_at = trio.current_time()

    async def _change_nodes(self) -> None:
        up = self._nodes.up
        if len(up) < 2 or (len(up) < 3 and self._random.random() < 0.4):
            node = await self._nodes.start()
            self._record(f"start {node.number}")
            return
        node = self._random.choice(up)
        if self._random.random() < 0.5:
            self._record(f"stop {node.number}")
            self._nodes.stop(node)
        else:
            self._record(f"kill {node.number}")
            self._nodes.kill(node)
            self.kills += 1


@asynccontextmanager
async def open_nodes(
    folder: Path, receivers: ScriptedReceiver, random: Random, slowest: float = 0.0, **changes: Any
) -> AsyncIterator[tuple[Site, DeliveringNodes, trio.Nursery]]:
    """Open a site as its command line does, with processes that deliver; none is started yet."""

    @asynccontextmanager
    async def opened(number: int) -> AsyncIterator[DeliveringNode]:
        async with delivering(folder, receivers, seed=number, **changes) as post:
            receivers.began = 0.0
            yield DeliveringNode(post)

    async with inline_site(folder, 99, **changes) as operator, trio.open_nursery() as nursery:
        yield (
            operator,
            VirtualNodes(
                nursery,
                opened,
                random,
                slowest=slowest,
                notice_seconds=random.choice([0.0, 0.01]),
                each_commit=operator.config.sqlite_file is None,
            ),
            nursery,
        )
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_pair(
    folder: Path, receivers: ScriptedReceiver, *, ordering: str = "none", **changes: Any
) -> AsyncIterator[
    tuple[DeliveringNodes, VirtualNode[DeliveringNode], VirtualNode[DeliveringNode]]
]:
    """Run two processes, which poll at different times, and a Webhook."""
    async with open_nodes(folder, receivers, Random(1), **changes) as (operator, nodes, _):
        body = {
            "url": "https://h.test/hook", "event_type": "Custom", "custom_event": "invoice.paid",
            "secret": SECRET, "ordering": ordering, "timeout": 60,
        }  # fmt: skip
        await operator.write("Administrator", partial(_inserted, body))
        first = await nodes.start()
        await trio.sleep(0.4)
        second = await nodes.start()
        await trio.sleep(0.05)  # else its first poll may claim what the first process commits
        yield nodes, first, second
