"""Text from outside, made safe to show."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fw_actors.rules.safe_output import escaped, escaped_json


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
        ("\ue000\uf8ff\U00100000", "\\ue000\\uf8ff\\U00100000"),
        ("\u0378\uffff\U0010ffff", "\\u0378\\uffff\\U0010ffff"),
    ],
)
def test_escaped_shows_unprintable_characters_by_number(raw: str, shown: str) -> None:
    assert escaped(raw) == shown


ACTING = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(st.text(st.characters(categories=("C", "L", "N", "P", "Z"))))
def test_escaped_leaves_no_control_characters(raw: str) -> None:
    """Values from outside are escaped: CR, LF, ESC, U+2028 (O-100)."""
    assert not {unicodedata.category(character) for character in escaped(raw)} & ACTING
    assert len(escaped(raw).splitlines()) <= 1


def test_escaped_makes_each_unicode_character_harmless() -> None:
    for number in range(sys.maxunicode + 1):
        shown = escaped(chr(number))
        acts = unicodedata.category(chr(number)) in ACTING
        assert shown == chr(number) or (acts and shown.isascii() and shown.isprintable())
        assert not acts or shown != chr(number)


@example("\x7f")
@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_escaped_json_decodes_to_the_same_value(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    shown = escaped_json(text)
    assert json.loads(shown) == value
    assert escaped(shown.replace("\n", "")) == shown.replace("\n", "")
