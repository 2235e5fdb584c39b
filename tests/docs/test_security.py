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


def test_every_requirement_of_both_levels_has_one_answer() -> None:
    assert [len(STANDARD.numbers[level]) for level in (1, 2)] == [OF_LEVEL_1, OF_LEVEL_2]
    wanted = {(number, level) for level, numbers in STANDARD.numbers.items() for number in numbers}
    answered = [(each.number, each.level) for each in STANDARD.requirements]
    assert len(wanted) == OF_LEVEL_1 + OF_LEVEL_2
    assert set(answered) == wanted
    assert len(answered) == len(wanted)


def test_the_page_is_what_the_file_gives() -> None:
    """`scripts/asvs` writes it."""
    page = PAGE.read_text()
    assert with_section(page, section(STANDARD)) == page


def test_every_number_is_a_row_of_the_page() -> None:
    rows = re.findall(r"^\| (\d+\.\d+\.\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [each.number for each in STANDARD.requirements]


@parametrized(list(STANDARD.requirements))
def test_an_answer_says_what_is_asked_and_why_it_is_so(row: Requirement) -> None:
    assert row.answer in ANSWERS
    assert row.about
    assert row.why
    assert "|" not in row.about + row.why  # it would end a cell


@parametrized([row for row in STANDARD.requirements if row.answer == YES])
def test_a_yes_is_held_by_a_test_that_a_fault_fails_or_by_a_page(row: Requirement) -> None:
    assert bool(row.faults) is not bool(row.page)


@parametrized([row for row in STANDARD.requirements if row.tests or row.faults])
def test_each_fault_of_a_row_is_found_by_one_of_its_tests(row: Requirement) -> None:
    assert {FAULTS[fault].found_by for fault in row.faults} == set(row.tests)


@parametrized([row for row in STANDARD.requirements if row.tests])
def test_each_test_of_a_row_is_a_function_that_there_is(row: Requirement) -> None:
    for test in row.tests:
        path, separator, name = test.partition("::")
        assert separator, test
        assert name in functions(path), test


@parametrized([row for row in STANDARD.requirements if row.page])
def test_the_page_of_a_row_has_its_heading(row: Requirement) -> None:
    file, _, heading = (row.page or "").partition("#")
    assert heading in anchors(ROOT / "docs" / file)


def test_each_fault_belongs_to_a_row() -> None:
    named = {fault for row in STANDARD.requirements for fault in row.faults}
    assert set(FAULTS) == named


def test_the_threat_model_stands_at_the_top() -> None:
    assert HEADING.findall(PAGE.read_text())[0] == "Threat model"
