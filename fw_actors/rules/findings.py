"""Findings of the doctor: ok, warning or problem, with the state of the service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any


class Level(Enum):
    """The severity of a finding; the values are printed."""

    OK = "ok"
    WARNING = "warning"  # works, and should be looked at
    PROBLEM = "problem"  # something does not work


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about the site; `todo` is the remedy, empty if none is needed."""

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
    """Return a finding that nothing needs to be done."""
    return Finding(Level.OK, text)


def warning(text: str, todo: str) -> Finding:
    """Return a finding about something that works but needs attention."""
    return Finding(Level.WARNING, text, todo)


def problem(text: str, todo: str) -> Finding:
    """Return a finding that something does not work."""
    return Finding(Level.PROBLEM, text, todo)


def count(sections: Iterable[Section], level: Level) -> int:
    """Return the number of findings of one level."""
    return sum(len(section.texts(level)) for section in sections)


def report(sections: Iterable[Section]) -> dict[str, Any]:
    """Return the whole as `fw doctor --json` shows it (O-130)."""
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


@dataclass(frozen=True)
class ServiceState:
    """Whether the service runs on this machine, and how it treats its receivers.

    Args:
        running: services on other machines are not seen.
        health: by receiver (`https://host:port`): healthy, slow, failing or paused; only receivers
            that the service has sent to, and empty where it could not be asked.
        node: the name of this machine.
        stale_webhooks: the Webhooks that were changed outside the service, which does not use the
            change; empty where it could not be asked.
        workers: how many workers of the site run on this machine.
    """

    running: bool
    health: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    node: str = "this machine"
    stale_webhooks: Sequence[str] = ()
    workers: int = 0

    @property
    def delivers(self) -> bool:
        """Whether a process on this machine works on the queues."""
        return self.running or self.workers > 0
