"""Times are ISO 8601 UTC with milliseconds and `Z` (H-35, D-56)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.documents.fields import iso, requested_time, to_ms
from fw_actors.errors import BadRequestError, ValidationError
from tests.fw_actors.documents.conftest import ShopSite

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


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"])
def test_requested_time_refuses_a_time_that_utc_cannot_show(text: str) -> None:
    """H-35."""
    with pytest.raises(BadRequestError, match="since must be a time"):
        requested_time(text, "since")


def test_requested_time_takes_the_first_and_last_times_of_utc() -> None:
    assert requested_time("0001-01-01T12:00:00+12:00", "since") == ROWS[-2][0]
    assert requested_time("9999-12-31T11:59:59.999-12:00", "since") == ROWS[-1][0]


@pytest.mark.usefixtures("on_both_stores")
@pytest.mark.parametrize("column", ["moment", "creation", "modified"])
@pytest.mark.parametrize("value", [1_800_000_000_000_000, 2**62, -(2**62), "2026-01-01"])
async def test_datetime_reads_value_that_is_no_time_as_null(
    desk: ShopSite, column: str, value: int | str
) -> None:
    """SQL may have written microseconds, or on SQLite a text (D-56): each read was a 500."""

    def work(fw: Any) -> list[Any]:
        name = fw.new_doc("Sample", moment="2026-01-01").insert().name
        try:
            fw.db.sql(f"UPDATE doc_sample SET {column} = :value", {"value": value})
        except ValidationError:  # of PostgreSQL, whose columns take no text
            assert isinstance(value, str)
            return []
        sample = fw.get_doc("Sample", name)
        found = [getattr(sample, column), fw.get_all("Sample", fields=[column])[0][column]]
        sample.data = "changed"
        sample.save()
        changed = fw.get_doc("Sample", name)
        assert (changed.data, changed.modified) == ("changed", sample.modified)
        changed.delete()
        return found

    assert await desk.do(work) in ([], [None, None])
