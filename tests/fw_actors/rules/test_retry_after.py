"""`Retry-After` where `ops.honourRetryAfter` is true (B-193)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.delivery import retry_after_seconds

NOW = 1_800_000_000_000  # Fri, 15 Jan 2027 08:00:00 GMT

READ = [  # value, seconds
    ("0", 0),
    ("1", 1),
    (" 120 ", 120),
    ("3600", 3600),
    ("3601", 3600),
    ("9" * 18, 3600),
    ("9" * 19, 3600),
    ("9" * 5000, 3600),
    ("0" * 5000 + "7", 7),
    ("Fri, 15 Jan 2027 08:00:30 GMT", 30),
    ("Friday, 15-Jan-27 08:01:00 GMT", 60),
    ("Fri, 15 Jan 2027 08:00:30", 30),
    ("Fri, 15 Jan 2027 09:00:30 +0100", 30),
    ("Fri, 15 Jan 2027 07:00:00 GMT", 0),
    ("Fri, 15 Jan 2126 08:00:00 GMT", 3600),
]
UNREADABLE = [
    "", "-1", "1.5", "1e3", "٣", "soon", "Fri, 99 Foo 2027 08:00:00 GMT",
    "15 Jan 2027 08:00:30 GMT",
]  # fmt: skip


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("value", "seconds"), READ)
def test_retry_after_is_clamped_on_429_and_503(status: int, value: str, seconds: float) -> None:
    assert retry_after_seconds(status, value, NOW) == seconds


@pytest.mark.parametrize("value", UNREADABLE)
def test_retry_after_ignores_unreadable_value(value: str) -> None:
    assert retry_after_seconds(503, value, NOW) == 0


@pytest.mark.parametrize("status", [200, 301, 408, 500, 502, 504])
def test_retry_after_is_ignored_on_other_statuses(status: int) -> None:
    assert retry_after_seconds(status, "100", NOW) == 0
    assert retry_after_seconds(503, None, NOW) == 0


@given(st.text(max_size=80))
def test_retry_after_stays_within_limits(value: str) -> None:
    """A receiver's `Retry-After` is clamped before any arithmetic (B-193)."""
    assert 0 <= retry_after_seconds(429, value, NOW) <= 3600
