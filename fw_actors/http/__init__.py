"""The sender: one signed POST over h11 on trio streams (B-120, B-140).

async with open_sender() as sender:
    response = await sender.post(parse_endpoint(url), body, make_headers, timeout=10)

`make_headers` is called once the connection is ready; it returns the headers of this attempt
(webhook-id, webhook-timestamp, webhook-signature) with lower-case names. `post` returns a
`ReceiverResponse` for every status, redirects included; without one it raises a `NetworkError`.
"""

from fw_actors.http.dial import Address, Lookup, ResolverStatistics, system_lookup, system_trust
from fw_actors.http.exchange import MakeHeaders
from fw_actors.http.pool import PoolLimits, PoolStatistics
from fw_actors.http.response import (
    ConnectError,
    DnsError,
    ForbiddenAddress,
    NetworkError,
    ProtocolError,
    ReceiverResponse,
    ResponseTimeout,
    Times,
    TlsError,
)
from fw_actors.http.sender import Sender, SenderStatistics, open_sender
from fw_actors.http.url import Endpoint, Origin, is_loopback, parse_endpoint

__all__ = [
    "Address",
    "ConnectError",
    "DnsError",
    "Endpoint",
    "ForbiddenAddress",
    "Lookup",
    "MakeHeaders",
    "NetworkError",
    "Origin",
    "PoolLimits",
    "PoolStatistics",
    "ProtocolError",
    "ReceiverResponse",
    "ResolverStatistics",
    "ResponseTimeout",
    "Sender",
    "SenderStatistics",
    "Times",
    "TlsError",
    "is_loopback",
    "open_sender",
    "parse_endpoint",
    "system_lookup",
    "system_trust",
]
