"""A serving process from its lock to its exit, as a real process (C-106, O-31)."""

from __future__ import annotations

import signal
import subprocess

import pytest

from supervisors.service import site_files
from supervisors.service.site_files import SitePaths, is_held
from tests.supervisors.service.conftest import FakeServices


def begin_to_stop(process: subprocess.Popen[str]) -> None:
    """Send the first signal, and wait until it has been taken."""
    process.terminate()
    assert process.stderr is not None
    assert any("service.stopping" in line for line in process.stderr), "the log ended before"


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for its end; the exit code, and its stderr."""
    _, stderr = process.communicate(timeout=30)
    return process.returncode, stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_service_runs_until_a_signal_and_cleans_up(
    fakes: FakeServices, paths: SitePaths, number: signal.Signals
) -> None:
    process = fakes.ready()
    assert is_held(paths.lock)
    said = site_files.read(paths.pid)
    assert said is not None
    assert (said.pid, said.url, said.version) == (process.pid, "http://127.0.0.1:1", "9.9")
    process.send_signal(number)
    code, log = ended(process)
    assert code == 0, log
    assert not is_held(paths.lock)
    assert not paths.pid.exists()
    assert ["service.ready" in log, "service.stopping" in log, "service.stopped" in log] == [
        True
    ] * 3


def test_second_service_on_a_site_is_refused(fakes: FakeServices, paths: SitePaths) -> None:
    first = fakes.ready()
    code, said = ended(fakes.begin())
    assert code == 1
    assert f"process {first.pid} already serves the site {paths.folder}" in said
    known = site_files.read(paths.pid)
    assert known is not None
    assert known.pid == first.pid
    assert first.poll() is None


def test_service_starts_after_a_killed_one(fakes: FakeServices, paths: SitePaths) -> None:
    first = fakes.ready()
    first.kill()
    first.communicate()
    assert paths.pid.exists()
    second = fakes.ready()
    said = site_files.read(paths.pid)
    assert said is not None
    assert said.pid == second.pid


def test_signal_during_the_start_ends_with_code_0(fakes: FakeServices, paths: SitePaths) -> None:
    process = fakes.starting()
    said = site_files.read(paths.pid)
    assert said is not None
    assert said.url is None
    process.terminate()
    assert ended(process)[0] == 0
    assert not paths.pid.exists()


def test_second_signal_stops_at_once_with_code_1(fakes: FakeServices) -> None:
    process = fakes.ready("drains for ever")
    begin_to_stop(process)
    process.terminate()
    code, said = ended(process)
    assert code == 1
    assert "stopped at once: a second signal came" in said


def test_third_signal_kills_a_hanging_service(fakes: FakeServices) -> None:
    process = fakes.ready("ignores the end")
    begin_to_stop(process)
    process.terminate()
    while process.poll() is None:  # until the second one has been taken, and a further one kills
        process.terminate()
    assert process.returncode == -signal.SIGTERM


def test_second_signal_ends_a_service_that_hangs(fakes: FakeServices) -> None:
    """O-32: a thread of the store waits for ever for a server that has frozen."""
    process = fakes.ready("ignores the end")
    begin_to_stop(process)
    process.terminate()
    code, said = ended(process)
    assert code == 1
    assert "the process ends without waiting for its threads" in said


def test_permanently_failed_service_ends_the_process(fakes: FakeServices, paths: SitePaths) -> None:
    code, said = ended(fakes.ready("fails"))
    assert code == 1
    assert "its restarts did not help" in said
    assert not paths.pid.exists()


def test_refused_start_leaves_no_pid_file(fakes: FakeServices, paths: SitePaths) -> None:
    process = fakes.begin("refuses")
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (1, "")
    assert "the fake refuses" in stderr
    assert not paths.pid.exists()
