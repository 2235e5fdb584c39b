"""The durable counters of attempts (A-63 to A-81)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from fw_actors.access import attempts
from fw_actors.ops.console_facts import locked_identifiers
from fw_actors.rules.lockout import Budget
from fw_actors.store import Tx
from tests.fw_actors.access.attempt_kit import FIVE, KEY, MINUTE, AttemptCounter
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site

pytestmark = pytest.mark.usefixtures("on_both_stores")

ROLLING = Budget(limit=3, window=15 * MINUTE * 1000, locks=False)


async def test_failure_that_reaches_the_limit_locks(site: VirtualSite) -> None:
    """The failure that reaches `maxLoginAttempts` locks (A-69)."""
    counter = AttemptCounter(site)
    assert [await counter.failure() for _ in range(5)] == [None] * 4 + [900.0]
    assert await counter.charge() == 900


async def test_lock_ends_after_its_minutes_with_a_full_budget(site: VirtualSite) -> None:
    """A lock ends after `lockoutMinutes` (A-72)."""
    counter = AttemptCounter(site)
    for _ in range(5):
        await counter.failure()
        await trio.sleep(10)
    await trio.sleep(15 * MINUTE - 10 - 0.001)
    assert await counter.charge() == pytest.approx(0.001)
    await trio.sleep(0.001)
    assert [await counter.failure() for _ in range(5)] == [None] * 4 + [900.0]


async def test_refused_attempts_do_not_prolong_a_lock(site: VirtualSite) -> None:
    """Attempts during a lock do not prolong it (A-73)."""
    counter = AttemptCounter(site)
    for _ in range(5):
        await counter.failure()
    for left in range(900, 0, -60):
        assert await counter.charge() == left
        await trio.sleep(60)
    assert isinstance(await counter.charge(), str)


async def test_failures_older_than_the_window_do_not_count(site: VirtualSite) -> None:
    """Failures older than `lockoutMinutes` do not count (A-74)."""
    counter = AttemptCounter(site)
    for _ in range(4):
        assert await counter.failure() is None
    await trio.sleep(15 * MINUTE)
    assert [await counter.failure() for _ in range(5)] == [None] * 4 + [900.0]


async def test_attempts_in_flight_use_the_budget_without_a_lock(site: VirtualSite) -> None:
    """Attempts in flight cause a 429 with `Retry-After: 1` for others, and no lock (A-68)."""
    counter = AttemptCounter(site)
    flying = [await counter.charge() for _ in range(5)]
    assert [await counter.charge() for _ in range(95)] == [1.0] * 95
    await counter.take_back(flying[0])
    assert isinstance(await counter.charge(), str)


async def test_attempts_in_flight_that_all_fail_lock_once(site: VirtualSite) -> None:
    counter = AttemptCounter(site)
    flying = [await counter.charge() for _ in range(5)]
    assert [await counter.fail(each) for each in flying] == [None] * 4 + [900.0]


async def test_abandoned_charge_counts_as_failure_after_30_seconds(
    site: VirtualSite,
) -> None:
    """A charge still in flight after 30 s (a crash) is a failure (A-66)."""
    counter = AttemptCounter(site)
    for _ in range(5):
        await counter.charge()
    await trio.sleep(29.999)
    assert await counter.charge() == 1
    await trio.sleep(0.001)
    assert await counter.charge() == 15 * MINUTE - 30
    await trio.sleep(15 * MINUTE - 30)
    assert isinstance(await counter.charge(), str)


async def test_crashes_and_failures_together_reach_the_limit(site: VirtualSite) -> None:
    counter = AttemptCounter(site)
    for _ in range(4):
        await counter.charge()
    await trio.sleep(30)
    assert await counter.failure() == 900


async def test_failures_beyond_lowered_limit_lock_from_last_failure(site: VirtualSite) -> None:
    """The refusal names the time of the next admitted attempt, and the lock is shown (A-71)."""
    before = AttemptCounter(site, Budget(10, FIVE.window))
    after = AttemptCounter(site, first=100)
    for _ in range(6):
        await before.failure()
        await trio.sleep(60)
    assert await site.site.store.read(locked_identifiers) == 0
    assert await after.charge() == 14 * MINUTE
    assert await site.site.store.read(locked_identifiers) == 1
    await trio.sleep(14 * MINUTE - 0.001)
    assert await after.charge() == pytest.approx(0.001)
    await trio.sleep(0.001)
    assert isinstance(await after.charge(), str)
    assert await site.site.store.read(locked_identifiers) == 0


async def test_charges_left_by_crashes_lock_from_last_charge(site: VirtualSite) -> None:
    """They count as failures, of which the last one has started the lock (A-66, A-71)."""
    counter = AttemptCounter(site)
    for _ in range(5):
        await counter.charge()
        await trio.sleep(60)
    assert await counter.charge() == 14 * MINUTE
    assert await site.site.store.read(locked_identifiers) == 1
    await trio.sleep(13 * MINUTE)
    assert await counter.charge() == MINUTE


async def test_attempt_with_a_slow_hash_counts_once(site: VirtualSite) -> None:
    """The failures that reach the limit are counted once: the fourth is no fifth (A-69)."""
    counter = AttemptCounter(site)
    for _ in range(3):
        await counter.failure()
    slow = await counter.charge()
    await trio.sleep(31)
    assert await counter.fail(slow) is None
    assert await counter.failure() == 900


async def test_success_clears_the_failures_and_its_own_charge(site: VirtualSite) -> None:
    """A success clears the typed spelling (A-75, A-65)."""
    counter = AttemptCounter(site)
    for _ in range(4):
        await counter.failure()
    await counter.success(await counter.charge())
    assert [await counter.failure() for _ in range(5)] == [None] * 4 + [900.0]


async def test_success_clears_charges_left_by_crashes(site: VirtualSite) -> None:
    counter = AttemptCounter(site)
    for _ in range(4):
        await counter.charge()
    await trio.sleep(30)
    await counter.success(await counter.charge())
    assert await site.sql("SELECT count(*) FROM fw_login_attempt") == [(0,)]


async def test_success_leaves_other_attempts_in_flight_charged(site: VirtualSite) -> None:
    counter = AttemptCounter(site)
    flying = [await counter.charge() for _ in range(4)]
    await counter.success(await counter.charge())
    assert isinstance(await counter.charge(), str)
    assert await counter.charge() == 1
    assert await counter.fail(flying[0]) is None


async def test_limit_of_one_locks_with_the_first_failure(site: VirtualSite) -> None:
    """`maxLoginAttempts: 1` answers the first failure with 429 (A-70)."""
    assert await AttemptCounter(site, Budget(limit=1, window=60_000)).failure() == 60


async def unlock(site: VirtualSite) -> None:
    await site.site.store.write(lambda tx: attempts.unlock(tx, KEY))


async def test_unlock_clears_failures_and_their_lock(site: VirtualSite) -> None:
    """An unlock clears the failures (A-76)."""
    counter = AttemptCounter(site)
    for _ in range(5):
        await counter.failure()
    await unlock(site)
    assert [await counter.failure() for _ in range(5)] == [None] * 4 + [900.0]


async def test_unlock_leaves_attempts_in_flight_charged(site: VirtualSite) -> None:
    """A guess that runs during an unlock is not forgiven (A-76), and no more than the limit run
    at once (A-64)."""
    counter = AttemptCounter(site)
    for _ in range(2):
        await counter.failure()
    flying = [await counter.charge() for _ in range(3)]
    await unlock(site)
    flying += [await counter.charge() for _ in range(2)]
    assert await counter.charge() == 1
    assert [await counter.fail(each) for each in flying] == [None] * 4 + [900.0]


async def test_unlock_clears_charges_left_by_crashes(site: VirtualSite) -> None:
    """A charge still in flight after 30 s is a failure (A-66)."""
    counter = AttemptCounter(site)
    for _ in range(5):
        await counter.charge()
    await trio.sleep(30)
    await unlock(site)
    assert await site.sql("SELECT count(*) FROM fw_login_attempt") == [(0,)]


async def test_rolling_budget_opens_when_its_oldest_failure_leaves_the_window(
    site: VirtualSite,
) -> None:
    """The address is refused until the oldest failure leaves the window (A-90)."""
    counter = AttemptCounter(site, ROLLING)
    for _ in range(3):
        assert await counter.failure() is None
        await trio.sleep(100)
    assert await counter.charge() == 600
    await trio.sleep(600)
    assert await counter.failure() is None
    assert await counter.charge() == 100


async def test_wait_of_reads_the_same_refusals_as_charge(site: VirtualSite) -> None:
    """A read refuses just what a charge would refuse, attempts in flight or not (A-82,
    A-42)."""

    async def known(budget: Budget) -> float | None:
        return await site.site.store.read(lambda tx: attempts.wait_of(tx, KEY, budget))

    counter = AttemptCounter(site, ROLLING)
    flying = [await counter.charge() for _ in range(3)]
    assert (await known(ROLLING), await counter.charge()) == (None, 1)
    for each in flying:
        await counter.fail(each)
    assert await known(ROLLING) == await counter.charge() == 900
    await trio.sleep(899)
    assert await known(ROLLING) == await counter.charge() == 1
    await trio.sleep(1)
    assert await known(ROLLING) is None


async def test_wait_of_counts_abandoned_charges_after_30_seconds(site: VirtualSite) -> None:
    """A charge still in flight after 30 s (a crash) is a failure (A-66)."""
    counter = AttemptCounter(site)
    for _ in range(5):
        await counter.charge()

    async def known() -> float | None:
        return await site.site.store.read(lambda tx: attempts.wait_of(tx, KEY, FIVE))

    await trio.sleep(29)
    assert await known() is None
    await trio.sleep(1)
    assert await known() == await counter.charge() == 870


@pytest.mark.parametrize(("network", "limit"), [("/56", 4), ("/48", 16)])
async def test_full_network_refuses_until_its_oldest_failure_leaves_the_window(
    site: VirtualSite, network: str, limit: int
) -> None:
    """The attempts of a /56 are limited to 4 times, those of a /48 to 16 times the limit of one
    address (A-94, A-90); a read refuses what a charge would (A-82)."""
    one, store = Budget(limit=1, window=15 * MINUTE * 1000, locks=False), site.site.store

    def at(number: int) -> tuple[bytes, attempts.NetworkCounters]:
        narrow = b"n" * 32 if network == "/56" else number.to_bytes(32, "big")
        return b"a" + number.to_bytes(31, "big"), attempts.NetworkCounters(narrow, b"w" * 32)

    async def attempt(number: int) -> float | None:
        key, around = at(number)

        def work(tx: Tx) -> float | None:
            wait = attempts.charge(tx, str(number), key, one, around)
            if wait is None:
                attempts.settle_failure(tx, str(number), key, one)
            return wait

        return await store.write(work)

    async def read(number: int) -> float | None:
        key, around = at(number)
        return await store.read(lambda tx: attempts.wait_of(tx, key, one, around))

    assert await attempt(1) is None
    await trio.sleep(100)
    assert [await attempt(number) for number in range(2, limit + 1)] == [None] * (limit - 1)
    assert await attempt(100) == await read(100) == 800
    await trio.sleep(800)
    assert await read(100) is None
    assert await attempt(100) is None
    assert await attempt(101) == await read(101) == 100


async def test_counters_of_different_keys_are_independent(site: VirtualSite) -> None:
    one, other = AttemptCounter(site), AttemptCounter(site, key=b"o" * 32)
    for _ in range(5):
        await one.failure()
    assert await other.failure() is None


async def test_lock_holds_if_the_clock_was_set_back(
    site: VirtualSite,
) -> None:
    """A clock that jumps gives no negative Retry-After and no early unlock (A-81)."""
    await site.sql(
        "INSERT INTO fw_login_attempt (id, key, at, state, until) VALUES ('a', :key, :at, 1, :to)",
        key=KEY, at=1_800_000_100_000, to=1_800_001_000_000,
    )  # fmt: skip
    assert await AttemptCounter(site).charge() == 1000


def test_counter_key_is_a_keyed_hash_of_kind_and_text() -> None:
    """People type passwords into the name field, so a counter's key is an HMAC (A-80)."""
    keys = {
        attempts.counter_key(b"i", "identifier", "ab"),
        attempts.counter_key(b"i", "identifier", "b"),
        attempts.counter_key(b"i", "identifiera", "b"),
        attempts.counter_key(b"j", "identifier", "ab"),
        attempts.counter_key(b"i", "address", "ab"),
    }
    assert len(keys) == 5
    assert {len(key) for key in keys} == {32}


async def test_counter_key_is_independent_of_secret_key(tmp_path: Path) -> None:
    """A rotation forgives no failure, and `fw user unlock` needs no FW_SECRET_KEY."""
    keys = []
    for secrets in ({"key": "one"}, {"key": "another"}, {}):
        async with open_virtual_site(tmp_path, secrets=secrets) as site:
            keys.append(site.site.installation_key)
    assert len(set(keys)) == 1
