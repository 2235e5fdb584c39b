"""The values of a JSON field (D-59)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.documents.fields import JSON, ShapeError
from tests.fw_actors.documents.conftest import ShopSite

FIELD = JSON()
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(VALUES)
def test_json_field_round_trips_any_value(value: Any) -> None:
    assert FIELD.from_store(FIELD.to_store(FIELD.accept(value))) == value


def test_json_field_accept_copies_value() -> None:
    mine: dict[str, list[int]] = {"a": [1]}
    held = FIELD.accept(mine)
    mine["a"].append(2)
    assert held == {"a": [1]}


def test_json_field_accept_normalises_keys_and_tuples() -> None:
    assert FIELD.accept({1: (2, 3)}) == {"1": [2, 3]}


RING: list[Any] = []
RING.append(RING)
NO_JSON: list[Any] = [
    float("nan"), [float("inf")], {"a": {1}}, b"x", object(), RING,
    2**53 + 1, {"a": [-(2**53) - 1]}, 10**5000,
    "\x00", {"a": "\x1b"}, {"\x07": 1}, ["half \ud800"], "\x7f",
]  # fmt: skip


@pytest.mark.parametrize("value", NO_JSON, ids=range(len(NO_JSON)))
def test_json_field_refuses_unstorable_value(value: Any) -> None:
    """NaN, lone surrogates, control characters and integers beyond 2^53 are refused (D-59,
    H-12)."""
    with pytest.raises(ShapeError):
        FIELD.accept(value)


def test_json_field_accepts_tabs_and_line_breaks() -> None:
    """Tab and line breaks pass in Text and JSON fields (D-64, H-13)."""
    assert FIELD.accept({"a": "x\ty\r\n"}) == {"a": "x\ty\r\n"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(1, True, False), ({"a": [0]}, {"a": [False]}, False), ([1], [1, 1], False), (None, 0, False),
     ({"a": 1}, {"b": 1}, False), (True, True, True),
     ({"a": 1, "b": [2]}, {"b": [2], "a": 1.0}, True)],
)  # fmt: skip
def test_json_field_comparison_follows_json_types(one: Any, other: Any, same: bool) -> None:
    """In Python 1 equals True; with its equality a change between them would not be written."""
    assert (FIELD.is_same(one, other), FIELD.is_same(other, one)) == (same, same)


@pytest.mark.parametrize("innermost", [1, [], {}])
def test_json_field_refuses_nesting_beyond_32_levels(innermost: Any) -> None:
    """Nesting over 32 is refused (H-12): most clients could not read what an app had stored."""
    value = innermost
    for _ in range(32 - isinstance(innermost, dict | list)):
        value = [value]
    assert FIELD.accept(value) == value
    with pytest.raises(ShapeError, match="32 levels"):
        FIELD.accept({"a": value})


@pytest.mark.parametrize("text", ["not yet delivered", "", "{", "NaN", "1e999", "[" * 100_000])
async def test_json_field_reads_text_that_is_no_json_as_text(desk: ShopSite, text: str) -> None:
    """The column may hold values of a Data field, or of SQL (D-59): each request was a 500."""

    def work(fw: Any) -> list[Any]:
        name = fw.new_doc("Sample").insert().name
        fw.db.sql("UPDATE doc_sample SET extra = :text", {"text": text})
        sample = fw.get_doc("Sample", name)
        read = [sample.extra, *(row["extra"] for row in fw.get_all("Sample", fields=["extra"]))]
        sample.data = "changed"
        return [*read, sample.save().extra, fw.get_doc("Sample", name).extra]

    assert await desk.do(work) == [text] * 4
