"""The sender: one signed POST over h11 on trio streams (B-120, B-140).

async with open_sender() as sender:
    answer = await sender.post(parse_target(url), body, make_headers, timeout=10)

`make_headers` is called once the connection is ready and gives the headers that belong to this
attempt (webhook-id, webhook-timestamp, webhook-signature), lower-case names. `post` returns an
`Answer` for every status, redirects included, and raises a `NetworkError` when there was none.
"""

from fw_actors.http.dial import Address, Lookup, ResolverStatistics, system_lookup, system_trust
from fw_actors.http.errors import (
    AnswerTimeout,
    ConnectError,
    DnsError,
    NetworkError,
    ProtocolError,
    TlsError,
)
from fw_actors.http.pool import PoolLimits, PoolStatistics
from fw_actors.http.request import MakeHeaders
from fw_actors.http.response import Answer, Times
from fw_actors.http.sender import Sender, SenderStatistics, open_sender
from fw_actors.http.url import Origin, Target, is_loopback, parse_target

__all__ = [
    "Address",
    "Answer",
    "AnswerTimeout",
    "ConnectError",
    "DnsError",
    "Lookup",
    "MakeHeaders",
    "NetworkError",
    "Origin",
    "PoolLimits",
    "PoolStatistics",
    "ProtocolError",
    "ResolverStatistics",
    "Sender",
    "SenderStatistics",
    "Target",
    "Times",
    "TlsError",
    "is_loopback",
    "open_sender",
    "parse_target",
    "system_lookup",
    "system_trust",
]
