"""Times in JSON are ISO 8601 UTC with milliseconds and Z (H-35)."""

from __future__ import annotations

import pytest

from web.response import encode, iso_time


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_772_280_000_000, "2026-02-28T12:00:00.000Z"),
        (1_772_280_000_007, "2026-02-28T12:00:00.007Z"),
        (951_782_399_999, "2000-02-28T23:59:59.999Z"),
    ],
)
def test_iso_time_has_milliseconds_and_z(milliseconds: int, text: str) -> None:
    assert iso_time(milliseconds) == text


def test_encode_writes_text_as_utf_8() -> None:
    assert encode({"a": "ü☃"}) == '{"a":"ü☃"}'.encode()


def test_encode_raises_for_values_without_a_json_form() -> None:
    with pytest.raises(TypeError):
        encode({"a": object()})
