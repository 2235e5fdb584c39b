"""The waits between attempts (B-190, B-191)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.delivery import wait_seconds

WAITS = [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]  # seconds after attempts 1 to 10


@pytest.mark.parametrize(("attempt", "seconds"), list(enumerate(WAITS, start=1)))
def test_wait_seconds_doubles_up_to_one_hour(attempt: int, seconds: float) -> None:
    """30 seconds, then 1, 2, 4, 8 minutes, capped at one hour (B-190, C-38, C-39)."""
    assert wait_seconds(attempt) == seconds


def test_wait_seconds_accepts_fractions_of_seconds() -> None:
    """Fractions from 0.1 are allowed (B-191)."""
    assert [wait_seconds(n, 0.1, 0.5) for n in (1, 2, 3, 4)] == [0.1, 0.2, 0.4, 0.5]


def test_wait_seconds_limits_base_to_cap() -> None:
    assert wait_seconds(1, base=120.0, cap=5.0) == 5.0


@pytest.mark.parametrize("attempt", [0, -1])
def test_wait_seconds_refuses_attempt_below_first(attempt: int) -> None:
    with pytest.raises(ValueError, match="from 1"):
        wait_seconds(attempt)


SECONDS = st.floats(0.1, 86_400, allow_nan=False)


@given(st.integers(1, 100_000), SECONDS, SECONDS)
def test_wait_seconds_never_shrinks_or_exceeds_cap(attempt: int, base: float, cap: float) -> None:
    wait, following = wait_seconds(attempt, base, cap), wait_seconds(attempt + 1, base, cap)
    assert 0 < wait <= following <= cap


@given(st.integers(1, 10), SECONDS)
def test_wait_seconds_doubles_until_cap(attempt: int, base: float) -> None:
    """After attempt n failed the wait is 30·2^(n-1) s (B-190)."""
    assert wait_seconds(attempt, base, 1e12) == base * 2 ** (attempt - 1)
