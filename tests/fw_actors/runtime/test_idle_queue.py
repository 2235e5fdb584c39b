"""The queue of idle keyed actors at times where floats are rounded."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fw_actors.runtime.clock import Expiring
from fw_actors.runtime.keyed_pool import CLOCK_RESOLUTION, IdleQueue


class RecordedAlarms:
    """Records the alarms that are set, at a time that the test sets."""

    def __init__(self) -> None:
        self.set: list[float] = []
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def add(self, entry: Expiring, seconds: float) -> None:
        self.set.append(seconds)

    def withdraw(self, entry: Expiring, seconds: float) -> None:
        pass


@pytest.mark.parametrize("excess", [1e-12, 1e-9, CLOCK_RESOLUTION / 2])
def test_idle_queue_never_sets_an_alarm_for_the_present(excess: float) -> None:
    """Such an alarm would go off for ever: the time plus a tiny excess is the same time."""
    alarms = RecordedAlarms()
    passivated: list[Any] = []
    queue = IdleQueue(cast("Any", alarms), 1.0, passivated.append)
    due = 1000.0 - 1.0 + CLOCK_RESOLUTION
    alarms.time = due + excess
    queue.add(cast("Any", object()))
    alarms.time = 1000.0
    queue.expire()
    assert passivated == []
    assert alarms.set[-1] >= CLOCK_RESOLUTION
