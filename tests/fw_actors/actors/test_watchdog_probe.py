"""The watchdog's probe of the store: a refusal is an answer, silence is not (O-320)."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.background import StoreProbe, store_answers
from fw_actors.errors import OverloadedError
from fw_actors.runtime import SeededEntropy, TrioClock, open_runtime


class ProbedStore:
    """A store that is there, away, or hangs."""

    def __init__(self, state: str) -> None:
        self._state = state

    async def read(self, fn: object, *, reserved: bool) -> None:
        await trio.lowlevel.checkpoint()
        if self._state == "away":
            raise OverloadedError
        if self._state == "hangs":
            await trio.sleep_forever()


@pytest.mark.parametrize(("state", "works"), [("there", True), ("away", True), ("hangs", False)])
async def test_watchdog_probe_fails_only_on_hanging_store(
    autojump_clock: MockClock, state: str, works: bool
) -> None:
    store = cast("Any", ProbedStore(state))
    async with (
        open_runtime(clock=TrioClock(0), entropy=SeededEntropy(1)) as runtime,
        runtime.running("probe", lambda: StoreProbe(store)) as probe,
    ):
        assert await store_answers(probe, 20.0) is works
