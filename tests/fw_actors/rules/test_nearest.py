"""Unknown keys are refused with the nearest known one (C-13)."""

from __future__ import annotations

import pytest

from fw_actors.config.policy import nearest

KNOWN = ["sessionDays", "apiKeyDays", "lockoutMinutes"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sesionDays", "sessionDays"),
        ("SESSIONDAYS", "sessionDays"),
        ("lockout_minutes", "lockoutMinutes"),
        ("colour", None),
        ("", None),
    ],
)
def test_nearest_finds_most_similar_name(written: str, meant: str | None) -> None:
    assert nearest(written, KNOWN) == meant


def test_nearest_finds_nothing_for_long_name() -> None:
    assert nearest("x" * 1_000_000, KNOWN) is None
