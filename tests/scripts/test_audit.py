"""Libraries are audited for known vulnerabilities and listed with each release."""

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


def test_check_script_audits_pinned_libraries() -> None:
    check = (ROOT / "scripts" / "check").read_text()
    assert "--requirement constraints-dev.txt" in check
    assert "\ncheck 'security of the libraries' libraries_are_secure\n" in check


def test_workflow_audits_libraries_at_changes_and_nightly() -> None:
    tests = workflow("tests.yml")
    events = tests[True]  # YAML takes the key `on` for a truth
    assert {"push", "pull_request", "schedule"} <= set(events)
    check = tests["jobs"]["check"]
    assert "if" not in check
    assert "scripts/check" in steps(check)


def test_release_includes_sbom_of_constraints() -> None:
    (making,) = [run for run in steps(workflow("release.yml")["jobs"]["build"]) if "sbom" in run]
    assert "--format cyclonedx-json" in making
    assert "--requirement constraints.txt" in making
