"""Binds the address that the service listens on; imports nothing of the application."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Final

from fw_actors.errors import ConfigurationError

BACKLOG: Final = 1024
WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # compared, not bound  # nosec B104


@dataclass(frozen=True)
class Bound:
    """A listening socket, and its URL on this machine."""

    socket: socket.socket
    url: str


def bind(host: str, port: int, *, named: str = "FW_BIND") -> Bound:
    """Listen at `host` and `port`; port 0 picks a free one. `named`: where the address is set.

    Raises: ConfigurationError when the address is taken or not this machine's.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise _not_bound(named, host, port, error) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _not_bound(named, host, port, error) from None
    return Bound(listening, url_of(host, listening.getsockname()[1]))


def url_of(host: str, port: int) -> str:
    """Return the URL on this machine for a server at `host` and `port`."""
    name = WILDCARDS.get(host, host)
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}"


def _not_bound(named: str, host: str, port: int, error: OSError) -> ConfigurationError:
    return ConfigurationError([f"{named}: cannot listen at {host}:{port}: {error.strerror}"])
