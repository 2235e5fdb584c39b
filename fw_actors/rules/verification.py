"""Judges a received request as a receiver of Standard Webhooks must, and says what is wrong.

Pure: the key, the headers, the body and the time are given. A body that was changed on its way is
recognised by the usual changes: a line end more or less, or JSON that was written anew.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fw_actors.rules.signing import PREFIX, key_of, mac_of, sign
from fw_actors.runtime.clock import MS_PER_SECOND

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
class Judgement:
    """Whether a receiver should accept a request; `faults` are sentences, none if it should.

    `age` is the age of its timestamp in seconds, None without a usable one.
    """

    verified: bool
    faults: Sequence[str]
    delivery: str
    age: float | None


def judge(
    secret: str, request: SavedRequest, now: int, tolerance: float | None = TOLERANCE_SECONDS
) -> Judgement:
    """Judge a request at the time `now` (ms); without a tolerance (s) its age does not matter.

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
                f"and more than {tolerance:.0f} s is not accepted."
            )
    elif stamp:
        faults.append("webhook-timestamp must be seconds since 1970.")
    if not any(fault.startswith("The header") for fault in faults):
        faults += _faults_of_signature(secret, request)
    return Judgement(not faults, tuple(faults), delivery, age)


def _faults_of_signature(secret: str, request: SavedRequest) -> Iterator[str]:
    given = request.headers["webhook-signature"].split()
    known = [each for each in given if each.startswith("v1,")]
    if not known:
        yield "webhook-signature has no signature of version v1."
        return
    if _fits(key_of(secret), request, request.body, known):
        return
    for body, change in _likely_bodies(request.body):
        if _fits(key_of(secret), request, body, known):
            yield f"The signature is right for another body: {change}."
            return
    if secret.startswith(PREFIX) and _fits(secret.encode(), request, request.body, known):
        yield "It was signed with the secret as text: whsec_ and base64 must be decoded first."
        return
    yield "No signature fits: it was signed with another secret, or the body was changed."


def _fits(key: bytes, request: SavedRequest, body: bytes, known: Sequence[str]) -> bool:
    delivery, stamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
    expected = sign(mac_of(key), delivery.encode(), stamp.encode(), body)
    return any(hmac.compare_digest(expected, each.encode("utf-8", "replace")) for each in known)


def _likely_bodies(body: bytes) -> Iterator[tuple[bytes, str]]:
    """Yield bodies that may have been sent, and how the given one differs."""
    yield body.rstrip(b"\r\n"), "a line end was added at its end"
    yield body + b"\n", "a line end was removed at its end"
    yield body.replace(b"\r\n", b"\n"), "its line ends were changed"
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return
    anew = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    yield anew.encode("utf-8", "surrogatepass"), "its JSON was written anew, with white space"


class UnreadableRequest(ValueError):
    """Raised for a file that is no saved request; the message says why."""


def parse_saved(content: bytes) -> SavedRequest:
    """Return a saved request: header lines, an empty line and the body; or JSON.

    A request line before the headers is skipped. JSON is `{"headers": {…}, "body": "…"}`.

    Raises: UnreadableRequest.
    """
    if content.lstrip()[:1] == b"{":
        return _from_json(content)
    head, found, body = _parted(content)
    if not found:
        raise UnreadableRequest("There must be header lines, an empty line, and the body.")
    headers: dict[str, str] = {}
    for number, line in enumerate(head.decode("latin-1").splitlines()):
        name, colon, value = line.partition(":")
        if colon and not name.rstrip().count(" "):
            headers[name.strip().lower()] = value.strip()
        elif number:  # the first may be a request line
            raise UnreadableRequest(f"Line {number + 1} is not a header: it has no colon.")
    return SavedRequest(headers, body)


def _parted(content: bytes) -> tuple[bytes, bytes, bytes]:
    """Part a request at its first empty line, whatever its line ends."""
    at = [(content.find(mark), mark) for mark in (b"\r\n\r\n", b"\n\n")]
    first = min((each for each in at if each[0] >= 0), default=None)
    return (content, b"", b"") if first is None else content.partition(first[1])


def _from_json(content: bytes) -> SavedRequest:
    try:
        saved = json.loads(content)
        headers, body = saved["headers"], saved["body"]
        given = {str(name).lower(): str(value) for name, value in headers.items()}
        return SavedRequest(given, str(body).encode("utf-8", "surrogatepass"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UnreadableRequest(
            'JSON must have the form {"headers": {…}, "body": "…"}, with the body as text.'
        ) from None


def event_type_of(body: bytes) -> str:
    """Return the type of the event in a body; empty if there is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    return str(found.get("type") or "") if isinstance(found, dict) else ""
