"""After ten thousand of everything, in all the ways that things end, every table is empty."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    Actor,
    ActorFailed,
    ActorGone,
    AskTimeout,
    KeyedPool,
    MailboxFull,
    Runtime,
    SeededEntropy,
)
from tests.fw_actors.runtime.sample_actors import (
    Add,
    Begin,
    Break,
    Keep,
    Later,
    Nap,
    Note,
    Sample,
)

ROUNDS = 10_000
CALLERS = 50


async def test_many_asks_timeouts_spawns_failures_and_cancels_leave_every_table_empty(
    runtime: Runtime,
) -> None:
    pool = KeyedPool(runtime, "p", lambda key: Sample(), capacity=300, idle_seconds=5.0)
    entropy = SeededEntropy(3)
    done = 0

    async def call(number: int) -> None:
        ref = pool[str(int(entropy.uniform(0, 400)))]
        requests = (Add(1), Nap(0.02), Keep(), Break(), Nap(0.5))
        try:
            with trio.move_on_after(entropy.uniform(0.0, 0.1)):
                await ref.ask(requests[number % 5], deadline=entropy.uniform(0.01, 0.08))
        except (ActorFailed, ActorGone, AskTimeout, MailboxFull):
            pass
        notes = (Note(1), Begin(0.01), Later(0.01, 1), Break())
        ref.tell(notes[number % 4])

    async def caller(first: int) -> None:
        nonlocal done
        for number in range(first, ROUNDS, CALLERS):
            await call(number)
            done += 1

    async with trio.open_nursery() as nursery:
        for first in range(CALLERS):
            nursery.start_soon(caller, first)
    assert done == ROUNDS
    # Kept replies that nobody answers hold their actors; a failure ends them.
    await trio.sleep(1)
    for key in list(pool._cells):
        pool[key].tell(Break())
    await trio.sleep(60)

    assert (len(pool), len(pool._idle), pool._awake, pool._idle._alarm) == (0, 0, 0, None)
    assert len(runtime.deadlines) == 0
    assert runtime.deadlines._lengths == {}
    assert not runtime.workers._ready
    assert runtime.workers._on_their_way == 0
    assert runtime.workers.alive == runtime.workers.parked
    assert len(runtime._cells) == 0


async def test_many_single_actors_and_watches_leave_every_table_empty(runtime: Runtime) -> None:
    async with runtime.running("watcher", Sample) as watcher:
        cell = watcher.cell
        assert cell.actor is not None
        for n in range(500):
            await watched(runtime, cell.actor, n)
            await wait_all_tasks_blocked()
        assert (cell.timers, cell.holds) == (0, None)
        assert len(runtime._cells) == 1


async def watched(runtime: Runtime, watcher: Actor, n: int) -> None:
    async with runtime.running(f"a{n}", Sample) as ref:
        watch = watcher.context.watch(ref, then=lambda down: Note(1))
        if n % 2:
            watch.cancel()
        assert await ref.ask(Add(n), deadline=1.0) == n
