"""Asks an HTTP server the same thing over and over on kept connections, as cheaply as can be."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

CONNECTIONS: Final = 16
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_HEAD_END: Final = b"\r\n\r\n"


class WrongAnswer(Exception):
    """Raised when the server answers another status than the one that is measured."""


@dataclass
class Measured:
    """What a load brought: requests a second, and how long each took (s)."""

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


async def load(
    port: int, asked: bytes, status: int, count: int, connections: int = CONNECTIONS
) -> Measured:
    """Send `asked` `count` times over some connections. Raises: WrongAnswer."""
    times: list[float] = []
    left = count

    async def one() -> None:
        nonlocal left
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            while left > 0:
                left -= 1
                begun = time.perf_counter()
                await _ask(stream, asked, status)
                times.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(connections):
            nursery.start_soon(one)
    return Measured(len(times) / (time.perf_counter() - begun), times)


async def _ask(stream: trio.SocketStream, asked: bytes, status: int) -> bytes:
    await stream.send_all(asked)
    got = b""
    while _HEAD_END not in got:
        part = await stream.receive_some(65536)
        if not part:
            raise WrongAnswer("The server closed the connection.")
        got += part
    if int(got[9:12]) != status:
        raise WrongAnswer(got.decode(errors="replace"))
    found = _LENGTH.search(got)
    whole = got.index(_HEAD_END) + len(_HEAD_END) + (int(found[1]) if found else 0)
    while len(got) < whole:
        got += await stream.receive_some(65536)
    return got
