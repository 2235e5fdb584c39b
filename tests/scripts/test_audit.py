"""The libraries are looked up among known vulnerabilities, and listed with each release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def workflow(name: str) -> Any:
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())


def steps(job: dict[str, Any]) -> list[str]:
    """Return the commands of a job."""
    return [step["run"] for step in job["steps"] if "run" in step]


def test_each_check_audits_the_pinned_libraries() -> None:
    check = (ROOT / "scripts" / "check").read_text()
    assert "--requirement constraints-dev.txt" in check
    assert "\ncheck 'security of the libraries' libraries_are_secure\n" in check


def test_libraries_are_audited_at_every_change_and_every_night() -> None:
    tests = workflow("tests.yml")
    events = tests[True]  # YAML takes the key `on` for a truth
    assert {"push", "pull_request", "schedule"} <= set(events)
    check = tests["jobs"]["check"]
    assert "if" not in check
    assert "scripts/check" in steps(check)


def test_a_release_lists_what_runs_with_it() -> None:
    (making,) = [run for run in steps(workflow("release.yml")["jobs"]["build"]) if "sbom" in run]
    assert "--format cyclonedx-json" in making
    assert "--requirement constraints.txt" in making
