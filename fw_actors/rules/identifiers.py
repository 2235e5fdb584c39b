"""Identifiers: canonical forms of account names and client addresses, and the shapes of new ones.

The canonical forms are used wherever an identifier is compared or counted: creation, sign-in,
recovery, throttle, unlock, command line (A-30). New identifiers and bearer tokens are made from
random bytes that the caller gives.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

MAX_IDENTIFIER_CHARACTERS: Final = 320

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

    At sign-in the attempt takes the decoy path (A-33); where an account is made it is refused
    (A-14).
    """


def canonical(text: str) -> str:
    """Return the canonical form of `text`; canonical(canonical(x)) == canonical(x).

    Raises: UnusableIdentifierError.
    """
    if len(text) > MAX_IDENTIFIER_CHARACTERS:
        raise UnusableIdentifierError(f"longer than {MAX_IDENTIFIER_CHARACTERS} characters")
    folded = _fold(text)
    if any(_is_refused(character) for character in folded):
        raise UnusableIdentifierError("contains control or invisible characters")
    if len(folded) > MAX_IDENTIFIER_CHARACTERS:
        raise UnusableIdentifierError(f"longer than {MAX_IDENTIFIER_CHARACTERS} characters")
    return folded


def _fold(text: str) -> str:
    """NFKC and casefold until nothing changes: one round of either order is not idempotent."""
    while True:
        folded = unicodedata.normalize("NFKC", text).strip().casefold()
        folded = unicodedata.normalize("NFKC", folded).strip()
        if folded == text:
            return folded
        text = folded


def _is_refused(character: str) -> bool:
    return unicodedata.category(character) in _REFUSED_CATEGORIES or ord(character) in _IGNORABLE


_BRAILLE_BLANK: Final = "\u2800"  # a symbol without dots


def is_invisible(text: str) -> bool:
    """Whether no character of a text is visible: it is empty, or white space and hidden ones."""
    return all(
        character.isspace() or character == _BRAILLE_BLANK or _is_refused(character)
        for character in text
    )


_HOST_BITS: Final = 64  # one household or machine has all addresses of its /64
_WIDER: Final = (56, 48)  # assigned to a household, and to an organisation (RFC 6177)
_IPV4_QUEUE: Final = 24  # the smallest network that is routed by itself
_ADDRESS_CACHE_SIZE: Final = 1024


@lru_cache(_ADDRESS_CACHE_SIZE)
def counted_address(address: str) -> str:
    """Return the key under which an address is counted: IPv6 per /64, IPv4-mapped IPv6 as IPv4.

    A text that is not an address (of a peer without one, such as a Unix socket) is its own key.
    """
    parsed = _parsed(address)
    if parsed is None:
        return address
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    return f"{IPv6Address(int(parsed) >> _HOST_BITS << _HOST_BITS)}/{_HOST_BITS}"


@lru_cache(_ADDRESS_CACHE_SIZE)
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


@lru_cache(_ADDRESS_CACHE_SIZE)
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


BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # in ASCII order
_PAIRS: Final = tuple(high + low for high in BASE62 for low in BASE62)  # two digits at a time
BEARER_BYTES: Final = 24  # 192 bits: sessions and link tokens
API_KEY_PREFIX: Final = "fwk_"
_KEY_ID_DIGITS: Final = 12
_KEY_SECRET_DIGITS: Final = 32
API_KEY_BYTES: Final = 64  # far more than the digits hold, so that each is as likely as the next
_API_KEY: Final = re.compile(
    rf"{API_KEY_PREFIX}([0-9A-Za-z]{{{_KEY_ID_DIGITS}}})_([0-9A-Za-z]{{{_KEY_SECRET_DIGITS}}})"
)
_DELIVERY_DIGITS: Final = 27
_COUNTER_LIMIT: Final = 1 << 16
_RANDOM_BYTES: Final = 12
_IDS_PER_CALL: Final = 64


def base62(number: int, width: int) -> str:
    """Return `number` in base 62, at least `width` digits; sorts as text like the number."""
    pairs = []
    while number:
        number, pair = divmod(number, 3844)
        pairs.append(_PAIRS[pair])
    text = "".join(reversed(pairs))
    return text.lstrip("0").rjust(width, "0")


def bearer(random_bytes: bytes) -> str:
    """Return 192 random bits as 32 URL-safe characters."""
    if len(random_bytes) != BEARER_BYTES:
        raise ValueError(f"a bearer token must be made of {BEARER_BYTES} bytes")
    return base64.urlsafe_b64encode(random_bytes).decode()


def digest(token: str) -> bytes:
    """Return the SHA-256 of a bearer token, which the store keeps instead of the token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def record_id(random_bytes: bytes) -> str:
    """Return a random name for a row or an opaque handle: base 62 of the bytes, fixed width."""
    width = -(-len(random_bytes) * 8 * 1000 // 5954)  # log2(62) = 5.954
    return base62(int.from_bytes(random_bytes, "big"), width)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key in its two parts: the public `id`, and the `secret` that makes it one."""

    id: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        """The text that the client presents (A-260)."""
        return f"{API_KEY_PREFIX}{self.id}_{self.secret}"


def new_api_key(random_bytes: bytes) -> ApiKey:
    """Return a new key: 12 and 32 characters of base 62, 190 bits in the secret."""
    if len(random_bytes) != API_KEY_BYTES:
        raise ValueError(f"an API key must be made of {API_KEY_BYTES} bytes")
    number = int.from_bytes(random_bytes, "big")
    number, secret = divmod(number, 62**_KEY_SECRET_DIGITS)
    return ApiKey(
        base62(number % 62**_KEY_ID_DIGITS, _KEY_ID_DIGITS), base62(secret, _KEY_SECRET_DIGITS)
    )


def parse_api_key(text: str) -> ApiKey | None:
    """Return the parts of a presented API key; None for any other text."""
    match = _API_KEY.fullmatch(text)
    return None if match is None else ApiKey(*match.groups())


class DeliveryIds:
    """Makes delivery ids: `msg_` and 27 characters of base 62, sortable by time (B-181).

    48 bits of milliseconds, a 16-bit counter that keeps ids of one process in order within a
    millisecond, 96 random bits. Safe to call from any thread.
    """

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._unused = b""
        self._lock = threading.Lock()
        self._last = (0, 0)

    def new(self, now: int) -> str:
        """Return the next id; `now` in ms since the epoch."""
        with self._lock:
            self._last = millisecond, counter = self._step(now)
            # One call for many: it releases the interpreter's lock, and waits to get it back.
            pool = self._unused or self._random_bytes(_IDS_PER_CALL * _RANDOM_BYTES)
            random, self._unused = pool[:_RANDOM_BYTES], pool[_RANDOM_BYTES:]
        number = (millisecond << 16 | counter) << 96
        number |= int.from_bytes(random, "big")
        return "msg_" + base62(number, _DELIVERY_DIGITS)

    def _step(self, now: int) -> tuple[int, int]:
        millisecond, counter = self._last
        if now > millisecond:
            return now, 0
        if counter + 1 < _COUNTER_LIMIT:
            return millisecond, counter + 1
        return millisecond + 1, 0
