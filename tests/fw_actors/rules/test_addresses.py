"""IPv4-mapped IPv6 counts as IPv4 (H-94); IPv6 is counted per /64 (A-93)."""

from __future__ import annotations

import pytest

from fw_actors.rules.identifiers import counted_address, sharing_network, wider_networks

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
def test_counted_address_normalizes_ipv4_and_groups_ipv6(address: str, counted: str) -> None:
    assert counted_address(address) == counted


@pytest.mark.parametrize(
    ("address", "wider", "sharing"),
    [
        ("2001:db8:7:abcd::1", ("2001:db8:7:ab00::/56", "2001:db8:7::/48"), "2001:db8:7::/48"),
        ("192.0.2.77", None, "192.0.2.0/24"),
        ("::ffff:192.0.2.77", None, "192.0.2.0/24"),
        ("a socket", None, "a socket"),
    ],
)
def test_wider_and_sharing_networks_contain_address(
    address: str, wider: tuple[str, str] | None, sharing: str
) -> None:
    """IPv6 is counted by /56 and /48 too; a full queue is shared by /48 and /24."""
    assert wider_networks(address) == wider
    assert sharing_network(address) == sharing
