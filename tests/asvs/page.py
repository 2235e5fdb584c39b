"""The section of docs/security.md that is made from docs/asvs.toml."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.asvs.standard import ANSWERS, ROOT, Requirement, Standard

PAGE: Final = ROOT / "docs" / "security.md"
BEGIN: Final = "<!-- made from docs/asvs.toml by scripts/asvs; change that file -->\n"
END: Final = "<!-- end of what scripts/asvs made -->\n"
_HEAD: Final = "| ASVS | Level | About | Answer | Held by |\n|---|---|---|---|---|\n"


def section(standard: Standard) -> str:
    """Return the section: counts, and a table for each chapter."""
    return "\n".join([_counts(standard), *_chapters(standard)])


def with_section(page: str, made: str) -> str:
    """Return `page` with `made` between its two marks. Raises: ValueError without the marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("The page has no marks for what is made.")
    return f"{before}{begin}\n{made}\n{end}{after}"


def _counts(standard: Standard) -> str:
    rows = [f"| Level | Requirements | {' | '.join(ANSWERS)} |\n", "|---|---:|---:|---:|---:|\n"]
    for level in sorted(standard.numbers):
        answers = [each.answer for each in standard.requirements if each.level == level]
        counts = [str(answers.count(answer)) for answer in ANSWERS]
        rows.append(f"| {level} | {len(answers)} | {' | '.join(counts)} |\n")
    return "".join(rows)


def _chapters(standard: Standard) -> Iterator[str]:
    for number, title in standard.chapters.items():
        rows = [each for each in standard.requirements if each.chapter == number]
        yield f"### V{number} {title}\n{_HEAD}" + "".join(_row(each) for each in rows)


def _row(each: Requirement) -> str:
    held = [f"`{test}`" for test in each.tests]
    if each.page is not None:
        file, _, heading = each.page.partition("#")
        target = f"#{heading}" if file == PAGE.name else each.page
        held.append(f"[{heading.replace('-', ' ')}]({target})")
    answer = f"{each.answer}: {each.why}"
    return f"| {each.number} | {each.level} | {each.about} | {answer} | {', '.join(held)} |\n"
