"""The cost of an attempt reveals no account, even after FW_ARGON2 was raised: one verification
for each refusal (A-44), of the stored hashes' costs (A-47)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import argon2
import pytest
import trio

from fw_actors.access.hash_costs import MAX_COST_ROWS, RecentCosts, count_change, stored_costs
from fw_actors.access.passwords import PasswordChange, set_password
from fw_actors.config import Argon2
from fw_actors.hashing import HashCost, Hasher, cost_of
from fw_actors.store import Tx
from tests.accounts_kit import PASSWORD
from tests.fw_actors.access.sign_in_kit import SignInClient
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.site_kit import CHEAP

pytestmark = pytest.mark.usefixtures("on_both_stores")

RAISED = Argon2(96, 1, 1)


class RecordedRuns(argon2.PasswordHasher):
    """An argon2 that records the cost of each verification that it computes."""

    def __init__(self, cost: Argon2) -> None:
        super().__init__(
            time_cost=cost.time, memory_cost=cost.memory_kib, parallelism=cost.parallelism
        )
        self.costs: list[HashCost | None] = []

    def verify(self, stored: str | bytes, password: str | bytes) -> Literal[True]:
        try:
            found = super().verify(stored, password)
        except argon2.exceptions.VerifyMismatchError:
            self.costs.append(cost_of(str(stored)))
            raise
        self.costs.append(cost_of(str(stored)))
        return found


class RaisedCostClient(SignInClient):
    """Sign-in after FW_ARGON2 was raised."""

    def __init__(self, site: VirtualSite) -> None:
        hasher = Hasher(RAISED, 8, site.site.entropy, inline=True)
        hasher.argon2_hasher = self.runs = RecordedRuns(RAISED)
        super().__init__(site, hasher)
        self._attempts = 0

    async def cost_of_attempt(self, usr: str, pwd: str = "wrong") -> HashCost | None:
        """Return the cost of the one argon2 run of a refused attempt."""
        self.runs.costs.clear()
        self._attempts += 1
        assert await self.result_of(usr, pwd, address=f"192.0.2.{self._attempts // 20}") == 401
        (cost,) = self.runs.costs
        return cost


async def add_accounts(site: VirtualSite, count: int) -> list[str]:
    names = [f"user{number}" for number in range(count)]
    for name in names:
        await site.add_account(name)
    return names


async def counted(site: VirtualSite) -> Counter[HashCost | None]:
    """Return how many hashes of each cost there really are."""
    return Counter(cost_of(stored) for (stored,) in await site.sql("SELECT hash FROM fw_password"))


async def kept(site: VirtualSite) -> dict[HashCost | None, int]:
    return dict[HashCost | None, int]((await site.site.store.read(stored_costs)).counts)


async def test_unknown_names_cost_as_the_stored_hashes_in_proportion(
    site: VirtualSite,
) -> None:
    users = await add_accounts(site, 6)
    client = RaisedCostClient(site)
    for user in users[:2]:
        assert await client.result_of(user) == user, "made anew with the raised cost"
    await trio.sleep(10)
    assert await counted(site) == {CHEAP: 4, RAISED: 2}
    names = [f"nobody{number}" for number in range(240)]
    first = [await client.cost_of_attempt(name) for name in names]
    assert 60 <= first.count(RAISED) <= 100
    assert first.count(RAISED) + first.count(CHEAP) == 240
    assert [await client.cost_of_attempt(name) for name in names[:40]] == first[:40]
    for user in users[2:]:
        await client.result_of(user)
    await trio.sleep(10)
    assert {await client.cost_of_attempt(name) for name in names[40:80]} == {RAISED}


async def test_wrong_password_costs_as_the_stored_hash_of_its_account(site: VirtualSite) -> None:
    old, new = await add_accounts(site, 2)
    client = RaisedCostClient(site)
    await client.result_of(new)
    for password in ("wrong", "x" * 257, ""):
        assert await client.cost_of_attempt(old, password) == CHEAP
        assert await client.cost_of_attempt(new, password) == RAISED


async def test_refusals_cost_as_the_old_hashes_before_any_rehash(
    site: VirtualSite,
) -> None:
    """After the restart, an account is indistinguishable from unknown, disabled, invited
    and damaged ones, also by an over-long identifier or password."""
    await add_accounts(site, 3)
    await site.add_account("invited", password=None)
    await site.sql("UPDATE doc_user SET enabled = 0 WHERE name = 'user0'")
    await site.sql("""UPDATE fw_password SET hash = 'x' WHERE "user" = 'user1'""")
    client = RaisedCostClient(site)
    attempts = [
        ("user0", "wrong"), ("user1", "wrong"), ("user2", "wrong"), ("invited", "wrong"),
        ("nobody", "wrong"), ("nobody", "x" * 257), ("x" * 400, "wrong"), ("a\u202eda", "wrong"),
    ]  # fmt: skip
    assert {await client.cost_of_attempt(usr, pwd) for usr, pwd in attempts} == {CHEAP}


async def test_refusal_costs_as_a_new_hash_if_none_is_stored(site: VirtualSite) -> None:
    assert await RaisedCostClient(site).cost_of_attempt("nobody") == RAISED


async def test_stored_costs_follow_all_changes_of_hashes(site: VirtualSite) -> None:
    users = await add_accounts(site, 5)
    client = RaisedCostClient(site)
    for user in users[:3]:
        await client.result_of(user)
    assert await kept(site) == await counted(site) == {CHEAP: 2, RAISED: 3}
    hashed = await site.site.hash_password("another passphrase", "user0", "")
    await site.site.store.write(lambda tx: set_password(tx, "user0", hashed))
    await site.do(lambda fw: fw.get_doc("User", "user4").delete())
    await site.do(lambda fw: fw.get_doc("User", "user3").rename("renamed"))
    await client.result_of(users[1])
    assert await kept(site) == await counted(site) == {CHEAP: 2, RAISED: 2}


async def test_stored_costs_are_compacted_beyond_a_page_of_changes(site: VirtualSite) -> None:
    """Bounded: no sign-in reads more than a page of changes."""
    stored = "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 43

    def change(tx: Tx) -> None:
        for _ in range(MAX_COST_ROWS):
            count_change(tx, None, stored)
        count_change(tx, stored, None)

    await site.site.store.write(change)
    for _ in range(2):
        costs = await site.site.store.write(RecentCosts().get)
        assert costs.counts == ((CHEAP, MAX_COST_ROWS - 1),)
        assert await site.sql("SELECT cost, hashes FROM fw_password_cost") == [
            ("64,1,1", MAX_COST_ROWS - 1)
        ]


async def test_stored_costs_are_read_without_compaction_in_a_read_transaction(
    site: VirtualSite,
) -> None:
    """`fw doctor` reads them whenever, also between many changes and the next sign-in."""
    stored = "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 43
    changes = MAX_COST_ROWS + 1

    def change(tx: Tx) -> None:
        for _ in range(changes):
            count_change(tx, None, stored)

    await site.site.store.write(change)
    assert await kept(site) == {CHEAP: changes}
    assert await site.sql("SELECT count(*) FROM fw_password_cost") == [(changes,)]


async def test_new_hash_of_the_same_cost_changes_no_count(site: VirtualSite) -> None:
    """A site whose cost never changes writes no rows for new passwords."""
    await site.add_account("ada")
    rows = await site.sql("SELECT cost, hashes FROM fw_password_cost")
    hashed = await site.site.hash_password("another passphrase", "ada", "")
    await site.site.store.write(lambda tx: set_password(tx, "ada", hashed))
    assert await site.sql("SELECT cost, hashes FROM fw_password_cost") == rows


async def test_recent_costs_are_read_again_after_ten_seconds(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.add_account("ada")
    recent, reads = RecentCosts(), 0

    def read(tx: Any) -> Any:
        nonlocal reads
        reads += 1
        return stored_costs(tx)

    monkeypatch.setattr("fw_actors.access.hash_costs.stored_costs", read)
    for wait in (0, 9.9, 0.1, 5):
        await trio.sleep(wait)
        await site.site.store.write(recent.get)
    assert reads == 2

    def get_an_hour_ahead(tx: Tx) -> None:
        tx.now += 3_600_000
        recent.get(tx)

    await site.site.store.write(get_an_hour_ahead)
    assert reads == 3
    await site.site.store.write(recent.get)
    assert reads == 4


async def test_password_change_with_a_damaged_hash_costs_a_decoy(
    site: VirtualSite,
) -> None:
    await add_accounts(site, 2)
    await site.sql("""UPDATE fw_password SET hash = 'x' WHERE "user" = 'user0'""")
    client = RaisedCostClient(site)
    change = PasswordChange("user0", "no session", PASSWORD, "another passphrase")
    admitted = await client.changes.admit(change, client.changes.counter("user0"))
    assert not isinstance(admitted, Exception)
    assert isinstance(await client.changes.verify(change, admitted), Exception)
    assert client.runs.costs == [CHEAP]
