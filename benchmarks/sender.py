"""The suite `sender`: POSTs a second, 64 at once, against a bare h11 loop on trio.

Both sides send the same requests to the same nginx and read its answers to their end. Neither
signs: the headers are made beforehand. Ours takes a connection from its pool for each POST, under a
deadline; the reference gives each task a connection of its own, and has no deadline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

import h11
import trio

from benchmarks.delivery.events import SLOTS, body
from benchmarks.delivery.h11_loop import NotAccepted, answer
from benchmarks.nginx import counted, running_nginx
from benchmarks.rows import BenchmarkRow, Comparison, Effort
from fw_actors import __version__
from fw_actors.http import Endpoint, open_sender, parse_endpoint

TIMEOUT: Final = 10.0
NO_CONTENT: Final = 204

_BODY: Final = body()
_SIGNED: Final = (
    (b"webhook-id", b"msg_" + b"0" * 27),
    (b"webhook-timestamp", b"1767323045"),
    (b"webhook-signature", b"v1," + b"A" * 43 + b"="),
)


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the suite."""
    with TemporaryDirectory() as folder, running_nginx(Path(folder)) as nginx:
        yield Comparison(
            suite="sender",
            name="posts",
            unit="posts/s",
            ours=partial(counted, nginx, effort.events, post),
            reference=partial(counted, nginx, effort.events, bare_post),
            reference_name="bare h11 loop on trio",
        ).measure(effort)


async def post(url: str, posts: int) -> float:
    """Post from as many tasks as there are places, through one sender."""
    target = parse_endpoint(url)
    left = repeat(None, posts)
    async with open_sender() as sender:

        async def work() -> None:
            for _ in left:
                got = await sender.post(target, _BODY, _headers, timeout=TIMEOUT)
                if got.status != NO_CONTENT:
                    raise NotAccepted(f"The receiver answered {got.status}.")

        return posts / await _seconds_of(work)


async def bare_post(url: str, posts: int) -> float:
    """Post from as many tasks, each with its own connection and h11's state machine."""
    target = parse_endpoint(url)
    address = urlsplit(url)
    left = repeat(None, posts)

    async def work() -> None:
        connection = h11.Connection(h11.CLIENT)
        async with await trio.open_tcp_stream(address.hostname or "", address.port or 80) as stream:
            for _ in left:
                data = connection.send(_request(target)) or b""
                data += connection.send(h11.Data(_BODY)) or b""
                await stream.send_all(data + (connection.send(h11.EndOfMessage()) or b""))
                await answer(connection, stream)
                connection.start_next_cycle()

    return posts / await _seconds_of(work)


def _headers() -> Sequence[tuple[bytes, bytes]]:
    return _SIGNED


def _request(target: Endpoint) -> h11.Request:
    return h11.Request(
        method=b"POST",
        target=target.path,
        headers=[
            (b"host", target.authority.encode()),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(_BODY)),
            (b"user-agent", b"fw-webhooks/" + __version__.encode()),
            (b"accept", b"*/*"),
            *_SIGNED,
        ],
    )


async def _seconds_of(work: Callable[[], Awaitable[None]]) -> float:
    began = perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(SLOTS):
            nursery.start_soon(work)
    return perf_counter() - began
