"""The type of `--since`: ISO 8601, or an age such as `7d` or `12h` (C-116)."""

from __future__ import annotations

import click
import pytest

from fw_cli.time_options import SINCE

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z

READ = [
    ("7d", NOW - 7 * 86_400_000),
    ("12h", NOW - 12 * 3_600_000),
    ("30m", NOW - 30 * 60_000),
    ("999999d", 0),
    ("2027-01-15T08:00:00Z", NOW),
    ("2027-01-15T09:00:00+01:00", NOW),
    ("2027-01-15T08:00", NOW),
    ("2027-01-15", NOW - 8 * 3_600_000),
    ("1900-01-01", 0),
]


@pytest.mark.parametrize(("text", "moment"), READ)
def test_since_converts_text_to_moment(text: str, moment: int) -> None:
    assert SINCE.convert(text, None, None)(NOW) == moment


NO_MOMENTS = ["", "soon", "7", "7w", "-1d", "1.5h", "2027-13-01", "15.1.2027",
              "9999-12-31T23:59:59-12:00", "0001-01-01T00:00+14:00"]  # fmt: skip


@pytest.mark.parametrize("text", NO_MOMENTS)
def test_since_refuses_invalid_text_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match="7d, 12h, 30m"):
        SINCE.convert(text, None, None)
