"""Signals that cannot hit a stranger."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from supervisors.service.process import open_process, outcome_of, start_time


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (1, "ended with exit code 1"),
        (-9, "was ended by SIGKILL"),
        (-40, "was ended by signal 40"),
    ],
)
def test_outcome_of_process_names_signal_if_it_has_a_name(code: int, outcome: str) -> None:
    assert outcome_of(code) == outcome


def test_open_process_signals_and_sees_the_end(child: subprocess.Popen[bytes]) -> None:
    with open_process(child.pid, start_time(child.pid)) as process:
        assert process is not None
        assert not process.wait(0)
        process.signal(signal.SIGTERM)
        assert process.wait(10)
        child.wait()
        process.signal(signal.SIGTERM)  # without effect
    assert child.returncode == -signal.SIGTERM


def test_open_process_rejects_a_reused_process_id(
    child: subprocess.Popen[bytes],
) -> None:
    start_ticks = start_time(child.pid)
    assert start_ticks is not None
    with open_process(child.pid, start_ticks - 1) as process:
        assert process is None
    assert child.poll() is None


def test_open_process_finds_no_ended_process(child: subprocess.Popen[bytes]) -> None:
    start_ticks = start_time(child.pid)
    child.kill()
    child.wait()
    with open_process(child.pid, start_ticks) as process:
        assert process is None
    assert start_time(child.pid) is None


def test_start_time_of_a_later_process_is_not_earlier() -> None:
    mine, parents = start_time(os.getpid()), start_time(1)
    assert mine is not None
    assert parents is not None
    assert mine >= parents
