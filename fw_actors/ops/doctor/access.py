"""Doctor sections on accounts, secrets and configuration."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import sqlalchemy as sa

from fw_actors.access.api_keys import KeyCounts
from fw_actors.access.hash_costs import StoredCosts, stored_costs
from fw_actors.config import Argon2, Config, LoginPolicy
from fw_actors.documents.core import HasRole, User
from fw_actors.documents.permissions import SYSTEM_MANAGER
from fw_actors.documents.tables import table_of
from fw_actors.documents.vault import NOT_ENCRYPTED
from fw_actors.ops.console_facts import locked_identifiers
from fw_actors.ops.site import Site
from fw_actors.ops.stored_secrets import SecretFacts
from fw_actors.rules.findings import Finding, Section, ok, problem, warning
from fw_actors.rules.identifiers import UnusableIdentifierError, canonical
from fw_actors.rules.safe_output import MIN_SECRET_CHARACTERS
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store import Statement, Tx

_TIMINGS: Final = 3
_SLOW_MS: Final = 1000.0
# OWASP Password Storage Cheat Sheet: memory (KiB) and passes of equal strength, one lane.
_SUFFICIENT_COSTS: Final = ((47_104, 1), (19_456, 2), (12_288, 3), (9_216, 4), (7_168, 5))
_LEAST_WORK: Final = 2 * 19_456  # KiB by passes, of the default

_U: Final = table_of(User).table.c
_R: Final = table_of(HasRole).table.c
_MANAGERS: Final = Statement(
    sa.select(sa.func.count(_U.name.distinct()))
    .where(_U.enabled == 1, _R.parent == _U.name)
    .where(_R.parenttype == "User", _R.role == SYSTEM_MANAGER)
)


@dataclass(frozen=True)
class SignInFacts:
    """Facts from the store and this machine; `demo` is None if no demo account is configured.

    `key_days` is the policy's `apiKeyDays`.
    """

    managers: int
    locked: int
    hash_ms: float
    demo: DemoFacts | None = None
    keys: KeyCounts = dataclasses.field(default_factory=lambda: KeyCounts(0, 0))
    key_days: int = 0
    costs: StoredCosts = dataclasses.field(default_factory=lambda: StoredCosts(()))


@dataclass(frozen=True)
class DemoFacts:
    """The account behind the offered demo user."""

    exists: bool
    enabled: bool
    roles: tuple[str, ...]


async def sign_in_facts(site: Site) -> SignInFacts:
    """Query the store, and time a hash with the current parameters."""
    facts = await site.store.read(lambda tx: _read_accounts(tx, site))
    return replace(facts, hash_ms=await _time_hash(site))


def evaluate_sign_in(facts: SignInFacts, login: LoginPolicy, argon2: Argon2) -> Section:
    """Evaluate sign-in, keys and hashes (O-136, O-141)."""
    findings = (
        _managers(facts.managers),
        *_demo(facts.demo, login),
        _hash(facts.hash_ms, argon2),
        _outdated(facts.costs, argon2),
        ok(f"identifiers currently locked: {facts.locked}"),
        _keys(facts.keys, facts.key_days),
    )
    shown = {
        "systemManagers": facts.managers,
        "locked": facts.locked,
        "hashMilliseconds": round(facts.hash_ms, 1),
        "passwordHashes": facts.costs.total,
        "outdatedPasswordHashes": facts.costs.outdated(argon2),
        "apiKeys": facts.keys.live,
        "apiKeysWithoutEnd": facts.keys.without_end,
    }
    return Section("signIn", "Sign-in", findings, shown)


def is_enough(argon2: Argon2) -> bool:
    """Return whether a hash costs at least OWASP's minimum."""
    return any(
        argon2.memory_kib >= memory and argon2.time >= time for memory, time in _SUFFICIENT_COSTS
    )


def _managers(count: int) -> Finding:
    if count == 0:
        return warning(
            "no enabled account is a System Manager: the site cannot be administered",
            'fw user add NAME --email ADDRESS --role "System Manager"',
        )
    return ok(f"enabled System Managers: {count}")


def _demo(demo: DemoFacts | None, login: LoginPolicy) -> Iterator[Finding]:
    if demo is None:
        if login.demo_user or login.demo_password:
            yield warning(
                "the demo account is configured incompletely, so none is offered",
                "Set both login.demoUser and login.demoPassword, or neither.",
            )
        return
    if not demo.exists or not demo.enabled:
        yield warning(
            f"the sign-in page offers the demo account {login.demo_user}, which cannot be used: "
            f"it is {'disabled' if demo.exists else 'missing'}",
            f"{'Enable' if demo.exists else 'Create'} the account, or offer none.",
        )
    elif SYSTEM_MANAGER in demo.roles:
        yield warning(
            f"the demo account {login.demo_user} can administer the site, and its password is "
            "public",
            f"Remove its role {SYSTEM_MANAGER} at once.",
        )
    else:
        yield ok(
            f"the demo account {login.demo_user} is offered to everyone, with its password; roles: "
            f"{', '.join(demo.roles) or 'none'}"
        )


def _keys(keys: KeyCounts, policy_days: int) -> Finding:
    """Report keys without expiry, which are a problem only if the policy sets a lifetime."""
    if policy_days and keys.without_end:
        return warning(
            f"API keys without expiry: {keys.without_end}, though auth.apiKeyDays is "
            f"{policy_days}; they are older than this policy",
            "Delete them in the list of API Key; their owners can create new ones.",
        )
    return ok(f"valid API keys: {keys.live}, without expiry: {keys.without_end}")


def _hash(milliseconds: float, argon2: Argon2) -> Finding:
    cost = f"{argon2.memory_kib},{argon2.time},{argon2.parallelism}"
    duration = f"a password hash (FW_ARGON2={cost}) takes {milliseconds:.0f} ms on this machine"
    if not is_enough(argon2):
        return warning(
            f"{duration}; its cost is below OWASP's minimum",
            "Unset FW_ARGON2; the default is 19456,2,1.",
        )
    if milliseconds > _SLOW_MS:
        can_be_lowered = argon2.memory_kib * argon2.time > _LEAST_WORK
        return warning(
            f"{duration}: each core handles less than one sign-in per second",
            "Lower FW_ARGON2, to no less than 19456,2,1."
            if can_be_lowered
            else "Repeat fw doctor while the machine is idle. FW_ARGON2 must not be lower.",
        )
    return ok(duration)


def _outdated(costs: StoredCosts, argon2: Argon2) -> Finding:
    outdated = costs.outdated(argon2)
    counted = f"password hashes stored with outdated parameters: {outdated} of {costs.total}"
    return ok(f"{counted}; each is renewed at its owner's next sign-in" if outdated else counted)


async def _time_hash(site: Site) -> float:
    """Return the milliseconds of the fastest of a few decoy verifications."""
    best = float("inf")
    for _ in range(_TIMINGS):
        begin = time.perf_counter()
        await site.hasher.verify(None, "a password that nobody has")
        best = min(best, time.perf_counter() - begin)
    return best * MS_PER_SECOND


def _read_accounts(tx: Tx, site: Site) -> SignInFacts:
    return SignInFacts(
        managers=tx.scalar(_MANAGERS),
        locked=locked_identifiers(tx),
        hash_ms=0.0,
        demo=_ask_demo(tx, site),
        keys=site.api_keys.count(tx),
        key_days=site.config.auth.api_key_days,
        costs=stored_costs(tx),
    )


def _ask_demo(tx: Tx, site: Site) -> DemoFacts | None:
    login = site.config.login
    if not login.demo_user or not login.demo_password:
        return None
    try:
        key = canonical(login.demo_user)
    except UnusableIdentifierError:
        return DemoFacts(False, False, ())
    account = site.accounts.find(tx, key)
    if account is None:
        return DemoFacts(False, False, ())
    return DemoFacts(True, account.enabled, site.accounts.roles(tx, account.user))


def evaluate_secrets(facts: SecretFacts) -> Section:
    """Evaluate the stored secrets."""
    findings = tuple(_secret_findings(facts)) or (
        ok(f"stored secrets: {facts.stored}; all can be decrypted"),
    )
    unreadable = sum(facts.unreadable.values())
    return Section(
        "secrets", "Stored secrets", findings, {"stored": facts.stored, "unreadable": unreadable}
    )


def _secret_findings(facts: SecretFacts) -> Iterator[Finding]:
    for complaint in facts.complaints():
        if complaint.endswith(NOT_ENCRYPTED):
            yield problem(complaint, "Set them again, so that they are encrypted.")
            continue
        yield problem(
            complaint,
            "Start with the FW_SECRET_KEY that they were written with, or set them again. "
            "To change the key, use fw vault rekey.",
        )


NAME: Final = "configuration"
TITLE: Final = "Configuration"
MIN_KEY_CHARACTERS: Final = 32
"""Characters of FW_SECRET_KEY; `fw init` generates as many random bytes."""


def not_opened(problems: Sequence[str]) -> Section:
    """Return the section of a site that cannot be opened, with the reasons."""
    todo = "Fix this first: the site cannot start until then."
    return Section(NAME, TITLE, tuple(problem(each, todo) for each in problems))


def evaluate_configuration(config: Config) -> Section:
    """Evaluate the loaded configuration."""
    return Section(
        NAME,
        TITLE,
        tuple(_configuration_findings(config)),
        {"policyFingerprint": policy_fingerprint(config)},
    )


def policy_fingerprint(config: Config) -> str:
    """Return a short digest of the effective section `auth`, defaults included.

    Staging and production must have the same policy (A-10): compare the two (O-139).
    """
    policy = json.dumps(dataclasses.asdict(config.auth), sort_keys=True)
    return hashlib.sha256(policy.encode()).hexdigest()[:16]


def _configuration_findings(config: Config) -> Iterator[Finding]:
    yield ok(f"{config.file} and the environment are valid")
    yield ok(
        f"policy fingerprint {policy_fingerprint(config)}; equal on two sites if their `auth` "
        "sections are equal"
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
            f"FW_CLOCK_OFFSET shifts the clock by {deployment.clock_offset:.12g} s",
            "Unset FW_CLOCK_OFFSET when the test is over.",
        )
    if not config.ops.scheduler:
        yield warning(
            "ops.scheduler is false: expired rows are not deleted automatically",
            "Run fw sweep auth hourly, and fw sweep webhooks and fw sweep audit daily; or set "
            "ops.scheduler to true.",
        )


def _short_secrets(config: Config) -> Iterator[Finding]:
    short = config.names_of_short_secrets(MIN_SECRET_CHARACTERS)
    if short:
        yield warning(
            f"passwords or secrets shorter than {MIN_SECRET_CHARACTERS} characters: "
            f"{', '.join(short)}; "
            "they are not redacted in the log and in errors",
            "Use longer ones.",
        )


def _secret_key(key: str | None) -> Finding:
    if key is None:
        return warning(
            "FW_SECRET_KEY is not set: signing secrets can be neither stored nor used",
            "Put secret.key back beside fw.json, or set FW_SECRET_KEY. A new site needs a new one: "
            "( umask 077; head -c 32 /dev/urandom | base64 > secret.key ).",
        )
    if len(key) < MIN_KEY_CHARACTERS:
        return warning(
            f"FW_SECRET_KEY is shorter than {MIN_KEY_CHARACTERS} characters",
            "Use 32 random bytes: head -c 32 /dev/urandom | base64. fw vault rekey moves "
            "stored secrets to a new key.",
        )
    return ok("FW_SECRET_KEY is set")
