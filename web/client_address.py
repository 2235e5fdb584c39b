"""Who a request comes from: the peer, or what a trusted proxy says. Pure; interface §1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@dataclass(frozen=True)
class ProxyTrust:
    """FW_TRUST_PROXY: whose X-Forwarded-* headers are believed.

    `every_peer` is `on`; otherwise a peer in one of `networks` is believed; none of both is `off`.
    """

    every_peer: bool = False
    networks: tuple[Network, ...] = ()

    def believes(self, peer: str) -> bool:
        """Say whether what `peer` forwards is believed."""
        if self.every_peer:
            return True
        address = _address(peer)
        return address is not None and self.holds(address)

    def holds(self, address: Address) -> bool:
        """Say whether `address` is one of the trusted networks'."""
        return any(address in network for network in self.networks)


def client_address(peer: str, forwarded_for: Sequence[str], trust: ProxyTrust) -> str:
    """Return the client's address in its canonical form, IPv4-mapped IPv6 as IPv4.

    `forwarded_for`: the lines of X-Forwarded-For as they came; together they are one list, read
    from the right, since everything left of the first stranger is the stranger's own invention.
    """
    own = _address(peer)
    peer = peer if own is None else str(own)
    if not forwarded_for or not trust.believes(peer):
        return peer
    address: Address | None = own
    for entry in reversed(",".join(forwarded_for).split(",")):
        address = _address(entry.strip(" \t"))
        if address is None:
            return peer
        if trust.every_peer or not trust.holds(address):
            break
    return peer if address is None else str(address)


def came_over_tls(peer: str, forwarded_proto: Sequence[str], trust: ProxyTrust) -> bool:
    """Say whether a believed proxy took the request over TLS; the right-most entry counts."""
    if not forwarded_proto or not trust.believes(peer):
        return False
    return ",".join(forwarded_proto).rpartition(",")[2].strip(" \t").lower() == "https"


def is_loopback(peer: str) -> bool:
    """Say whether `peer` is this machine."""
    address = _address(peer)
    return address is not None and address.is_loopback


def _address(text: str) -> Address | None:
    """Return an address without zone, port or brackets; None for anything else."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return None
        return address.ipv4_mapped or address
    return address
