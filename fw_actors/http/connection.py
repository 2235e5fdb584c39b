"""A connection to a receiver, and the progress of the request on it.

The kernel's and OpenSSL's errors end here. A broken connection is no error while sending: what the
receiver said before it broke is still to be read and decides, so only reading raises.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Protocol

import msgspec
import trio

from fw_actors.http.response import Times
from fw_actors.http.url import Origin


class BrokenConnection(Exception):
    """Raised by `receive` when the connection broke; `tls` says that TLS is what failed."""

    def __init__(self, tls: bool = False) -> None:
        super().__init__("tls" if tls else "reset")
        self.tls = tls


class Connection(Protocol):
    """A connection to one origin, used for one exchange at a time.

    Cancelled in `start`, `send` or `receive`, it is of no further use but to be closed. It may be
    closed while they wait, which breaks it for them: so a deadline can end an exchange.
    """

    origin: Origin
    address: str  # of the peer, with its port
    idle_since: float  # trio's time; meaningful in the pool only
    broken: bool  # a send failed

    async def start(self, data: bytes) -> int:
        """Send as much as possible without waiting for the receiver; return the number of bytes."""
        ...

    async def send(self, data: memoryview) -> None:
        """Send all of it, waiting as long as the receiver makes us."""
        ...

    async def receive(self, limit: int) -> bytes:
        """Wait for bytes, at most `limit`; empty when the receiver has closed its side.

        Raises: BrokenConnection.
        """
        ...

    async def receive_ready(self, limit: int) -> bytes:
        """Return bytes that have arrived; empty when there are none, or nothing more will come."""
        ...

    def is_reusable(self) -> bool:
        """Whether the connection can take another exchange: nothing, not even an end, came after
        the last response.
        """
        ...

    def close(self) -> None:
        """Close it at once and without a word; a second time does nothing."""
        ...


class PlainConnection:
    """A TCP connection, straight on its socket.

    `trio.SocketStream` adds a checkpoint to each send and locks against misuse, which took a
    quarter of a POST's time when measured; here one wait for readability is the only checkpoint.
    """

    __slots__ = ("_poll", "_socket", "address", "broken", "idle_since", "origin")

    def __init__(self, origin: Origin, sock: socket.socket, address: str = "") -> None:
        self.origin = origin
        self.address = address
        self.idle_since = 0.0
        self.broken = False
        self._socket = sock
        self._poll = select.poll()  # made once: asked before each use
        self._poll.register(sock, select.POLLIN)

    async def start(self, data: bytes | bytearray | memoryview) -> int:
        return self._send_nowait(data)

    async def send(self, data: memoryview) -> None:
        while data and not self.broken:
            if self._socket.fileno() >= 0:  # else it is found out below
                with suppress(trio.ClosedResourceError):
                    await trio.lowlevel.wait_writable(self._socket)
            data = data[self._send_nowait(data) :]

    def _send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.broken = True
            return len(data)

    async def receive(self, limit: int) -> bytes:
        while self._socket.fileno() >= 0:
            try:
                await trio.lowlevel.wait_readable(self._socket)
                return self._socket.recv(limit)
            except BlockingIOError:
                continue  # epoll may be wrong: a segment with a bad checksum, say
            except (OSError, trio.ClosedResourceError):
                break
        raise BrokenConnection

    async def receive_ready(self, limit: int) -> bytes:
        return self.receive_nowait(limit)

    def receive_nowait(self, limit: int) -> bytes:
        """Like `receive_ready`, without waiting."""
        try:
            return self._socket.recv(limit)
        except OSError:
            return b""

    def is_reusable(self) -> bool:
        return not self.broken and self._socket.fileno() >= 0 and not self._poll.poll(0)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


class ExchangeStep(Enum):
    """Steps of an exchange; the value is the sentence for a timeout in it."""

    WAIT = "No connection to {host} was free within {seconds:g} s."
    LOOK_UP = "The address of {host} was not resolved within {seconds:g} s."
    CONNECT = "{host} did not take the connection within {seconds:g} s."
    TUNNEL = "The proxy did not connect to {host} within {seconds:g} s."
    HANDSHAKE = "{host} did not finish the TLS handshake within {seconds:g} s."
    SEND = "{host} did not take the whole request within {seconds:g} s."
    ANSWER = "{host} did not answer within {seconds:g} s."


class Progress(msgspec.Struct):
    """The step that a POST is at, and how long those before it took; `now` is trio's clock.

    `address` is the one that it goes to, with its port; empty until it is known.
    """

    now: Callable[[], float] = trio.current_time
    step: ExchangeStep = ExchangeStep.LOOK_UP
    times: Times = msgspec.field(default_factory=Times)
    address: str = ""

    def enter(self, step: ExchangeStep) -> float:
        """Begin a step; return trio's time."""
        self.step = step
        return self.now()

    def overdue(self, host: str, seconds: float) -> str:
        """The sentence for a deadline that passed in this step."""
        return self.step.value.format(host=host, seconds=seconds)
