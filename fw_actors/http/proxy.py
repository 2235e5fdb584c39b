"""The egress proxy: a tunnel to a receiver by HTTP CONNECT (B-156, RFC 9110 9.3.6).

TLS runs inside the tunnel, end to end, so that the proxy sees a host and a port and nothing else.
It resolves the names of receivers, and judges where they lead; addresses are judged here as well.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

import h11

from fw_actors.http.errors import ConnectError
from fw_actors.http.exchange import BrokenConnection, Connection
from fw_actors.http.url import Origin
from fw_actors.rules.outgoing import EgressProxy

MAX_HEAD: Final = 16 * 1024  # bytes of the proxy's answer
_READ: Final = 4096
_UNAUTHORIZED: Final = (401, 407)  # 407 by RFC 9110 15.5.8; tinyproxy says 401


async def open_tunnel(connection: Connection, to: Origin, proxy: EgressProxy) -> None:
    """Have the proxy connect to `to`; afterwards `connection` leads there.

    Raises: ConnectError, if the proxy refuses, or does not answer as one.
    """
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
    request = client.send(_request(to, proxy))
    assert request is not None
    sent = await connection.start(request)
    await connection.send(memoryview(request)[sent:])
    status = await _status(client, connection, proxy)
    if status in _UNAUTHORIZED:
        raise ConnectError(
            f"The proxy {proxy.host} does not accept the credentials of FW_OUTGOING_PROXY_AUTH."
        )
    if not 200 <= status < 300:
        raise ConnectError(
            f"The proxy {proxy.host} refused to connect to {to.host} port {to.port} ({status})."
        )


def _request(to: Origin, proxy: EgressProxy) -> h11.Request:
    host = f"[{to.host}]" if ":" in to.host else to.host
    authority = f"{host}:{to.port}".encode("ascii")
    headers: list[tuple[bytes, bytes]] = [(b"host", authority)]
    if proxy.credentials is not None:
        token = base64.b64encode(proxy.credentials.encode())  # RFC 7617 2.1
        headers.append((b"proxy-authorization", b"Basic " + token))
    return h11.Request(method="CONNECT", target=authority, headers=headers)


async def _status(client: h11.Connection, connection: Connection, proxy: EgressProxy) -> int:
    """Return the status of the proxy's final answer. Raises: ConnectError."""
    fault = ConnectError(f"The proxy {proxy.host} did not answer as an HTTP proxy.")
    try:
        while True:
            event = client.next_event()
            if isinstance(event, h11.Response):
                if event.status_code < 300 and _trailing(client):
                    raise fault  # the receiver cannot have spoken before it was spoken to
                return event.status_code
            if event is h11.NEED_DATA:
                data = await connection.receive(_READ)
                if not data:
                    raise fault
                client.receive_data(data)
            elif not isinstance(event, h11.InformationalResponse):
                raise fault
    except (h11.RemoteProtocolError, BrokenConnection):
        raise fault from None


def _trailing(client: h11.Connection) -> Sequence[int]:
    return client.trailing_data[0]
