"""The types of fields, and shape against value (D-51, D-61)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum, IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.documents.fields import (
    JSON,
    Check,
    Data,
    Date,
    Datetime,
    Field,
    Float,
    Int,
    Link,
    Password,
    Select,
    ShapeError,
    Table,
    Text,
    Vault,
)
from fw_actors.errors import ValidationError

LIMITED = Int(minimum=1, maximum=60)
KIND = Select(options=["a", "b"])
TAKEN: list[tuple[Field, Any, Any]] = [  # field, given, held
    (Data(), "x" * 140, "x" * 140),
    (Data(length=3), "abc", "abc"),
    (Data(), "", ""),
    (Data(), "zwölf Boxkämpfer \U0001f94a", "zwölf Boxkämpfer \U0001f94a"),
    (Text(), "tab\tbreak\r\nend" * 1000, "tab\tbreak\r\nend" * 1000),
    (Password(), "pass\tword", "pass\tword"),
    (Vault(), "a secret", "a secret"),
    (Int(), 2**53, 2**53),
    (Int(), -(2**53), -(2**53)),
    (LIMITED, 1, 1),
    (LIMITED, 60, 60),
    (Float(), 1, 1.0),
    (Float(), -0.5, -0.5),
    (Check(), True, 1),
    (Check(), False, 0),
    (Check(), 1, 1),
    (Check(), None, 0),
    (Date(), "2024-02-29", "2024-02-29"),
    (Date(), date(2026, 1, 2), "2026-01-02"),
    (Datetime(), "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"),
    (Datetime(), "2026-01-02T03:04:05.6789+02:00", "2026-01-02T01:04:05.678Z"),
    (Datetime(), "2026-01-02T03:04:05", "2026-01-02T03:04:05.000Z"),
    (Datetime(), f"2026-01-02T03:04:05.{'1' * 43}Z", "2026-01-02T03:04:05.111Z"),
    (Datetime(), "0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
    (Datetime(), "9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    (Datetime(), datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00.000Z"),
    (KIND, "b", "b"),
    (KIND, "", ""),
    (Link(options="User"), "ada", "ada"),
]


def each(field: Field, *values: Any) -> list[tuple[Field, Any]]:
    return [(field, value) for value in values]


NO_TEXT: tuple[Any, ...] = (1, True, 1.5, [], {})
WRONG_SHAPE: list[tuple[Field, Any]] = [
    *(row for text in (Data(), Text(), Password(), Vault(), KIND, Link(options="X"))
      for row in each(text, *NO_TEXT)),
    *each(Int(), True, 1.0, "1", [], 2**53 + 1, -(2**53) - 1),
    *each(Float(), True, "1", [], float("nan"), float("inf"), 2**53 + 1, 10**400),
    *each(Check(), "1", 1.0, []),
    *each(Date(), 20260102, True, datetime(2026, 1, 2, tzinfo=UTC)),
    *each(Datetime(), 1, True, []),
    *each(Data(), "line\nbreak", "tab\t", "nul\x00", "half \ud800"),
    *each(Text(), "nul\x00", "esc\x1b", "\x7f", "\x85", "half \udfff"),
    *each(Password(), "\x00"),
    *each(Vault(), "\x00"),
]  # fmt: skip
OUT_OF_RANGE: list[tuple[Field, Any]] = [
    (Data(), "x" * 141),
    (Data(length=3), "abcd"),
    (Link(options="User"), "x" * 141),
    (LIMITED, 0),
    (LIMITED, 61),
    (Check(), 2),
    (Check(), -1),
    *each(Date(), "2026-02-29", "2026-13-01", "20260102", "2026-1-2", ""),
    *each(Date(), "2026-01-02T00:00:00Z", "\uff12026-01-02"),
    *each(Datetime(), "yesterday", "", "2026-02-30T00:00:00Z", "25:00"),
    # 65 characters: longer ones would fill the cache of times with megabytes.
    (Datetime(), f"2026-01-02T03:04:05.{'1' * 44}Z"),
    (Datetime(), "0001-01-01T00:00:00+01:00"),
    (Datetime(), datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
    (Datetime(), "9999-12-31T23:59:59-01:00"),
    (KIND, "c"),
    (KIND, "A"),
]


def ids(rows: list[tuple[Any, ...]]) -> list[str]:
    return [f"{type(row[0]).__name__}-{ascii(row[1])[:30]}" for row in rows]


@pytest.mark.parametrize(("field", "given", "held"), TAKEN, ids=ids(TAKEN))
def test_field_accepts_and_normalises_values_of_type(field: Field, given: Any, held: Any) -> None:
    """D-54, D-56."""
    found = field.accept(given)
    assert (found, type(found)) == (held, type(held))


class Colour(str, Enum):  # noqa: UP042  # the str() of a member is not its value
    RED = "red"


class HtmlText(str):
    """As a library's class for texts that are HTML."""


class Rank(IntEnum):
    ONE = 1


class Amount(int):
    pass


SUBCLASSED: list[tuple[Field, Any, Any]] = [  # field, given, held
    (Data(), HtmlText("red"), "red"),
    (Text(), Colour.RED, "red"),
    (Select(options=["red"]), Colour.RED, "red"),
    (Link(options="Customer"), HtmlText("é"), "é"),
    (Password(), HtmlText("red"), "red"),
    (Int(), Rank.ONE, 1),
    (Int(), Amount(5), 5),
    (Float(), Rank.ONE, 1.0),
    (Check(), Rank.ONE, 1),
    (JSON(), {HtmlText("a"): [Colour.RED, Amount(5)]}, {"a": ["red", 5]}),
]


@pytest.mark.parametrize(("field", "value", "held"), SUBCLASSED)
def test_field_holds_values_of_subclasses_as_plain_ones(
    field: Field, value: Any, held: Any
) -> None:
    """Values in Python are those of JSON (D-195)."""
    taken = field.accept(value)
    assert (type(taken), taken) == (type(held), held)


@pytest.mark.parametrize(("field", "value"), WRONG_SHAPE, ids=ids(WRONG_SHAPE))
def test_field_refuses_wrong_type_with_shape_error(field: Field, value: Any) -> None:
    """A value of a wrong type has the wrong shape: 400 (H-18, D-61)."""
    with pytest.raises(ShapeError):
        field.accept(value)


@pytest.mark.parametrize(("field", "value"), OUT_OF_RANGE, ids=ids(OUT_OF_RANGE))
def test_field_refuses_out_of_range_value_and_names_field(field: Field, value: Any) -> None:
    """A value out of range is 422 with `extra.field` (D-61, D-57)."""
    field.name = "the_field"
    with pytest.raises(ValidationError) as refusal:
        field.accept(value)
    assert refusal.value.extra == {"field": "the_field"}


@pytest.mark.parametrize(
    "field", [Data(), Text(), Int(), Float(), Date(), Datetime(), KIND, Vault(), Link(options="X")]
)
def test_field_other_than_check_accepts_null(field: Field) -> None:
    assert field.accept(None) is None


@given(st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 30)),  # noqa: DTZ001
       st.integers(-14 * 60, 14 * 60))  # fmt: skip
def test_datetime_field_round_trips_through_store(moment: datetime, offset: int) -> None:
    """Times are ISO 8601 UTC with milliseconds and `Z` (D-56, H-35)."""
    field = Datetime()
    held = field.accept(moment.replace(tzinfo=timezone(timedelta(minutes=offset))).isoformat())
    assert field.from_store(field.to_store(held)) == held
    assert len(held) == len("2026-01-02T03:04:05.678Z")


@given(st.text(max_size=20))
def test_data_field_refuses_control_characters(text: str) -> None:
    try:
        taken = Data().accept(text)
    except ShapeError:
        assert any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in text)
    else:
        assert taken.isprintable() or not any(ord(c) < 32 for c in taken)


MISTAKES: list[tuple[Field, str]] = [
    (Data(length=0), "length"),
    (Data(length="9"), "length"),
    (Data(permlevel=10), "permlevel"),
    (Data(permlevel=-1), "permlevel"),
    (Data(default="x" * 141), "default"),
    (Int(default="1"), "default"),
    (LIMITED.__class__(minimum=1, maximum=60, default=61), "default"),
    (Select(), "options"),
    (Select(options=[]), "options"),
    (Select(options="ab"), "options"),
    (Select(options=["a", ""]), "options"),
    (Select(options=["a"], default="b"), "default"),
    (Link(), "options"),
    (Link(options=["User"]), "options"),
    (Table(), "child DocType class"),
    (Table("Order Line"), "child DocType class"),
    (Data(length=True), "length"),
    (Int(length=5), "length is not an option of Int"),
    (Data(options=["a", "b"]), "options is not an option of Data"),
    (Data(permlevel=1.0), "permlevel"),
    (Data(permlevel=True), "permlevel"),
    (Data(required="no"), "required must be True or False"),
    (Data(unique="no"), "unique must be True or False"),
    (Data(read_only="no"), "read_only must be True or False"),
    (Data(allow_on_submit="no"), "allow_on_submit must be True or False"),
    (Int(minimum="1", default=3), "minimum must be a whole number"),  # type: ignore[arg-type]
    (Int(maximum=2**53 + 1), "maximum must be a whole number between -2^53 and 2^53"),
    (Int(minimum=5, maximum=1), "minimum must be at most maximum"),
    (Select(options=["a", "b\n"]), r"options: 'b\n' can never be chosen"),
    (Select(options=["ab"], length=1), "options: 'ab' can never be chosen"),
]


@pytest.mark.parametrize(("field", "mistake"), MISTAKES)
def test_field_problems_name_mistaken_option(field: Field, mistake: str) -> None:
    assert mistake in " ".join(field.problems())


@pytest.mark.parametrize(
    ("field", "blank"),
    [
        (Date(default=date(2026, 1, 31)), "2026-01-31"),
        (Datetime(default=datetime(2026, 1, 31, 8, tzinfo=UTC)), "2026-01-31T08:00:00.000Z"),
        (Check(default=False), 0),
        (Check(default=True), 1),
        (Float(default=1), 1.0),
    ],
)
def test_field_default_has_the_form_of_its_field(field: Field, blank: Any) -> None:
    """A Date and a Datetime are texts, in Python as in JSON (D-56), also in a new document."""
    made = field.blank()
    assert (made, type(made)) == (blank, type(blank))


@pytest.mark.parametrize("field", [each for each, *_ in TAKEN])
def test_field_problems_are_empty_for_valid_declaration(field: Field) -> None:
    assert list(field.problems()) == []
