"""State transitions of a delivery (outcome of an attempt, backoff, Retry-After), and why it waits.

A receiver's response is untrusted: its values are limited before they are used, and unreadable ones
are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from fw_actors.rules.findings import ServiceState
from fw_actors.rules.receivers import NOT_PAUSED, UNTIL_RESUMED
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


MAX_EXPIRED_LEASES: Final = 5  # the next one counts as a failed attempt (B-195)
LEASE_MARGIN_SECONDS: Final = 30  # a lease lasts the timeout and this much longer (B-210)


DEFECT_ERROR: Final = "internal: the attempt failed inside the service; see its log."
WORKER_LOST_ERROR: Final = (
    f"worker_lost: {MAX_EXPIRED_LEASES + 1} workers in a row ended without an outcome."
)
"""The error of an attempt that is not made, after `MAX_EXPIRED_LEASES`."""


class DeliveryStatus(StrEnum):
    """The four states of a Webhook Delivery."""

    QUEUED = "Queued"
    RETRYING = "Retrying"
    SENT = "Sent"
    FAILED = "Failed"


FINAL: Final = (DeliveryStatus.SENT.value, DeliveryStatus.FAILED.value)
"""The states of deliveries that have ended: only they are replayed, erased and swept."""
WAITING: Final = (DeliveryStatus.QUEUED.value, DeliveryStatus.RETRYING.value)
"""The states of deliveries that have not ended: only they are cancelled."""


def wrong_status(status: str, allowed: Sequence[str], participle: str) -> str:
    """Return the message of a refusal; `participle`: such as `replayed`."""
    states = " and ".join(allowed)
    return f"This delivery is {status}; only {states} deliveries can be {participle}."


class OutcomeKind(Enum):
    """The kinds of results that an attempt can have: the rows B-162 to B-167, and B-365."""

    DELIVERED = "the receiver answered 2xx"
    TRANSIENT = "network error, timeout, 408, 429 or any 5xx"
    REFUSED = "any other answer, a redirect included"
    WITHDRAWN = "Webhook disabled or deleted; nothing was sent"
    UNSIGNABLE = "signing secret missing or undecryptable; nothing was sent"
    CANCELLED = "a System Manager cancelled the delivery; nothing was sent"


NEXT_STATUS: Final = MappingProxyType(
    {
        OutcomeKind.DELIVERED: DeliveryStatus.SENT,
        OutcomeKind.TRANSIENT: DeliveryStatus.RETRYING,
        OutcomeKind.REFUSED: DeliveryStatus.FAILED,
        OutcomeKind.WITHDRAWN: DeliveryStatus.FAILED,
        OutcomeKind.UNSIGNABLE: DeliveryStatus.FAILED,
        OutcomeKind.CANCELLED: DeliveryStatus.FAILED,
    }
)
"""The status after an attempt; after the last one Failed stands for Retrying."""

_CANCELLATION: Final = "cancelled: "


def error_of_cancellation(user: str) -> str:
    """Return the `error` of a delivery that a user cancelled (B-365)."""
    return f"{_CANCELLATION}{user} cancelled this delivery."


def is_cancellation(error: str | None) -> bool:
    """Return whether an `error` is that of a cancellation."""
    return (error or "").startswith(_CANCELLATION)


_RETRIED_BELOW_500: Final = frozenset({408, 429})


def next_status(kind: OutcomeKind, attempt: int, max_attempts: int) -> DeliveryStatus:
    """Return the status after attempt number `attempt`, counted from 1."""
    status = NEXT_STATUS[kind]
    if status is DeliveryStatus.RETRYING and attempt >= max_attempts:
        return DeliveryStatus.FAILED
    return status


def kind_of_status(response_status: int) -> OutcomeKind:
    """Return the kind for a response's status code: the head decides (B-141)."""
    if 200 <= response_status < 300:
        return OutcomeKind.DELIVERED
    if response_status in _RETRIED_BELOW_500 or 500 <= response_status < 600:
        return OutcomeKind.TRANSIENT
    return OutcomeKind.REFUSED


def error_of_response(status: int, location: str | None) -> str:
    """Return the `error` of a delivery for a response: empty for a 2xx (B-168).

    `location`: where a redirect points to, without its query.
    """
    if kind_of_status(status) is OutcomeKind.DELIVERED:
        return ""
    where = f", and pointed to {location}" if location else ""
    return f"status: the receiver answered {status}{where}."


_POINTED: Final = re.compile(
    r"(status: the receiver answered [0-9]+), and pointed to .*", re.DOTALL
)


def error_without_location(error: str) -> str:
    """Return the `error` of a delivery without the target of a redirect.

    The target often repeats the path of the Webhook's URL, which may be a secret, and notices go to
    other receivers and into mails (B-343).
    """
    match = _POINTED.fullmatch(error)
    return error if match is None else f"{match[1]}, and pointed elsewhere."


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits between attempts: `ops.backoffSeconds` and `ops.backoffCapSeconds`."""

    base: float
    cap: float

    def wait(self, attempt: int) -> float:
        """Seconds from the end of attempt number `attempt` to the next one."""
        return wait_seconds(attempt, self.base, self.cap)


class Transition(NamedTuple):
    """The new state of a delivery: status, attempts so far, next attempt."""

    status: DeliveryStatus
    attempts: int
    next_attempt: int | None  # ms since the epoch; None once final


def next_transition(
    kind: OutcomeKind,
    *,
    attempts_before: int,
    max_attempts: int,
    ended: int,
    backoff: Backoff,
    at_least: float = 0.0,
) -> Transition:
    """Return the result for a delivery of an attempt that ended at `ended` (ms).

    `attempts_before` are those counted until now; this one is counted here, at its outcome.
    `at_least` seconds pass before the next one: it lengthens a wait, and never shortens it.
    An attempt that sent nothing (WITHDRAWN, UNSIGNABLE, CANCELLED) counts as well.
    """
    attempt = attempts_before + 1
    status = next_status(kind, attempt, max_attempts)
    if status is not DeliveryStatus.RETRYING:
        return Transition(status, attempt, None)
    wait = max(backoff.wait(attempt), at_least)
    return Transition(status, attempt, ended + round(wait * MS_PER_SECOND))


MAX_RETRY_AFTER_SECONDS: Final = 3600
RETRY_AFTER_STATUSES: Final = frozenset({429, 503})
"""The statuses whose `Retry-After` counts."""

_DIGITS: Final = re.compile(r"0*([0-9]+)\Z")
_MAX_DIGITS: Final = 4  # of `MAX_RETRY_AFTER_SECONDS`; a longer number is not converted
_DATE: Final = re.compile(r"[A-Za-z]{3,9},? [ -~]{15,40}\Z")


def retry_after_seconds(status: int, value: str | None, now: int) -> float:
    """Return the wait that a response requests: 0 to 3,600 seconds, 0 without a request.

    Args:
        status: the status of the response.
        value: the value of its header `Retry-After`; None without one.
        now: milliseconds since the epoch.
    """
    if value is None or status not in RETRY_AFTER_STATUSES:
        return 0.0
    text = value.strip()
    if digits := _DIGITS.match(text):
        if len(digits[1]) > _MAX_DIGITS:
            return float(MAX_RETRY_AFTER_SECONDS)
        return float(min(MAX_RETRY_AFTER_SECONDS, int(digits[1])))
    if not _DATE.match(text):
        return 0.0
    try:
        moment = parsedate_to_datetime(text)
        at = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return 0.0
    return min(float(MAX_RETRY_AFTER_SECONDS), max(0.0, at - now / MS_PER_SECOND))


MAX_COUNTED_JOBS: Final = 1000
"""The maximum number that is counted of the deliveries before one, and of leased ones."""


class WaitReason(Enum):
    """Reasons for which a delivery waits; the values are those of `--json`."""

    SENT = "sent"
    FAILED = "failed"
    DELETED = "deleted"
    DISABLED = "disabled"
    PAUSED = "paused"
    ORDER = "order"
    LEASED = "leased"
    LEASE_ENDED = "leaseEnded"
    BACKOFF = "backoff"
    SLOT = "slot"
    NO_JOB = "noJob"


@dataclass(frozen=True)
class WaitingDelivery:
    """A delivery and its job at one moment; times in ms since the epoch.

    Args:
        webhook_enabled: None for a Webhook that was deleted.
        next_at: when its job is due, or its lease ends; None without such a job.
        receiver: where its Webhook points, as `https://host:port`; empty without a usable URL.
        ahead: deliveries to that receiver, of all its Webhooks, that are due before it; at most
            `MAX_COUNTED_JOBS`.
        in_flight: deliveries to that receiver that a process has leased; at most
            `MAX_COUNTED_JOBS`.
        paused_until: when the pause of its Webhook ends; `NOT_PAUSED` without one.
        rate_limit: of its Webhook, in requests a second; 0 without one.
        behind: the earlier delivery of its document that it waits for; empty without one.
        cancelled: whether its last attempt is a cancellation, which sent nothing.
        erased: whether its body was erased.
    """

    now: int
    status: DeliveryStatus
    attempts: int
    max_attempts: int
    error: str
    webhook_enabled: bool | None
    next_at: int | None
    leased: bool
    expired_leases: int
    receiver: str = ""
    ahead: int = 0
    in_flight: int = 0
    paused_until: int = NOT_PAUSED
    rate_limit: int = 0
    behind: str = ""
    cancelled: bool = False
    erased: bool = False

    @property
    def paused(self) -> bool:
        """Whether its Webhook is paused."""
        return self.paused_until > self.now

    @property
    def replayable(self) -> bool:
        """Whether a replay of it is allowed once it is final (B-253, B-361)."""
        return self.webhook_enabled is not None and not self.erased


@dataclass(frozen=True)
class Explanation:
    """`due_at` is the moment from which it may be tried (ms); None while it is leased or final, or
    paused without an end."""

    reason: WaitReason
    due_at: int | None
    text: str


def explain(facts: WaitingDelivery, service: ServiceState) -> Explanation:
    """Return the reason why a delivery waits, or its end."""
    if facts.status is DeliveryStatus.SENT:
        return Explanation(WaitReason.SENT, None, "It was sent, and the receiver answered 2xx.")
    if facts.status is DeliveryStatus.FAILED:
        return _failed(facts)
    if facts.next_at is None:
        return _without_due_job(facts)
    if facts.leased and not (facts.paused and facts.next_at <= facts.now):
        return _leased(facts, facts.next_at)
    if facts.paused:
        return _paused(facts, facts.next_at)
    return _scheduled(facts, facts.next_at, service)


def _scheduled(facts: WaitingDelivery, due: int, service: ServiceState) -> Explanation:
    if facts.webhook_enabled is None:
        text = "Its Webhook was deleted: the next attempt fails, and nothing is sent."
        return Explanation(WaitReason.DELETED, due, text)
    if not facts.webhook_enabled:
        text = (
            "Its Webhook is disabled: unless the Webhook is enabled first, the next attempt fails, "
            "and nothing is sent."
        )
        return Explanation(WaitReason.DISABLED, due, text)
    if due > facts.now:
        return Explanation(
            WaitReason.BACKOFF, due, f"{_last_attempt(facts)} {_not_running(service)}".strip()
        )
    return Explanation(WaitReason.SLOT, due, _slot(facts, service))


def _without_due_job(facts: WaitingDelivery) -> Explanation:
    if facts.behind:
        text = (
            "Its Webhook sends one delivery at a time for each document (ordering). It waits until "
            f"{facts.behind}, and those between them, are sent or have failed."
        )
        pause = f" {_paused_for(facts)}" if facts.paused else ""
        return Explanation(WaitReason.ORDER, None, text + pause)
    text = (
        "fw_job has no scheduled job for it, because the table was changed by hand. It is not sent "
        "until the row is restored."
    )
    return Explanation(WaitReason.NO_JOB, None, text)


def _paused(facts: WaitingDelivery, due: int) -> Explanation:
    is_endless = facts.paused_until == UNTIL_RESUMED
    due_at = None if is_endless else max(due, facts.paused_until)
    return Explanation(WaitReason.PAUSED, due_at, _paused_for(facts))


def _paused_for(facts: WaitingDelivery) -> str:
    if facts.paused_until == UNTIL_RESUMED:
        return "Its Webhook is paused until it is resumed (fw webhooks resume)."
    left = (facts.paused_until - facts.now) / MS_PER_SECOND
    return f"Its Webhook is paused for {left:,.0f} s more; fw webhooks resume ends the pause."


def _failed(facts: WaitingDelivery) -> Explanation:
    # A cancellation is recorded as an attempt.
    sent = facts.attempts - 1 if facts.cancelled else facts.attempts
    how = "was cancelled" if facts.cancelled else "failed permanently"
    text = f"It {how} after {sent} of {facts.max_attempts} attempts. {facts.error} {_replay(facts)}"
    return Explanation(WaitReason.FAILED, None, text)


def _replay(facts: WaitingDelivery) -> str:
    """Return how a failed delivery is sent again, or why it cannot be (B-253, B-254, B-361)."""
    if facts.webhook_enabled is None:
        return "It cannot be sent again, because its Webhook was deleted."
    if facts.erased:
        return "It cannot be sent again, because its body was erased."
    if not facts.webhook_enabled:
        return "To send it again, enable its Webhook, and use fw webhooks replay."
    return "To send it again, use fw webhooks replay."


def _leased(facts: WaitingDelivery, until: int) -> Explanation:
    if until > facts.now:
        left = (until - facts.now) / MS_PER_SECOND
        text = (
            f"A process has leased it for an attempt. The lease lasts {left:.1f} s more; if the "
            "process has died, another process then takes the delivery over."
        )
        return Explanation(WaitReason.LEASED, None, text)
    text = (
        "Its lease has expired without an outcome: the process that leased it has died or is "
        "blocked. The next process with a free slot takes it over. Expired leases in a row: "
        f"{facts.expired_leases + 1}; {MAX_EXPIRED_LEASES + 1} in a row count as a failed attempt."
    )
    return Explanation(WaitReason.LEASE_ENDED, None, text)


def _last_attempt(facts: WaitingDelivery) -> str:
    if not facts.attempts:
        return "It has not been attempted and is not due yet."
    return f"Attempt {facts.attempts} of {facts.max_attempts} failed. {facts.error}"


def _slot(facts: WaitingDelivery, service: ServiceState) -> str:
    sentences = [
        "It is due.",
        f"Deliveries to {facts.receiver or 'its receiver'} that are due before it: "
        f"{_counted(facts.ahead)}; leased for an attempt: {_counted(facts.in_flight)}.",
        _not_running(service),
    ]
    if facts.rate_limit:
        sentences.append(
            f"Its Webhook sends at most {facts.rate_limit:,} requests a second (rate_limit)."
        )
    if service.health.get(facts.receiver) == "paused":
        sentences.append("This receiver is paused; resume it in fw console.")
    else:
        sentences.append(
            "A slow receiver gets one attempt at a time; any other gets up to "
            "ops.perReceiverConcurrency."
        )
    return " ".join(filter(None, sentences))


def _counted(number: int) -> str:
    return f"{number:,}{' or more' if number >= MAX_COUNTED_JOBS else ''}"


def _not_running(service: ServiceState) -> str:
    if service.delivers:
        return ""
    return "The service is not running on this machine. Start it with fw start."
