"""The service in the background: start, stop, status (C-107, C-108)."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time

import pytest
from msgspec.structs import replace

from supervisors.service import background, site_files
from supervisors.service.background import RunState, ServiceStatus, Stopped
from supervisors.service.process import ServingRecord, ServingState, start_time
from supervisors.service.site_files import (
    NotStoppable,
    PidFile,
    ServeLock,
    SitePaths,
    StartFailed,
    StillStarting,
)
from tests.supervisors.service.conftest import FakeServices


def start(fakes: FakeServices, behaviour: str = "obeys", seconds: float = 30) -> ServiceStatus:
    return background.start(
        fakes.paths, fakes.command(behaviour), os.environ, ready_seconds=seconds
    )


def test_start_and_stop_return_when_done(fakes: FakeServices, paths: SitePaths) -> None:
    assert background.status(paths) == ServiceStatus(RunState.STOPPED)
    started = start(fakes)
    assert started.state is RunState.RUNNING
    assert (started.url, started.version) == ("http://127.0.0.1:1", "9.9")
    assert background.status(paths) == started
    assert background.stop(paths) is Stopped.GRACEFULLY
    assert background.status(paths) == ServiceStatus(RunState.STOPPED)
    assert background.stop(paths) is Stopped.NOT_RUNNING


def test_background_service_is_detached_from_the_terminal(
    fakes: FakeServices, paths: SitePaths
) -> None:
    started = start(fakes)
    assert started.pid is not None
    assert os.getsid(started.pid) == started.pid != os.getsid(0)
    background.stop(paths)


def test_start_leaves_a_running_service_alone(fakes: FakeServices, paths: SitePaths) -> None:
    first = start(fakes)
    assert start(fakes) == first
    background.stop(paths)


def test_failed_start_shows_its_own_log_lines(fakes: FakeServices, paths: SitePaths) -> None:
    paths.log.write_text("a line of last week\n")
    with pytest.raises(StartFailed, match="exit code 1") as caught:
        start(fakes, "refuses")
    assert caught.value.lines == ("the fake refuses\x1b[31m to start",)
    assert background.status(paths).state is RunState.STOPPED


def test_killed_start_names_the_signal(fakes: FakeServices) -> None:
    with pytest.raises(StartFailed, match="ended by SIGKILL"):
        background.start(fakes.paths, ["/bin/sh", "-c", "kill -9 $$"], os.environ)


def test_slow_start_is_reported_and_continues(fakes: FakeServices, paths: SitePaths) -> None:
    """The service continues to start (C-124)."""
    with pytest.raises(StillStarting, match="fw status"):
        start(fakes, "never ready", seconds=0.5)
    now = background.status(paths)
    while now.pid is None:  # on a busy machine it takes longer even to be there
        time.sleep(0.02)
        now = background.status(paths)
    assert now.state is RunState.STARTING
    assert background.stop(paths) is Stopped.GRACEFULLY


def test_background_log_is_private_and_appended(fakes: FakeServices, paths: SitePaths) -> None:
    for _ in range(2):
        start(fakes)
        background.stop(paths)
    assert paths.log.read_text().count("service.ready") == 2
    assert stat.S_IMODE(paths.log.stat().st_mode) == 0o600


def test_pid_file_of_a_killed_service_is_ignored(fakes: FakeServices, paths: SitePaths) -> None:
    process = fakes.ready()
    process.kill()
    process.communicate()
    assert paths.pid.exists()
    assert background.status(paths) == ServiceStatus(RunState.STOPPED)
    assert background.stop(paths) is Stopped.NOT_RUNNING


def test_stop_never_signals_an_unrelated_process(paths: SitePaths) -> None:
    """Another one holds the lock, and the file names a process that never served."""
    stranger = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    start_ticks = start_time(stranger.pid)
    assert start_ticks is not None
    site_files.write(
        paths.pid, site_files.PidFile(stranger.pid, start_ticks - 1, "9.9", "http://127.0.0.1:1")
    )
    with ServeLock(paths.lock) as lock:
        lock.acquire()
        with pytest.raises(NotStoppable, match=f"process {stranger.pid}, but not on this machine"):
            background.stop(paths)
    assert stranger.poll() is None
    stranger.communicate()


def test_lock_holder_without_a_pid_file_is_starting(paths: SitePaths) -> None:
    with ServeLock(paths.lock) as lock:
        lock.acquire()
        assert background.status(paths) == ServiceStatus(RunState.STARTING)
        with pytest.raises(NotStoppable, match="its process id is unknown"):
            background.stop(paths)


def test_status_shows_the_processes_that_a_killed_supervisor_has_left(paths: SitePaths) -> None:
    """They hold the site's lock, and nobody updates the record (O-49)."""
    own, pid = start_time(os.getpid()), os.getpid()
    assert own is not None
    left = ServingRecord(1, ServingState.READY, pid, own)
    gone = ServingRecord(2, ServingState.READY, pid, own - 1)
    url = "http://127.0.0.1:1"
    with ServeLock(paths.lock) as lock:
        lock.acquire()
        for supervisor, expected in (
            (own, (left, gone)),  # it runs, so its record is right
            (own - 1, (replace(left, state=ServingState.STOPPING.value),)),
        ):
            record = PidFile(pid, supervisor, "9.9", url, 2, (left, gone))
            site_files.write(paths.pid, record)
            assert background.status(paths).serving == expected
        # None is visible: they run in another container, or on another machine.
        site_files.write(paths.pid, PidFile(pid, own - 1, "9.9", url, 2, (gone,)))
        assert background.status(paths).serving == (gone,)


def test_stop_signals_again_and_then_kills(
    fakes: FakeServices, paths: SitePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM, a second SIGTERM, SIGKILL (C-124)."""
    quick = tuple((number, 0.3) for number in (signal.SIGTERM, signal.SIGTERM))
    monkeypatch.setattr(background, "STOP_STEPS", (*quick, (signal.SIGKILL, 10.0)))
    fakes.ready("ignores the end")
    assert background.stop(paths) is Stopped.KILLED
    fakes.ready("drains for ever")
    monkeypatch.setattr(background, "STOP_STEPS", (quick[0], (signal.SIGTERM, 10.0), quick[1]))
    assert background.stop(paths) is Stopped.AT_ONCE


def test_stop_that_took_too_long_is_not_called_graceful(
    fakes: FakeServices, paths: SitePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-32: the service has ended itself at once."""
    fakes.ready()
    monkeypatch.setattr(background, "GRACEFUL_SECONDS", 0.0)
    assert background.stop(paths) is Stopped.AT_ONCE
