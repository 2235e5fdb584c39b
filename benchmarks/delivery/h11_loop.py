"""The reference: the least that posts signed events, h11 on trio with nothing durable."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import h11
import trio

from benchmarks.delivery.events import PLACES, SECRET, body
from fw_actors.rules.signing import key_of, sign
from fw_actors.version import __version__

_READ_BYTES: Final = 65_536
_NO_CONTENT: Final = 204


class Refused(Exception):
    """Raised when the receiver answers anything but 204."""


async def post(url: str, requests: int) -> float:
    """Post so many requests from `PLACES` tasks, each on a connection of its own.

    Returns: requests per second.
    """
    # Ids like the service's, made before the clock starts, since it makes them when it records.
    ids = iter([b"msg_%027d" % number for number in range(requests)])
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 80
    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(PLACES):
            nursery.start_soon(_post_until_none_is_left, host, port, ids)
    return requests / (time.perf_counter() - began)


async def _post_until_none_is_left(host: str, port: int, ids: Iterator[bytes]) -> None:
    key, payload = key_of(SECRET), body()
    authority = f"{host}:{port}".encode()
    connection = h11.Connection(h11.CLIENT)
    async with await trio.open_tcp_stream(host, port) as stream:
        for delivery in ids:
            head = request(authority, key, delivery, payload)
            data = connection.send(head) or b""
            data += connection.send(h11.Data(payload)) or b""
            await stream.send_all(data + (connection.send(h11.EndOfMessage()) or b""))
            await answer(connection, stream)
            connection.start_next_cycle()


def request(authority: bytes, key: bytes, delivery: bytes, payload: bytes) -> h11.Request:
    """Return the head that the service would send."""
    timestamp = b"%d" % time.time()
    return h11.Request(
        method=b"POST",
        target=b"/hook",
        headers=[
            (b"host", authority),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(payload)),
            (b"user-agent", b"fw-webhooks/" + __version__.encode()),
            (b"accept", b"*/*"),
            (b"webhook-id", delivery),
            (b"webhook-timestamp", timestamp),
            (b"webhook-signature", sign(key, delivery, timestamp, payload)),
        ],
    )


async def answer(connection: h11.Connection, stream: trio.SocketStream) -> None:
    """Read an answer to its end. Raises: Refused."""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(_READ_BYTES))
        elif isinstance(event, h11.Response) and event.status_code != _NO_CONTENT:
            raise Refused(f"The receiver answered {event.status_code}.")
        elif isinstance(event, h11.EndOfMessage):
            return
