"""Requests between a process and its supervisor, over a pair of sockets."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from fw_actors.config import ProcessPlace
from supervisors.service.control_channel import (
    GATHER_SECONDS,
    MAX_WAITING_FRAMES,
    SUPERVISOR_SECONDS,
    ChannelFailed,
    ControlChannel,
    FrameHandler,
    PeerAnswers,
    PeerProcesses,
)


async def echo(name: str, body: object) -> object:
    if name == "slow":
        await trio.sleep(0.2)
    if name == "fails":
        raise LookupError("not here")
    return [name, body]


@asynccontextmanager
async def connected(
    handle: FrameHandler = echo,
) -> AsyncIterator[tuple[ControlChannel, ControlChannel]]:
    one, other = socket.socketpair()
    channels = ControlChannel(one, handle), ControlChannel(other, handle)
    async with trio.open_nursery() as nursery:
        for channel in channels:
            await nursery.start(channel.run)
        yield channels
        nursery.cancel_scope.cancel()


async def test_control_channel_asks_in_both_directions() -> None:
    async with connected() as (one, other):
        assert await one.ask("a", {"x": 1}) == ["a", {"x": 1}]
        assert await other.ask("b") == ["b", None]


async def test_control_channel_answers_in_any_order() -> None:
    async with connected() as (one, _):
        found: list[object] = []

        async def ask(name: str) -> None:
            found.append((await one.ask(name))[0])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "slow")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(ask, "fast")
        assert found == ["fast", "slow"]


async def test_control_channel_carries_large_frames() -> None:
    async with connected() as (one, _):
        assert (await one.ask("a", "x" * 1_000_000))[1] == "x" * 1_000_000


async def test_control_channel_ask_fails_after_its_time_limit() -> None:
    async with connected() as (one, _):
        with pytest.raises(ChannelFailed, match="did not answer 'slow'"):
            await one.ask("slow", seconds=0.05)


async def test_control_channel_ask_raises_the_remote_failure() -> None:
    async with connected() as (one, _):
        with pytest.raises(ChannelFailed, match="LookupError: not here"):
            await one.ask("fails")


async def test_control_channel_asks_end_with_the_other_side() -> None:
    one, other = socket.socketpair()
    async with trio.open_nursery() as nursery:
        channel = ControlChannel(one, echo)
        await nursery.start(channel.run)
        nursery.start_soon(_close_soon, other)
        with pytest.raises(ChannelFailed, match="did not answer"):
            await channel.ask("a")
        with pytest.raises(ChannelFailed, match="has gone"):
            await channel.ask("a")
        assert channel.closed.is_set()


async def _close_soon(stream: socket.socket) -> None:
    await trio.testing.wait_all_tasks_blocked()
    stream.close()


async def test_control_channel_drops_messages_for_a_stalled_reader() -> None:
    """Messages beyond a limit are dropped for the side that does not read."""
    one, other = socket.socketpair()
    with other:
        async with trio.open_nursery() as nursery:
            channel = ControlChannel(one, echo)
            await nursery.start(channel.run)
            for _ in range(3 * MAX_WAITING_FRAMES):
                channel.tell("a", "x" * 10_000)
            with pytest.raises(ChannelFailed):
                await channel.ask("a", seconds=0.05)
            nursery.cancel_scope.cancel()


async def test_peer_processes_are_unanswered_if_their_supervisor_does_not_read(
    autojump_clock: MockClock,
) -> None:
    """A frozen supervisor delays no metrics, console or pause for more than 3 s (O-122)."""
    one, other = socket.socketpair()
    with other:
        async with trio.open_nursery() as nursery:
            channel = ControlChannel(one, echo)
            await nursery.start(channel.run)
            peers = PeerProcesses(ProcessPlace(2, 3))
            peers.connect(channel)
            assert await peers.gather("metrics") == PeerAnswers(unanswered=[1, 3])
            assert trio.current_time() == pytest.approx(GATHER_SECONDS + SUPERVISOR_SECONDS)
            assert await peers.gather("pause", to=3) == PeerAnswers(unanswered=[3])
            nursery.cancel_scope.cancel()


async def test_peer_processes_wait_for_the_pauses_of_a_frozen_supervisor(
    autojump_clock: MockClock,
) -> None:
    """A process that starts may not send to receivers which others have paused (H-176)."""

    async def supervisor(name: str, body: object) -> object:
        await trio.sleep(10 - trio.current_time())
        return {"asked": [1], "answers": {1: ["https://a.test", "https://b.test"]}, "restarts": {}}

    async with connected(supervisor) as (one, _):
        peers = PeerProcesses(ProcessPlace(2, 2))
        peers.connect(one)
        assert await peers.paused_receivers() == ["https://a.test", "https://b.test"]
