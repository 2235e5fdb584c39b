"""The names of events (B-72, B-73)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.signing import UnusableEventNameError, validate_event_name

GOOD = ["invoice.paid", "a", "a1_.b_2", "doc", "document.saved", "docs.x", "a.b.c.d", "a" * 140]
MALFORMED = [
    "", ".", "a.", ".a", "a..b", "A", "a.B", "1a", "a.1b", "_a", "a.-b", "a b", "a\n", "ä.b",
    "a.b\u2028", "a" * 141, "İ.a",
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_event_name_accepts_dotted_lower_case(name: str) -> None:
    """At most 140 characters; `doc` alone is allowed, `doc.` not (B-72, B-73)."""
    validate_event_name(name)


@pytest.mark.parametrize("name", MALFORMED)
def test_event_name_refuses_malformed_text(name: str) -> None:
    with pytest.raises(UnusableEventNameError, match="joined by dots"):
        validate_event_name(name)


@pytest.mark.parametrize("name", ["doc.", "doc.on_insert", "doc.mine", "doc.X"])
def test_event_name_refuses_reserved_prefix(name: str) -> None:
    """The prefix `doc.` is reserved (B-73)."""
    with pytest.raises(UnusableEventNameError, match=r"begin with doc\."):
        validate_event_name(name)


@given(st.text(st.sampled_from("ad0_.oc\nD"), max_size=8))
def test_event_name_matches_documented_grammar(name: str) -> None:
    grammar = re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*", name)
    expected = grammar is not None and not name.startswith("doc.")
    try:
        validate_event_name(name)
        taken = True
    except UnusableEventNameError:
        taken = False
    assert taken is expected
