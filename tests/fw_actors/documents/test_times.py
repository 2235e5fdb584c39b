"""Times are ISO 8601 UTC with milliseconds and `Z` (H-35, D-56)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.documents.fields import iso, to_ms

ROWS = [
    (0, "1970-01-01T00:00:00.000Z"),
    (-1, "1969-12-31T23:59:59.999Z"),
    (951_782_399_999, "2000-02-28T23:59:59.999Z"),
    (1_772_280_000_007, "2026-02-28T12:00:00.007Z"),
    (1_800_000_000_123, "2027-01-15T08:00:00.123Z"),
    (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
    (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
]


@pytest.mark.parametrize(("ms", "text"), ROWS)
def test_iso_formats_milliseconds_as_utc_with_z(ms: int, text: str) -> None:
    assert iso(ms) == text


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_datetime_to_ms_inverts_iso_exactly(ms: int) -> None:
    assert to_ms(datetime.fromisoformat(iso(ms))) == ms


def test_datetime_to_ms_treats_naive_time_as_utc() -> None:
    assert to_ms(datetime(1970, 1, 1, 0, 0, 1)) == 1000  # noqa: DTZ001
    assert to_ms(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1000
