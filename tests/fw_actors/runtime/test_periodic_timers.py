"""Periodic and named timers of actors."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import Actor, KeyedPool, MailboxFull, MailboxPolicy, Runtime, Timer, handles
from tests.fw_actors.runtime.sample_actors import AddNumber, DiaryNote, Nap


class Ticking(Actor):
    """Writes the times of its ticks."""

    mailbox = MailboxPolicy(max_timers=2)

    def __init__(self) -> None:
        self.ticks: list[tuple[int, float]] = []

    async def started(self) -> None:
        self.began = self.context.time()

    @handles(DiaryNote)
    def note(self, message: DiaryNote) -> None:
        self.ticks.append((message.number, self.context.time() - self.began))

    @handles(Nap)
    async def nap(self, message: Nap) -> int:
        await trio.sleep(message.seconds)
        return 1

    @handles(AddNumber)
    def add(self, message: AddNumber) -> int:
        self.context.every(1.0, DiaryNote(message.number))
        return 1


async def test_periodic_timer_ticks_without_drift_until_it_is_cancelled(runtime: Runtime) -> None:
    """R-39."""
    actor = Ticking()
    async with runtime.running("a", lambda: actor):
        timer: Timer = actor.context.every(0.1, DiaryNote(1), first=0.0)
        await trio.sleep(100.05)
        timer.cancel()
        await trio.sleep(10)
        assert len(actor.ticks) == 1001
        assert actor.ticks[-1][1] == pytest.approx(100.0, abs=1e-6)
        assert not timer.pending
    assert len(runtime.deadlines) == 0


async def test_periodic_timer_skips_what_comes_while_the_actor_is_busy(runtime: Runtime) -> None:
    """R-39: and keeps its times."""
    actor = Ticking()
    async with runtime.running("a", lambda: actor) as ref:
        actor.context.every(1.0, DiaryNote(1))
        await trio.sleep(2.5)
        await ref.ask(Nap(5.0), deadline=10.0)
        await trio.sleep(2)
    assert [seconds for _, seconds in actor.ticks] == [1.0, 2.0, 7.5, 8.0, 9.0]


async def test_periodic_timer_must_have_a_positive_time(runtime: Runtime) -> None:
    actor = Ticking()
    async with runtime.running("a", lambda: actor):
        with pytest.raises(ValueError, match="positive"):
            actor.context.every(0.0, DiaryNote(1))


async def test_periodic_timer_counts_as_a_timer_and_ends_with_its_instance(
    runtime: Runtime,
) -> None:
    """R-35."""
    pool = KeyedPool(runtime, "p", lambda key: Ticking(), idle_seconds=1.0)
    for _ in range(2):
        await pool["k"].ask(AddNumber(1), deadline=1.0)
    with pytest.raises(MailboxFull):
        await pool["k"].ask(AddNumber(1), deadline=1.0)
    await trio.sleep(60)
    assert len(pool) == 1
    await pool.close()
    assert len(pool) == 0
    assert len(runtime.deadlines) == 0


async def test_named_timer_replaces_the_one_of_its_name(runtime: Runtime) -> None:
    """R-39."""
    actor = Ticking()
    async with runtime.running("a", lambda: actor):
        actor.context.after(1.0, DiaryNote(1), name="retry")
        actor.context.after(2.0, DiaryNote(2), name="retry")
        actor.context.after(3.0, DiaryNote(3), name="other")
        await trio.sleep(10)
        actor.context.every(1.0, DiaryNote(4), name="retry")
        await trio.sleep(1.5)
        actor.context.after(1.0, DiaryNote(5), name="retry")
        await trio.sleep(5)
        await wait_all_tasks_blocked()
    assert [number for number, _ in actor.ticks] == [2, 3, 4, 5]


async def test_names_of_timers_are_bounded(runtime: Runtime) -> None:
    actor = Ticking()
    async with runtime.running("a", lambda: actor):
        kept = actor.context.after(5000.0, DiaryNote(0), name="kept")
        for number in range(1000):
            actor.context.after(1.0, DiaryNote(number), name=str(number))
            await trio.sleep(2)
        actor.context.after(1.0, DiaryNote(0), name="kept")
        assert not kept.pending
        assert len(actor.ticks) == 1000
