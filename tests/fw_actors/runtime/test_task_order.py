"""The order of tasks is decided by the seed only."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from fw_actors.runtime import (
    ActorError,
    ActorFailed,
    KeyedPool,
    Runtime,
    SeededEntropy,
    TrioClock,
    open_runtime,
)
from fw_actors.runtime.testing import task_order
from supervisors import RestartIntensity, actor_child, open_supervisor, pool_child
from tests.fw_actors.runtime.sample_actors import AddNumber, Begin, Break, Nap, SampleActor

ROOT = Path(__file__).parents[3]


async def order_of(tasks: int) -> list[int]:
    """Start tasks that go through some checkpoints each; return how they took turns."""
    seen: list[int] = []

    async def walk(number: int) -> None:
        for _ in range(3):
            seen.append(number)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for number in range(tasks):
            nursery.start_soon(walk, number)
    return seen


def ordered(seed: int) -> list[int]:
    with task_order(seed):
        return trio.run(order_of, 6)


def test_task_order_is_determined_by_its_seed() -> None:
    assert [ordered(seed) for seed in range(20)] == [ordered(seed) for seed in range(20)]
    assert len({tuple(ordered(seed)) for seed in range(20)}) == 20


def test_task_order_may_put_any_task_first() -> None:
    firsts = [ordered(seed)[:6] for seed in range(200)]
    before = {(a, b) for order in firsts for n, a in enumerate(order) for b in order[n + 1 :]}
    assert len(before) == 6 * 5


def test_task_order_restores_trio_at_its_end() -> None:
    names = vars(import_module("trio._core._run"))
    before = {name: names[name] for name in ("_r", "_ALLOW_DETERMINISTIC_SCHEDULING")}
    with suppress(ZeroDivisionError), task_order(1):
        assert names["_r"] is not before["_r"]
        raise ZeroDivisionError
    assert all(names[name] is value for name, value in before.items())


async def story(trace: list[str]) -> None:
    """Actors of every kind with failures, restarts, work and timeouts; each step is traced."""
    clock = TrioClock(0)
    async with open_runtime(clock=clock, entropy=SeededEntropy(1)) as runtime:
        pool = KeyedPool(runtime, "pool", lambda key: SampleActor(), capacity=5, idle_seconds=2.0)
        children = [actor_child(name, SampleActor) for name in "abc"]
        intensity = RestartIntensity(restarts=1000)
        async with (
            open_supervisor(
                runtime, "top", [*children, pool_child("pool", pool)], intensity=intensity
            ),
            trio.open_nursery() as nursery,
        ):
            for caller in range(8):
                nursery.start_soon(tell_the_story, runtime, pool, caller, trace)


async def tell_the_story(runtime: Runtime, pool: KeyedPool, caller: int, trace: list[str]) -> None:
    rng = SeededEntropy(caller)
    for step in range(30):
        choice = int(rng.uniform(0, 7.99))
        ref: Any = runtime.ref("abc"[choice % 3]) if choice < 4 else pool[str(choice)]
        request = (AddNumber(caller), Nap(rng.uniform(0, 0.5)), Break())[step % 3]
        try:
            answer: object = await ref.ask(request, deadline=0.3)
        except ActorFailed as failure:
            answer = failure.error
        except ActorError as fault:
            answer = type(fault).__name__
        ref.tell(Begin(0.1))
        trace.append(f"{trio.current_time():.6f} {caller} {step} {ref.name} {answer}")


def traced(seed: int) -> bytes:
    trace: list[str] = []
    with task_order(seed):
        trio.run(story, trace, clock=MockClock(autojump_threshold=0))
    return "\n".join(trace).encode()


def test_task_order_repeats_a_run_of_actors_byte_for_byte() -> None:
    assert traced(7) == traced(7)
    assert traced(7) != traced(8)


def test_task_order_is_independent_of_process_and_hash_seed() -> None:
    module = "tests.fw_actors.runtime.test_task_order"
    code = f"import sys; from {module} import traced; sys.stdout.buffer.write(traced(7))"
    for hash_seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, check=True
        )
        assert done.stdout == traced(7)
