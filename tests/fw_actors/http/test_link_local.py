"""Which addresses count as link-local (RFC 3927, RFC 4291 2.5.6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.http.dial import is_link_local

ADDRESSES = [
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


@pytest.mark.parametrize(("address", "expected"), ADDRESSES)
def test_link_local_addresses_are_known_in_each_form(address: str, expected: bool) -> None:
    assert is_link_local(address) is expected


@given(st.integers(0, 2**16 - 1), st.sampled_from(["{}", "::ffff:{}", "64:ff9b::{}"]))
def test_every_address_of_169_254_is_link_local(last: int, form: str) -> None:
    assert is_link_local(form.format(f"169.254.{last >> 8}.{last & 255}"))
