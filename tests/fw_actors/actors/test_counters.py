"""Counts and durations for `/metrics`."""

from __future__ import annotations

import pytest

from fw_actors.actors.metrics import Counter, Histogram


def test_known_outcomes_are_shown_at_zero_and_others_when_they_come() -> None:
    counter = Counter(("sent",))
    counter.add("lost")
    assert counter.counts() == {"sent": 0, "lost": 1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, [1, 1, 1]), (1.0, [1, 1, 1]), (1.5, [0, 1, 1]), (9.0, [0, 0, 1]), (-3.0, [1, 1, 1])],
)
def test_an_observation_counts_in_every_bucket_that_holds_it(
    value: float, expected: list[int]
) -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe(value)
    assert histogram.buckets() == list(zip(("1.0", "2.0", "+Inf"), expected, strict=True))
    assert histogram.sum == max(value, 0.0)
