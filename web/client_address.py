"""Who a request comes from: the peer, or what a trusted proxy says. Pure; interface §1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from fw_actors.config import ProxyTrustPolicy

LONGEST: Final = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
MOST_REMEMBERED: Final = 1024
Address = IPv4Address | IPv6Address


def client_address(peer: str, forwarded_for: Sequence[str], trust: ProxyTrustPolicy) -> str:
    """Return the client's address in its canonical form, IPv4-mapped IPv6 as IPv4.

    `forwarded_for`: the lines of X-Forwarded-For as they came; together they are one list, read
    from the right, since everything left of the first stranger is the stranger's own invention.
    """
    own = _address(peer)
    peer = peer if own is None else str(own)
    if not forwarded_for or not _believes(own, trust):
        return peer
    address: Address | None = own
    for entry in reversed(",".join(forwarded_for).split(",")):
        address = _address(entry.strip(" \t"))
        if address is None:
            return peer
        if trust.every_peer or not _holds(trust, address):
            break
    return peer if address is None else str(address)


def came_over_tls(peer: str, forwarded_proto: Sequence[str], trust: ProxyTrustPolicy) -> bool:
    """Say whether a believed proxy took the request over TLS; the right-most entry counts."""
    if not forwarded_proto or not _believes(_address(peer), trust):
        return False
    return ",".join(forwarded_proto).rpartition(",")[2].strip(" \t").lower() == "https"


def is_loopback(peer: str) -> bool:
    """Say whether `peer` is this machine."""
    address = _address(peer)
    return address is not None and address.is_loopback


def is_trusted(peer: str, trust: ProxyTrustPolicy) -> bool:
    """Say whether `peer` is a proxy whose word counts: it speaks for many clients."""
    return _believes(_address(peer), trust)


def _believes(peer: Address | None, trust: ProxyTrustPolicy) -> bool:
    """Say whether what a peer forwards is believed; one without an address only under `on`."""
    return trust.every_peer or (peer is not None and _holds(trust, peer))


def _holds(trust: ProxyTrustPolicy, address: Address) -> bool:
    return any(address in network for network in trust.networks)


def _address(text: str) -> Address | None:
    """Return an address without zone, port or brackets; None for anything else."""
    return _parsed(text) if len(text) <= LONGEST else None


@lru_cache(MOST_REMEMBERED)
def _parsed(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return None
        return address.ipv4_mapped or address
    return address
