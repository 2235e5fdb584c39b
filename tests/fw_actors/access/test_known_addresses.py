"""The addresses from which an account has signed in; they have reserved slots for hashes."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from fw_actors.access.known_origins import MAX_ADDRESSES
from fw_actors.hashing import Hasher
from fw_actors.rules.fair_queue import Requester
from tests.fw_actors.access.sign_in_kit import SignInClient
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.site_kit import CHEAP

pytestmark = pytest.mark.usefixtures("on_both_stores")

DAY = 86_400.0


class RecordedRequesters(Hasher):
    """Records the requesters of hashes."""

    requesters: list[Requester]

    async def verify(self, *args: Any, **given: Any) -> Any:
        self.requesters.append(given["requester"])
        return await super().verify(*args, **given)


@pytest.fixture
async def client(site: VirtualSite) -> SignInClient:
    for name in ("ada", "bob"):
        await site.add_account(name)
    hasher = RecordedRequesters(CHEAP, 8, site.site.entropy, inline=True)
    hasher.requesters = []
    return SignInClient(site, hasher)


async def known(client: SignInClient, usr: str, address: str, pwd: str = "wrong") -> bool:
    """Whether an attempt of this account from this address has a reserved slot."""
    assert isinstance(client.hasher, RecordedRequesters)
    await client.result_of(usr, pwd, address=address)
    return client.hasher.requesters[-1].known


async def test_address_is_known_to_the_account_that_signed_in_there(client: SignInClient) -> None:
    assert not await known(client, "ada", "192.0.2.1")
    assert await client.result_of("ada", address="192.0.2.1") == "ada"
    assert await known(client, "ADA@x.test", "192.0.2.1")
    assert not await known(client, "bob", "192.0.2.1")
    assert not await known(client, "nobody", "192.0.2.1")
    assert not await known(client, "ada", "192.0.2.2")
    assert await client.result_of("ada", address="2001:db8::1") == "ada"
    assert await known(client, "ada", "2001:db8::2"), "the same /64"


async def test_known_address_expires_thirty_days_after_its_last_use(client: SignInClient) -> None:
    await client.result_of("ada", address="192.0.2.1")
    await trio.sleep(29 * DAY)
    assert await client.result_of("ada", address="192.0.2.1") == "ada"
    await trio.sleep(30 * DAY - 1)
    assert await known(client, "ada", "192.0.2.1")
    await trio.sleep(1)
    assert not await known(client, "ada", "192.0.2.1")


async def test_known_address_is_noted_once_a_day_as_a_hash(client: SignInClient) -> None:
    """A-118."""
    for wait in (0.0, 1.0, DAY - 2):
        await trio.sleep(wait)
        await client.result_of("ada", address="192.0.2.1")
    (row,) = await client.site.sql("SELECT seen, key FROM fw_known_address")
    assert row[0] == 1_800_000_000_000
    assert b"192.0.2" not in row[1]
    await trio.sleep(1)
    await client.result_of("ada", address="192.0.2.1")
    (row,) = await client.site.sql("SELECT seen, key FROM fw_known_address")
    assert row[0] == 1_800_000_000_000 + DAY * 1000


async def test_known_addresses_are_limited_to_the_latest(client: SignInClient) -> None:
    for number in range(MAX_ADDRESSES + 2):
        await trio.sleep(1)
        await client.result_of("ada", address=f"192.0.2.{number}")
    assert await client.site.sql("SELECT count(*) FROM fw_known_address") == [(MAX_ADDRESSES,)]
    assert not await known(client, "ada", "192.0.2.1")
    assert await known(client, "ada", "192.0.2.2")


async def test_known_addresses_follow_rename_and_deletion_of_their_account(
    client: SignInClient,
) -> None:
    await client.result_of("ada", address="192.0.2.1")
    await client.site.do(lambda fw: fw.get_doc("User", "ada").rename("lovelace"))
    assert await known(client, "lovelace", "192.0.2.1")
    await client.site.do(lambda fw: fw.get_doc("User", "lovelace").delete())
    assert await client.site.sql("SELECT count(*) FROM fw_known_address") == [(0,)]


async def test_requester_is_a_network_rather_than_an_address(client: SignInClient) -> None:
    """A client may have all of a /48, and rents a /24."""
    assert isinstance(client.hasher, RecordedRequesters)
    pairs = [("2001:db8:7::1", "2001:db8:7:ffff::1"), ("192.0.2.1", "192.0.2.254")]
    for first, second in pairs:
        await client.result_of("nobody", "wrong", address=first)
        await client.result_of("nobody", "wrong", address=second)
        assert client.hasher.requesters[-1] == client.hasher.requesters[-2]
    assert len({each.name for each in client.hasher.requesters}) == 2
