"""Free slots of several processes are used: work that is due waits for no regular poll (B-238).

A poll at least once a second finds everything that a wake-up has missed (B-197), so that a defect
of a wake-up shows only as a pause. Here store, notices and receivers take random times, processes
are started, stopped and killed, and no pause may be longer than these times explain.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Final

import psycopg
import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.queue_worker import REST_SECONDS
from fw_actors.ops.site import Site
from fw_actors.runtime.testing import task_order
from fw_actors.store import Tx
from tests.fw_actors.actors.delivery_kit import ScriptedReceiver, delivering
from tests.fw_actors.actors.random_workload import (
    LOCK_DUE,
    RandomReceivers,
    RandomWorkload,
    WaitMonitor,
    open_nodes,
    open_pair,
)
from tests.fw_actors.actors.store_delays import delay_writes
from tests.site_kit import keep_database_at

SEEDS: Final = range(int(os.environ.get("NODE_SEEDS", "6")))
OPERATIONS = 40
EXPLAINED_SECONDS = 2 * REST_SECONDS + 0.1
"""A notice after others, its poll, and the time between two samples; further four writes."""


@pytest.mark.usefixtures("on_both_stores")
@pytest.mark.parametrize("seed", SEEDS)
def test_processes_claim_due_deliveries_without_pause(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever process records, replays, pauses or edits them, and whichever ends meanwhile; none
    sends what another one has sent (B-214), except after a kill (B-199)."""
    with task_order(seed):
        trio.run(
            deliver_randomly, seed, tmp_path, monkeypatch, clock=MockClock(autojump_threshold=0)
        )


async def deliver_randomly(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    slots, slowest = random.choice([1, 2, 4, 8, 16]), random.choice([0.0, 0.005, 0.05])
    receivers = RandomReceivers(random)
    async with open_nodes(
        folder,
        receivers,
        random,
        slowest,
        delivery_concurrency=slots,
        per_receiver_concurrency=random.randint(1, slots),
        backoff_seconds=1.2,
        backoff_cap_seconds=3.0,
    ) as (operator, nodes, nursery):
        monitor = WaitMonitor(operator, nodes, monkeypatch)
        workload = RandomWorkload(operator, nodes, random, monitor)
        await workload.create_webhooks()
        for _ in range(random.choice([2, 2, 3])):
            await nodes.start()
        nursery.start_soon(monitor.run)
        for _ in range(OPERATIONS):
            await workload.run_operation(nursery)
            await trio.sleep(random.choice([0.0, 0.01, 0.1, 0.5]))
        for node in list(nodes.up):
            nodes.kill(node)
    history = "\n".join([*workload.history, monitor.report])
    assert monitor.longest < EXPLAINED_SECONDS + 4 * slowest, history
    assert workload.kills or set(receivers.repeated) <= workload.replayed, history


async def emit_about_one(site: Site) -> None:
    """Emit an event about the same document each time."""
    about = {"doctype": "Invoice", "name": "INV-1"}
    await site.write("Administrator", lambda fw: fw.webhooks.emit("invoice.paid", {}, about))


@pytest.mark.usefixtures("on_both_stores")
async def test_process_without_free_slot_wakes_another_one(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A commit wakes the process that has made it, whose only slot is taken (B-238)."""
    receiver = ScriptedReceiver(["200"], busy=5.0)
    async with open_pair(tmp_path, receiver, delivery_concurrency=1) as (_, first, _second):
        began = trio.current_time()
        for _ in range(2):
            await first.parts.post.emit()
            await trio.sleep(0.1)
    assert [got.at - began for got in receiver.posts] == pytest.approx([0.0, 0.1], abs=0.06)


async def test_processes_without_free_slots_do_not_wake_each_other(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A notice is sent for new work and at the regular polls, and not because of a notice
    (B-238)."""
    receiver = ScriptedReceiver(["200"], busy=9.0)
    async with open_pair(tmp_path, receiver, delivery_concurrency=1) as (nodes, first, _):
        for _ in range(10):
            await first.parts.post.emit()
        await trio.sleep(5.0)
        assert len(receiver.posts) == 2
        assert nodes.notices <= 2 + 2 * 5


async def test_process_sends_no_notice_because_a_slot_comes_free(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Two processes send the same backlog, each with one slot; both know of it (B-238)."""
    receiver = ScriptedReceiver(["200"], busy=0.05)
    async with open_pair(tmp_path, receiver, delivery_concurrency=1) as (nodes, first, _):
        for _ in range(200):
            await first.parts.post.emit()
        sent, notices = len(receiver.posts), nodes.notices
        await trio.sleep(5.0)
        assert len(receiver.posts) - sent > 150  # one process alone could send 100
        assert nodes.notices - notices <= 2 * 5


@pytest.mark.usefixtures("on_both_stores")
async def test_stopped_process_leaves_cancelled_attempt_to_another_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Its lease is given back after ten seconds (O-31, B-238)."""
    receiver = ScriptedReceiver(["hang", "200"])
    async with open_pair(tmp_path, receiver) as (nodes, first, _):
        await first.parts.post.emit()
        await trio.sleep(0.05)
        began = trio.current_time()
        nodes.stop(first)
        await trio.sleep(12.0)
    assert [got.at - began for got in receiver.posts[1:]] == pytest.approx([10.0], abs=0.06)


@pytest.mark.usefixtures("on_both_stores")
async def test_stopping_process_leaves_new_event_to_another_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A request in flight commits it while the process drains (B-238)."""
    receiver = ScriptedReceiver(["hang", "200"])
    async with open_pair(tmp_path, receiver) as (nodes, first, _):
        await first.parts.post.emit()
        await trio.sleep(0.05)
        nodes.stop(first)
        await trio.sleep(0.1)
        began = trio.current_time()
        await first.parts.post.emit()
        await trio.sleep(2.0)
    assert [got.at - began for got in receiver.posts[1:]] == pytest.approx([0.0], abs=0.06)


@pytest.mark.usefixtures("on_both_stores")
async def test_stopping_process_leaves_next_delivery_of_document_to_another_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The outcome that it records makes that delivery due (B-320)."""
    receiver = ScriptedReceiver(["200"], busy=3.2)
    async with open_pair(tmp_path, receiver, ordering="document") as (nodes, first, _):
        began = trio.current_time()
        for _ in range(2):
            await emit_about_one(first.parts.post.site)
        nodes.stop(first)
        await trio.sleep(5.0)
    assert [got.at - began for got in receiver.posts] == pytest.approx([0.0, 3.2], abs=0.08)


async def test_delivery_that_another_transaction_has_locked_is_claimed_soon(
    tmp_path: Path, autojump_clock: MockClock, kept_schema: str
) -> None:
    """A claim skips it, and the other transaction ends without a lease (B-238)."""
    keep_database_at(tmp_path, kept_schema)
    receiver = ScriptedReceiver(["200"])
    async with open_pair(tmp_path, receiver) as (_, first, _second):
        site = first.parts.post.site
        with psycopg.connect(kept_schema) as other:

            def lock() -> None:
                other.execute(LOCK_DUE, [site.clock.now()])

            def emit_locked(tx: Tx) -> None:
                tx.after_commit(lock)
                site.handle(tx, "Administrator").webhooks.emit("invoice.paid", {})

            await site.store.write(emit_locked)
            await trio.sleep(0.25)
            assert receiver.posts == []
            other.rollback()
        began = trio.current_time()
        await trio.sleep(2.0)
    assert [got.at - began for got in receiver.posts] == pytest.approx([0.0], abs=0.05)


async def test_claims_that_skip_locked_deliveries_leave_half_of_the_time(
    tmp_path: Path, autojump_clock: MockClock, kept_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename of a Webhook may lock a million, which each claim tries one by one (B-238)."""
    keep_database_at(tmp_path, kept_schema)
    async with delivering(tmp_path, ScriptedReceiver(["200"])) as post:
        await post.webhook()
        with psycopg.connect(kept_schema) as other:

            def lock() -> None:
                other.execute(LOCK_DUE, [post.site.clock.now()])

            def emit_locked(tx: Tx) -> None:
                tx.after_commit(lock)
                post.site.handle(tx, "Administrator").webhooks.emit("invoice.paid", {})

            await post.site.store.write(emit_locked)
            claims: list[float] = []

            def delay(answer: object) -> float:
                claims.append(trio.current_time())
                return 0.3

            delay_writes(monkeypatch, post.site.store, after=delay)
            await trio.sleep(6.0)
            other.rollback()
    assert 8 <= len(claims) <= 11
