"""A full bucket evicts no counter (A-79)."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from fw_actors.access import attempts
from fw_actors.access.attempts import MAX_COUNTERS_IN_BUCKET, CounterBucket
from fw_actors.rules.lockout import SHARED_ATTEMPTS, Budget
from fw_actors.store import Tx
from tests.fw_actors.access.attempt_kit import FIVE, MINUTE, AttemptCounter
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

BEGINNING = b"\x00\xff"


def key(number: int, beginning: bytes = BEGINNING) -> bytes:
    return beginning + number.to_bytes(30, "big")


VICTIM, STRANGER = key(1), key(10**6)


async def fill(site: VirtualSite) -> AttemptCounter:
    """Fill a bucket with counters; the first of them is a locked victim's."""
    victim = AttemptCounter(site, key=VICTIM)
    for _ in range(FIVE.limit):
        await victim.failure()

    def attack(tx: Tx) -> None:
        for number in range(2, MAX_COUNTERS_IN_BUCKET + 1):
            charge = str(number)
            attempts.charge(tx, charge, key(number), FIVE)
            attempts.settle_failure(tx, charge, key(number), FIVE)

    await site.site.store.write(attack)
    return victim


async def counters(site: VirtualSite) -> set[bytes]:
    return {bytes(each) for (each,) in await site.sql("SELECT key FROM fw_login_attempt")}


async def test_full_bucket_gives_new_keys_its_shared_counter(site: VirtualSite) -> None:
    victim = await fill(site)
    before = await counters(site)
    for number in range(10):
        assert await AttemptCounter(site, key=key(10**6 + number)).failure() is None
    assert await counters(site) - before == {CounterBucket.of(STRANGER).shared}
    assert before < await counters(site)
    assert await victim.charge() == 15 * MINUTE


async def test_shared_counter_refuses_and_opens_for_all_its_keys(site: VirtualSite) -> None:
    await fill(site)
    for number in range(SHARED_ATTEMPTS):
        assert await AttemptCounter(site, key=key(10**6 + number)).failure() is None
    stranger = AttemptCounter(site, key=key(10**7))
    assert await stranger.charge() == 1, "those in flight may yet be taken back"
    await trio.sleep(60)
    assert await stranger.charge() == 14 * MINUTE
    assert isinstance(await AttemptCounter(site, key=key(1, b"\x01\x00")).charge(), str), (
        "a key of another bucket"
    )
    await trio.sleep(14 * MINUTE)
    assert isinstance(await stranger.charge(), str)
    assert STRANGER not in await counters(site)
    assert key(10**7) in await counters(site), "the bucket has room again"


async def test_existing_counter_keeps_counting_in_a_full_region(site: VirtualSite) -> None:
    await fill(site)
    known = AttemptCounter(site, key=key(2))
    assert [await known.failure() for _ in range(4)] == [None] * 3 + [900.0]


async def test_lock_in_a_full_region_holds_to_its_end(site: VirtualSite) -> None:
    """The lock holds even after its failures have left the window; a hash takes time."""
    victim = AttemptCounter(site, key=VICTIM)
    flying = [await victim.charge() for _ in range(5)]
    await trio.sleep(20)
    assert [await victim.fail(each) for each in flying] == [None] * 4 + [900.0]
    await trio.sleep(890)
    for number in range(2, MAX_COUNTERS_IN_BUCKET + 2):
        await AttemptCounter(site, key=key(number)).failure()
    assert await victim.charge() == 10


async def test_success_releases_its_own_charge_of_the_shared_counter(site: VirtualSite) -> None:
    await fill(site)
    one, other = AttemptCounter(site, key=key(10**6)), AttemptCounter(site, key=key(10**7))
    await other.failure()
    made = await one.charge()
    shared = partial(
        site.sql, "SELECT count(*) FROM fw_login_attempt WHERE key = :key",
        key=CounterBucket.of(STRANGER).shared,
    )  # fmt: skip
    assert await shared() == [(2,)]
    await one.success(made)
    assert await shared() == [(1,)]


async def test_shared_counter_never_locks(site: VirtualSite) -> None:
    """A limit of 1 would lock at once, and with it the other identifiers of the bucket."""
    await fill(site)
    one = AttemptCounter(site, Budget(1, FIVE.window), key(10**6))
    assert await one.failure() is None
    assert await site.sql(
        "SELECT until FROM fw_login_attempt WHERE key = :key", key=CounterBucket.of(STRANGER).shared
    ) == [(None,)]
