"""What the configuration itself gives cause to say, and the fingerprint of its policy."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Final

from fw_actors.config import Config
from fw_actors.rules.findings import Finding, Section, ok, problem, warning
from fw_actors.rules.scrubbing import SHORTEST_SECRET

NAME: Final = "configuration"
TITLE: Final = "Configuration"
SHORTEST_KEY: Final = 32
"""Characters of FW_SECRET_KEY; as many as `scripts/start` gives it random bytes."""


def not_opened(problems: Sequence[str]) -> Section:
    """Return the section of a site that can't be opened, with the reasons."""
    todo = "Mend it: nothing of the site works until then."
    return Section(NAME, TITLE, tuple(problem(each, todo) for each in problems))


def judge_configuration(config: Config) -> Section:
    """Judge what `load` has read; pure."""
    return Section(
        NAME, TITLE, tuple(_findings(config)), {"policyFingerprint": policy_fingerprint(config)}
    )


def policy_fingerprint(config: Config) -> str:
    """Return a short digest of section `auth` as it holds, defaults included.

    Staging and production must have the same policy (spec, Site policy): compare the two.
    """
    policy = json.dumps(dataclasses.asdict(config.auth), sort_keys=True)
    return hashlib.sha256(policy.encode()).hexdigest()[:16]


def _findings(config: Config) -> Iterator[Finding]:
    yield ok(f"{config.file} and the environment are valid")
    yield ok(
        f"policy fingerprint {policy_fingerprint(config)}: the same on staging and production "
        "when their sections auth agree"
    )
    for sentence in config.warnings:
        yield warning(sentence, "Remove or rename it.")
    yield _secret_key(config.secrets.key)
    yield from _short_secrets(config)
    deployment = config.deployment
    if deployment.mode == "development":
        yield warning(
            "FW_MODE is development: receivers over http are accepted",
            "Set FW_MODE=production where real events are sent.",
        )
    if deployment.clock_offset:
        yield warning(
            f"FW_CLOCK_OFFSET moves the clock by {deployment.clock_offset:g} s",
            "Unset FW_CLOCK_OFFSET when the trial is over.",
        )
    if not config.ops.scheduler:
        yield warning(
            "ops.scheduler is false: nothing that has expired is swept away by itself",
            "Run fw sweep auth hourly and fw sweep webhooks daily, or set ops.scheduler to true.",
        )


def _short_secrets(config: Config) -> Iterator[Finding]:
    short = config.names_of_short_secrets(SHORTEST_SECRET)
    if short:
        yield warning(
            f"shorter than {SHORTEST_SECRET} characters: {', '.join(short)}; in the log and in "
            "errors they are not found",
            "Use longer secrets.",
        )


def _secret_key(key: str | None) -> Finding:
    if key is None:
        return warning(
            "FW_SECRET_KEY is not set: signing secrets can neither be written nor used",
            "Set FW_SECRET_KEY in the process's environment; scripts/start makes one in "
            "secret.key beside fw.json.",
        )
    if len(key) < SHORTEST_KEY:
        return warning(
            f"FW_SECRET_KEY is shorter than {SHORTEST_KEY} characters",
            "Use 32 random bytes: head -c 32 /dev/urandom | base64. fw vault rekey moves the "
            "secrets that are stored to a new key.",
        )
    return ok("FW_SECRET_KEY is set")
