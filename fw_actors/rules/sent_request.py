"""The request of an attempt for people to read: its headers, and a command for curl.

It contains no secret: the URL has no query, and a signature does not reveal its key.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

import msgspec

from fw_actors.version import __version__

MAX_IN_LINE: Final = 4096
"""The longest body in the command for curl, in characters; a longer one is read from a file."""

_FILE: Final = "@payload.json"


class SentRequest(msgspec.Struct, frozen=True):
    """A request that was sent; `headers` are those that curl does not add by itself."""

    url: str
    headers: Mapping[str, str]
    curl: str


def sent_request(
    url: str, delivery: str, timestamp: int, signature: str, payload: str
) -> SentRequest:
    """Return the request of an attempt.

    Args:
        url: without its query.
        timestamp, signature: the values of `webhook-timestamp` and `webhook-signature`.
    """
    headers = {
        "content-type": "application/json",
        "user-agent": f"fw-webhooks/{__version__}",
        "webhook-id": delivery,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature,
    }
    given = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    body = payload if len(payload) <= MAX_IN_LINE else _FILE
    words = ["curl", "-i", "-X", "POST", url, *given, "--data-binary", body]
    return SentRequest(url, headers, shlex.join(words))
