"""Verifying requests by Standard Webhooks, and reading the event of a genuine one."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from fw_client.errors import FwClientError

TOLERANCE_SECONDS: Final = 300.0
MAX_SIGNATURES: Final = 16
_MAX_HEADER: Final = 256
_PREFIX: Final = "whsec_"


class NotGenuine(FwClientError):
    """Raised for a request whose signature does not match, or that is too old or too new."""


class NotAnEvent(FwClientError):
    """Raised for a genuine request whose body is not an event of fw."""


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """An event as it was received.

    Attributes:
        id: the delivery's, the same at each attempt and replay.
        type: such as `order.paid`, or `doc.on_insert`.
        timestamp: the time of the event.
        data: the event's data; for a document's event `{doc, name, doctype}`.
        body: the bytes as received.
    """

    id: str
    type: str
    timestamp: datetime
    data: dict[str, Any] = field(repr=False)
    body: bytes = field(repr=False)


def signing_key(secret: str) -> bytes:
    """Return the key of a Webhook's secret: base64 after `whsec_`, else the text itself.

    Raises: ValueError, which does not show the secret.
    """
    if not secret.startswith(_PREFIX):
        if not secret:
            raise ValueError("A secret must not be empty.")
        return secret.encode()
    text = secret.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ValueError("The rest of a secret that begins with whsec_ must be base64.")
    return key


def verify(
    keys: Sequence[bytes],
    headers: Mapping[str, str],
    body: bytes,
    now: float,
    tolerance: float = TOLERANCE_SECONDS,
) -> str:
    """Return the id of a verified request.

    Each key is tried with each signature, even after a match, so that timing reveals nothing.

    Args:
        keys: several during a rotation of the secret.
        headers: by name, in any case.
        body: the bytes as received.
        now: Unix seconds; the request may be `tolerance` seconds older or newer.

    Raises: NotGenuine.
    """
    headers = {name.lower(): value for name, value in headers.items()}
    name = _header(headers, "webhook-id")
    timestamp = _header(headers, "webhook-timestamp")
    if not (timestamp.isascii() and timestamp.isdigit()):
        raise NotGenuine("webhook-timestamp must be a number of seconds.")
    if abs(now - int(timestamp)) > tolerance:
        raise NotGenuine(f"webhook-timestamp is more than {tolerance:g} s off.")
    # Frameworks decode bytes that are not UTF-8 to surrogates, which have no encoding.
    signed = f"{name}.{timestamp}.".encode(errors="replace") + body
    header = headers.get("webhook-signature", "").encode(errors="replace")
    signatures = header.split(b" ", MAX_SIGNATURES)
    genuine = False
    for key in keys:
        expected = b"v1," + base64.b64encode(hmac.digest(key, signed, "sha256"))
        for each in signatures[:MAX_SIGNATURES]:
            genuine |= hmac.compare_digest(expected, each)
    if not genuine:
        raise NotGenuine("No signature matches.")
    return name


def _header(headers: Mapping[str, str], name: str) -> str:
    text = headers.get(name, "")
    if not 0 < len(text) <= _MAX_HEADER:
        raise NotGenuine(f"{name} is missing, or longer than {_MAX_HEADER} characters.")
    return text


def read_event(name: str, body: bytes) -> ReceivedEvent:
    """Return the event of a genuine request. Raises: NotAnEvent."""
    try:
        content = json.loads(body)
        kind, data = content["type"], content["data"]
        timestamp = datetime.fromisoformat(content["timestamp"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise NotAnEvent("The body is not an event: {type, timestamp, data}.") from None
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise NotAnEvent("The body is not an event: type must be text, data an object.")
    return ReceivedEvent(name, kind, timestamp, data, body)
