"""Text from outside, made safe to show."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisors.service.escaping import escaped


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain text, Ünïcode 漢字 🙂 ", "plain text, Ünïcode 漢字 🙂 "),
        ("a\r\nb", "a\\u000d\\u000ab"),
        ("\x1b[31m", "\\u001b[31m"),
        ("\x00\x7f\x85\x9b", "\\u0000\\u007f\\u0085\\u009b"),
        ("\u2028\u2029\u202e\u200d\ufeff", "\\u2028\\u2029\\u202e\\u200d\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_what_does_not_print_is_shown_by_its_number(raw: str, shown: str) -> None:
    assert escaped(raw) == shown


@given(st.text())
def test_nothing_that_acts_is_left(raw: str) -> None:
    left = {unicodedata.category(character) for character in escaped(raw)}
    assert not left & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert len(escaped(raw).splitlines()) <= 1
