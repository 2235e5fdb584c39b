"""O-355: the fork server of a service of several processes."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import ParamSpec

import pytest
import trio
import trio.testing

from supervisors.service import fork_server
from supervisors.service.control_channel import Assignment
from supervisors.service.fork_server import ForkServer, ForkServerEnded, RunningProcess

P = ParamSpec("P")
FAKE = Path(__file__).with_name("fake_process.py")


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "COMMAND", (sys.executable, "-P", str(FAKE)))


def in_real_time(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test without the clock that jumps: processes run in real time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        trio.run(partial(test, *args, **kwargs))

    return run


@contextmanager
def assigned() -> Iterator[tuple[Assignment, socket.socket]]:
    """An assignment, and the supervisor's end of its control channel."""
    own, its = socket.socketpair()
    null = os.open(os.devnull, os.O_RDONLY)
    with own:
        control = its.detach()
        yield Assignment(1, 1, "1.0", b"", "", null, control, null, null, True, ""), own
    os.close(null)
    with suppress(OSError):
        os.close(control)


@in_real_time
async def test_fork_server_starts_children_of_the_supervisor() -> None:
    server = ForkServer()
    with assigned() as (assignment, one), assigned() as (another, two), trio.fail_after(30):
        first = await server.start(assignment)
        second = await server.start(another)
        assert parent(first.pid) == parent(second.pid) == os.getpid()
        assert os.getpgid(first.pid) == first.pid  # Ctrl-C in a terminal does not reach it
        assert one.recv(100)
        assert two.recv(100)
        server.close()
        first.send_signal(signal.SIGTERM)
        assert await first.wait() == -signal.SIGTERM
        first.kill()  # does nothing
        assert second.returncode is None
        second.kill()
        assert await second.wait() == -signal.SIGKILL


@in_real_time
async def test_processes_started_at_once_are_children_of_the_supervisor() -> None:
    server, processes = ForkServer(), list[RunningProcess]()

    async def start(number: int) -> None:
        await trio.sleep(number * 0.02)  # while the server is still starting
        with assigned() as (assignment, _):
            processes.append(await server.start(assignment))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(start, number)
        parents = [parent(process.pid) for process in processes]
        for process in processes:
            process.kill()
            await process.wait()
    server.close()
    assert parents == [os.getpid()] * 4


def parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


@in_real_time
async def test_control_channel_ends_with_its_process() -> None:
    """Neither the fork server nor a process that is forked later has a copy of its descriptor."""
    server = ForkServer()
    with assigned() as (assignment, own), assigned() as (another, _), trio.fail_after(30):
        first = await server.start(assignment)
        os.close(assignment.control)
        second = await server.start(another)
        assert own.recv(100)
        first.kill()
        await first.wait()
        assert own.recv(100) == b""
        second.kill()
        await second.wait()
        server.close()


@in_real_time
async def test_fork_server_that_died_is_replaced() -> None:
    server, before = ForkServer(), children()
    with assigned() as (assignment, _), assigned() as (another, _), trio.fail_after(30):
        process = await server.start(assignment)
        [pid] = children() - before - {process.pid}
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - it was killed
        other = await server.start(another)
        for each in (process, other):
            each.kill()
            await each.wait()
        server.close()


@in_real_time
async def test_fork_server_that_dies_during_a_start_is_reported_and_replaced() -> None:
    """It may have forked the process: a second attempt could start another one."""
    server, before = ForkServer(), children()
    with assigned() as (assignment, _), assigned() as (another, _), trio.fail_after(30):
        process = await server.start(assignment)
        [pid] = children() - before - {process.pid}
        os.kill(pid, signal.SIGSTOP)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def start() -> None:
                with pytest.raises(ForkServerEnded) as ended:
                    await server.start(another)
                assert ended.value.code == -signal.SIGKILL

            await trio.testing.wait_all_tasks_blocked()
            os.kill(pid, signal.SIGKILL)
        other = await server.start(another)
        for each in (process, other):
            each.kill()
            await each.wait()
        server.close()


@in_real_time
async def test_fork_server_that_is_frozen_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise no process that ends would ever be replaced."""
    server, before = ForkServer(), children()
    with assigned() as (assignment, _), assigned() as (another, _), trio.fail_after(30):
        process = await server.start(assignment)
        [pid] = children() - before - {process.pid}
        os.kill(pid, signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr(fork_server, "REPLY_SECONDS", 0.2)
            with pytest.raises(ForkServerEnded):
                await server.start(another)
        other = await server.start(another)
        for each in (process, other):
            each.kill()
            await each.wait()
        server.close()


def children() -> set[int]:
    files = Path("/proc/self/task").glob("*/children")
    return {int(child) for file in files for child in file.read_text().split()}


@in_real_time
async def test_program_that_cannot_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
    with (
        assigned() as (assignment, _),
        trio.fail_after(30),
        pytest.raises(ForkServerEnded, match="exit code 3"),
    ):
        await ForkServer().start(assignment)


@in_real_time
async def test_closed_fork_server_ends() -> None:
    server, before = ForkServer(), children()
    with assigned() as (assignment, _), trio.fail_after(30):
        process = await server.start(assignment)
        server.close()
        assert children() - before == {process.pid}
        process.kill()
        await process.wait()


@in_real_time
async def test_program_serves_itself_without_child_subreapers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fork_server, "can_fork", lambda: False)
    server, before = ForkServer(), children()
    with assigned() as (assignment, own), trio.fail_after(30):
        process = await server.start(assignment)
        assert children() - before == {process.pid}
        assert await trio.to_thread.run_sync(own.recv, 100)
        process.kill()
        await process.wait()
