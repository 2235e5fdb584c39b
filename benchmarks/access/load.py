"""Repeats the same requests to an HTTP server on kept connections, at the lowest cost.

The client shares its cores with the measured server. Therefore it is one loop over bare sockets,
which takes about 20 µs for a request.
"""

from __future__ import annotations

import re
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

CONNECTIONS: Final = 16
DEADLINE_SECONDS: Final = 120.0
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_HEAD_END: Final = b"\r\n\r\n"
_MAX_READ: Final = 65536


class WrongAnswer(Exception):
    """Raised when the server answers another status than the one that is measured, or nothing."""


@dataclass(frozen=True)
class RequestPlan:
    """A request, the status expected, and how often to send it; None: until the others are done."""

    request: bytes
    status: int
    times: int | None
    connections: int = 1


@dataclass
class Measured:
    """The result of a load: requests a second, and the duration of each (s)."""

    rate: float
    seconds: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """Return the time within which a share of the requests was answered."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def request(
    method: str, path: str, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()
) -> bytes:
    """Return a request as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in headers)]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def load(
    port: int, content: bytes, status: int, count: int, connections: int = CONNECTIONS
) -> Measured:
    """Send `asked` `count` times over some connections. Raises: WrongAnswer."""
    return load_all(port, [RequestPlan(content, status, count, connections)])


def load_all(port: int, askings: Sequence[RequestPlan]) -> Measured:
    """Ask all of it side by side, until what is counted was answered; what is not is not measured.

    Raises: WrongAnswer.
    """
    with selectors.DefaultSelector() as selector:
        all_counts = [_RequestCounts(asking) for asking in askings]
        open_ones = [
            _Connection(port, counts)
            for counts in all_counts
            for _ in range(counts.asking.connections)
        ]
        begun = time.perf_counter()
        try:
            for connection in open_ones:
                selector.register(connection.socket, selectors.EVENT_READ, connection)
                connection.ask()
            while any(counts.unanswered for counts in all_counts):
                _serve(selector)
        finally:
            for connection in open_ones:
                connection.socket.close()
        seconds = [each for counts in all_counts for each in counts.seconds]
        return Measured(len(seconds) / (time.perf_counter() - begun), seconds)


def _serve(selector: selectors.BaseSelector) -> None:
    ready = selector.select(DEADLINE_SECONDS)
    if not ready:
        raise WrongAnswer("The server does not answer.")
    for key, _ in ready:
        key.data.read()


class _RequestCounts:
    """How much of an asking is still to be sent, and to be answered."""

    def __init__(self, asking: RequestPlan) -> None:
        self.asking = asking
        self.unsent = asking.times
        self.unanswered = asking.times or 0
        self.seconds: list[float] = []


class _Connection:
    """A connection with one request under way at most."""

    def __init__(self, port: int, counts: _RequestCounts) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lot = counts
        self._got = b""
        self._begun = 0.0

    def ask(self) -> None:
        counts = self._lot
        if counts.unsent is not None:
            if not counts.unsent:
                return
            counts.unsent -= 1
        self._got = b""
        self._begun = time.perf_counter()
        self.socket.sendall(counts.asking.request)

    def read(self) -> None:
        part = self.socket.recv(_MAX_READ)
        if not part:
            raise WrongAnswer("The server closed the connection.")
        self._got += part
        end = self._got.find(_HEAD_END)
        if end < 0:
            return
        found = _LENGTH.search(self._got, 0, end + 2)
        if len(self._got) >= end + len(_HEAD_END) + (int(found[1]) if found else 0):
            self._answered()

    def _answered(self) -> None:
        counts = self._lot
        if int(self._got[9:12]) != counts.asking.status:
            raise WrongAnswer(self._got.decode(errors="replace"))
        if counts.asking.times is not None:
            counts.seconds.append(time.perf_counter() - self._begun)
            counts.unanswered -= 1
        self.ask()
