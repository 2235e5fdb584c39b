"""What the end of an attempt leaves in the columns of its delivery.

Source: interface §3, Webhook Delivery fields.
"""

from __future__ import annotations

import codecs
from typing import Final

import msgspec

from fw_actors.rules.delivery_outcome import Ending, Verdict

KEPT_BYTES: Final = 512
_ERROR_CHARACTERS: Final = 500


class Ended(msgspec.Struct, frozen=True):
    """How an attempt ended; `error` is empty after a 2xx.

    `wait_seconds` is how long the receiver asked to be left alone, where that is honoured.
    """

    ending: Ending
    at: int
    duration_ms: int = 0
    response_status: int | None = None
    response_body: bytes | None = None
    error: str = ""
    wait_seconds: float = 0.0


COLUMNS: Final[dict[str, type]] = {
    "status": str,
    "attempts": int,
    "next_attempt": int,
    "last_attempt": int,
    "response_status": int,
    "response_body": str,
    "error": str,
    "duration_ms": int,
}
"""What an outcome writes, in the order of `values`; `sent` and `modified` follow from these."""


def values(ended: Ended, verdict: Verdict) -> tuple[int | str | None, ...]:
    """Return what an outcome writes, in the order of `COLUMNS`."""
    body = ended.response_body
    return (
        verdict.status,
        verdict.attempts,
        verdict.next_attempt,
        ended.at,
        ended.response_status,
        None if body is None else readable(body),
        error_of(ended) or None,
        ended.duration_ms,
    )


def error_of(ended: Ended) -> str:
    """Return the error as it is kept: text that any store takes, cut to its column."""
    if not ended.error:
        return ""
    return ended.error[:_ERROR_CHARACTERS].replace("\x00", "\ufffd")


def readable(body: bytes) -> str:
    """Return the first 512 bytes as text: no half character at the cut, bad bytes replaced."""
    if not body:
        return ""
    cut = len(body) >= KEPT_BYTES
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return decoder.decode(body[:KEPT_BYTES], final=not cut).replace("\x00", "\ufffd")
