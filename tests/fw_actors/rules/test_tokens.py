"""Tokens, keys and delivery ids (A-150, A-180, A-260, B-181)."""

from __future__ import annotations

import base64
import hashlib
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.identifiers import (
    API_KEY_BYTES,
    DeliveryIds,
    base62,
    bearer,
    digest,
    new_api_key,
    parse_api_key,
    record_id,
)

NUMBERS = st.integers(0, 62**27 - 1)


@given(NUMBERS, NUMBERS)
def test_base62_sorts_like_its_numbers(a: int, b: int) -> None:
    assert (base62(a, 27) < base62(b, 27)) == (a < b)


@given(NUMBERS)
def test_base62_is_reversible_to_number(number: int) -> None:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    read = 0
    for digit in base62(number, 27):
        read = read * 62 + digits.index(digit)
    assert read == number


@given(st.binary(min_size=24, max_size=24))
def test_bearer_token_carries_192_bits(random_bytes: bytes) -> None:
    """A bearer token has 192 random bits (A-150, A-180)."""
    token = bearer(random_bytes)
    assert len(token) == 32
    assert base64.urlsafe_b64decode(token) == random_bytes


@pytest.mark.parametrize("length", [0, 16, 23, 25])
def test_bearer_token_refuses_other_lengths(length: int) -> None:
    with pytest.raises(ValueError, match="24"):
        bearer(bytes(length))


def test_digest_is_sha_256_of_token() -> None:
    """A token is stored only as its SHA-256 (A-180)."""
    assert digest("a token") == hashlib.sha256(b"a token").digest()


def test_digest_accepts_any_client_text() -> None:
    assert len(digest("\ud800")) == 32


@given(
    st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.binary(min_size=n, max_size=n)))
)
def test_record_id_has_fixed_width(given: tuple[int, bytes]) -> None:
    length, random_bytes = given
    assert len(record_id(random_bytes)) == len(record_id(b"\xff" * length))


def test_record_id_keeps_every_bit() -> None:
    assert record_id(b"\x00\x00") != record_id(b"\x00\x01")
    assert len({record_id(bytes([a, b])) for a in range(256) for b in range(256)}) == 65_536


def test_delivery_id_has_prefix_and_27_characters() -> None:
    """`msg_` and 27 characters of base62, sortable by time (B-181)."""
    for now in (0, 1_800_000_000_000, 2**48 - 1):
        assert len(DeliveryIds(lambda n: b"\xff" * n).new(now)) == 4 + 27


@given(st.lists(st.integers(0, 5), min_size=2, max_size=30))
def test_delivery_ids_sort_in_creation_order(steps: list[int]) -> None:
    """The order holds within one millisecond, and when the clock goes back."""
    ids = DeliveryIds(bytes)
    made = [ids.new(1_800_000_000_000 + sum(steps[:i]) - (i % 3)) for i in range(len(steps))]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_delivery_ids_continue_beyond_millisecond_capacity() -> None:
    ids = DeliveryIds(lambda n: b"\x00" * n)
    made = [ids.new(7) for _ in range(65_537)]
    assert made == sorted(set(made))


def test_delivery_ids_are_unique_across_threads() -> None:
    ids = DeliveryIds(bytes)
    with ThreadPoolExecutor(2) as threads:
        halves = threads.map(lambda _: [ids.new(7) for _ in range(2_000)], range(2))
        made = [each for half in halves for each in half]
    assert len(set(made)) == 4_000


def test_api_key_has_id_and_secret_of_fixed_length() -> None:
    """`fwk_<id>_<secret>`: the id has 12, the secret 32 characters of base62 (A-260)."""
    for filling in (b"\x00", b"\xff", b"\x5a"):
        key = new_api_key(filling * API_KEY_BYTES)
        assert re.fullmatch(r"fwk_[0-9A-Za-z]{12}_[0-9A-Za-z]{32}", key.text)
        assert parse_api_key(key.text) == key
        assert key.secret not in repr(key)
    with pytest.raises(ValueError, match="64"):
        new_api_key(b"short")


@given(st.text())
def test_parse_api_key_refuses_other_texts(text: str) -> None:
    assert parse_api_key(text) is None
    assert parse_api_key(f"fwk_{'0' * 12}_{'x' * 32}{text}") is None or not text
