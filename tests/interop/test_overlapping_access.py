"""Attempts, links and API keys of accounts that overlap on PostgreSQL, as in
`test_overlapping_writes`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fw_actors.access import attempts
from fw_actors.access.accounts import lock_account
from fw_actors.access.administration import SelfService
from fw_actors.access.links import LinkKind, Links
from fw_actors.access.passwords import set_password
from fw_actors.access.recovery import LinkUse, RecoveryThrottle
from fw_actors.access.sessions import Caller
from fw_actors.errors import AuthenticationError, InvalidTokenError
from fw_actors.ops.site import Site
from fw_actors.rules.lockout import SHARED_ATTEMPTS, Budget
from fw_actors.store import Tx
from tests.interop.overlap_kit import OTHER, PASSWORD, Overlap, add_account, begin


@pytest.mark.parametrize("limit", [4, 1])
async def test_overlapping_charge_beyond_limit_is_refused(
    site: Site, overlap: Overlap, limit: int
) -> None:
    """Of an identifier (A-64), and of the /56 of addresses with four times their limit (A-94)."""
    around = attempts.NetworkCounters(b"the /56", b"the /48") if limit == 1 else None

    def charge(number: int) -> Callable[[Any], float | None]:
        key = b"a counter" if around is None else b"an address %d" % number
        return lambda tx: attempts.charge(tx, f"c{number}", key, Budget(limit, 900_000), around)

    for number in range(3):
        assert await site.store.write(charge(number)) is None
    results = await overlap(charge(3), partial(site.store.write, charge(4)))
    assert results == (None, 1.0)


async def test_overlapping_charges_of_full_bucket_share_one_budget(
    site: Site, overlap: Overlap
) -> None:
    """Identifiers without a counter share 100 attempts a window, also if they overlap (A-79)."""
    budget = Budget(5, 900_000)

    def charge(number: int, tx: Tx) -> float | None:
        key = b"\x00\xff" + number.to_bytes(30, "big")
        return attempts.charge(tx, f"c{number}", key, budget)

    def fill(tx: Tx) -> set[float | None]:
        charges = attempts.MAX_COUNTERS_IN_BUCKET + SHARED_ATTEMPTS - 1
        return {charge(number, tx) for number in range(1, charges + 1)}

    assert await site.store.write(fill) == {None}
    results = await overlap(
        partial(charge, 1_000), partial(site.store.write, partial(charge, 1_001))
    )
    assert results == (None, 1.0)


async def test_link_use_during_password_change_is_refused(site: Site, overlap: Overlap) -> None:
    """A new password ends the links (A-194); a link in use waits, and does not hold it up."""
    await add_account(site, "ada")
    links = Links(site.config.auth, site.entropy, "https://x.test")
    throttle = RecoveryThrottle(site.config.auth, site.entropy, site.installation_key)
    use = LinkUse(site.store, site.hasher, links, site.passwords, throttle, site.audit, site.handle)
    minted = await site.store.write(partial(links.mint, kind=LinkKind.RECOVERY, user="ada"))
    token = minted.url.partition("#token=")[2]
    hashed = await site.hash_password(OTHER, "ada", "ada@x.test")

    def change(tx: Any) -> bool:
        lock_account(tx, "ada")
        overlap.meet()
        return set_password(tx, "ada", hashed).replaced

    changed, refusal = await overlap(
        change,
        lambda: use.complete(
            LinkKind.RECOVERY, token, PASSWORD, "192.0.2.1", lambda tx, facts: None, "request"
        ),
    )
    assert changed
    assert isinstance(refusal, InvalidTokenError)


async def test_api_key_creation_during_recovery_is_refused(site: Site, overlap: Overlap) -> None:
    """A recovery ends all sessions and keys (A-162, A-274), and leaves no new key behind."""
    await add_account(site, "ada")
    await begin(site, "ada")
    own = SelfService(site.config.auth, site.accounts, site.api_keys, site.mail_queue)
    hashed = await site.hash_password(OTHER, "ada", "ada@x.test")

    def create(fw: Any) -> Any:
        return own.make_key(fw, Caller("ada", frozenset(), "s1"), "a program", None)

    _, refusal = await overlap(
        lambda tx: set_password(tx, "ada", hashed), partial(site.write, "ada", create)
    )
    assert isinstance(refusal, AuthenticationError)


async def test_overlapping_revocations_end_each_api_key_once(site: Site, overlap: Overlap) -> None:
    """`api_keys.revokeAllMyAPIKeys` answers the number of keys that it has ended (A-272)."""
    await add_account(site, "ada")
    await site.write("ada", lambda fw: site.api_keys.make(fw, "a program", None, 0))
    results = await overlap(
        lambda tx: site.api_keys.revoke_all(site.handle(tx, "ada")),
        partial(site.write, "ada", site.api_keys.revoke_all),
    )
    assert results == (1, 0)
