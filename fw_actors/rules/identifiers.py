"""Canonical forms: of account identifiers, and of client addresses for throttling.

Used wherever an identifier is compared or counted: creation, sign-in, recovery, throttle,
unlock, command line (A-30).
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

MAX_CHARACTERS: Final = 320

# Unicode's Default_Ignorable_Code_Point beyond category Cf, and the bidi controls (all Cf).
_IGNORABLE: Final = frozenset(
    [
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0),
        *range(0x180B, 0x1810),
        *range(0xFE00, 0xFE10),
        *range(0xFFF0, 0xFFF9),
        *range(0xE0000, 0xE1000),
    ]
)
_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs"})


class UnusableIdentifierError(ValueError):
    """Raised when no canonical form exists: too long, or hidden or control characters inside.

    At sign-in the try takes the decoy path (A-33); where an account is made it is refused
    (A-14).
    """


def canonical(text: str) -> str:
    """Return the canonical form of `text`; canonical(canonical(x)) == canonical(x).

    Raises: UnusableIdentifierError.
    """
    if len(text) > MAX_CHARACTERS:
        raise UnusableIdentifierError(f"longer than {MAX_CHARACTERS} characters")
    folded = _fold(text)
    if any(_refused(character) for character in folded):
        raise UnusableIdentifierError("holds control or invisible characters")
    if len(folded) > MAX_CHARACTERS:
        raise UnusableIdentifierError(f"longer than {MAX_CHARACTERS} characters")
    return folded


def _fold(text: str) -> str:
    """NFKC and casefold until nothing changes: one round of either order is not idempotent."""
    while True:
        folded = unicodedata.normalize("NFKC", text).strip().casefold()
        folded = unicodedata.normalize("NFKC", folded).strip()
        if folded == text:
            return folded
        text = folded


def _refused(character: str) -> bool:
    return unicodedata.category(character) in _REFUSED_CATEGORIES or ord(character) in _IGNORABLE


_HOST_BITS: Final = 64  # one household or machine has all addresses of its /64
_WIDER: Final = (56, 48)  # assigned to a household, and to an organisation (RFC 6177)
_IPV4_QUEUE: Final = 24  # the smallest network that is routed by itself
_MAX_REMEMBERED: Final = 1024


@lru_cache(_MAX_REMEMBERED)
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


@lru_cache(_MAX_REMEMBERED)
def wider_networks(address: str) -> tuple[str, str] | None:
    """Return the /56 and /48 networks of an IPv6 address, whose 256 and 65,536 networks of /64 may
    all belong to one client; None for IPv4, where addresses cost money and neighbours are
    strangers.
    """
    parsed = _parsed(address)
    if not isinstance(parsed, IPv6Address):
        return None
    near, far = (str(ip_network((parsed, length), strict=False)) for length in _WIDER)
    return near, far


@lru_cache(_MAX_REMEMBERED)
def sharing_network(address: str) -> str:
    """Return the network that has one share of a full queue: the /48 of an IPv6 address, the /24 of
    an IPv4 address. Any other text is a network of its own.
    """
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
