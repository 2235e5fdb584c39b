"""Signals that can't hit a stranger."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from supervisors.service.process import birth, open_process


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_process_gets_the_signal_and_its_end_is_seen(child: subprocess.Popen[bytes]) -> None:
    with open_process(child.pid, birth(child.pid)) as process:
        assert process is not None
        assert not process.wait(0)
        process.signal(signal.SIGTERM)
        assert process.wait(10)
        child.wait()
        process.signal(signal.SIGTERM)  # without effect
    assert child.returncode == -signal.SIGTERM


def test_a_number_that_went_to_another_process_is_not_taken(
    child: subprocess.Popen[bytes],
) -> None:
    born = birth(child.pid)
    assert born is not None
    with open_process(child.pid, born - 1) as process:
        assert process is None
    assert child.poll() is None


def test_a_process_that_has_gone_is_not_found(child: subprocess.Popen[bytes]) -> None:
    born = birth(child.pid)
    child.kill()
    child.wait()
    with open_process(child.pid, born) as process:
        assert process is None
    assert birth(child.pid) is None


def test_a_process_started_later_is_not_born_before() -> None:
    mine, parents = birth(os.getpid()), birth(1)
    assert mine is not None
    assert parents is not None
    assert mine >= parents
