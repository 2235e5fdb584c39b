"""Whom the throttles take a client address for. Source: interface §1, "Client address"."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

_HOST_BITS: Final = 64  # one household or machine has all addresses of its /64
_MOST_REMEMBERED: Final = 1024


@lru_cache(_MOST_REMEMBERED)
def counted_address(address: str) -> str:
    """Return what an address is counted under: IPv6 per /64, IPv4-mapped IPv6 as IPv4.

    What is no address (a peer without one, such as a Unix socket) is counted as it is.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{IPv6Address(int(parsed) >> _HOST_BITS << _HOST_BITS)}/{_HOST_BITS}"
