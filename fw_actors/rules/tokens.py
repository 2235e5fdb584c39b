"""The shapes of identifiers and bearer tokens, made from random bytes that the caller gives."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

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
    """Return what the store keeps of a bearer token: its SHA-256."""
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
    found = _API_KEY.fullmatch(text)
    return None if found is None else ApiKey(*found.groups())


class DeliveryIds:
    """Makes delivery ids: `msg_` and 27 characters of base 62, sortable by time (B-181).

    48 bits of milliseconds, a 16-bit counter that keeps ids of one process in order within a
    millisecond, 96 random bits. Safe to call from any thread.
    """

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._lock = threading.Lock()
        self._last = (0, 0)

    def new(self, now: int) -> str:
        """Return the next id; `now` in ms since the epoch."""
        with self._lock:
            self._last = millisecond, counter = self._step(now)
        number = (millisecond << 16 | counter) << 96
        number |= int.from_bytes(self._random_bytes(_RANDOM_BYTES), "big")
        return "msg_" + base62(number, _DELIVERY_DIGITS)

    def _step(self, now: int) -> tuple[int, int]:
        millisecond, counter = self._last
        if now > millisecond:
            return now, 0
        if counter + 1 < _COUNTER_LIMIT:
            return millisecond, counter + 1
        return millisecond + 1, 0
