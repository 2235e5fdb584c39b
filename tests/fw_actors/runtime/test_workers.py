"""The worker tasks."""

from __future__ import annotations

from contextvars import ContextVar

import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import KeyedPool, Runtime
from tests.fw_actors.runtime.sample_actors import AddNumber, Nap, SampleActor

COLOUR: ContextVar[str] = ContextVar("colour", default="none")


async def test_workers_are_shared_by_jobs_that_never_wait(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    for n in range(1000):
        await pool[str(n)].ask(AddNumber(1))
    assert runtime.workers.statistics().alive <= 3


async def test_workers_run_a_thousand_waiting_jobs_and_park_256(
    runtime: Runtime,
) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    for n in range(1000):
        pool[str(n)].tell(Nap(10.0))
    await trio.sleep(5)
    assert runtime.workers.statistics().alive >= 1000
    await trio.sleep(10)
    assert runtime.workers.statistics().alive == runtime.workers.statistics().parked == 256


async def test_workers_do_not_inherit_context_variables(runtime: Runtime) -> None:
    seen: list[str] = []

    class ColourReader(SampleActor):
        async def add(self, message: AddNumber) -> int:
            seen.append(COLOUR.get())
            return 1

    pool = KeyedPool(runtime, "p", lambda key: ColourReader())
    COLOUR.set("red")
    await pool["a"].ask(AddNumber(1))
    assert seen == ["none"]


async def test_workers_survive_a_cancelled_job(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    other = KeyedPool(runtime, "q", lambda key: SampleActor())
    for n in range(20):
        pool[str(n)].tell(Nap(60.0))
    other["x"].tell(Nap(5.0))
    await wait_all_tasks_blocked()
    await pool.close(trio.current_time() + 1)
    assert await other["x"].ask(AddNumber(2)) == 2
