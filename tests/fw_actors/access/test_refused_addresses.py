"""Remembered refusals: a hint that saves a write and decides nothing."""

from __future__ import annotations

from fw_actors.access.attempts import RefusedAddresses


def test_a_refused_counter_is_remembered_until_it_is_found_open() -> None:
    addresses = RefusedAddresses()
    assert b"a" not in addresses
    addresses.remember(b"a")
    assert b"a" in addresses
    addresses.forget(b"a")
    addresses.forget(b"a")
    assert b"a" not in addresses


def test_the_least_recently_refused_is_forgotten_first() -> None:
    addresses = RefusedAddresses(most=2)
    for key in (b"a", b"b", b"a", b"c"):
        addresses.remember(key)
    assert (b"a" in addresses, b"b" in addresses, b"c" in addresses, len(addresses)) == (
        True,
        False,
        True,
        2,
    )
