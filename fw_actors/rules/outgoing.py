"""Decides which addresses deliveries may be sent to, and through which proxy (B-150, B-155, B-156).

An address is checked immediately before each connection to it, because a name that resolves to a
public address when a Webhook is saved may resolve to another one later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

_NAT64: Final = IPv6Network("64:ff9b::/96")  # RFC 6052 2.1: a gateway sends it on as IPv4
# Global by `ipaddress`, but no hosts of the public internet.
_NOT_PUBLIC: Final = (
    IPv4Network("168.63.129.16/32"),  # Azure's platform, for its virtual machines
    IPv4Network("192.88.99.0/24"),  # RFC 7526: relays of 6to4, deprecated
    IPv6Network("3fff::/20"),  # RFC 9637: documentation
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")  # all that IANA has allocated to networks

IpAddress = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@dataclass(frozen=True)
class OutgoingPolicy:
    """Section `ops.outgoing`: where deliveries may go.

    `private` is "allow" or "deny". The networks in `allow` are always permitted, and link-local
    addresses never. `own_port` is the port of the service itself.
    """

    private: str = "allow"
    allow: tuple[Network, ...] = ()
    own_port: int = 0

    @property
    def denies_private(self) -> bool:
        """Whether only public addresses and the networks in `allow` are permitted."""
        return self.private == "deny"

    def refusal(self, address: str) -> str | None:
        """Return why an address is not permitted, as the end of a sentence; None if it is.

        `address` may have a zone (`fe80::1%eth0`). Raises: ValueError for a text that is no
        address.
        """
        if is_link_local(address):
            return "is a link-local address, which is never connected to"
        if self.denies_private and not self._is_listed(address) and not is_public(address):
            return "is not a public address, and ops.outgoing.private is deny"
        return None

    def refuses_own_machine(self, address: str, port: int) -> bool:
        """Return whether a port of an address of this machine is not permitted."""
        return self.denies_private and (port == self.own_port or not self._is_listed(address))

    def _is_listed(self, address: str) -> bool:
        parsed = _parsed(address)
        forms = {parsed, _destination(parsed)}
        return any(form in network for form in forms for network in self.allow)


@dataclass(frozen=True)
class EgressProxy:
    """The proxy for all connections except those to `exceptions`.

    `credentials` are `user:password`. An exception is a host, a domain that begins with a dot, or a
    network.
    """

    host: str
    port: int
    credentials: str | None = field(default=None, repr=False)
    exceptions: tuple[str, ...] = ()

    def carries(self, host: str) -> bool:
        """Return whether connections to a host (a name or an address) use the proxy."""
        return not any(_matches(host.lower(), each.lower()) for each in self.exceptions)


def _matches(host: str, exception: str) -> bool:
    if exception.startswith("."):
        return host.endswith(exception) or host == exception[1:]
    try:
        return ip_address(host) in ip_network(exception)
    except ValueError:
        return host == exception


ALLOW_ALL: Final = OutgoingPolicy()
"""The policy without settings: everything but link-local addresses."""


def is_link_local(address: str) -> bool:
    """Return whether an address is in 169.254.0.0/16 or fe80::/10, or leads to 169.254.0.0/16.

    Raises: ValueError for a text that is not an address.
    """
    parsed = _parsed(address)
    return parsed.is_link_local or _destination(parsed).is_link_local


def leads_to_loopback(address: str) -> bool:
    """Return whether an address, or an IPv4 address embedded in it, is a loopback address.

    Raises: ValueError for a text that is not an address.
    """
    return _destination(_parsed(address)).is_loopback


def is_public(address: str) -> bool:
    """Return whether an address, and an IPv4 address embedded in it, is one of the public internet.

    Private, shared, loopback, link-local, multicast, reserved and documentation addresses are not
    public, nor are those of a cloud's own services.

    Raises: ValueError for a text that is not an address.
    """
    parsed = _parsed(address)
    destination = _destination(parsed)
    if any(form in network for form in (parsed, destination) for network in _NOT_PUBLIC):
        return False
    if isinstance(destination, IPv4Address):
        return destination.is_global and not (destination.is_multicast or destination.is_reserved)
    return parsed in _GLOBAL_UNICAST and parsed.is_global


def _parsed(address: str) -> IpAddress:
    return ip_address(address.partition("%")[0])


def _destination(address: IpAddress) -> IpAddress:
    """Return an IPv4 address embedded in an IPv6 one (mapped, NAT64 or 6to4), or the address."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or address
