"""The rows of the table, written out again (B-162, B-163, B-164, B-165,
B-166, B-167)."""

from __future__ import annotations

import pytest

from fw_actors.rules.delivery import (
    NEXT_STATUS,
    Backoff,
    DeliveryStatus,
    OutcomeKind,
    Transition,
    kind_of_status,
    next_status,
    next_transition,
)

TABLE = [  # how the attempt ended, while attempts remain, when they are exhausted
    ("DELIVERED", "Sent", "Sent"),
    ("TRANSIENT", "Retrying", "Failed"),
    ("REFUSED", "Failed", "Failed"),
    ("WITHDRAWN", "Failed", "Failed"),
    ("UNSIGNABLE", "Failed", "Failed"),
    ("CANCELLED", "Failed", "Failed"),
]

ANSWERS = [
    *((status, "DELIVERED") for status in (200, 201, 202, 204, 206, 226, 299)),
    *((status, "TRANSIENT") for status in (408, 429, 500, 501, 502, 503, 504, 505, 511, 599)),
    *((status, "REFUSED") for status in (300, 301, 302, 303, 304, 307, 308, 399)),
    *((status, "REFUSED") for status in (400, 401, 403, 404, 407, 409, 410, 422, 428, 430, 499)),
    *((status, "REFUSED") for status in (600, 700, 999)),
]


def test_next_status_covers_every_kind() -> None:
    assert sorted(row[0] for row in TABLE) == sorted(kind.name for kind in OutcomeKind)
    assert set(NEXT_STATUS) == set(OutcomeKind)


def test_delivery_status_has_four_values() -> None:
    """The status is Queued, Retrying, Sent or Failed (B-160)."""
    assert sorted(DeliveryStatus) == ["Failed", "Queued", "Retrying", "Sent"]


@pytest.mark.parametrize(("kind", "remaining", "exhausted"), TABLE)
def test_next_status_depends_on_kind_and_attempts_left(
    kind: str, remaining: str, exhausted: str
) -> None:
    assert next_status(OutcomeKind[kind], 5, 6) == remaining
    assert next_status(OutcomeKind[kind], 6, 6) == exhausted


@pytest.mark.parametrize(("status", "kind"), ANSWERS)
def test_kind_of_status_classifies_status_codes(status: int, kind: str) -> None:
    """408, 429 and any 5xx are retried; all others are final (B-163, B-165)."""
    assert kind_of_status(status) is OutcomeKind[kind]


BACKOFF = Backoff(30.0, 3600.0)


def test_next_transition_schedules_retry_after_attempt_end() -> None:
    """The wait is counted from the end of the attempt, without jitter (B-192)."""
    transition = next_transition(
        OutcomeKind.TRANSIENT, attempts_before=2, max_attempts=6, ended=1_000, backoff=BACKOFF
    )
    assert transition == Transition(DeliveryStatus.RETRYING, 3, 1_000 + 120_000)


def test_next_transition_allows_five_retries_of_six_attempts() -> None:
    """`max_attempts` is 6 by default, and counts all attempts (B-27, B-164)."""
    states = [
        next_transition(
            OutcomeKind.TRANSIENT, attempts_before=n, max_attempts=6, ended=0, backoff=BACKOFF
        ).status
        for n in range(6)
    ]
    assert states == ["Retrying"] * 5 + ["Failed"]


@pytest.mark.parametrize("kind", [e for e in OutcomeKind if e is not OutcomeKind.TRANSIENT])
def test_next_transition_sets_no_next_attempt_on_final_status(kind: OutcomeKind) -> None:
    """`next_attempt` is null once final (B-172)."""
    transition = next_transition(kind, attempts_before=0, max_attempts=6, ended=5, backoff=BACKOFF)
    assert (transition.next_attempt, transition.attempts) == (None, 1)


def test_next_status_is_failed_beyond_attempt_limit() -> None:
    """A replay may have lowered the number below what was counted."""
    assert next_status(OutcomeKind.TRANSIENT, 9, 6) == "Failed"
