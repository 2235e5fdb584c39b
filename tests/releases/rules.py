"""The agreement of version, changelog and tags: plain functions over texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Final

UNRELEASED: Final = "## [Unreleased]"
_SECTION: Final = re.compile(r"^## (.*)$", re.MULTILINE)
_DATED: Final = re.compile(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})")
_FINAL: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")

Number = tuple[int, ...]


@dataclass(frozen=True)
class Facts:
    """`release`: RELEASE of fw_actors/__init__.py. `tags`: of all earlier commits; `at_head`: of
    this one. `changed`: whether the packages differ from the newest earlier tag."""

    release: str
    changelog: str
    tags: frozenset[str] = frozenset()
    at_head: frozenset[str] = frozenset()
    changed: bool = True


def number(version: str) -> Number | None:
    """Return X.Y.Z or vX.Y.Z as numbers, None for anything else."""
    found = _FINAL.fullmatch(version)
    return None if found is None else tuple(map(int, found.groups()))


def faults(facts: Facts) -> Iterator[str]:
    """Return a sentence for each thing that is wrong."""
    yield from _of_changelog(facts.changelog)
    own = number(facts.release)
    if own is None:
        yield f"RELEASE is {facts.release}; it must be of the form X.Y.Z"
        return
    released = [each for tag in facts.tags if (each := number(tag)) is not None]
    if released and own < max(released):
        yield f"RELEASE is {facts.release}, and {_text(max(released))} has been released"
    elif own in released and facts.changed:
        yield (
            f"{facts.release} has been released, and the packages have changed since: raise "
            "RELEASE in fw_actors/__init__.py"
        )
    for tag in sorted(facts.at_head):
        if tag != f"v{facts.release}":
            yield f"the tag is {tag}, and RELEASE is {facts.release}"
        elif facts.release not in _dated(facts.changelog):
            yield f"CHANGELOG.md has no section `## [{facts.release}] - YYYY-MM-DD`"


def prepared(changelog: str, release: str, today: date) -> str:
    """Return the changelog with what was unreleased as the section of `release`.

    Raises: ValueError if there is nothing to release, or the version is no later one.
    """
    new, known = number(release), [number(each) for each in _dated(changelog)]
    if new is None:
        raise ValueError(f"{release} is not of the form X.Y.Z")
    if any(each is not None and each >= new for each in known):
        raise ValueError(f"{release} is not later than the versions of CHANGELOG.md")
    head, found, rest = changelog.partition(f"{UNRELEASED}\n")
    if not found or not _SECTION.split(rest)[0].strip():
        raise ValueError(f"CHANGELOG.md has nothing below {UNRELEASED}")
    return f"{head}{found}\n## [{release}] - {today.isoformat()}\n{rest}"


def _dated(changelog: str) -> dict[str, str]:
    """Return the dates of the versions, newest first."""
    return dict(_DATED.findall(changelog))


def _of_changelog(changelog: str) -> Iterator[str]:
    headings = _SECTION.findall(changelog)
    if headings[:1] != [UNRELEASED.removeprefix("## ")]:
        yield f"the first section of CHANGELOG.md must be {UNRELEASED}"
    for heading in headings[1:]:
        if _DATED.fullmatch(heading) is None:
            yield f"CHANGELOG.md: `## {heading}` must have the form `## [X.Y.Z] - YYYY-MM-DD`"
    dates = _dated(changelog)
    yield from _out_of_order([number(version) for version in dates], dates)
    yield from _out_of_order(list(dates.values()), dates)


def _out_of_order(values: Iterable[object], names: Iterable[str]) -> Iterator[str]:
    for (later, earlier), name in zip(pairwise(values), names, strict=False):
        if later < earlier:  # type: ignore[operator]
            yield f"CHANGELOG.md: {name} stands above a later one"


def _text(version: Number) -> str:
    return ".".join(map(str, version))
