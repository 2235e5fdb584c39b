"""Explains in words why a delivery waits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from fw_actors.rules.delivery import MAX_CONSECUTIVE_DEATHS, DeliveryStatus
from fw_actors.rules.findings import ServiceState
from fw_actors.rules.pacing import NOT_PAUSED, UNTIL_RESUMED
from fw_actors.runtime.clock import MS_PER_SECOND

MAX_COUNTED: Final = 1000
"""The most deliveries that are counted before one, and of those that are leased."""


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
class Waiting:
    """A delivery and its job at one moment; times in ms since the epoch.

    Args:
        hook_enabled: None for a Webhook that was deleted.
        next_at: when its job is due, or its lease ends; None without such a job.
        receiver: where its Webhook points, as `https://host:port`; empty without a usable URL.
        ahead: deliveries to that receiver, of all its Webhooks, that are due before it; at most
            `MAX_COUNTED`.
        in_flight: deliveries to that receiver that a process has leased; at most `MAX_COUNTED`.
        paused_until: when the pause of its Webhook ends; `NOT_PAUSED` without one.
        rate_limit: of its Webhook, in requests a second; 0 without one.
        behind: the earlier delivery of its document that it waits for; empty without one.
    """

    now: int
    status: DeliveryStatus
    attempts: int
    max_attempts: int
    error: str
    hook_enabled: bool | None
    next_at: int | None
    leased: bool
    deaths: int
    receiver: str = ""
    ahead: int = 0
    in_flight: int = 0
    paused_until: int = NOT_PAUSED
    rate_limit: int = 0
    behind: str = ""

    @property
    def paused(self) -> bool:
        """Whether its Webhook is paused."""
        return self.paused_until > self.now


@dataclass(frozen=True)
class Explanation:
    """`due_at` is the moment from which it may be tried (ms); None while it is leased or final, or
    paused without an end."""

    reason: WaitReason
    due_at: int | None
    text: str


def explain(facts: Waiting, service: ServiceState) -> Explanation:
    """Say what a delivery waits for."""
    if facts.status is DeliveryStatus.SENT:
        return Explanation(WaitReason.SENT, None, "It was sent, and the receiver answered 2xx.")
    if facts.status is DeliveryStatus.FAILED:
        return _failed(facts)
    if facts.next_at is None:
        return _not_due(facts)
    if facts.leased and not (facts.paused and facts.next_at <= facts.now):
        return _leased(facts, facts.next_at)
    if facts.paused:
        return _paused(facts, facts.next_at)
    return _to_come(facts, facts.next_at, service)


def _to_come(facts: Waiting, due: int, service: ServiceState) -> Explanation:
    if facts.hook_enabled is None:
        text = "Its Webhook was deleted: it fails when its turn comes, and nothing is sent."
        return Explanation(WaitReason.DELETED, due, text)
    if not facts.hook_enabled:
        text = (
            "Its Webhook is disabled: unless it is enabled before, it fails when its turn comes, "
            "and nothing is sent."
        )
        return Explanation(WaitReason.DISABLED, due, text)
    if due > facts.now:
        return Explanation(
            WaitReason.BACKOFF, due, f"{_before(facts)} {_not_running(service)}".strip()
        )
    return Explanation(WaitReason.SLOT, due, _slot(facts, service))


def _not_due(facts: Waiting) -> Explanation:
    if facts.behind:
        text = (
            "Its Webhook sends one delivery at a time for each document (ordering). It waits until "
            f"{facts.behind}, and those between them, are sent or have failed."
        )
        return Explanation(WaitReason.ORDER, None, text)
    text = (
        "It has no job that is due at any time: fw_job was changed by hand. It is not sent by "
        "itself."
    )
    return Explanation(WaitReason.NO_JOB, None, text)


def _paused(facts: Waiting, due: int) -> Explanation:
    if facts.paused_until == UNTIL_RESUMED:
        text = "Its Webhook is paused until it is resumed: fw webhooks resume."
        return Explanation(WaitReason.PAUSED, None, text)
    left = (facts.paused_until - facts.now) / MS_PER_SECOND
    text = f"Its Webhook is paused for {left:,.0f} s more; fw webhooks resume ends that now."
    return Explanation(WaitReason.PAUSED, max(due, facts.paused_until), text)


def _failed(facts: Waiting) -> Explanation:
    text = (
        f"It failed for good after {facts.attempts} of {facts.max_attempts} attempts. "
        f"{facts.error} To send it again: fw webhooks replay."
    )
    return Explanation(WaitReason.FAILED, None, text)


def _leased(facts: Waiting, until: int) -> Explanation:
    if until > facts.now:
        left = (until - facts.now) / MS_PER_SECOND
        text = (
            f"A process has leased it for an attempt. The lease lasts {left:.1f} s more; if that "
            "process has died, another one takes the delivery over then."
        )
        return Explanation(WaitReason.LEASED, None, text)
    text = (
        "Its lease has ended without an outcome: the process that had it died, or is held up. "
        "The next process that has a free slot takes it over. Leases that ended like this in a "
        f"row before: {facts.deaths}; after {MAX_CONSECUTIVE_DEATHS} the next counts as a failed "
        "attempt."
    )
    return Explanation(WaitReason.LEASE_ENDED, None, text)


def _before(facts: Waiting) -> str:
    if not facts.attempts:
        return "It was not tried yet, and is not due yet."
    return f"Attempt {facts.attempts} of {facts.max_attempts} failed. {facts.error}"


def _slot(facts: Waiting, service: ServiceState) -> str:
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
        sentences.append("The service has paused this receiver: fw console resumes it.")
    else:
        sentences.append(
            "When it goes depends on how quickly the receiver answers: one that is slow or silent "
            "gets one attempt at a time, another up to ops.perReceiverConcurrency."
        )
    return " ".join(filter(None, sentences))


def _counted(number: int) -> str:
    return f"{number:,}{' or more' if number >= MAX_COUNTED else ''}"


def _not_running(service: ServiceState) -> str:
    if service.delivers:
        return ""
    return "The service does not run on this machine (fw start)."
