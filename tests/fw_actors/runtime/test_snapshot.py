"""Snapshots, inspections and the log."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    ActorFailed,
    ActorGone,
    AskTimeout,
    KeyedPool,
    MailboxFull,
    Runtime,
)
from fw_actors.runtime.keyed_pool import CounterTotals
from fw_actors.runtime.testing import LogBook
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Begin,
    Break,
    DiaryNote,
    Later,
    Nap,
    SampleActor,
)


async def test_inspection_overtakes_the_mailbox(
    runtime: Runtime,
) -> None:
    async with runtime.running("a", SampleActor) as ref:
        ref.tell(Begin(2.0))
        ref.tell(Later(2.0, 1))
        await ref.ask(AddNumber(4))
        ref.suspend()
        ref.tell(DiaryNote(1))
        seen = await ref.inspect()
        ref.resume()
    assert (seen.described, seen.works, seen.timers, seen.pending) == ({"sum": 4}, 1, 1, 2)
    assert seen.watches == 0
    assert (seen.actor.depth, seen.actor.handled, seen.actor.state) == (1, 3, "suspended")
    assert seen.actor.recent == ("Begin", "Later", "AddNumber")


async def test_inspection_queue_is_bounded(runtime: Runtime, nursery: trio.Nursery) -> None:
    async with runtime.running("a", SampleActor) as ref:
        ref.tell(Nap(5.0))
        await wait_all_tasks_blocked()
        for _ in range(16):
            nursery.start_soon(ref.inspect, 60.0)
        await wait_all_tasks_blocked()
        with pytest.raises(MailboxFull, match="the limit is 16 inspections"):
            await ref.inspect(60.0)
        await trio.sleep(6)
        assert (await ref.inspect()).actor.handled == 1


async def test_inspection_survives_a_failing_describe(runtime: Runtime) -> None:
    class Shy(SampleActor):
        def describe(self) -> dict[str, object]:
            raise RuntimeError("no")

    async with runtime.running("a", Shy) as ref:
        with pytest.raises(ActorFailed, match="RuntimeError: no"):
            await ref.inspect()
        assert await ref.ask(AddNumber(1)) == 1


async def test_snapshot_counts_messages_failures_and_time(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), capacity=7)
    async with runtime.running("a", SampleActor) as ref:
        await ref.ask(Nap(2.5))
        pool["x"].tell(Break())
        pool["y"].tell(Nap(9.0))
        await wait_all_tasks_blocked()
        pool["y"].tell(DiaryNote(1))
        nodes = {node.name: node for node in runtime.snapshot().walk()}
    assert (nodes["a"].kind, nodes["a"].handled, nodes["a"].handler_seconds) == ("actor", 1, 2.5)
    seen = nodes["p"]
    assert (seen.kind, seen.capacity, seen.alive, seen.running) == ("pool", 7, 1, 1)
    assert (seen.depth, seen.failed, seen.last_error) == (1, 1, "ValueError: broken")


async def test_pool_snapshot_walks_active_actors_and_sums_all(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), capacity=300, idle_seconds=50.0)
    for number in range(200):
        pool[str(number)].tell(DiaryNote(1))
    for number in range(0, 200, 10):
        pool[str(number)].tell(Break())
        pool[str(number)].tell(DiaryNote(2))
    await trio.sleep(49)
    for number in range(1, 200, 40):
        pool[str(number)].tell(Nap(5.0))
        pool[str(number)].tell(DiaryNote(3))
    await trio.sleep(2)  # the others have gone
    walked: list[object] = []
    add = CounterTotals.add

    def noted(totals: CounterTotals, other: Any) -> None:
        walked.append(other)
        add(totals, other)

    monkeypatch.setattr(CounterTotals, "add", noted)
    seen = pool.snapshot()
    assert len(walked) == 1 + 5  # all that rest or have gone as one, and those that nap
    assert (seen.alive, seen.running, seen.depth) == (5, 5, 5)
    assert (seen.handled, seen.failed, seen.restarts) == (220, 20, 20)
    await trio.sleep(4)
    assert (pool.snapshot().handled, pool.snapshot().depth) == (230, 0)
    assert pool.snapshot().handler_seconds == pytest.approx(25.0)


async def test_failure_log_names_message_types_only(runtime: Runtime, log: LogBook) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    for n in range(20):
        pool["a"].tell(DiaryNote(n))
    pool["a"].tell(Break())
    await wait_all_tasks_blocked()
    (entry,) = log.named("actor_failed")
    assert isinstance(entry.pop("exc_info"), ValueError)
    assert entry == {
        "actor": "p/a",
        "phase": "handler",
        "error": "ValueError: broken",
        "recent_messages": ("DiaryNote",) * 15 + ("Break",),
    }


async def test_dead_letter_log_is_sparse(runtime: Runtime, log: LogBook) -> None:
    for _ in range(100):
        runtime.ref("nobody").tell(DiaryNote(1))
    assert [entry["count"] for entry in log.named("dead_letter")] == [1, 2, 4, 8, 16, 32, 64]
    assert len(runtime.snapshot().last_dead_letters) == 64


async def test_snapshot_of_a_new_runtime_is_empty(runtime: Runtime) -> None:
    await trio.testing.wait_all_tasks_blocked()
    seen = runtime.snapshot()
    assert (seen.tree, seen.deadlines, seen.workers, seen.late_replies) == ((), 0, 0, 0)


async def test_inspection_without_an_actor_raises_at_once(runtime: Runtime) -> None:
    ref = runtime.ref("a")
    with pytest.raises(ActorGone):
        await ref.inspect()
    async with runtime.running("a", SampleActor):
        assert (await ref.inspect()).actor.state == "running"
    with pytest.raises(ActorGone):
        await ref.inspect()
    assert trio.current_time() == 0.0


async def test_inspection_that_timed_out_takes_no_room(runtime: Runtime) -> None:
    async with runtime.running("a", SampleActor) as ref:
        ref.tell(Nap(30.0))
        await wait_all_tasks_blocked()
        for _ in range(20):
            with pytest.raises(AskTimeout):
                await ref.inspect(1.0)
        assert (await ref.inspect(60.0)).actor.handled == 1
