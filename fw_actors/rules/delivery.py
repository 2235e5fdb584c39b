"""State transitions of a delivery: outcome of an attempt, backoff, Retry-After.

Untrusted: whatever it says is clamped before it is used, and what can't be read is ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from fw_actors.runtime.clock import MS_PER_SECOND

DEFAULT_BASE_SECONDS: Final = 30.0
DEFAULT_CAP_SECONDS: Final = 3600.0
_MAX_DOUBLINGS: Final = 64  # past it every base is over every cap; keeps the float finite


def wait_seconds(
    attempt: int, base: float = DEFAULT_BASE_SECONDS, cap: float = DEFAULT_CAP_SECONDS
) -> float:
    """Return the wait in seconds after attempt number `attempt` (from 1) failed, without jitter.

    30 s, then 1, 2, 4, 8 minutes, capped at one hour with the default `base` and `cap`.
    """
    if attempt < 1:
        raise ValueError("attempts are counted from 1")
    doublings = min(attempt - 1, _MAX_DOUBLINGS)
    return float(min(base * 2.0**doublings, cap))


MAX_CONSECUTIVE_DEATHS: Final = 5  # the next one counts as a failed attempt (B-195)
LEASE_MARGIN_SECONDS: Final = 30  # a lease lasts the timeout and this much longer (B-210)


class DeliveryStatus(StrEnum):
    """The four states of a Webhook Delivery."""

    QUEUED = "Queued"
    RETRYING = "Retrying"
    SENT = "Sent"
    FAILED = "Failed"


class Ending(Enum):
    """The kinds of results that an attempt can have: the rows B-162 to B-167."""

    DELIVERED = "the receiver answered 2xx"
    TRANSIENT = "network error, timeout, 408, 429 or any 5xx"
    REFUSED = "any other answer, a redirect included"
    WITHDRAWN = "webhook disabled or deleted; nothing was sent"
    UNSIGNABLE = "signing secret missing or undecryptable; nothing was sent"


# ending: (status while attempts remain, status when they are used up)
NEXT: Final = MappingProxyType(
    {
        Ending.DELIVERED: (DeliveryStatus.SENT, DeliveryStatus.SENT),
        Ending.TRANSIENT: (DeliveryStatus.RETRYING, DeliveryStatus.FAILED),
        Ending.REFUSED: (DeliveryStatus.FAILED, DeliveryStatus.FAILED),
        Ending.WITHDRAWN: (DeliveryStatus.FAILED, DeliveryStatus.FAILED),
        Ending.UNSIGNABLE: (DeliveryStatus.FAILED, DeliveryStatus.FAILED),
    }
)

_RETRIED_BELOW_500: Final = frozenset({408, 429})


def outcome(ending: Ending, attempt: int, max_attempts: int) -> DeliveryStatus:
    """Return the status after attempt number `attempt`, counted from 1."""
    return NEXT[ending][attempt >= max_attempts]


def ending_of(response_status: int) -> Ending:
    """Return the ending for a response's status code: the head decides (B-141)."""
    if 200 <= response_status < 300:
        return Ending.DELIVERED
    if response_status in _RETRIED_BELOW_500 or 500 <= response_status < 600:
        return Ending.TRANSIENT
    return Ending.REFUSED


def error_of_answer(status: int, location: str | None) -> str:
    """Return the `error` of a delivery for a response: empty for a 2xx (B-168).

    `location`: where a redirect points to, without its query.
    """
    if ending_of(status) is Ending.DELIVERED:
        return ""
    where = f", and pointed to {location}" if location else ""
    return f"status: the receiver answered {status}{where}."


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits between attempts: `ops.backoffSeconds` and `ops.backoffCapSeconds`."""

    base: float
    cap: float

    def wait(self, attempt: int) -> float:
        """Seconds from the end of attempt number `attempt` to the next one."""
        return wait_seconds(attempt, self.base, self.cap)


class Verdict(NamedTuple):
    """The new state of a delivery: status, attempts so far, next attempt."""

    status: DeliveryStatus
    attempts: int
    next_attempt: int | None  # ms since the epoch; None once final


def decide(
    ending: Ending,
    *,
    attempts_before: int,
    max_attempts: int,
    ended: int,
    backoff: Backoff,
    at_least: float = 0.0,
) -> Verdict:
    """Return what an attempt that ended at `ended` (ms) makes of a delivery.

    `attempts_before` are those counted until now; this one is counted here, at its outcome.
    `at_least` seconds pass before the next one: it lengthens a wait, and never shortens it.
    An attempt that sent nothing (WITHDRAWN, UNSIGNABLE) counts as well: it was a try.
    """
    attempt = attempts_before + 1
    status = outcome(ending, attempt, max_attempts)
    if status is not DeliveryStatus.RETRYING:
        return Verdict(status, attempt, None)
    wait = max(backoff.wait(attempt), at_least)
    return Verdict(status, attempt, ended + round(wait * MS_PER_SECOND))


MAX_SECONDS: Final = 3600
HONOURED: Final = frozenset({429, 503})
"""The statuses whose `Retry-After` counts."""

_SECONDS: Final = re.compile(r"[0-9]{1,18}\Z")
_DATE: Final = re.compile(r"[A-Za-z]{3,9},? [ -~]{15,40}\Z")


def retry_after_seconds(status: int, value: str | None, now: int) -> float:
    """Return the wait in seconds that a response asks for: 0 to 3600, 0 without a request.

    Args:
        status: of the answer.
        value: of its header `Retry-After`; None where there is none.
        now: milliseconds since the epoch.
    """
    if value is None or status not in HONOURED:
        return 0.0
    text = value.strip()
    if _SECONDS.match(text):
        return float(min(MAX_SECONDS, int(text)))
    if not _DATE.match(text):
        return 0.0
    try:
        moment = parsedate_to_datetime(text)
        at = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return 0.0
    return min(float(MAX_SECONDS), max(0.0, at - now / MS_PER_SECOND))
