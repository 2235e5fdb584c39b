"""The assignment that a supervisor sends to each of its processes on their standard input.

A pipe, not the environment: secrets must not be in the environment of a child (C-84). The
configuration is the supervisor's, so that a replaced process serves with the configuration with
which the service was started, even if the files have changed.
"""

from __future__ import annotations

import os
import pickle  # nosec B403
import sys
from typing import BinaryIO

import msgspec

from fw_actors.config import Config, ProcessPlace
from fw_actors.version import __version__
from supervisors.service.site_files import ServiceError


class VersionChanged(ServiceError):
    """Raised in a process that was replaced after another version had been installed."""

    def __init__(self, version: str) -> None:
        super().__init__(
            f"the service runs version {version}, and this program is {__version__}: "
            "restart the service"
        )


class Assignment(msgspec.Struct, frozen=True):
    """The place of a process, its configuration, and its inherited descriptors.

    `version` is the supervisor's. `pickled_config` is a `Config`. `listening` is the socket on
    which all processes accept, `control` the channel to the supervisor, `subscriptions` the memory
    of `SharedSubscriptions`. `lock` is the site's lock, which is held until the last process has
    ended. `alone` tells that no other process accepts requests yet, so that this one answers health
    checks while it starts. `run_folder` is as in `SitePaths`, or empty.
    """

    number: int
    count: int
    version: str
    pickled_config: bytes
    url: str
    listening: int
    control: int
    subscriptions: int
    lock: int
    alone: bool
    run_folder: str

    @property
    def place(self) -> ProcessPlace:
        """The process's place in the service."""
        return ProcessPlace(self.number, self.count)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to be inherited."""
        return (self.listening, self.control, self.subscriptions, self.lock)

    def config(self) -> Config:
        """Return the configuration of this process.

        Raises: VersionChanged if this program is not the supervisor's.
        """
        if self.version != __version__:
            raise VersionChanged(self.version)
        # From this process's own parent, through a private pipe.
        whole: Config = pickle.loads(self.pickled_config)  # nosec B301
        return whole.for_process(self.place)

    def encoded(self) -> bytes:
        """Return the content of the process's standard input."""
        return msgspec.msgpack.encode(self)


def read_assignment(stream: BinaryIO) -> Assignment:
    """Read the assignment, and replace the standard input by the null device."""
    found = msgspec.msgpack.decode(stream.read(), type=Assignment)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, sys.__stdin__.fileno() if sys.__stdin__ else 0)
    os.close(null)
    for descriptor in found.descriptors:
        os.set_inheritable(descriptor, False)  # programs that apps start must not inherit it
    return found
