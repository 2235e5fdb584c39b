"""The cost of a decoy (A-43, A-47)."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from fw_actors.access.hash_costs import StoredCosts
from fw_actors.config import Argon2
from fw_actors.hashing import cost_of

OLD, NEW, NEWEST = Argon2(19_456, 2, 1), Argon2(65_536, 3, 1), Argon2(131_072, 3, 1)


def key(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def test_decoys_have_the_stored_costs_in_proportion() -> None:
    costs = StoredCosts.of({OLD: 700, NEW: 250, NEWEST: 50})
    drawn = [costs.draw(key(number)) for number in range(10_000)]
    for cost, share in ((OLD, 0.7), (NEW, 0.25), (NEWEST, 0.05)):
        assert abs(drawn.count(cost) / 10_000 - share) < 0.015


def test_decoys_share_the_cost_of_a_single_account() -> None:
    """The last old hash of a site must not stand out among unknown names."""
    costs = StoredCosts.of({OLD: 1, NEW: 999})
    assert 3 <= [costs.draw(key(number)) for number in range(10_000)].count(OLD) <= 20


@given(
    st.binary(min_size=32, max_size=32),
    st.integers(0, 1_000_000),
    st.integers(0, 1_000_000),
    st.integers(0, 1_000_000),
)
def test_decoy_cost_never_moves_against_the_accounts(
    identifier: bytes, old: int, new: int, moved: int
) -> None:
    """While hashes are made anew, old to new, no decoy goes from new to old."""
    moved = min(moved, old)
    before = StoredCosts.of({OLD: old, NEW: new}).draw(identifier)
    after = StoredCosts.of({OLD: old - moved, NEW: new + moved}).draw(identifier)
    assert (before, after) != (NEW, OLD)
    assert (after is None) == (old + new == 0)


def test_stored_costs_omit_counts_below_one() -> None:
    costs = StoredCosts.of({OLD: -1, NEW: 0, NEWEST: 2})
    assert (costs.counts, costs.total, costs.outdated(NEW)) == (((NEWEST, 2),), 2, 2)
    assert StoredCosts.of({}).draw(key(1)) is None


def test_damaged_or_excessive_hash_has_no_cost() -> None:
    tail = "$c29tZXNhbHRzb21l$" + "A" * 43
    assert cost_of("$argon2id$v=19$m=64,t=1,p=1" + tail) == Argon2(64, 1, 1)
    for stored in (None, "", "x", "$argon2id$v=19$m=4294967295,t=1,p=1" + tail):
        assert cost_of(stored) is None
