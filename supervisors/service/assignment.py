"""What the supervisor of several processes gives to each of them, on its standard input.

A pipe, and not the environment: secrets must be in no environment of a child (C-84).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import BinaryIO, Final

import msgspec

from fw_actors.config import ProcessPlace

NO_SYSTEMD: Final = "NOTIFY_SOCKET"
"""The variable that only the supervisor gets: systemd knows one process of a service."""


class Assignment(msgspec.Struct, frozen=True):
    """The place of a process, the environment of its site, and its inherited descriptors.

    `listening` is the socket that all processes accept on, `control` the channel to the
    supervisor, `subscriptions` the memory of `SharedSubscriptions`. `lock` is the site's lock,
    which is held until the last process has ended. `alone` says that no other process accepts
    requests yet, so that this one answers for the service while it starts.
    """

    number: int
    count: int
    environ: dict[bytes, bytes]
    url: str
    listening: int
    control: int
    subscriptions: int
    lock: int
    alone: bool

    @property
    def place(self) -> ProcessPlace:
        """The process's place in the service."""
        return ProcessPlace(self.number, self.count)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to be inherited."""
        return (self.listening, self.control, self.subscriptions, self.lock)

    def variables(self) -> dict[str, str]:
        """Return the environment of the site."""
        return {os.fsdecode(name): os.fsdecode(value) for name, value in self.environ.items()}

    def encoded(self) -> bytes:
        """Return the content of the process's standard input."""
        return msgspec.msgpack.encode(self)


def encoded_environ(environ: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return an environment as bytes, since its texts need not be UTF-8."""
    return {os.fsencode(k): os.fsencode(v) for k, v in environ.items() if k != NO_SYSTEMD}


def read_assignment(stream: BinaryIO) -> Assignment:
    """Read the assignment, and put the null device in the place of the standard input."""
    found = msgspec.msgpack.decode(stream.read(), type=Assignment)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, sys.__stdin__.fileno() if sys.__stdin__ else 0)
    os.close(null)
    for descriptor in found.descriptors:
        os.set_inheritable(descriptor, False)  # not for programs that apps start
    return found
