"""The addresses from which an account has signed in; they have reserved slots for hashes."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from fw_actors.access.known_origins import MAX_ADDRESSES
from fw_actors.hashing import Hasher
from fw_actors.rules.fair_queue import Requester
from tests.fw_actors.access.sign_in_kit import SignInDoor
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.site_kit import CHEAP

pytestmark = pytest.mark.usefixtures("on_both_stores")

DAY = 86_400.0


class RecordedRequesters(Hasher):
    """Records the requesters of hashes."""

    asked: list[Requester]

    async def verify(self, *args: Any, **given: Any) -> Any:
        self.asked.append(given["requester"])
        return await super().verify(*args, **given)


@pytest.fixture
async def door(site: VirtualSite) -> SignInDoor:
    for name in ("ada", "bob"):
        await site.add_account(name)
    hasher = RecordedRequesters(CHEAP, 8, site.site.entropy, inline=True)
    hasher.asked = []
    return SignInDoor(site, hasher)


async def known(door: SignInDoor, usr: str, address: str, pwd: str = "wrong") -> bool:
    """Whether an attempt of this account from this address has a reserved slot."""
    assert isinstance(door.hasher, RecordedRequesters)
    await door.result_of(usr, pwd, address=address)
    return door.hasher.asked[-1].known


async def test_address_is_known_to_the_account_that_signed_in_there(door: SignInDoor) -> None:
    assert not await known(door, "ada", "192.0.2.1")
    assert await door.result_of("ada", address="192.0.2.1") == "ada"
    assert await known(door, "ADA@x.test", "192.0.2.1")
    assert not await known(door, "bob", "192.0.2.1")
    assert not await known(door, "nobody", "192.0.2.1")
    assert not await known(door, "ada", "192.0.2.2")
    assert await door.result_of("ada", address="2001:db8::1") == "ada"
    assert await known(door, "ada", "2001:db8::2"), "the same /64"


async def test_known_address_expires_thirty_days_after_its_last_use(door: SignInDoor) -> None:
    await door.result_of("ada", address="192.0.2.1")
    await trio.sleep(29 * DAY)
    assert await door.result_of("ada", address="192.0.2.1") == "ada"
    await trio.sleep(30 * DAY - 1)
    assert await known(door, "ada", "192.0.2.1")
    await trio.sleep(1)
    assert not await known(door, "ada", "192.0.2.1")


async def test_known_address_is_noted_once_a_day_as_a_hash(door: SignInDoor) -> None:
    for wait in (0.0, 1.0, DAY - 2):
        await trio.sleep(wait)
        await door.result_of("ada", address="192.0.2.1")
    (row,) = await door.site.sql("SELECT seen, key FROM fw_known_address")
    assert row[0] == 1_800_000_000_000
    assert b"192.0.2" not in row[1]
    await trio.sleep(1)
    await door.result_of("ada", address="192.0.2.1")
    (row,) = await door.site.sql("SELECT seen, key FROM fw_known_address")
    assert row[0] == 1_800_000_000_000 + DAY * 1000


async def test_known_addresses_are_limited_to_the_latest(door: SignInDoor) -> None:
    for number in range(MAX_ADDRESSES + 2):
        await trio.sleep(1)
        await door.result_of("ada", address=f"192.0.2.{number}")
    assert await door.site.sql("SELECT count(*) FROM fw_known_address") == [(MAX_ADDRESSES,)]
    assert not await known(door, "ada", "192.0.2.1")
    assert await known(door, "ada", "192.0.2.2")


async def test_known_addresses_follow_rename_and_deletion_of_their_account(
    door: SignInDoor,
) -> None:
    await door.result_of("ada", address="192.0.2.1")
    await door.site.do(lambda fw: fw.get_doc("User", "ada").rename("lovelace"))
    assert await known(door, "lovelace", "192.0.2.1")
    await door.site.do(lambda fw: fw.get_doc("User", "lovelace").delete())
    assert await door.site.sql("SELECT count(*) FROM fw_known_address") == [(0,)]


async def test_requester_is_a_network_rather_than_an_address(door: SignInDoor) -> None:
    """A client may have all of a /48, and rents a /24."""
    assert isinstance(door.hasher, RecordedRequesters)
    pairs = [("2001:db8:7::1", "2001:db8:7:ffff::1"), ("192.0.2.1", "192.0.2.254")]
    for first, second in pairs:
        await door.result_of("nobody", "wrong", address=first)
        await door.result_of("nobody", "wrong", address=second)
        assert door.hasher.asked[-1] == door.hasher.asked[-2]
    assert len({each.name for each in door.hasher.asked}) == 2
