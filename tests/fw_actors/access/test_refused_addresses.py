"""Remembered refusals: a hint that saves a write and is never the decision."""

from __future__ import annotations

from fw_actors.access.attempts import RefusedAddresses


def test_refused_addresses_remember_a_counter_until_it_opens() -> None:
    addresses = RefusedAddresses()
    assert b"a" not in addresses
    addresses.remember(b"a")
    assert b"a" in addresses
    addresses.discard(b"a")
    addresses.discard(b"a")
    assert b"a" not in addresses


def test_refused_addresses_forget_the_least_recent_first() -> None:
    addresses = RefusedAddresses(max_addresses=2)
    for key in (b"a", b"b", b"a", b"c"):
        addresses.remember(key)
    assert (b"a" in addresses, b"b" in addresses, b"c" in addresses, len(addresses)) == (
        True,
        False,
        True,
        2,
    )
