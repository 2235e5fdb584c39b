"""Which rows the terminal's console shows, and how its graphs are kept."""

from __future__ import annotations

from fw_cli.console_order import RowOrder, arranged, described
from fw_cli.console_series import MAX_POINTS, Series

ROWS = [("a", ("ten", "10 of 64")), ("b", ("two", "2")), ("c", ("none", "")), ("d", ("k", "1,000"))]


def keys(order: RowOrder) -> str:
    return "".join(key for key, _ in arranged(ROWS, order))


def test_row_order_sorts_numbers_by_size_before_texts() -> None:
    assert keys(RowOrder(column=1)) == "badc"
    assert keys(RowOrder(column=1, descending=True)) == "cdab"
    assert keys(RowOrder(column=0)) == "dcab"


def test_row_order_sorts_names_that_python_reads_as_numbers_as_texts() -> None:
    """NaN is neither below nor above a number, so that it left the others in no order."""
    rows = [(name, (name,)) for name in ("bob", "nan", "2", "inf", "1.5", "10.0.0.1")]
    found = [key for key, _ in arranged(rows, RowOrder(column=0))]
    assert found == ["1.5", "2", "10.0.0.1", "bob", "inf", "nan"]


def test_row_filter_searches_every_cell_case_insensitively() -> None:
    assert keys(RowOrder(text="T")) == "ab"
    assert keys(RowOrder(text="64")) == "a"


def test_sort_column_cycles_back_to_service_order() -> None:
    order = RowOrder("x")
    assert [(order := order.next_column(2)).column for _ in range(3)] == [0, 1, None]


def test_row_order_is_reversed_until_the_next_column() -> None:
    order = RowOrder("x").reversed()
    assert order == RowOrder("x", descending=True)
    assert keys(RowOrder(descending=True)) == "dcba"
    assert order.next_column(2) == RowOrder("x", 0)
    assert order.reversed() == RowOrder("x")


def test_row_order_is_described_in_words() -> None:
    order = RowOrder("shop", 1, descending=True)
    assert described(order, ("Name", "State")) == 'filter "shop", sorted by State, reversed'
    assert described(RowOrder(), ("Name",)) == ""


def test_series_keeps_one_hour_of_ten_second_points() -> None:
    series = Series()
    for second in range(4000):
        series.keep(second * 1000, float(second % 7))
    assert len(series.values) == MAX_POINTS
    assert series.values[-1] == 3999 % 7
    assert series.scale == "max 6, 60 min"
