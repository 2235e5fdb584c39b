"""Which addresses are never dialled: the link-local ones, where clouds serve credentials.

Judged at the dial and on each address, so that a name whose answer changes between two look-ups
(DNS rebinding) gains nothing.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_NAT64: Final = IPv6Network("64:ff9b::/96")  # RFC 6052 2.1: a gateway sends it on as IPv4


def is_link_local(address: str) -> bool:
    """Whether an address is in 169.254.0.0/16 or fe80::/10, or leads to 169.254.0.0/16.

    Args:
        address: as a socket takes it, with or without a zone (`fe80::1%eth0`).

    Raises: ValueError for what is no address.
    """
    parsed = ip_address(address)
    if isinstance(parsed, IPv4Address):
        return parsed.is_link_local
    carried = _carried(parsed)
    return parsed.is_link_local or (carried is not None and carried.is_link_local)


def _carried(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address to which an IPv6 address leads: mapped, translated (NAT64) or 6to4."""
    if address in _NAT64:
        return IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour
