"""The number of refusals per minute that are recorded singly."""

from __future__ import annotations

import pytest

from fw_actors.rules.lockout import minute_of, refusals_beyond_limit


@pytest.mark.parametrize(
    ("recorded", "more", "expected"),
    [(0, None, None), (19, None, None), (20, None, 1), (21, 1, 2), (21, 40, 41), (1, 3, 4)],
)
def test_refusal_count_starts_beyond_twenty(
    recorded: int, more: int | None, expected: int | None
) -> None:
    assert refusals_beyond_limit(recorded, more) == expected


def test_minute_of_returns_clock_minute() -> None:
    first, second = (0, 60_000), (60_000, 120_000)
    found = [minute_of(now) for now in (0, 59_999, 60_000, 119_999)]
    assert found == [first, first, second, second]
