"""Accounts and passwords: who may administer, the demo account, the cost of a hash."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import sqlalchemy as sa

from fw_actors.config import Argon2, LoginPolicy
from fw_actors.documents.permissions import SYSTEM_MANAGER
from fw_actors.hashing import StoredCosts
from fw_actors.rules.findings import Finding, Section, ok, warning
from fw_actors.rules.identifiers import UnusableIdentifierError, canonical
from fw_actors.services.api_keys import KeyCounts
from fw_actors.services.backlog import locked_identifiers
from fw_actors.services.hash_costs import stored_costs
from fw_actors.services.site import Site
from fw_actors.store import Tx

_TRIES: Final = 3
_SLOW_MS: Final = 1000.0
# OWASP Password Storage Cheat Sheet: memory in KiB and passes of equal strength, one lane.
_ENOUGH: Final = ((47_104, 1), (19_456, 2), (12_288, 3), (9_216, 4), (7_168, 5))


@dataclass(frozen=True)
class SignInFacts:
    """What the store and this machine say; `demo` is None when no demo account is offered.

    `key_days` is the policy's `apiKeyDays`.
    """

    managers: int
    locked: int
    hash_ms: float
    demo: DemoFacts | None = None
    keys: KeyCounts = field(default_factory=lambda: KeyCounts(0, 0))
    key_days: int = 0
    costs: StoredCosts = field(default_factory=lambda: StoredCosts(()))


@dataclass(frozen=True)
class DemoFacts:
    """The account behind the offered demo user."""

    exists: bool
    enabled: bool
    roles: tuple[str, ...]


async def sign_in_facts(site: Site) -> SignInFacts:
    """Ask the store, and time a hash with the live parameters."""
    facts = await site.store.read(lambda tx: _ask(tx, site))
    return replace(facts, hash_ms=await _time_hash(site))


def judge_sign_in(facts: SignInFacts, login: LoginPolicy, argon2: Argon2) -> Section:
    """Judge the facts; pure. Source: spec, Sign-in screen configuration; interface §2, §8."""
    findings = (
        _managers(facts.managers),
        *_demo(facts.demo, login),
        _hash(facts.hash_ms, argon2),
        _outdated(facts.costs, argon2),
        ok(f"identifiers that are locked at the moment: {facts.locked}"),
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
    """Say whether a hash costs as much as OWASP asks for."""
    return any(argon2.memory_kib >= memory and argon2.time >= time for memory, time in _ENOUGH)


def _managers(count: int) -> Finding:
    if count == 0:
        return warning(
            "nobody can administer the site: no enabled account is a System Manager",
            'fw user add NAME --email ADDRESS --role "System Manager"',
        )
    return ok(f"enabled System Managers: {count}")


def _demo(demo: DemoFacts | None, login: LoginPolicy) -> Iterator[Finding]:
    if demo is None:
        if login.demo_user or login.demo_password:
            yield warning(
                "half a demo account is configured, and so none is offered",
                "Set both login.demoUser and login.demoPassword, or none of them.",
            )
        return
    if not demo.exists or not demo.enabled:
        yield warning(
            f"the sign-in page offers the demo account {login.demo_user}, which nobody can use: "
            f"it is {'disabled' if demo.exists else 'not there'}",
            "Make the account, or take login.demoUser away.",
        )
    elif SYSTEM_MANAGER in demo.roles:
        yield warning(
            f"the demo account {login.demo_user} may administer the site, and its password is "
            "public",
            f"Take the role {SYSTEM_MANAGER} from it at once.",
        )
    else:
        yield ok(
            f"the demo account {login.demo_user} is offered to anyone, with its password; roles: "
            f"{', '.join(demo.roles) or 'none'}"
        )


def _keys(keys: KeyCounts, policy_days: int) -> Finding:
    """Keys without an end are a matter of policy: only where it sets one they are too many."""
    if policy_days and keys.without_end:
        return warning(
            f"API keys without an end: {keys.without_end}, though auth.apiKeyDays is "
            f"{policy_days}; they are older than that policy",
            "Delete them in the list of API Key; their owners make new ones.",
        )
    return ok(f"API keys that work: {keys.live}, of them without an end: {keys.without_end}")


def _hash(milliseconds: float, argon2: Argon2) -> Finding:
    cost = f"{argon2.memory_kib},{argon2.time},{argon2.parallelism}"
    took = f"a password hash (FW_ARGON2={cost}) takes {milliseconds:.0f} ms on this machine"
    if not is_enough(argon2):
        return warning(
            f"{took}, and is cheaper to guess than OWASP's minimum",
            "Unset FW_ARGON2; the default is 19456,2,1.",
        )
    if milliseconds > _SLOW_MS:
        return warning(
            f"{took}: a core signs in fewer than one person a second",
            "Lower FW_ARGON2, to no less than 19456,2,1.",
        )
    return ok(took)


def _outdated(costs: StoredCosts, argon2: Argon2) -> Finding:
    outdated = costs.outdated(argon2)
    told = f"stored password hashes of another cost than new ones: {outdated} of {costs.total}"
    return ok(f"{told}; each is made anew at its owner's next sign-in" if outdated else told)


async def _time_hash(site: Site) -> float:
    """Return the milliseconds of the quickest of a few decoy verifications."""
    best = float("inf")
    for _ in range(_TRIES):
        begin = time.perf_counter()
        await site.hasher.verify(None, "a password that nobody has")
        best = min(best, time.perf_counter() - begin)
    return best * 1000


def _ask(tx: Tx, site: Site) -> SignInFacts:
    users = site.registry.tables["User"].table.c
    roles = site.registry.tables["Has Role"].table.c
    managers = (
        sa.select(sa.func.count(users.name.distinct()))
        .where(users.enabled == 1, roles.parent == users.name)
        .where(roles.parenttype == "User", roles.role == SYSTEM_MANAGER)
    )
    return SignInFacts(
        managers=tx.scalar(managers),
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
