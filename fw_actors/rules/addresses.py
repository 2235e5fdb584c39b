"""Whom the throttles take a client address for. Source: interface §1, "Client address"."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

_HOST_BITS: Final = 64  # one household or machine has all addresses of its /64
_WIDER: Final = (56, 48)  # what providers give a household, and an organisation (RFC 6177)
_IPV4_QUEUE: Final = 24  # the smallest network that is routed by itself
_MOST_REMEMBERED: Final = 1024


@lru_cache(_MOST_REMEMBERED)
def counted_address(address: str) -> str:
    """Return what an address is counted under: IPv6 per /64, IPv4-mapped IPv6 as IPv4.

    What is no address (a peer without one, such as a Unix socket) is counted as it is.
    """
    parsed = _parsed(address)
    if parsed is None:
        return address
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    return f"{IPv6Address(int(parsed) >> _HOST_BITS << _HOST_BITS)}/{_HOST_BITS}"


@lru_cache(_MOST_REMEMBERED)
def wider_networks(address: str) -> tuple[str, str] | None:
    """Return the /56 and the /48 of an IPv6 address, whose 256 and 65,536 networks of /64 may
    all be one client's; None for IPv4, where an address costs money and neighbours are strangers.
    """
    parsed = _parsed(address)
    if not isinstance(parsed, IPv6Address):
        return None
    near, far = (str(ip_network((parsed, length), strict=False)) for length in _WIDER)
    return near, far


@lru_cache(_MOST_REMEMBERED)
def sharing_network(address: str) -> str:
    """Return the network that has one share of a full queue: the /48 of an IPv6 address, the /24
    of an IPv4 one. What is no address is one by itself."""
    parsed = _parsed(address)
    if parsed is None:
        return address
    length = _IPV4_QUEUE if isinstance(parsed, IPv4Address) else _WIDER[-1]
    return str(ip_network((parsed, length), strict=False))


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return parsed if mapped is None else mapped
