"""The answers to OWASP ASVS are complete, on the page, and each is held by what it names."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.asvs.page import PAGE, section, with_section
from tests.asvs.standard import ANSWERS, ROOT, YES, Requirement, read_standard
from tests.mutants.mutations import ASVS

STANDARD = read_standard()
FAULTS = {mutation.name: mutation for mutation in ASVS}
HEADING = re.compile(r"^#{2,3} (.+)$", re.MULTILINE)
OF_LEVEL_1, OF_LEVEL_2 = 70, 183  # what the standard has, version 5.0.0


def parametrized(requirements: list[Requirement]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", requirements, ids=[each.number for each in requirements])


@cache
def functions(path: str) -> frozenset[str]:
    """The test functions of a file, read and not imported."""
    file = ROOT / path
    tree = ast.parse(file.read_text() if file.is_file() else "")
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))


@cache
def anchors(file: Path) -> frozenset[str]:
    """The headings of a page as links name them."""
    found = HEADING.findall(file.read_text())
    return frozenset(
        re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in found
    )


def test_answers_cover_both_levels_once() -> None:
    assert [len(STANDARD.numbers[level]) for level in (1, 2)] == [OF_LEVEL_1, OF_LEVEL_2]
    expected = {
        (number, level) for level, numbers in STANDARD.numbers.items() for number in numbers
    }
    answered = [(each.number, each.level) for each in STANDARD.requirements]
    assert len(expected) == OF_LEVEL_1 + OF_LEVEL_2
    assert set(answered) == expected
    assert len(answered) == len(expected)


def test_security_page_matches_asvs_toml() -> None:
    """`scripts/asvs` writes it."""
    page = PAGE.read_text()
    assert with_section(page, section(STANDARD)) == page


def test_security_page_has_a_row_for_each_requirement() -> None:
    rows = re.findall(r"^\| (\d+\.\d+\.\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [each.number for each in STANDARD.requirements]


@parametrized(list(STANDARD.requirements))
def test_answer_has_requirement_and_reason(row: Requirement) -> None:
    assert row.answer in ANSWERS
    assert row.about
    assert row.why
    assert "|" not in row.about + row.why  # it would end a cell


@parametrized([row for row in STANDARD.requirements if row.answer == YES])
def test_yes_names_a_test_with_a_fault_or_a_page(row: Requirement) -> None:
    assert bool(row.faults) is not bool(row.page)


@parametrized([row for row in STANDARD.requirements if row.tests or row.faults])
def test_fault_of_a_row_names_one_of_its_tests(row: Requirement) -> None:
    assert {FAULTS[fault].found_by for fault in row.faults} == set(row.tests)


@parametrized([row for row in STANDARD.requirements if row.tests])
def test_tests_of_a_row_exist(row: Requirement) -> None:
    for test in row.tests:
        path, separator, name = test.partition("::")
        assert separator, test
        assert name in functions(path), test


@parametrized([row for row in STANDARD.requirements if row.page])
def test_page_of_a_row_has_its_heading(row: Requirement) -> None:
    file, _, heading = (row.page or "").partition("#")
    assert heading in anchors(ROOT / "docs" / file)


def test_fault_belongs_to_a_row() -> None:
    named = {fault for row in STANDARD.requirements for fault in row.faults}
    assert set(FAULTS) == named


def test_security_page_begins_with_the_threat_model() -> None:
    assert HEADING.findall(PAGE.read_text())[0] == "Threat model"
