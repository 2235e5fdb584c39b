"""Standard Webhooks 1.0 signatures, and the grammar of event names (B-124)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

from fw_actors.runtime.clock import MS_PER_SECOND

SCHEME: Final = b"v1,"
PREFIX: Final = "whsec_"
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}\Z")


class UnusableSecretError(ValueError):
    """Raised when a secret can't be a signing key; the message says what is wrong with it."""


def key_of(secret: str) -> bytes:
    """Return the key bytes: `whsec_<base64>` decoded, any other secret as its UTF-8 bytes.

    Raises: UnusableSecretError when what follows `whsec_` is no standard base64 of a byte or more.
    """
    if not secret.startswith(PREFIX):
        return secret.encode()
    text = secret.removeprefix(PREFIX)
    if not _BASE64.match(text) or (text.endswith("=") and len(text) % 4):
        raise UnusableSecretError(
            "After whsec_ there must be standard base64 of at least one byte."
        )
    text = text.rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise UnusableSecretError("After whsec_ there must be complete standard base64.") from None


def validate_secret(secret: str) -> None:
    """Refuse a secret that no receiver could use (B-24).

    Raises: UnusableSecretError.
    """
    if not secret:
        raise UnusableSecretError("The secret must not be empty.")
    if secret != secret.strip():
        raise UnusableSecretError("The secret must not begin or end with white space.")
    if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in secret):
        raise UnusableSecretError("The secret must not hold a control character.")
    if secret.startswith("v1,"):
        raise UnusableSecretError("The secret must not begin with v1, the prefix of a signature.")
    key_of(secret)


def mac_of(key: bytes) -> hmac.HMAC:
    """Return what each signature by a key begins with; it costs as much as the rest of one."""
    return hmac.new(key, digestmod=hashlib.sha256)


SignedHeaders = tuple[tuple[bytes, bytes], ...]
"""`webhook-id`, `webhook-timestamp` and `webhook-signature` with their values; or nothing."""


def signed_headers(
    key: hmac.HMAC, delivery: str, now: int, body: bytes, old: hmac.HMAC | None = None
) -> SignedHeaders:
    """Return the three headers of an attempt that is made at `now` (ms since the epoch).

    With the key of an `old` secret there are two signatures, separated by a space (B-351).
    """
    name, timestamp = delivery.encode(), b"%d" % (now // MS_PER_SECOND)
    signature = sign(key, name, timestamp, body)
    if old is not None:
        signature = b"%b %b" % (signature, sign(old, name, timestamp, body))
    return (
        (b"webhook-id", name),
        (b"webhook-timestamp", timestamp),
        (b"webhook-signature", signature),
    )


def sign(key: hmac.HMAC, delivery: bytes, timestamp: bytes, body: bytes) -> bytes:
    """Return the value of `webhook-signature`: HMAC-SHA256 over `<id>.<timestamp>.<body>`.

    `key`: from `mac_of`; it stays as it is.
    """
    # Not hmac.digest: it gives up the interpreter's lock, and waits for it beside busy threads.
    mac = key.copy()
    mac.update(b"%b.%b.%b" % (delivery, timestamp, body))
    return SCHEME + binascii.b2a_base64(mac.digest(), newline=False)


MAX_CHARACTERS: Final = 140
RESERVED_PREFIX: Final = "doc."
GRAMMAR: Final = "lower-case words of a-z, 0-9 and _, joined by dots"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*\Z")

DOCUMENT_EVENTS: Final = ("on_insert", "on_update", "on_submit", "on_cancel", "on_trash")


class UnusableEventNameError(ValueError):
    """Raised for a name that no app can emit; the message says why."""


def validate_event_name(name: str) -> None:
    """Refuse a name that an app can't emit.

    Raises: UnusableEventNameError.
    """
    if name.startswith(RESERVED_PREFIX):
        raise UnusableEventNameError("An event name must not begin with doc., which is reserved.")
    if len(name) > MAX_CHARACTERS or not _NAME.match(name):
        raise UnusableEventNameError(
            f"An event name must be {GRAMMAR}, at most {MAX_CHARACTERS} characters."
        )
