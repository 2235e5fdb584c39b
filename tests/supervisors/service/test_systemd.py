"""The notifications to systemd (sd_notify(3)), and its watchdog (O-38, O-320 to O-322)."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from supervisors.service import fork_server, processes
from supervisors.service.control_channel import Assignment
from supervisors.service.fork_server import ForkServer, RunningProcess
from supervisors.service.process import DRAIN_SECONDS
from supervisors.service.processes import ServingProcess, open_processes
from supervisors.service.run import Announcer, serve, work
from supervisors.service.site_files import ServeLock, SitePaths
from supervisors.service.systemd import READY, STOPPING, WATCHDOG, Notifier
from tests.mail_kit import RecordingLog
from tests.site_kit import make_config
from tests.supervisors.service.conftest import FakeServices
from tests.supervisors.service.fake_service import FakeService


@contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + address[1:] if address[0] == "@" else address)
        systemd.setblocking(False)
        yield systemd


def notifications(systemd: socket.socket) -> list[str]:
    """Return what has arrived."""
    found = []
    while True:
        try:
            found.append(systemd.recv(100).decode())
        except BlockingIOError:
            return found


@pytest.mark.parametrize("abstract", [False, True])
def test_notifier_sends_the_state(tmp_path: Path, abstract: bool) -> None:
    address = f"@fw-test{tmp_path}" if abstract else str(tmp_path / "notify")
    with listening(address) as systemd:
        assert Notifier(address).notify(READY)
        assert Notifier(address).notify(STOPPING)
        assert notifications(systemd) == ["READY=1", "STOPPING=1"]


@pytest.mark.parametrize(
    "address", [None, "", "relative", "vsock:2:1", "/no/such/socket", "/" + "x" * 200, "@a\0b"]
)
def test_notifier_ignores_an_unusable_address(address: str | None) -> None:
    assert not Notifier(address).notify(READY)


def test_notifier_never_blocks_on_a_full_socket(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with listening(address):
        assert not all(Notifier(address).notify(READY) for _ in range(10_000))


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "60000000"}, 60.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}, 60.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "8"}, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "0"}, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "-1"}, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "1²"}, None),
        ({"WATCHDOG_USEC": "60000000"}, None),
        ({}, None),
    ],
)
def test_notifier_takes_the_watchdog_of_the_environment(
    environ: dict[str, str], seconds: float | None
) -> None:
    assert Notifier.of(environ, 7) == Notifier(environ.get("NOTIFY_SOCKET"), seconds)


async def test_watchdog_is_notified_three_times_an_interval_while_working(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """O-320."""
    works, address = True, str(tmp_path / "notify")

    async def answers(seconds: float) -> bool:
        working = works
        await trio.sleep(1.0 if working else seconds)
        return working

    with listening(address) as systemd:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Notifier(address, 60.0).keep_awake, answers)
            await trio.sleep(59.0)
            assert notifications(systemd) == [WATCHDOG] * 3
            works = False
            await trio.sleep(60.0)
            assert notifications(systemd) == []
            works = True
            await trio.sleep(60.0)
            assert notifications(systemd) == [WATCHDOG] * 3
            nursery.cancel_scope.cancel()


async def test_notifier_asks_nothing_if_there_is_no_watchdog() -> None:
    async def answers(seconds: float) -> bool:
        raise AssertionError

    await Notifier("/nowhere").keep_awake(answers)


def test_service_notifies_the_watchdog_until_it_stops(fakes: FakeServices, tmp_path: Path) -> None:
    with listening(str(tmp_path / "notify")) as systemd:
        systemd.settimeout(20)
        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "150000"}
        process = fakes.ready(**environ)
        assert [systemd.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        process.terminate()
        while (state := systemd.recv(100)) == b"WATCHDOG=1":
            pass
        assert state == b"STOPPING=1"
        assert process.wait(30) == 0
        systemd.setblocking(False)
        assert notifications(systemd) == []


@pytest.mark.parametrize("worker", [False, True])
async def test_long_start_extends_the_time_until_it_is_ready(
    tmp_path: Path, autojump_clock: MockClock, worker: bool
) -> None:
    """A start that migrates the store may take longer than TimeoutStartSec= (O-38)."""
    paths, notifier = SitePaths(tmp_path), Notifier(str(tmp_path / "notify"))

    @asynccontextmanager
    async def open_slowly() -> AsyncIterator[FakeService]:
        await trio.sleep(99.0)
        assert notifications(systemd) == ["EXTEND_TIMEOUT_USEC=30000000"] * 9
        yield FakeService("obeys")

    run = partial(serve, announcer=Announcer(lambda url: None, notifier))
    if worker:
        run = partial(work, systemd=notifier)
    with listening(str(tmp_path / "notify")) as systemd:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(run, paths, open_slowly, version="1", log=RecordingLog()))
            await trio.sleep(200.0)
            assert notifications(systemd) == [READY]
            nursery.cancel_scope.cancel()


def test_watchdog_is_not_notified_by_a_hanging_service(fakes: FakeServices, tmp_path: Path) -> None:
    with listening(str(tmp_path / "notify")) as systemd:
        systemd.settimeout(20)
        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "90000"}
        process = fakes.ready("hangs", **environ)
        assert systemd.recv(100) == b"READY=1"
        systemd.settimeout(0.3)
        with pytest.raises(TimeoutError):
            systemd.recv(100)
        process.terminate()
        assert process.wait(30) == 0


def test_hanging_process_is_replaced_while_the_service_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen one handles no signal, and is killed (O-322)."""
    fake = Path(__file__).with_name("fake_process.py")
    monkeypatch.setattr(fork_server, "COMMAND", (sys.executable, "-P", str(fake)))
    monkeypatch.setattr(processes, "KILL_SECONDS", 0.1)
    trio.run(freeze_processes, tmp_path)  # in real time, in which processes are


async def freeze_processes(folder: Path) -> None:
    paths, log = SitePaths(folder), RecordingLog()
    paths.prepare()
    config = make_config(folder, processes=2)
    with ServeLock(paths.lock) as lock, trio.fail_after(60):
        assert lock.acquire()
        async with open_processes(config, lock, log, patience=0.5) as service:
            one, two = service.all
            assert await service.answers(5.0)
            frozen = freeze(two)
            while two.pid in (frozen, None):
                assert await service.answers(0.3)
            assert one.restarts == 0
            while not two.is_ready:  # noqa: ASYNC110 - the real one has no event for it
                await trio.sleep(0.01)
            assert await service.answers(5.0)
            both = freeze(one), freeze(two)
            while await service.answers(0.2):
                pass  # frozen only a moment later
            for pid in both:
                os.kill(pid, signal.SIGCONT)
    assert {entry["process"] for entry in log.of("process.silent")} >= {2}


def test_process_that_does_not_start_is_replaced_while_others_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first one may take its time, because it may migrate the store (O-322)."""
    fake = Path(__file__).with_name("fake_process.py")
    command = (sys.executable, "-P", str(fake), str(tmp_path / "stuck"))
    monkeypatch.setattr(fork_server, "COMMAND", command)
    monkeypatch.setattr(processes, "KILL_SECONDS", 0.1)
    monkeypatch.setattr(processes, "START_SECONDS", 1.0)
    trio.run(hang_second_start, tmp_path)


async def hang_second_start(folder: Path) -> None:
    paths, log = SitePaths(folder), RecordingLog()
    paths.prepare()
    stuck = folder / "stuck"
    with ServeLock(paths.lock) as lock, trio.fail_after(60):
        assert lock.acquire()
        config = make_config(folder, processes=2)
        async with open_processes(config, lock, log, patience=3.0) as service:
            one, two = service.all
            stuck.touch()
            pid = two.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            while two.restarts < 2:
                assert await service.answers(5.0)
                await trio.sleep(0.05)
            stuck.unlink()
            while not two.is_ready:
                assert await service.answers(5.0)
                await trio.sleep(0.05)
            assert one.restarts == 0
    assert {entry["process"] for entry in log.of("process.silent")} == {2}


def test_process_that_is_being_replaced_gets_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no channel yet, and would run until it is killed (O-45)."""
    fake = Path(__file__).with_name("fake_process.py")
    monkeypatch.setattr(fork_server, "COMMAND", (sys.executable, "-P", str(fake)))
    trio.run(stop_during_replacement, tmp_path, monkeypatch)


async def stop_during_replacement(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = SitePaths(folder)
    paths.prepare()
    config = make_config(folder, processes=2)
    started, real = trio.Event(), ForkServer.start

    async def slow(server: ForkServer, assignment: Assignment) -> RunningProcess:
        process = await real(server, assignment)
        started.set()
        await trio.sleep(0.3)
        return process

    with ServeLock(paths.lock) as lock, trio.fail_after(60):
        assert lock.acquire()
        async with open_processes(config, lock, RecordingLog()) as service:
            victim = service.all[1].pid
            assert victim is not None
            monkeypatch.setattr(ForkServer, "start", slow)
            os.kill(victim, signal.SIGKILL)
            await started.wait()
            began = trio.current_time()
        assert trio.current_time() - began < DRAIN_SECONDS


def freeze(process: ServingProcess) -> int:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    return process.pid
