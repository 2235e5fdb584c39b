"""Which rows the terminal's console shows, and how its graphs are kept."""

from __future__ import annotations

from fw_cli.console_order import RowOrder, arranged, described
from fw_cli.console_series import MAX_POINTS, Series

ROWS = [("a", ("ten", "10 of 64")), ("b", ("two", "2")), ("c", ("none", "")), ("d", ("k", "1,000"))]


def keys(order: RowOrder) -> str:
    return "".join(key for key, _ in arranged(ROWS, order))


def test_numbers_are_sorted_by_size_and_before_texts() -> None:
    assert keys(RowOrder(column=1)) == "badc"
    assert keys(RowOrder(column=1, descending=True)) == "cdab"
    assert keys(RowOrder(column=0)) == "dcab"


def test_a_filter_looks_into_every_cell_in_any_case() -> None:
    assert keys(RowOrder(text="T")) == "ab"
    assert keys(RowOrder(text="64")) == "a"


def test_after_the_last_column_the_order_of_the_service_comes_back() -> None:
    order = RowOrder("x")
    assert [(order := order.next_column(2)).column for _ in range(3)] == [0, 1, None]


def test_an_order_is_described_in_words() -> None:
    order = RowOrder("shop", 1, descending=True)
    assert described(order, ("Name", "State")) == 'filter "shop", sorted by State, reversed'
    assert described(RowOrder(), ("Name",)) == ""


def test_a_series_keeps_a_point_for_ten_seconds_and_an_hour_in_all() -> None:
    series = Series()
    for second in range(4000):
        series.keep(second * 1000, float(second % 7))
    assert len(series.values) == MAX_POINTS
    assert series.values[-1] == 3999 % 7
    assert series.scale == "max 6, 60 min"
