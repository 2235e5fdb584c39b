"""Each citation of a rule leads to one, and each number belongs to one rule."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.docs.contract import ROOT, citations, cited, rules, untested

MAX_RULES_WITHOUT_A_TEST: Final = 70
"""How many rules no test cites. It may only fall: cite the rule in the test that holds it."""

NUMBERS = [number for number, _ in rules()]


def test_citation_leads_to_a_rule() -> None:
    known = set(NUMBERS)
    astray = {
        str(file.relative_to(ROOT)): sorted(numbers - known)
        for file, numbers in cited().items()
        if numbers - known and not file.name.endswith("contract.py")
    }
    assert astray == {}


def test_citations_are_found_in_code_and_pages() -> None:
    suffixes = Counter(file.suffix for file in cited())
    assert suffixes[".py"] > 100
    assert suffixes[".md"] > 0


def test_rule_numbers_are_unique() -> None:
    assert [number for number, times in Counter(NUMBERS).items() if times > 1] == []


@pytest.mark.parametrize("area", "ABCDHOR")
def test_rule_numbers_ascend_within_an_area(area: str) -> None:
    own = [int(number[2:]) for number in NUMBERS if number[0] == area]
    assert own
    assert own == sorted(own)


@pytest.mark.parametrize("text", ["A-10", "(A-10)", "A-10, B-200.", "`H-31`: refused", "see R-99;"])
def test_citations_finds_a_number_alone(text: str) -> None:
    assert citations(text)


@pytest.mark.parametrize(
    "text",
    [
        "UTF-8",
        "SHA-256",
        "ADR-12",
        "D-042",
        "SO-00001",
        "A-7",
        "RFC-822",
        "X-A-10",
        "A-1000",
        "F-22",
    ],
)
def test_citations_ignores_similar_words(text: str) -> None:
    assert citations(text) == frozenset()


def test_rules_without_a_test_do_not_increase() -> None:
    """`python -m tests.docs.contract` prints them."""
    assert len(untested()) <= MAX_RULES_WITHOUT_A_TEST
