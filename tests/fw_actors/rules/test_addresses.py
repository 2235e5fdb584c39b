"""Interface §1, "Client address": "IPv4-mapped IPv6 counts as IPv4; IPv6 is counted per /64"."""

from __future__ import annotations

import pytest

from fw_actors.rules.addresses import counted_address

ROWS = [  # client, what it is counted under
    ("192.0.2.7", "192.0.2.7"),
    ("::ffff:192.0.2.7", "192.0.2.7"),
    ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
    ("2001:db8:1:2::", "2001:db8:1:2::/64"),
    ("2001:DB8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
    ("2001:db8:1:3::", "2001:db8:1:3::/64"),
    ("::1", "::/64"),
    ("", ""),
    ("unix:/run/fw.sock", "unix:/run/fw.sock"),
]


@pytest.mark.parametrize(("address", "counted"), ROWS)
def test_an_address_is_counted_with_those_of_the_same_household(address: str, counted: str) -> None:
    assert counted_address(address) == counted
