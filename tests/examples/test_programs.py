"""The example programs of the runtime: a rate limiter, a chat room, a pool of jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from examples.chat_room import Chat, ChatLine
from examples.job_pool import Jobs, PoolJob, PoolJobFailed
from examples.rate_limiter import limits, serve
from fw_actors.runtime import Runtime, SeededEntropy, TrioClock, open_runtime
from supervisors import actor_child, open_supervisor

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    async with open_runtime(clock=TrioClock(0), entropy=SeededEntropy(1)) as runtime:
        yield runtime


async def lines(stream: trio.abc.ReceiveStream, count: int) -> list[str]:
    text = b""
    while text.count(b"\n") < count:
        text += await stream.receive_some()
    return text.decode().splitlines()


async def test_rate_limiter_allows_a_burst_and_then_its_rate(runtime: Runtime) -> None:
    client, server = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, limits(runtime, rate=2, burst=2), server)
        await client.send_all(b"ann\nann\nann\nbob\n")
        assert await lines(client, 4) == ["ok", "ok", "wait 0.500", "ok"]
        await trio.sleep(0.5)
        await client.send_all(b"ann\nann\n")
        assert await lines(client, 2) == ["ok", "wait 0.500"]
        await client.aclose()


async def test_rate_limiter_forgets_keys_that_are_full_again(runtime: Runtime) -> None:
    client, server = memory_stream_pair()
    buckets = limits(runtime, rate=2, burst=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, buckets, server)
        await client.send_all(b"".join(b"key%d\n" % number for number in range(1000)))
        assert await lines(client, 1000) == ["ok"] * 1000
        assert len(buckets) == 1000
        await trio.sleep(1.1)
        assert len(buckets) == 0
        await client.aclose()


async def test_rate_limiter_ends_a_client_without_line_breaks(runtime: Runtime) -> None:
    client, server = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, limits(runtime, rate=2, burst=2), server)
        await client.send_all(b"x" * 1000)
        assert await client.receive_some() == b""


async def test_chat_room_sends_lines_to_all_in_order(runtime: Runtime) -> None:
    chat = Chat(runtime)
    async with open_supervisor(runtime, "chat", chat.children), trio.open_nursery() as nursery:
        ann, one = memory_stream_pair()
        bob, two = memory_stream_pair()
        nursery.start_soon(chat.serve, one)
        await wait_all_tasks_blocked()
        nursery.start_soon(chat.serve, two)
        await wait_all_tasks_blocked()
        await ann.send_all(b"hello\nhow are you?\n")
        seen = await lines(bob, 3)
        assert seen == ["member-2 is here", "member-1: hello", "member-1: how are you?"]
        await ann.aclose()
        assert await lines(bob, 1) == ["member-1 has left"]
        assert [node.name for node in chat.members.children] == ["member-2"]
        await bob.aclose()


class Stuck(trio.abc.Stream):
    """A client that reads nothing."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.sleep_forever()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.sleep_forever()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.sleep_forever()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_chat_room_is_not_delayed_by_a_slow_member(runtime: Runtime) -> None:
    chat = Chat(runtime)
    async with open_supervisor(runtime, "chat", chat.children), trio.open_nursery() as nursery:
        nursery.start_soon(chat.serve, Stuck())
        bob, two = memory_stream_pair()
        await wait_all_tasks_blocked()
        nursery.start_soon(chat.serve, two)
        await wait_all_tasks_blocked()
        for number in range(500):
            await chat.room.publish(ChatLine(str(number)))
            await wait_all_tasks_blocked()
        seen = await lines(bob, 501)
        assert seen == ["member-2 is here", *map(str, range(500))]
        assert trio.current_time() == 0.0
        assert len(chat.room) == 2
        nursery.cancel_scope.cancel()


async def work(seconds: float) -> str:
    await trio.sleep(seconds)
    return "done"


async def crash() -> str:
    raise ValueError("broken")


# The ten lines of docs/runtime.md.
async def test_fifth_job_waits_for_worker() -> None:
    async with (
        open_runtime(clock=TrioClock(0), entropy=SeededEntropy(1)) as runtime,
        runtime.running("jobs", Jobs) as jobs,
        trio.open_nursery() as nursery,
    ):
        for _ in range(5):
            nursery.start_soon(jobs.ask, PoolJob(partial(work, 60.0), seconds=90.0))
    assert trio.current_time() == 120.0  # of virtual time


async def test_crashed_or_slow_job_fails_alone(runtime: Runtime) -> None:
    async with open_supervisor(runtime, "main", [actor_child("jobs", Jobs)]):
        jobs = runtime.ref("jobs", of=Jobs)
        with pytest.raises(PoolJobFailed, match="ValueError: broken"):
            await jobs.ask(PoolJob(crash, seconds=1.0), deadline=5.0)
        with pytest.raises(PoolJobFailed, match="TooSlowError"):
            await jobs.ask(PoolJob(partial(work, 2.0), seconds=1.0), deadline=5.0)
        assert trio.current_time() == 1.0
        assert await jobs.ask(PoolJob(partial(work, 2.0), seconds=3.0), deadline=5.0) == "done"
        assert (await jobs.inspect()).described == {"done": 3, "failed": 2}
        assert runtime.snapshot().tree[0].children[0].restarts == 0


def test_job_pool_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.job_pool"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    output = done.stdout.splitlines()
    assert len(output) == 10
    assert "job 1 is done" in output
    assert "job 4: ValueError: 4 is divisible by 4" in output


@pytest.mark.parametrize("name", ["rate_limiter", "chat_room"])
def test_server_stops_gracefully_at_signal(name: str) -> None:
    program = (
        "import os, signal, sys, trio\n"
        f"from examples import {name} as program\n"
        "async def serve_tcp(handler, port):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    await trio.sleep_forever()\n"
        "trio.serve_tcp = serve_tcp\n"
        "trio.run(program.main)\n"
        "print('ended')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "ended\n"
