"""The model behind the suite `scaling`: machines in virtual time, and the real service on them."""

from __future__ import annotations

from typing import Final

import pytest
import trio
from trio.testing import MockClock

from benchmarks.scaling.costs import Costs
from benchmarks.scaling.fleet import Fleet, simulate_fleet
from benchmarks.scaling.machines import Processors, SimulatedDisk

NODE: Final = 0.001
FREE: Final = Costs(NODE, 0.0, 0.0, 0.0, 0.0)


async def test_processors_run_as_many_tasks_as_cores(autojump_clock: MockClock) -> None:
    processors = Processors(2)
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(processors.run, 1.0)
    assert (trio.current_time(), processors.busy) == (3.0, 6.0)


async def test_processors_are_free_after_a_pause(autojump_clock: MockClock) -> None:
    processors = Processors(1)
    await processors.run(1.0)
    await trio.sleep(5.0)
    await processors.run(1.0)
    assert trio.current_time() == 7.0


async def test_disk_sync_serves_all_waiting_commits(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk(1.0)
    ended: list[float] = []

    async def commit(at: float) -> None:
        await trio.sleep(at)
        await disk.sync()
        ended.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for at in (0.0, 0.2, 0.8, 5.0):
            nursery.start_soon(commit, at)
    assert (ended, disk.syncs) == ([1.0, 2.0, 2.0, 6.0], 3)


@pytest.mark.parametrize("nodes", [1, 3])
def test_fleet_of_free_databases_is_bound_by_its_nodes(nodes: int) -> None:
    result = simulate_fleet(Fleet(nodes, 400 * nodes), FREE)
    assert result.rate == pytest.approx(nodes / NODE, rel=0.1)


def test_fleet_on_one_machine_shares_its_processors() -> None:
    result = simulate_fleet(Fleet(3, 600, shared=2), FREE)
    assert result.rate == pytest.approx(2 / NODE, rel=0.1)


def test_fleet_is_bound_by_its_slots_where_receivers_take_long() -> None:
    result = simulate_fleet(Fleet(1, 400, slots=4, answer_seconds=0.5), FREE)
    assert result.rate == pytest.approx(4 / 0.5, rel=0.1)


def test_fleet_is_bound_by_the_rows_that_its_database_writes() -> None:
    costs = Costs(NODE / 100, 0.01, 0.0, 0.0, 0.0)
    result = simulate_fleet(Fleet(3, 600, database_processors=1), costs)
    assert result.rate < 100 / result.rows * 1.3
    assert result.database > 0.8


def test_fleet_waits_for_the_row_of_a_webhook_that_all_nodes_update() -> None:
    """Outcomes of one Webhook are recorded one batch after the other: `fw_webhook_health`."""
    costs = Costs(NODE / 100, 0.0, 0.0, 0.05, 0.0)
    one, many = (simulate_fleet(Fleet(4, 1200, receivers), costs) for receivers in (1, 8))
    assert one.lock_share > many.lock_share
