"""Why a delivery waits, and when it goes: told from facts, for a person (interface §7)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from fw_actors.rules.delivery_outcome import MOST_DEATHS_IN_A_ROW, Status

_MS: Final = 1000


class Reason(Enum):
    """What a delivery waits for; the values are those of `--json`."""

    SENT = "sent"
    FAILED = "failed"
    DELETED = "deleted"
    DISABLED = "disabled"
    UNDER_WAY = "underWay"
    LEASE_ENDED = "leaseEnded"
    BACKOFF = "backoff"
    PLACE = "place"
    NO_JOB = "noJob"


@dataclass(frozen=True)
class Waiting:
    """A delivery and its job at one moment; times in ms since the epoch.

    `hook_enabled` is None for a Webhook that was deleted. `next_at` is None without a job that is
    due some time; `ahead` counts jobs of the same Webhook that are due before it.
    """

    now: int
    status: Status
    attempts: int
    max_attempts: int
    error: str
    hook_enabled: bool | None
    next_at: int | None
    leased: bool
    deaths: int
    ahead: int


@dataclass(frozen=True)
class Explanation:
    """`goes_at` is when it is tried, as far as that can be told (ms); None: not by itself."""

    reason: Reason
    goes_at: int | None
    text: str


def explain(facts: Waiting) -> Explanation:
    """Say what a delivery waits for."""
    if facts.status is Status.SENT:
        return Explanation(Reason.SENT, None, "It was sent, and the receiver answered 2xx.")
    if facts.status is Status.FAILED:
        return _failed(facts)
    if facts.next_at is None:
        text = "Its job is not there: somebody deleted it from fw_job. Nothing will happen."
        return Explanation(Reason.NO_JOB, None, text)
    return _to_come(facts, facts.next_at)


def _to_come(facts: Waiting, next_at: int) -> Explanation:
    if facts.leased:
        return _leased(facts, next_at)
    if facts.hook_enabled is None:
        return _withdrawn(facts, next_at, Reason.DELETED, "was deleted")
    if not facts.hook_enabled:
        return _withdrawn(facts, next_at, Reason.DISABLED, "is disabled")
    if next_at > facts.now:
        return _backing_off(facts, next_at)
    return Explanation(Reason.PLACE, facts.now, _place(facts))


def _failed(facts: Waiting) -> Explanation:
    text = (
        f"It failed for good after {facts.attempts} of {facts.max_attempts} attempts. "
        f"{facts.error} To send it again: fw webhooks replay."
    )
    return Explanation(Reason.FAILED, None, text)


def _leased(facts: Waiting, until: int) -> Explanation:
    if until > facts.now:
        text = (
            f"An attempt is under way; its lease lasts {_seconds(facts, until)} s more. If its "
            "process dies, another takes it over then."
        )
        return Explanation(Reason.UNDER_WAY, until, text)
    deaths = f"{facts.deaths} of its workers" if facts.deaths else "None of its workers before"
    text = (
        "Its worker died: the lease has ended, and the next look of a running service takes it "
        f"over. {deaths} died in a row; after {MOST_DEATHS_IN_A_ROW} the next counts as failed."
    )
    return Explanation(Reason.LEASE_ENDED, facts.now, text)


def _withdrawn(facts: Waiting, due: int, reason: Reason, state: str) -> Explanation:
    text = f"Its Webhook {state}: at its next turn it fails, and nothing is sent."
    return Explanation(reason, max(due, facts.now), text)


def _backing_off(facts: Waiting, due: int) -> Explanation:
    text = (
        f"Attempt {facts.attempts} of {facts.max_attempts} failed. {facts.error} "
        f"The next one comes in {_seconds(facts, due)} s."
    )
    return Explanation(Reason.BACKOFF, due, text)


def _place(facts: Waiting) -> str:
    ahead = f"{facts.ahead} deliveries of its Webhook are due before it. " if facts.ahead else ""
    return (
        f"It is due, and waits for a place at its receiver. {ahead}A receiver that is slow or "
        "silent has one place at a time (ops.perReceiverConcurrency is the most)."
    )


def _seconds(facts: Waiting, until: int) -> str:
    return f"{(until - facts.now) / _MS:.1f}"
