"""Binds the address that the service listens on, and accepts connections.

Imports nothing of the application.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

import trio

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


NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Errors of accept(2) for a connection that failed in the queue; the next one may be fine.
GONE: Final = frozenset(
    {
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOPROTOOPT,
        errno.EPROTO,
    }
)
RAISE_LIMIT: Final = "raise the limit of open files: LimitNOFILE= in the unit, or ulimit -n"
AGAIN_SECONDS: Final = 0.1
REPORT_SECONDS: Final = 60.0


class PatientListener(trio.abc.Listener[trio.SocketStream]):
    """Accepts connections, also while no file descriptor is left.

    Args:
        listening: the bound socket.
        make_room: closes a connection to free a descriptor; returns whether there was one.
        report: logs the reason for which a connection cannot be accepted, at most once a minute.
    """

    def __init__(
        self,
        listening: socket.socket,
        make_room: Callable[[], bool],
        report: Callable[[str], object],
    ) -> None:
        self._inner = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        self._queue = select.poll()
        self._queue.register(listening, select.POLLIN)
        self._make_room, self._report = make_room, report
        self._reported = -inf

    async def accept(self) -> trio.SocketStream:
        """Return the next connection."""
        while True:
            try:
                return await self._inner.accept()
            except OSError as error:
                if error.errno in GONE:
                    continue
                if error.errno not in NO_ROOM:
                    raise
                reason = os.strerror(error.errno)
            # Without a descriptor accept(2) fails even if no connection waits.
            if not self._queue.poll(0):
                await trio.lowlevel.wait_readable(self._inner.socket)
                continue
            now = trio.current_time()
            if now - self._reported >= REPORT_SECONDS:
                self._reported = now
                self._report(reason)
            if not self._make_room():
                await trio.sleep(AGAIN_SECONDS)

    async def aclose(self) -> None:
        """Close the socket."""
        await self._inner.aclose()
