"""What an examination of a site has found: lines that are ok, a warning or a problem.

Source: spec, Doctor report; interface §8, Operating.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any


class Level(Enum):
    """How much a finding matters; the values are what is printed."""

    OK = "ok"
    WARNING = "warning"  # works, and should be looked at
    PROBLEM = "problem"  # something does not work


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about the site; `todo` says what to do, and is empty where all is well."""

    level: Level
    text: str
    todo: str = ""


@dataclass(frozen=True)
class Section:
    """The findings about one part of a site.

    `name` is its key in JSON, `title` its heading; `facts` are the numbers behind the findings.
    """

    name: str
    title: str
    findings: tuple[Finding, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def texts(self, level: Level) -> list[str]:
        """Return the sentences of one level."""
        return [finding.text for finding in self.findings if finding.level is level]

    def reworded(self, reword: Callable[[str], str]) -> Section:
        """Return this section with `reword` of its findings' texts."""
        findings = (
            replace(each, text=reword(each.text), todo=reword(each.todo)) for each in self.findings
        )
        return replace(self, findings=tuple(findings))


def ok(text: str) -> Finding:
    """Return what is as it should be."""
    return Finding(Level.OK, text)


def warning(text: str, todo: str) -> Finding:
    """Return what works and should be looked at."""
    return Finding(Level.WARNING, text, todo)


def problem(text: str, todo: str) -> Finding:
    """Return what does not work."""
    return Finding(Level.PROBLEM, text, todo)


def count(sections: Iterable[Section], level: Level) -> int:
    """Return how many findings of one level there are."""
    return sum(len(section.texts(level)) for section in sections)


def report(sections: Iterable[Section]) -> dict[str, Any]:
    """Return the whole as `fw doctor --json` shows it (interface §8)."""
    sections = tuple(sections)
    return {
        "ok": count(sections, Level.PROBLEM) == 0,
        "sections": {
            section.name: {
                **section.facts,
                "warnings": section.texts(Level.WARNING),
                "problems": section.texts(Level.PROBLEM),
                "findings": [
                    {"level": each.level.value, "text": each.text, "todo": each.todo}
                    for each in section.findings
                ],
            }
            for section in sections
        },
    }
