"""The canonical form of identifiers (A-30)."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.identifiers import UnusableIdentifierError, canonical

# Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties.txt.
DEFAULT_IGNORABLE = [
    0x00AD, 0x034F, 0x061C, *range(0x115F, 0x1161), *range(0x17B4, 0x17B6),
    *range(0x180B, 0x1810), *range(0x200B, 0x2010), *range(0x202A, 0x202F),
    *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0,
    *range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B),
    *range(0xE0000, 0xE1000),
]  # fmt: skip
BIDI_CONTROLS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]


def form(text: str) -> str | None:
    try:
        return canonical(text)
    except UnusableIdentifierError:
        return None


SPELLINGS = [
    ("ada", "ada"),
    ("  Ada\t", "ada"),
    ("ADA@Example.COM", "ada@example.com"),
    ("STRASSE", "strasse"),
    ("straße", "strasse"),
    ("\uff21\uff44\uff41", "ada"),  # full-width letters
    ("\u212b", "\u00e5"),  # ANGSTROM SIGN
    ("e\u0301", "\u00e9"),
    ("\ufb01n", "fin"),  # the ligature fi
    ("\u00a0ada\u3000", "ada"),
    ("", ""),
    ("   ", ""),
]


@pytest.mark.parametrize(("typed", "expected"), SPELLINGS)
def test_canonical_form_unites_spellings(typed: str, expected: str) -> None:
    """At most 320 characters, NFKC, trimmed, casefolded (A-30)."""
    assert canonical(typed) == expected


def test_canonical_form_of_code_point_is_stable() -> None:
    """The form of a form is itself, over all code points (A-31)."""
    wrong = []
    for point in range(sys.maxunicode + 1):
        once = form(chr(point))
        if once is not None and form(once) != once:
            wrong.append(hex(point))
    assert wrong == []


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40))
def test_canonical_form_of_text_is_stable(text: str) -> None:
    once = form(text)
    assert once is None or form(once) == once


@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=30))
def test_canonical_form_ignores_letter_case(text: str) -> None:
    """No letter case makes another account (A-30)."""
    assert canonical(text.upper()) == canonical(text.lower()) == canonical(f" {text} ")


@pytest.mark.parametrize("points", [DEFAULT_IGNORABLE, BIDI_CONTROLS], ids=["ignorable", "bidi"])
def test_canonical_form_refuses_invisible_characters(points: list[int]) -> None:
    """Bidi controls and default-ignorable characters are refused (A-33, A-14)."""
    assert [hex(point) for point in points if form(f"a{chr(point)}b") is not None] == []


def test_canonical_form_refuses_control_characters_and_surrogates() -> None:
    points = [p for p in range(0x10000) if unicodedata.category(chr(p)) in ("Cc", "Cs")]
    assert [hex(point) for point in points if form(f"a{chr(point)}b") is not None] == []


@given(st.text(max_size=30))
def test_canonical_form_is_trimmed_and_visible(text: str) -> None:
    once = form(text)
    if once is not None:
        assert once == once.strip()
        assert not {ord(c) for c in once} & {*DEFAULT_IGNORABLE, *range(0x20)}


def test_canonical_form_accepts_320_characters_at_most() -> None:
    """The cap is 320 characters (A-30)."""
    assert canonical("a" * 320) == "a" * 320
    with pytest.raises(UnusableIdentifierError, match="320"):
        canonical("a" * 321)


def test_canonical_form_limits_folded_length_too() -> None:
    """The cap holds after folding too: one code point may fold to 18 (A-32)."""
    with pytest.raises(UnusableIdentifierError, match="320"):
        canonical("\ufdfa" * 320)
