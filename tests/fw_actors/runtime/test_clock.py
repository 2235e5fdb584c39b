"""The wall clocks, and the task that keeps all deadlines of a runtime."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from itertools import count

import pytest
import trio

from fw_actors.runtime import SystemClock, TrioClock
from fw_actors.runtime.clock import Deadlines, DeadlineStatistics


def test_system_clock_is_shifted_by_its_offset() -> None:
    before = time.time()
    shifted = SystemClock(offset_seconds=-3600).now()
    assert before - 3601 <= shifted / 1000 <= time.time() - 3599


async def test_trio_clock_follows_virtual_time() -> None:
    clock = TrioClock(1_000)
    await trio.sleep(12.5)
    assert clock.now() == 13_500


class Alarm:
    def __init__(self, fired: list[tuple[str, float]], name: str) -> None:
        self.fired, self.name = fired, name

    def expire(self) -> None:
        self.fired.append((self.name, trio.current_time()))


@pytest.fixture
async def deadlines(nursery: trio.Nursery) -> AsyncIterator[Deadlines]:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    yield deadlines
    deadlines.close()


async def test_deadlines_expire_in_order_of_time(
    deadlines: Deadlines,
) -> None:
    fired: list[tuple[str, float]] = []
    start = trio.current_time()
    for name, seconds in [("c", 30.0), ("a", 1.0), ("b", 2.5), ("d", 30.0)]:
        deadlines.add(Alarm(fired, name), seconds)
    await trio.sleep(31)
    assert fired == [(n, start + s) for n, s in [("a", 1), ("b", 2.5), ("c", 30), ("d", 30)]]
    assert len(deadlines) == 0


async def test_deadlines_withdrawn_never_expire(deadlines: Deadlines) -> None:
    fired: list[tuple[str, float]] = []
    alarm = Alarm(fired, "a")
    deadlines.add(alarm, 1.0)
    deadlines.withdraw(alarm, 1.0)
    deadlines.withdraw(alarm, 1.0)
    deadlines.withdraw(alarm, 2.0)
    await trio.sleep(2)
    assert fired == []


async def test_deadlines_added_while_one_expires_are_kept(deadlines: Deadlines) -> None:
    fired: list[tuple[str, float]] = []
    start = trio.current_time()

    class Again(Alarm):
        def expire(self) -> None:
            super().expire()
            if len(fired) < 3:
                deadlines.add(self, 1.0)

    deadlines.add(Again(fired, "a"), 1.0)
    await trio.sleep(10)
    assert [at - start for _, at in fired] == [1, 2, 3]


async def test_deadlines_of_many_lengths_leave_no_queues(deadlines: Deadlines) -> None:
    fired: list[tuple[str, float]] = []
    for n in range(1_000):
        alarm = Alarm(fired, str(n))
        deadlines.add(alarm, 1.0 + n / 1000)
        deadlines.withdraw(alarm, 1.0 + n / 1000)
    assert deadlines.statistics().lengths <= 33
    await trio.sleep(5)
    assert deadlines.statistics() == DeadlineStatistics(pending=0, lengths=0)


async def test_deadlines_of_one_length_all_expire(deadlines: Deadlines) -> None:
    seen = count()

    class CountedAlarm:
        def expire(self) -> None:
            next(seen)

    for _ in range(10_000):
        deadlines.add(CountedAlarm(), 5.0)
    await trio.sleep(5.1)
    assert next(seen) == 10_000


async def test_deadlines_expire_all_at_once(deadlines: Deadlines) -> None:
    fired: list[tuple[str, float]] = []
    alarms = {name: Alarm(fired, name) for name in "abc"}
    for name, seconds in (("a", 5.0), ("b", 60.0), ("c", 5.0)):
        deadlines.add(alarms[name], seconds)
    deadlines.withdraw(alarms["c"], 5.0)
    deadlines.expire_all()
    assert [name for name, _ in fired] == ["a", "b"]
    assert len(deadlines) == 0


async def test_deadlines_of_many_lengths_expire_in_order_of_time(deadlines: Deadlines) -> None:
    fired: list[tuple[str, float]] = []
    start = trio.current_time()
    alarms = [Alarm(fired, str(number)) for number in range(1000)]
    for number in sorted(range(1000), key=lambda number: number * 7919 % 1000):
        deadlines.add(alarms[number], 1.0 + number)
    for number in range(0, 1000, 2):
        deadlines.withdraw(alarms[number], 1.0 + number)
    assert len(deadlines) == 500
    await trio.sleep(2000)
    assert fired == [(str(number), start + 1.0 + number) for number in range(1, 1000, 2)]
    assert deadlines.statistics() == DeadlineStatistics(pending=0, lengths=0)


async def test_deadlines_of_a_time_expire_then(deadlines: Deadlines) -> None:
    fired: list[tuple[str, float]] = []
    start = trio.current_time()
    deadlines.add(Alarm(fired, "later"), 5.0)
    deadlines.add_at(Alarm(fired, "sooner"), start + 2.0)
    withdrawn = Alarm(fired, "withdrawn")
    deadlines.add_at(withdrawn, start + 1.0).pop(withdrawn)
    await trio.sleep(10)
    assert fired == [("sooner", start + 2.0), ("later", start + 5.0)]


@pytest.mark.parametrize("pending", [500, 4000])
async def test_deadlines_of_many_lengths_take_steps_in_proportion(
    deadlines: Deadlines, pending: int
) -> None:
    """R-46: a distinct deadline costs about as much as an equal one, for any number of them."""
    comparisons = 0

    class Seconds(float):
        def __hash__(self) -> int:
            nonlocal comparisons
            comparisons += 1
            return super().__hash__()

    for number in range(pending):
        deadlines.add(Alarm([], ""), Seconds(1.0 + number))
    assert comparisons < 4 * pending
