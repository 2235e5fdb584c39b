"""Look-ups of names that need no resolver, for `open_sender`."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from fw_actors.http import Address, Lookup


def v4(host: str, port: int) -> Address:
    return (socket.AF_INET, (host, port))


def v6(host: str, port: int) -> Address:
    return (socket.AF_INET6, (host, port, 0, 0))


def found(*addresses: Address) -> Lookup:
    """Return a look-up that finds these addresses for every name."""

    def lookup(host: str, port: int) -> Sequence[Address]:
        return addresses

    return lookup


def loopback(host: str, port: int) -> Sequence[Address]:
    """Find 127.0.0.1, at which the receivers of tests listen, for every name."""
    return [v4("127.0.0.1", port)]
