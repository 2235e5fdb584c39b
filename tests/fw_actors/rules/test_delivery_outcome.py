"""The rows of the table, written out again (B-162, B-163, B-164, B-165,
B-166, B-167)."""

from __future__ import annotations

import pytest

from fw_actors.rules.delivery import (
    NEXT,
    Backoff,
    DeliveryStatus,
    Ending,
    Verdict,
    decide,
    ending_of,
    outcome,
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


def test_outcome_table_covers_every_ending() -> None:
    assert sorted(row[0] for row in TABLE) == sorted(ending.name for ending in Ending)
    assert set(NEXT) == set(Ending)


def test_delivery_status_has_four_values() -> None:
    """The status is Queued, Retrying, Sent or Failed (B-160)."""
    assert sorted(DeliveryStatus) == ["Failed", "Queued", "Retrying", "Sent"]


@pytest.mark.parametrize(("ending", "remaining", "exhausted"), TABLE)
def test_outcome_depends_on_ending_and_attempts_left(
    ending: str, remaining: str, exhausted: str
) -> None:
    assert outcome(Ending[ending], 5, 6) == remaining
    assert outcome(Ending[ending], 6, 6) == exhausted


@pytest.mark.parametrize(("status", "ending"), ANSWERS)
def test_ending_of_classifies_status_codes(status: int, ending: str) -> None:
    """408, 429 and any 5xx are retried; all others are final (B-163, B-165)."""
    assert ending_of(status) is Ending[ending]


BACKOFF = Backoff(30.0, 3600.0)


def test_decide_schedules_retry_after_attempt_end() -> None:
    """The wait is counted from the end of the attempt, without jitter (B-192)."""
    verdict = decide(
        Ending.TRANSIENT, attempts_before=2, max_attempts=6, ended=1_000, backoff=BACKOFF
    )
    assert verdict == Verdict(DeliveryStatus.RETRYING, 3, 1_000 + 120_000)


def test_decide_allows_five_retries_of_six_attempts() -> None:
    """`max_attempts` is 6 by default, and counts all attempts (B-27, B-164)."""
    states = [
        decide(Ending.TRANSIENT, attempts_before=n, max_attempts=6, ended=0, backoff=BACKOFF).status
        for n in range(6)
    ]
    assert states == ["Retrying"] * 5 + ["Failed"]


@pytest.mark.parametrize("ending", [e for e in Ending if e is not Ending.TRANSIENT])
def test_decide_sets_no_next_attempt_on_final_status(ending: Ending) -> None:
    """`next_attempt` is null once final (B-172)."""
    verdict = decide(ending, attempts_before=0, max_attempts=6, ended=5, backoff=BACKOFF)
    assert (verdict.next_attempt, verdict.attempts) == (None, 1)


def test_outcome_is_failed_beyond_attempt_limit() -> None:
    """A replay may have lowered the number below what was counted."""
    assert outcome(Ending.TRANSIENT, 9, 6) == "Failed"
