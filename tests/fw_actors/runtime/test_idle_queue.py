"""The queue of idle keyed actors, at instants where floats round."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from fw_actors.runtime.pool import CLOCK_GRAIN, IdleQueue
from fw_actors.runtime.timers import Expiring


class Alarms:
    """Notes the alarms that are set, instead of waiting for them."""

    def __init__(self) -> None:
        self.set: list[float] = []
        self.now = trio.current_time

    def add(self, entry: Expiring, seconds: float) -> None:
        self.set.append(seconds)

    def withdraw(self, entry: Expiring, seconds: float) -> None:
        pass


class Cell:
    """An idle actor, as far as the queue looks at it."""

    idle_since = 0.0


@pytest.mark.parametrize("hair", [1e-12, 1e-9, CLOCK_GRAIN / 2])
async def test_an_alarm_is_never_set_for_the_instant_that_it_rang_in(
    hair: float, mock_clock: MockClock
) -> None:
    """Else it rings for ever: a hair added to the time of day is the same time of day."""
    alarms = Alarms()
    sent: list[Any] = []
    queue = IdleQueue(cast("Any", alarms), 1.0, sent.append)
    mock_clock.jump(1000.0)
    due = trio.current_time() - 1.0 + CLOCK_GRAIN
    cell = Cell()
    queue.add(cast("Any", cell))
    cell.idle_since = due + hair
    queue.expire()
    assert sent == []
    assert alarms.set[-1] >= CLOCK_GRAIN
