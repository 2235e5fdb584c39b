"""A limit of requests per second holds at any times of its queries (B-310, B-312)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.receivers import (
    MAX_SKEW_US,
    NOT_PAUSED,
    UNTIL_RESUMED,
    WINDOW_US,
    pause_end,
    rate_allowance,
)

NOW = 1_800_000_000_000


def requests_in(seconds: int, rate: int, *, seed: int, processes: int = 2) -> int:
    """Count the requests of processes that query at their own times, with enough to send."""
    random, used, count = Random(seed), 0, 0
    looks = [NOW] * processes
    while min(looks) < NOW + seconds * 1000:
        now = min(looks)
        allowance = rate_allowance(rate, used, now)
        requested = min(allowance.requests, random.randint(1, 200))
        used, count = allowance.used_after(requested), count + requested
        soonest = allowance.next_at(requested) if requested == allowance.requests else now + 5
        looks[looks.index(now)] = max(now + 1, soonest + random.randint(0, 20))
    return count


@given(st.sampled_from([1, 3, 7, 10, 33, 100, 999, 2000]), st.integers(0, 1000))
def test_rate_allowance_holds_rate_within_tenth(rate: int, seed: int) -> None:
    seconds = 20
    count = requests_in(seconds, rate, seed=seed)
    assert 0.9 * rate * seconds <= count <= 1.1 * rate * seconds + 1


@given(st.integers(1, 10_000), st.integers(0, 10**9))
def test_rate_allowance_limits_burst_after_idle_time(rate: int, idle_ms: int) -> None:
    used = NOW * 1000
    assert rate_allowance(rate, used, NOW + idle_ms).requests <= 0.102 * rate + 1


def test_rate_allowance_recovers_if_clock_is_set_back() -> None:
    used = NOW * 1000
    earlier = NOW - MAX_SKEW_US // 1000 - 1
    allowed = rate_allowance(10, used, earlier)
    assert allowed.requests == 1
    assert allowed.used_after(1) == earlier * 1000
    slightly = NOW - 1000  # another node's clock: the limit is held
    assert rate_allowance(10, used, slightly).requests == 0


def test_rate_allowance_applies_changed_limit_immediately() -> None:
    used = NOW * 1000
    assert rate_allowance(1, used, NOW + 100).requests == 0
    assert rate_allowance(100, used, NOW + 100).requests == WINDOW_US * 100 // 1_000_000


@pytest.mark.parametrize(
    ("since", "until", "end"),
    [
        (None, None, NOT_PAUSED), (None, NOW + 1, NOT_PAUSED), (1, None, UNTIL_RESUMED),
        (1, NOW + 1, NOW + 1), (1, NOW, NOT_PAUSED),
    ],
)  # fmt: skip
def test_pause_end_is_its_time_or_resumption(
    since: int | None, until: int | None, end: int
) -> None:
    assert pause_end(since, until, NOW) == end
