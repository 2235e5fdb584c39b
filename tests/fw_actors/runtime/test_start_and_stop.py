"""Stops of actors and pools: before the start, during it, and twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import ActorGone, DeadLetterReason, KeyedPool, MailboxPolicy, Runtime
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    DiaryNote,
    Nap,
    SampleActor,
    SlowLifecycle,
)


async def test_stop_before_start_has_no_effect(runtime: Runtime) -> None:
    cell = runtime.cell("a")
    cell.stop(trio.current_time())
    cell.terminate()
    async with runtime.running("a", SampleActor) as ref:
        assert await ref.ask(AddNumber(1), deadline=1.0) == 1


@pytest.mark.parametrize(
    ("seconds", "end"), [((9.0, 3.0), 3.0), ((3.0, 9.0), 3.0), ((0.0, 9.0), 0.0)]
)
async def test_stop_twice_keeps_the_earlier_deadline(
    runtime: Runtime, seconds: Sequence[float], end: float
) -> None:
    cell = runtime.cell("a")
    async with trio.open_nursery() as nursery:
        await nursery.start(cell.run, SampleActor)
        cell.tell(Nap(1000.0))
        await wait_all_tasks_blocked()
        for deadline in seconds:
            cell.stop(trio.current_time() + deadline)
    assert trio.current_time() == end
    assert not cell.tell(DiaryNote(1))


async def test_stop_during_start_is_ordered(runtime: Runtime) -> None:
    diary: list[Any] = []
    cell = runtime.cell("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cell.run, lambda: SlowLifecycle(diary))
        await wait_all_tasks_blocked()
        cell.tell(DiaryNote(1))
        cell.stop(trio.current_time() + 5.0)
        assert not cell.tell(DiaryNote(2))
    assert diary == ["hello", 1, "bye"]
    assert trio.current_time() == 2.0


async def test_stop_during_start_is_shown_after_it(runtime: Runtime) -> None:
    """R-80: also while the messages in the mailbox are handled."""
    cell = runtime.cell("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cell.run, SlowLifecycle)
        await wait_all_tasks_blocked()
        cell.tell(Nap(2.0))
        cell.stop(trio.current_time() + 9.0)
        await trio.sleep(2)
        assert (cell.snapshot().state, cell.snapshot().running) == ("stopping", 1)


async def test_stop_during_long_start_cancels_it(runtime: Runtime) -> None:
    diary: list[Any] = []
    cell = runtime.cell("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cell.run, lambda: SlowLifecycle(diary))
        await wait_all_tasks_blocked()
        cell.tell(DiaryNote(1))
        cell.stop(trio.current_time() + 0.5)
    assert (diary, trio.current_time()) == ([], 0.5)
    assert runtime.snapshot().dead_letters[DeadLetterReason.STOPPED] == 1


async def test_restart_after_stop_has_an_empty_mailbox(
    runtime: Runtime,
) -> None:
    diary: list[Any] = []
    cell = runtime.cell("a")
    for number in (1, 2):
        async with trio.open_nursery() as nursery:
            await nursery.start(cell.run, lambda: SampleActor(diary))
            cell.tell(DiaryNote(number))
            cell.stop(trio.current_time() + 1)
        assert not cell.tell(DiaryNote(99))
    assert diary == [1, 2]


async def test_pool_closed_twice_waits_for_one_end(runtime: Runtime) -> None:
    diary: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: SlowLifecycle(diary))
    pool["a"].tell(DiaryNote(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.close)
        nursery.start_soon(pool.close)
    assert diary == ["hello", 1, "bye"]
    assert (len(pool), trio.current_time()) == (0, 2.0)


async def test_pool_closed_before_first_message_refuses_it(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    await pool.close()
    with pytest.raises(ActorGone):
        await pool["a"].ask(AddNumber(1), deadline=1.0)


async def test_batch_has_at_most_128_messages(runtime: Runtime) -> None:
    """At most 128 messages, then a checkpoint, so that other tasks can run (R-14)."""

    class RoomyBatch(SampleActor):
        mailbox = MailboxPolicy(capacity=1000)

    diary: list[Any] = []
    depths: set[int] = set()
    async with runtime.running("a", lambda: RoomyBatch(diary)) as ref:
        for number in range(512):
            ref.tell(DiaryNote(number))
        while len(diary) < 512:
            depths.add(len(diary))
            await trio.lowlevel.checkpoint()
    assert depths <= {0, 128, 256, 384}
    assert len(depths) >= 2
