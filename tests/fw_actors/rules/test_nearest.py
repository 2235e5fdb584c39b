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
def test_the_most_similar_known_name_is_meant(written: str, meant: str | None) -> None:
    assert nearest(written, KNOWN) == meant


def test_a_very_long_name_is_like_none() -> None:
    assert nearest("x" * 1_000_000, KNOWN) is None
