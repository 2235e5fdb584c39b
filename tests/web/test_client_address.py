"""The table of trusted forwarding headers, written out (H-90, H-91, H-92, H-93, H-94)."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from fw_actors.config import ProxyTrustPolicy
from web.exchange import came_over_tls, client_address, is_loopback

OFF = ProxyTrustPolicy()
ON = ProxyTrustPolicy(every_peer=True)
NETS = ProxyTrustPolicy(networks=(ip_network("10.0.0.0/8"), ip_network("::1/128")))

ROWS = [  # trust, peer, X-Forwarded-For lines, address
    (OFF, "203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
    (ON, "203.0.113.9", [], "203.0.113.9"),
    (ON, "203.0.113.9", ["198.51.100.1"], "198.51.100.1"),
    (ON, "203.0.113.9", ["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
    (ON, "203.0.113.9", ["198.51.100.1", "198.51.100.2"], "198.51.100.2"),
    (ON, "203.0.113.9", ["junk, 198.51.100.1"], "198.51.100.1"),
    (ON, "203.0.113.9", ["198.51.100.1, junk"], "203.0.113.9"),
    (NETS, "203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
    (NETS, "10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
    (NETS, "10.0.0.1", ["6.6.6.6, 198.51.100.1, 10.0.0.2"], "198.51.100.1"),
    (NETS, "::1", ["6.6.6.6", "198.51.100.1", "10.0.0.2"], "198.51.100.1"),
    (NETS, "10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
    (NETS, "10.0.0.1", ["198.51.100.1, junk, 10.0.0.2"], "10.0.0.1"),
    (NETS, "::ffff:10.0.0.1", ["::ffff:198.51.100.1, ::ffff:10.1.1.1"], "198.51.100.1"),
    (ON, "203.0.113.9", ["2001:DB8:0::1"], "2001:db8::1"),
    (OFF, "::ffff:203.0.113.9", [], "203.0.113.9"),
]


@pytest.mark.parametrize(("trust", "peer", "lines", "address"), ROWS)
def test_client_address_follows_trusted_proxies_only(
    trust: ProxyTrustPolicy, peer: str, lines: list[str], address: str
) -> None:
    assert client_address(peer, lines, trust) == address


@pytest.mark.parametrize(
    "entry",
    [
        "",
        " ",
        "1.2.3.4:80",
        "[::1]",
        "[::1]:80",
        "fe80::1%eth0",
        "1.2.3",
        "01.2.3.4",
        "x",
        "1.2.3.4,",
    ],
)
@pytest.mark.parametrize("trust", [ON, NETS])
def test_client_address_is_the_peer_for_a_malformed_entry(
    trust: ProxyTrustPolicy, entry: str
) -> None:
    """Zone, port, brackets, empty."""
    assert client_address("10.0.0.1", [entry], trust) == "10.0.0.1"


@pytest.mark.parametrize(
    ("trust", "peer", "lines", "over_tls"),
    [
        (ON, "203.0.113.9", ["https"], True),
        (ON, "203.0.113.9", ["http, HTTPS"], True),
        (ON, "203.0.113.9", ["https", "http"], False),
        (ON, "203.0.113.9", [], False),
        (OFF, "203.0.113.9", ["https"], False),
        (NETS, "203.0.113.9", ["https"], False),
        (NETS, "10.9.9.9", ["https"], True),
    ],
)
def test_came_over_tls_follows_trusted_proxies_only(
    trust: ProxyTrustPolicy, peer: str, lines: list[str], over_tls: bool
) -> None:
    assert came_over_tls(peer, lines, trust) is over_tls


@pytest.mark.parametrize(
    ("peer", "is_ours"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_is_loopback_knows_all_forms(peer: str, is_ours: bool) -> None:
    assert is_loopback(peer) is is_ours
