"""Lockout and address throttle, as pure rules (A-64, A-69, A-90)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.access.attempts import CounterBucket
from fw_actors.rules.lockout import (
    SHARED_ATTEMPTS,
    Budget,
    Tally,
    is_locked,
    may_verify,
    refusal_seconds,
    shared_budget,
)

NOW = 1_800_000_000_000
MINUTE = 60_000
LOCKING = Budget(limit=5, window=15 * MINUTE)
ROLLING = Budget(limit=50, window=15 * MINUTE, locks=False)


def test_refusal_seconds_of_lock_is_time_left() -> None:
    tally = Tally(5, NOW - 10 * MINUTE, NOW - 9 * MINUTE, NOW + 6 * MINUTE)
    assert refusal_seconds(tally, LOCKING, NOW) == 360


def test_refusal_seconds_is_one_while_attempts_are_in_flight() -> None:
    """Attempts above the limit while others are in flight get 429 with `Retry-After: 1` (A-68)."""
    tally = Tally(failed=4, oldest=NOW, newest_failure=NOW - 1, locked_until=None)
    assert refusal_seconds(tally, LOCKING, NOW) == 1


def test_refusal_seconds_counts_window_from_last_crash() -> None:
    """A charge still in flight after 30 s (a crash) is a failure (A-66)."""
    tally = Tally(5, NOW - 14 * MINUTE, NOW - 5 * MINUTE, None)
    assert refusal_seconds(tally, LOCKING, NOW) == 600


def test_refusal_seconds_of_address_awaits_oldest_failure() -> None:
    """The next attempt is answered 429 until the oldest failure leaves the window (A-90)."""
    tally = Tally(50, NOW - 14 * MINUTE, NOW, None)
    assert refusal_seconds(tally, ROLLING, NOW) == 60


def test_refusal_seconds_ignores_expired_lock() -> None:
    tally = Tally(failed=0, oldest=None, newest_failure=None, locked_until=NOW)
    assert refusal_seconds(tally, LOCKING, NOW) == 1


CLOSED = [  # failures, the lock's end, whether further attempts are refused
    (0, None, False),
    (4, None, False),
    (5, None, True),
    (6, None, True),
    (0, NOW + 1, True),
    (0, NOW, False),
    (0, NOW - 1, False),
    (5, NOW, True),
]


@pytest.mark.parametrize(("failed", "until", "closed"), CLOSED)
def test_is_closed_requires_lock_or_spent_budget(
    failed: int, until: int | None, closed: bool
) -> None:
    """Attempts in flight cause no lock (A-68)."""
    tally = Tally(failed, NOW, NOW, until)
    assert is_locked(tally, LOCKING, NOW) is closed


def test_may_verify_refuses_charge_of_30_seconds() -> None:
    """A charge still in flight after 30 s (a crash) is a failure (A-66)."""
    assert may_verify(NOW - 29_999, NOW)
    assert not may_verify(NOW - 30_000, NOW)


MOMENTS = st.none() | st.integers(NOW - 40 * MINUTE, NOW + 40 * MINUTE)


@given(st.integers(0, 100), MOMENTS, MOMENTS, MOMENTS, st.booleans())
def test_refusal_seconds_is_positive_and_bounded(
    failed: int, oldest: int | None, newest: int | None, until: int | None, locks: bool
) -> None:
    """A clock that jumps gives no negative Retry-After (A-81)."""
    budget = Budget(5, 15 * MINUTE, locks)
    seconds = refusal_seconds(Tally(failed, oldest, newest, until), budget, NOW)
    assert seconds > 0
    if until is None or until <= NOW:
        assert seconds <= 15 * 60


@given(st.integers(1, 15 * MINUTE))
def test_refusal_seconds_of_lock_has_millisecond_precision(left: int) -> None:
    assert refusal_seconds(Tally(5, NOW, NOW, NOW + left), LOCKING, NOW) == left / 1000


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_bucket_holds_keys_with_its_prefix(key: bytes, other: bytes) -> None:
    bucket = CounterBucket.of(key)
    assert bucket.first <= key <= bucket.last
    assert (bucket.first <= other <= bucket.last) is (other[:2] == key[:2])
    assert CounterBucket.of(bucket.shared) == bucket


def test_shared_budget_keeps_window_and_never_locks() -> None:
    assert shared_budget(Budget(5, 1000)) == Budget(SHARED_ATTEMPTS, 1000, locks=False)
