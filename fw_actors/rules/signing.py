"""Standard Webhooks 1.0: signatures, their verification, and the grammar of event names (B-124).

Verification also detects usual changes of a body on its way: an added or removed line end, and
reformatted JSON.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fw_actors.runtime.clock import MS_PER_SECOND

SCHEME: Final = b"v1,"
PREFIX: Final = "whsec_"
KEY_BYTES: Final = (24, 64)
"""The minimum and maximum length of a key in bytes that Standard Webhooks permits (B-25)."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}\Z")


class UnusableSecretError(ValueError):
    """Raised when a secret cannot be a signing key; the message states the rule."""


def key_of(secret: str) -> bytes:
    """Return the key bytes: `whsec_<base64>` decoded, any other secret as its UTF-8 bytes.

    Raises: UnusableSecretError if `whsec_` is not followed by standard base64 of at least one byte.
    """
    if not secret.startswith(PREFIX):
        return secret.encode()
    text = secret.removeprefix(PREFIX)
    if not _BASE64.match(text) or (text.endswith("=") and len(text) % 4):
        raise UnusableSecretError(
            "whsec_ must be followed by standard base64 of at least one byte."
        )
    text = text.rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise UnusableSecretError("whsec_ must be followed by complete standard base64.") from None


def validate_secret(secret: str) -> None:
    """Refuse a secret that no receiver could use (B-24).

    Raises: UnusableSecretError.
    """
    if not secret:
        raise UnusableSecretError("The secret must not be empty.")
    if secret != secret.strip():
        raise UnusableSecretError("The secret must not begin or end with white space.")
    if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in secret):
        raise UnusableSecretError("The secret must not contain a control character.")
    if secret.startswith("v1,"):
        raise UnusableSecretError("The secret must not begin with v1, the prefix of a signature.")
    key_of(secret)


def mac_of(key: bytes) -> hmac.HMAC:
    """Return the initial state of an HMAC-SHA256, which is half of the cost of a signature."""
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

    Args:
        key: from `mac_of`; it is not changed.
        delivery: the value of `webhook-id`.
        timestamp: seconds since the epoch, in decimal digits.
        body: the request's body.
    """
    # Not hmac.digest, which releases the interpreter's lock and then waits for busy threads.
    mac = key.copy()
    mac.update(b"%b.%b.%b" % (delivery, timestamp, body))
    return SCHEME + binascii.b2a_base64(mac.digest(), newline=False)


MAX_EVENT_NAME_CHARACTERS: Final = 140
RESERVED_PREFIX: Final = "doc."
GRAMMAR: Final = "lower-case words of a-z, 0-9 and _, joined by dots"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*\Z")

DOCUMENT_EVENTS: Final = ("on_insert", "on_update", "on_submit", "on_cancel", "on_trash")


class UnusableEventNameError(ValueError):
    """Raised for a name that no app can emit; the message states the rule."""


def validate_event_name(name: str) -> None:
    """Refuse a name that an app cannot emit.

    Raises: UnusableEventNameError.
    """
    if name.startswith(RESERVED_PREFIX):
        raise UnusableEventNameError("An event name must not begin with doc., which is reserved.")
    if len(name) > MAX_EVENT_NAME_CHARACTERS or not _NAME.match(name):
        raise UnusableEventNameError(
            f"An event name must be {GRAMMAR}, at most {MAX_EVENT_NAME_CHARACTERS} characters."
        )


TOLERANCE_SECONDS: Final = 300
"""The age up to which Standard Webhooks recommends to accept a request."""
HEADERS: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}\Z")


@dataclass(frozen=True)
class SavedRequest:
    """A received request; the names of its headers are in lower case."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Verification:
    """Whether a receiver should accept a request; `faults` are sentences, none if it should.

    `age` is the age of its timestamp in seconds, None without a usable one.
    """

    verified: bool
    faults: Sequence[str]
    delivery: str
    age: float | None


def verify_request(
    secret: str, request: SavedRequest, now: int, tolerance: float | None = TOLERANCE_SECONDS
) -> Verification:
    """Return whether a receiver should accept a request at the time `now` (ms).

    `tolerance` (s) is the maximum difference between `now` and its timestamp; None: any.

    Raises: UnusableSecretError.
    """
    key_of(secret)
    headers = request.headers
    delivery = headers.get("webhook-id", "")
    faults = [f"The header {name} is missing." for name in HEADERS if not headers.get(name)]
    stamp = headers.get("webhook-timestamp", "")
    age = None
    if _TIMESTAMP.match(stamp):
        age = now / MS_PER_SECOND - int(stamp)
        if tolerance is not None and abs(age) > tolerance:
            faults.append(
                f"It was signed {abs(age):.0f} s {'ago' if age > 0 else 'ahead of this clock'}, "
                f"but the limit is {tolerance:g} s."
            )
    elif stamp:
        faults.append("webhook-timestamp must be seconds since 1970.")
    if not any(fault.startswith("The header") for fault in faults):
        faults += _faults_of_signature(secret, request)
    return Verification(not faults, tuple(faults), delivery, age)


def _faults_of_signature(secret: str, request: SavedRequest) -> Iterator[str]:
    signatures = request.headers["webhook-signature"].split()
    v1_signatures = [each for each in signatures if each.startswith("v1,")]
    if not v1_signatures:
        yield "webhook-signature has no signature of version v1."
        return
    if _is_signed_with(key_of(secret), request, request.body, v1_signatures):
        return
    for body, change in _likely_bodies(request.body):
        if _is_signed_with(key_of(secret), request, body, v1_signatures):
            yield f"The signature is right for another body: {change}."
            return
    if secret.startswith(PREFIX) and _is_signed_with(
        secret.encode(), request, request.body, v1_signatures
    ):
        yield "It was signed with the secret as text: whsec_ and base64 must be decoded first."
        return
    yield "No signature matches: it was signed with another secret, or the body was changed."


def _is_signed_with(
    key: bytes, request: SavedRequest, body: bytes, signatures: Sequence[str]
) -> bool:
    delivery, stamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
    expected = sign(mac_of(key), delivery.encode(), stamp.encode(), body)
    return any(
        hmac.compare_digest(expected, each.encode("utf-8", "replace")) for each in signatures
    )


def _likely_bodies(body: bytes) -> Iterator[tuple[bytes, str]]:
    """Yield bodies that may have been sent, and how the given one differs."""
    yield body.rstrip(b"\r\n"), "a line end was added at its end"
    yield body + b"\n", "a line end was removed at its end"
    yield body.replace(b"\r\n", b"\n"), "its line ends were changed"
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return
    reformatted = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    yield reformatted.encode("utf-8", "surrogatepass"), "its JSON was reformatted, with white space"


class UnreadableRequest(ValueError):
    """Raised for a file that is not a saved request; the message states the rule."""


def parse_saved(content: bytes) -> SavedRequest:
    """Return a saved request: header lines, an empty line and the body; or JSON.

    A request line before the headers is skipped. JSON is `{"headers": {…}, "body": "…"}`.

    Raises: UnreadableRequest.
    """
    content = content.removeprefix(codecs.BOM_UTF8)
    if content.lstrip()[:1] == b"{":
        return _from_json(content)
    head, separator, body = _split(content)
    if not separator:
        raise UnreadableRequest("There must be header lines, an empty line, and the body.")
    headers: dict[str, str] = {}
    for number, line in enumerate(head.decode("latin-1").splitlines()):
        name, colon, value = line.partition(":")
        if colon and not name.rstrip().count(" "):
            headers[name.strip().lower()] = value.strip()
        elif number:  # the first may be a request line
            raise UnreadableRequest(f"Line {number + 1} is not a header: it has no colon.")
    return SavedRequest(headers, body)


def _split(content: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a request at its first empty line, with any line ends."""
    at = [(content.find(mark), mark) for mark in (b"\r\n\r\n", b"\n\n")]
    first = min((each for each in at if each[0] >= 0), default=None)
    return (content, b"", b"") if first is None else content.partition(first[1])


def _from_json(content: bytes) -> SavedRequest:
    try:
        saved = json.loads(content)
        headers, body = saved["headers"], saved["body"]
        # No header has a lone surrogate; JSON may.
        by_lower_case = {
            str(name).lower(): str(value).encode("utf-8", "replace").decode()
            for name, value in headers.items()
        }
        return SavedRequest(by_lower_case, str(body).encode("utf-8", "surrogatepass"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UnreadableRequest(
            'JSON must have the form {"headers": {…}, "body": "…"}, with the body as text.'
        ) from None


def event_type_of(body: bytes) -> str:
    """Return the type of the event in a body; empty if there is none."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    return str(value.get("type") or "") if isinstance(value, dict) else ""
