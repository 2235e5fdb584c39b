"""The addresses that deliveries may be sent to (B-150, B-155)."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.outgoing import (
    ALLOW_ALL,
    EgressProxy,
    OutgoingPolicy,
    is_link_local,
    is_public,
)

LINK_LOCAL = [
    ("169.253.255.255", False),
    ("169.254.0.0", True),
    ("169.254.169.254", True),
    ("169.254.255.255", True),
    ("169.255.0.0", False),
    ("127.0.0.1", False),
    ("10.0.0.1", False),
    ("fe7f:ffff::1", False),
    ("fe80::1", True),
    ("fe80::1%eth0", True),
    ("febf::1", True),
    ("fec0::1", False),
    ("::1", False),
    ("fd00:ec2::254", False),
    ("::ffff:169.254.169.254", True),
    ("::ffff:127.0.0.1", False),
    ("64:ff9b::a9fe:a9fe", True),
    ("64:ff9b::7f00:1", False),
    ("64:ff9b:0:0:0:1:a9fe:a9fe", False),
    ("2002:a9fe:a9fe::1", True),
    ("2002:c000:204::1", False),
]


@pytest.mark.parametrize(("address", "expected"), LINK_LOCAL)
def test_is_link_local_recognizes_each_notation(address: str, expected: bool) -> None:
    assert is_link_local(address) is expected


@given(st.integers(0, 2**16 - 1), st.sampled_from(["{}", "::ffff:{}", "64:ff9b::{}"]))
def test_is_link_local_covers_169_254_network(last: int, form: str) -> None:
    assert is_link_local(form.format(f"169.254.{last >> 8}.{last & 255}"))


PUBLIC = [
    ("8.8.8.8", True),
    ("2606:4700::1111", True),
    ("::ffff:8.8.8.8", True),
    ("64:ff9b::808:808", True),
    ("2002:808:808::1", True),
    ("168.63.129.15", True),
    ("168.63.129.16", False),  # Azure's platform
    ("::ffff:168.63.129.16", False),
    ("192.88.99.1", False),
    ("3ffe::1", True),
    ("3fff::1", False),
    ("3fff:1000::1", True),
    ("0.0.0.0", False),
    ("10.0.0.1", False),
    ("100.64.0.1", False),
    ("127.0.0.1", False),
    ("169.254.169.254", False),
    ("172.16.0.1", False),
    ("192.0.2.1", False),
    ("192.168.1.1", False),
    ("198.18.0.1", False),
    ("224.0.0.1", False),
    ("233.252.0.1", False),
    ("240.0.0.1", False),
    ("255.255.255.255", False),
    ("::", False),
    ("::1", False),
    ("::10.0.0.1", False),
    ("::ffff:10.0.0.1", False),
    ("64:ff9b::a00:1", False),
    ("64:ff9b:1::1", False),
    ("2001:0:4136:e378:8000:63bf:3fff:fdd2", False),
    ("2001:db8::1", False),
    ("2002:a00:1::1", False),
    ("fd00:ec2::254", False),
    ("fe80::1%eth0", False),
    ("fec0::1", False),
    ("ff02::1", False),
]
DENY = OutgoingPolicy("deny", (ip_network("10.1.0.0/16"), ip_network("fd00::/8")))


@pytest.mark.parametrize(("address", "expected"), PUBLIC)
def test_is_public_separates_public_addresses(address: str, expected: bool) -> None:
    assert is_public(address) is expected


@pytest.mark.parametrize(("address", "_"), PUBLIC)
def test_policy_allows_all_but_link_local_addresses_by_default(address: str, _: bool) -> None:
    """B-151."""
    assert (ALLOW_ALL.refusal(address) is None) is not is_link_local(address)
    assert not ALLOW_ALL.refuses_own_machine(address, 80)


@pytest.mark.parametrize(("address", "expected"), PUBLIC)
def test_denying_policy_refuses_non_public_addresses(address: str, expected: bool) -> None:
    assert (OutgoingPolicy("deny").refusal(address) is None) is expected


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "fd00::1"])
def test_denying_policy_allows_listed_networks(address: str) -> None:
    assert DENY.refusal(address) is None
    assert not DENY.refuses_own_machine(address, 80)


def test_denying_policy_allows_listed_network_of_embedded_addresses() -> None:
    """A network may be listed by its own form, and not only by the IPv4 addresses that it leads
    to (B-155)."""
    policy = OutgoingPolicy("deny", (ip_network("64:ff9b::/96"),))
    assert policy.refusal("64:ff9b::a01:203") is None
    assert policy.refusal("10.1.2.3") is not None


@pytest.mark.parametrize("address", ["10.2.0.1", "127.0.0.1", "::1", "192.168.1.1"])
def test_denying_policy_refuses_unlisted_addresses(address: str) -> None:
    assert DENY.refusal(address) == ("is not a public address, and ops.outgoing.private is deny")
    assert DENY.refuses_own_machine(address, 80)


def test_denying_policy_refuses_own_port_in_listed_network() -> None:
    policy = OutgoingPolicy("deny", (ip_network("127.0.0.0/8"),), own_port=8000)
    assert policy.refuses_own_machine("127.0.0.1", 8000)
    assert not policy.refuses_own_machine("127.0.0.1", 9000)


def test_policy_refuses_listed_link_local_addresses() -> None:
    policy = OutgoingPolicy("deny", (ip_network("169.254.0.0/16"),))
    assert policy.refusal("169.254.169.254") == (
        "is a link-local address, which is never connected to"
    )


@given(st.ip_addresses())
def test_denying_policy_allows_no_private_address(address: object) -> None:
    if getattr(address, "is_private", False):
        assert OutgoingPolicy("deny").refusal(str(address)) is not None or is_public(str(address))


@pytest.mark.parametrize(
    ("host", "carried"),
    [
        ("hooks.example.org", True),
        ("intern.example.com", False),
        ("a.intern.example.com", False),
        ("notintern.example.com", True),
        ("LocalHost", False),
        ("10.1.2.3", False),
        ("10.2.2.3", True),
        ("fd00::1", False),
    ],
)
def test_proxy_carries_all_hosts_but_its_exceptions(host: str, carried: bool) -> None:
    exceptions = (".intern.example.com", "localhost", "10.1.0.0/16", "fd00::/8")
    assert EgressProxy("proxy", 3128, exceptions=exceptions).carries(host) is carried
