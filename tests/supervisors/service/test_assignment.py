"""The assignment that a supervisor gives to the processes of its service."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import inf
from pathlib import Path

import msgspec
import pytest

from fw_actors import __version__
from fw_actors.config import Config, ProcessPlace
from supervisors.service.control_channel import Assignment, VersionChanged
from supervisors.service.fork_server import ForkServer
from supervisors.service.processes import Processes
from supervisors.service.run import OwnPidFile
from tests.mail_kit import RecordingLog
from tests.site_kit import SECRET_KEY, make_config
from web.listening import bind


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return make_config(tmp_path, processes=2, delivery_concurrency=10)


@pytest.fixture
def assignment(config: Config) -> Iterator[Assignment]:
    bound = bind("127.0.0.1", 0)
    with bound.socket:
        service = Processes(config, bound, 0, 0, "", RecordingLog(), inf, None, ForkServer())
        made = service.assignment(2, 0)
    null = os.open(os.devnull, os.O_RDONLY)
    yield Assignment.decoded(made.encoded(), [null] * 4)
    os.close(null)


def test_assignment_has_the_configuration_of_the_supervisor(assignment: Assignment) -> None:
    own = assignment.config()
    assert own.place == ProcessPlace(2, 2)
    assert own.ops.delivery_concurrency == 5
    assert own.secrets.key == SECRET_KEY


def test_received_descriptors_are_not_inherited(assignment: Assignment) -> None:
    """A program that an app has started must not hold the site's lock or its port."""
    with open(os.devnull) as null:
        os.set_inheritable(null.fileno(), True)  # as received on a socket
        Assignment.decoded(assignment.encoded(), [null.fileno()] * 4)
        assert not os.get_inheritable(null.fileno())


def test_assignment_of_another_version_is_refused(assignment: Assignment) -> None:
    other = msgspec.structs.replace(assignment, version="0.0.1")
    with pytest.raises(VersionChanged, match=rf"0\.0\.1, and this program is {__version__}"):
        other.config()


def test_unwritable_pid_file_is_logged_and_ends_nothing(config: Config, tmp_path: Path) -> None:
    """A full disk must not end a process that has just become ready (O-49)."""
    log, bound = RecordingLog(), bind("127.0.0.1", 0)
    pid_file = OwnPidFile(tmp_path / "gone" / "serve.json", "1.0", 2)
    with bound.socket:
        Processes(config, bound, 0, 0, "", log, inf, pid_file, ForkServer()).record()
    assert len(log.of("service.states_not_recorded")) == 1


def test_first_process_is_assigned_as_alone(assignment: Assignment) -> None:
    """It does so until another process is ready."""
    assert assignment.alone
