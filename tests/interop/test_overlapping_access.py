"""Attempts, links and API keys of accounts that overlap on PostgreSQL, as in
`test_overlapping_writes`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from fw_actors.access import attempts
from fw_actors.access.accounts import lock_account
from fw_actors.access.administration import SelfService
from fw_actors.access.links import LinkKind, Links
from fw_actors.access.passwords import set_password
from fw_actors.access.recovery import LinkUse, RecoveryThrottle
from fw_actors.access.sessions import Caller
from fw_actors.errors import AuthenticationError, InvalidTokenError, OverloadedError
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import OutcomeKind
from fw_actors.rules.lockout import SHARED_ATTEMPTS, Budget
from fw_actors.store import Tx
from tests.interop.delivery_transitions import DeliveryTransitions
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


async def test_charge_waits_shortly_for_stopped_process(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped within a sign-in holds up sign-ins of other nodes only until the
    server ends its transaction (O-35); nothing of it is kept."""
    limit = b"SET LOCAL idle_in_transaction_session_timeout TO '200ms'"
    monkeypatch.setattr("fw_actors.store.postgres_engine.LIMIT_PAUSES", limit)
    budget, stopped, admitted = Budget(2, 900_000), threading.Event(), threading.Event()

    def charge(name: str, tx: Tx) -> float | None:
        return attempts.charge(tx, name, b"a counter", budget)

    def stop(tx: Tx) -> None:
        charge("stopped", tx)
        stopped.set()
        assert admitted.wait(30), "the charge waits for the stopped process"
        charge("continued", tx)

    async with trio.open_nursery() as nursery:

        async def refused() -> None:
            with pytest.raises(OverloadedError, match="idle for too long"):
                await site.store.write(stop)

        nursery.start_soon(refused)
        await trio.to_thread.run_sync(stopped.wait, 30)
        assert await site.store.write(partial(charge, "other")) is None
        admitted.set()
    rows = await site.store.read(lambda tx: tx.raw("SELECT id FROM fw_login_attempt"))
    assert rows == [{"id": "other"}]


@pytest.mark.parametrize("act", ["charge", "failure", "claim", "outcome"])
async def test_transaction_that_others_wait_for_has_short_limit_of_pauses(
    transitions: DeliveryTransitions, act: str
) -> None:
    """O-35; code of an app may take longer between two statements."""
    dues = await transitions.lease_new()
    budget = Budget(2, 900_000)
    acts: dict[str, Callable[[Tx], Any]] = {
        "charge": lambda tx: attempts.charge(tx, "one", b"a counter", budget),
        "failure": lambda tx: attempts.settle_failure(tx, "one", b"a counter", budget),
        "claim": transitions.claim,
        "outcome": partial(transitions.settle, dues, OutcomeKind.DELIVERED),
    }

    def limit(tx: Tx) -> str:
        text = "SELECT current_setting('idle_in_transaction_session_timeout') AS value"
        return str(tx.raw(text)[0]["value"])

    def limited(tx: Tx) -> str:
        acts[act](tx)
        return limit(tx)

    assert await transitions.site.store.write(limited) == "10s"
    assert await transitions.site.store.write(limit) == "1min"


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
