"""Connections that wait for a request end after their time, the others never."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from web.idle import IdleConnections
from web.stream import ClientStream


class Stream:
    """Notes when it was cut."""

    def __init__(self) -> None:
        self.cut_at: float | None = None

    def cut(self) -> None:
        self.cut_at = trio.current_time()


def stream() -> Any:
    return cast(ClientStream, Stream())


@asynccontextmanager
async def watched() -> AsyncIterator[IdleConnections]:
    connections = IdleConnections(10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connections.watch)
        yield connections
        nursery.cancel_scope.cancel()


async def test_each_has_its_whole_time_from_the_last_request(autojump_clock: MockClock) -> None:
    async with watched() as idle:
        start = trio.current_time()
        first, second = stream(), stream()
        await idle.timer(first).restart(None, print)
        await trio.sleep(4)
        await idle.timer(second).restart(None, print)
        await trio.sleep(4)
        await idle.timer(first).stop()
        await idle.timer(first).restart(None, print)
        await trio.sleep(60)
        assert first.cut_at - start == pytest.approx(18)
        assert second.cut_at - start == pytest.approx(14)
        assert len(idle) == 0


async def test_one_that_has_a_request_in_hand_is_left_alone(autojump_clock: MockClock) -> None:
    async with watched() as idle:
        busy = stream()
        await idle.timer(busy).restart(None, print)
        await idle.timer(busy).stop()
        await trio.sleep(60)
        assert busy.cut_at is None


async def test_at_the_end_those_that_wait_are_cut_and_those_that_would(
    autojump_clock: MockClock,
) -> None:
    async with watched() as idle:
        waiting, late = stream(), stream()
        await idle.timer(waiting).restart(None, print)
        idle.end()
        await idle.timer(late).restart(None, print)
        assert waiting.cut_at == late.cut_at == trio.current_time()
        assert len(idle) == 0
