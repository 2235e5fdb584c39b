"""Decisions are numbered entries, and what they name exists."""

from __future__ import annotations

import ast
import re
from datetime import date
from functools import cache
from typing import Final

import pytest

from tests.docs.contract import ROOT, citations, files, rules

PAGE: Final = ROOT / "docs" / "decisions.md"
HEADING: Final = re.compile(r"^## ADR-(\d{3}) (.+)$", re.MULTILINE)
ENTRY: Final = re.compile(
    r"^(?P<date>\d{4}-\d\d-\d\d)\. (?P<decision>.+?)\n\n"
    r"Rejected: (?P<rejected>.+?)\n\n"
    r"(?:Rules: (?P<rules>.+?)\. )?"
    r"(?:Tests: (?P<tests>.+)|Not held by a test: (?P<untested>.+))\.$",
    re.DOTALL,
)
TESTS: Final = re.compile(r"`tests/[\w/]+\.py::test_\w+`(?:, `tests/[\w/]+\.py::test_\w+`)*")
TEST: Final = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
CITATION: Final = re.compile(r"\bADR-(\d+)\b")


def entries() -> list[tuple[str, str, str]]:
    """Each entry as number, title and body."""
    _, *parts = HEADING.split(PAGE.read_text())
    return [
        (number, title, body.strip())
        for number, title, body in zip(parts[0::3], parts[1::3], parts[2::3], strict=True)
    ]


def test_decision_numbers_are_consecutive() -> None:
    numbers = [int(number) for number, _, _ in entries()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 100


@pytest.mark.parametrize(("number", "title", "body"), entries())
def test_decision_has_date_alternatives_rules_and_tests(number: str, title: str, body: str) -> None:
    entry = ENTRY.match(body)
    assert entry is not None, f"ADR-{number} {title}"
    assert date.fromisoformat(entry["date"]) >= date(2026, 11, 20)
    known = {rule for rule, _ in rules()}
    assert citations(body) <= known
    assert set((entry["rules"] or "").split(", ")) - {""} <= known
    assert entry["untested"] or TESTS.fullmatch(entry["tests"]), "each test is a function"
    for file, function in TEST.findall(entry["tests"] or entry["untested"]):
        assert function in _tests_of(file), f"{file}::{function}"


@cache
def _tests_of(file: str) -> set[str]:
    """The test functions at the top level of a module."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    statements = ast.parse((ROOT / file).read_text()).body
    return {node.name for node in statements if isinstance(node, kinds)}


def test_cited_decisions_exist() -> None:
    known = {int(number) for number, _, _ in entries()}
    cited = {
        (file.relative_to(ROOT).as_posix(), int(number))
        for file in files()
        if not file.is_relative_to(ROOT / "tests" / "docs")
        for number in CITATION.findall(file.read_text(encoding="utf-8", errors="replace"))
    }
    assert cited
    assert [each for each in cited if each[1] not in known] == []
