"""The configuration's own findings: issue of a policy, its fingerprint, keys and modes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fw_actors.ops.doctor import evaluate_configuration, not_opened
from fw_actors.ops.doctor.access import policy_fingerprint
from fw_actors.rules.findings import Level
from tests.site_kit import make_config

HERE = Path("/srv/site")


def warnings(**changes: Any) -> list[str]:
    return evaluate_configuration(make_config(HERE, **changes)).texts(Level.WARNING)


def test_doctor_accepts_a_good_configuration() -> None:
    section = evaluate_configuration(make_config(HERE, secrets={"key": "k" * 32}))
    assert {finding.level for finding in section.findings} == {Level.OK}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"secrets": {}}, "FW_SECRET_KEY is not set"),
        ({"secrets": {"key": "k" * 31}}, "shorter than 32"),
        (
            {"secrets": {"key": "k" * 40, "stripe": "sk_1"}},
            "shorter than 6 characters: FW_SECRET_STRIPE",
        ),
        ({"mode": "development"}, "FW_MODE is development"),
        ({"clock_offset": 5.0}, "FW_CLOCK_OFFSET"),
        ({"scheduler": False}, "ops.scheduler is false"),
    ],
)
def test_doctor_warns_of_a_doubtful_configuration(changes: dict[str, Any], word: str) -> None:
    (only,) = warnings(**changes)
    assert word in only


@pytest.mark.parametrize("sweep", ["auth", "webhooks", "audit"])
def test_doctor_names_each_sweep_that_a_scheduler_would_run(sweep: str) -> None:
    """O-130: the remedy replaces all sweeps of the scheduler (O-70, O-71)."""
    section = evaluate_configuration(make_config(HERE, scheduler=False))
    (remedy,) = (each.todo for each in section.findings if "ops.scheduler" in each.text)
    assert f"fw sweep {sweep}" in remedy


def test_doctor_warns_of_passwords_too_short_to_scrub() -> None:
    plain = make_config(HERE)
    config = dataclasses.replace(
        plain,
        mail=dataclasses.replace(plain.mail, password="pw123"),
        deployment=dataclasses.replace(plain.deployment, database="postgresql://fw:a%20b@db/fw"),
    )
    (only,) = evaluate_configuration(config).texts(Level.WARNING)
    assert "passwords or secrets shorter than 6 characters: FW_DATABASE, FW_SMTP_PASSWORD;" in only


def test_doctor_warns_of_a_secret_in_the_env_file() -> None:
    """Secrets in `.env` are ignored, and doctor warns (O-138, C-80)."""
    config = dataclasses.replace(make_config(HERE), warnings=(".env: FW_SECRET_X is ignored",))
    assert evaluate_configuration(config).texts(Level.WARNING) == [".env: FW_SECRET_X is ignored"]


def test_policy_fingerprint_changes_with_the_policy_only() -> None:
    """The policy must be identical in staging and production (A-10, O-139)."""
    same = make_config(Path("/elsewhere"), public_url="https://x.example", secrets={})
    assert policy_fingerprint(same) == policy_fingerprint(make_config(HERE))
    other = make_config(HERE, session_days=31)
    assert policy_fingerprint(other) != policy_fingerprint(make_config(HERE))


def test_doctor_lists_each_reason_of_a_failed_opening() -> None:
    assert not_opened(["a", "b"]).texts(Level.PROBLEM) == ["a", "b"]
