"""The rules of releases (O-166), and that this checkout keeps them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from tests.releases.__main__ import facts
from tests.releases.rules import Facts, faults, prepared

LOG = "# Changelog\n\n## [Unreleased]\n### Added\n- more\n\n## [0.1.0] - 2026-01-02\n- first\n"
RAISED = Facts("0.2.0", LOG, frozenset({"v0.1.0"}))


def test_faults_of_this_checkout_are_none() -> None:
    assert list(faults(facts())) == []


def test_faults_of_a_raised_version_are_none() -> None:
    assert list(faults(RAISED)) == []
    assert list(faults(replace(RAISED, tags=frozenset()))) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"release": "0.1.0"}, "0.1.0 has been released, and the packages have changed since"),
        ({"release": "0.0.9"}, "RELEASE is 0.0.9, and 0.1.0 has been released"),
        ({"release": "0.2"}, "must be of the form X.Y.Z"),
        ({"at_head": frozenset({"v0.3.0"})}, "the tag is v0.3.0, and RELEASE is 0.2.0"),
        ({"at_head": frozenset({"v0.2.0"})}, "no section `## [0.2.0] - YYYY-MM-DD`"),
        ({"changelog": "## [0.1.0] - 2026-01-02\n"}, "the first section"),
        ({"changelog": LOG + "## 0.0.1\n"}, "`## 0.0.1` must have the form"),
        ({"changelog": LOG + "## [0.0.1] - 2026-01-03\n"}, "0.1.0 stands above a later one"),
        ({"changelog": LOG + "## [0.1.1] - 2026-01-01\n"}, "0.1.0 stands above a later one"),
    ],
)
def test_faults_name_what_does_not_agree(change: dict[str, object], expected: str) -> None:
    (found,) = faults(replace(RAISED, **change))  # type: ignore[arg-type]
    assert expected in found


def test_released_version_is_valid_until_packages_change() -> None:
    assert list(faults(replace(RAISED, release="0.1.0", changed=False))) == []


def test_prepared_dates_what_was_unreleased() -> None:
    done = prepared(LOG, "0.2.0", date(2026, 3, 4))
    assert done == LOG.replace("## [Unreleased]\n", "## [Unreleased]\n\n## [0.2.0] - 2026-03-04\n")
    tagged = replace(RAISED, changelog=done, at_head=frozenset({"v0.2.0"}))
    assert list(faults(tagged)) == []


@pytest.mark.parametrize(
    ("changelog", "release", "expected"),
    [
        (LOG, "0.1.0", "is not later"),
        (LOG, "0.2", "is not of the form"),
        (LOG.replace("### Added\n- more\n", ""), "0.2.0", "nothing below"),
    ],
)
def test_prepared_refuses_an_old_version_and_an_empty_section(
    changelog: str, release: str, expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        prepared(changelog, release, date(2026, 3, 4))
