"""Counts and durations for `/metrics`."""

from __future__ import annotations

import pytest

from fw_actors.actors.metrics import Counter, Histogram


def test_counter_shows_known_outcomes_at_zero() -> None:
    counter = Counter(("sent",))
    counter.add("lost")
    assert counter.counts() == {"sent": 0, "lost": 1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, [1, 1, 1]), (1.0, [1, 1, 1]), (1.5, [0, 1, 1]), (9.0, [0, 0, 1]), (-3.0, [1, 1, 1])],
)
def test_histogram_counts_observation_in_every_matching_bucket(
    value: float, expected: list[int]
) -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe(value)
    assert histogram.buckets() == list(zip(("1.0", "2.0", "+Inf"), expected, strict=True))
    assert histogram.sum == max(value, 0.0)
