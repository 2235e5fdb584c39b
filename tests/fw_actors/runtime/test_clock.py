"""The wall clocks."""

from __future__ import annotations

import time

import trio

from fw_actors.runtime import SystemClock, TrioClock


def test_system_clock_is_shifted_by_its_offset() -> None:
    before = time.time()
    shifted = SystemClock(offset_seconds=-3600).now()
    assert before - 3601 <= shifted / 1000 <= time.time() - 3599


async def test_trio_clock_follows_virtual_time() -> None:
    clock = TrioClock(1_000)
    await trio.sleep(12.5)
    assert clock.now() == 13_500
