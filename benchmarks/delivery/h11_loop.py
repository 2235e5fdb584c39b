"""The reference: the least that posts signed events, h11 on trio with nothing durable."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Sequence
from hmac import HMAC
from typing import Final
from urllib.parse import urlsplit

import h11
import trio

from benchmarks.delivery.events import SECRET, SLOTS, body
from fw_actors import __version__
from fw_actors.http.dial import system_trust
from fw_actors.rules.signing import key_of, mac_of, sign

_READ_BYTES: Final = 65_536
_NO_CONTENT: Final = 204


class NotAccepted(Exception):
    """Raised when the receiver answers anything but 204."""


async def post(url: str, requests: int) -> float:
    """Call `post_to_all` with one receiver."""
    return await post_to_all([url], requests)


async def post_to_all(urls: Sequence[str], requests: int) -> float:
    """Post so many requests from `SLOTS` tasks or more, each on a connection of its own; the
    receivers in turns.

    Returns: requests per second.
    """
    # Ids like the service's, made before the clock starts, since it makes them when it records.
    ids = iter([b"msg_%027d" % number for number in range(requests)])
    trust = system_trust() if urls[0].startswith("https:") else None
    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for place in range(max(SLOTS, len(urls))):
            nursery.start_soon(_post_until_none_is_left, urls[place % len(urls)], ids, trust)
    return requests / (time.perf_counter() - began)


async def _post_until_none_is_left(
    url: str, ids: Iterator[bytes], trust: ssl.SSLContext | None
) -> None:
    key, payload = mac_of(key_of(SECRET)), body()
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 80
    authority = f"{host}:{port}".encode()
    connection = h11.Connection(h11.CLIENT)
    async with await _connected(host, port, trust) as stream:
        for delivery in ids:
            head = request(authority, key, delivery, payload)
            data = connection.send(head) or b""
            data += connection.send(h11.Data(payload)) or b""
            await stream.send_all(data + (connection.send(h11.EndOfMessage()) or b""))
            await answer(connection, stream)
            connection.start_next_cycle()


async def _connected(host: str, port: int, trust: ssl.SSLContext | None) -> trio.abc.Stream:
    if trust is None:
        return await trio.open_tcp_stream(host, port)
    return await trio.open_ssl_over_tcp_stream(host, port, https_compatible=True, ssl_context=trust)


def request(authority: bytes, key: HMAC, delivery: bytes, payload: bytes) -> h11.Request:
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


async def answer(connection: h11.Connection, stream: trio.abc.ReceiveStream) -> None:
    """Read an answer to its end. Raises: NotAccepted."""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(_READ_BYTES)))
        elif isinstance(event, h11.Response) and event.status_code != _NO_CONTENT:
            raise NotAccepted(f"The receiver answered {event.status_code}.")
        elif isinstance(event, h11.EndOfMessage):
            return
