"""Filters and sorts the rows of a console table by the user's input, without I/O."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from fw_cli.console_rows import TableRow

_NUMBER_FIRST: Final = 0
_TEXT: Final = 1


@dataclass(frozen=True)
class RowOrder:
    """A filter and a sort column; column None keeps the order of the service."""

    text: str = ""
    column: int | None = None
    descending: bool = False

    def next_column(self, columns: int) -> RowOrder:
        """Sort by the next column; after the last one, by none."""
        following = 0 if self.column is None else self.column + 1
        return replace(self, column=following if following < columns else None, descending=False)

    def reversed(self) -> RowOrder:
        """Reverse the order."""
        return replace(self, descending=not self.descending)


def arranged(rows: Iterable[TableRow], order: RowOrder) -> list[TableRow]:
    """Return the rows that have the text in one of their cells, in the order."""
    text = order.text.casefold()
    matching = [row for row in rows if any(text in cell.casefold() for cell in row[1])]
    column = order.column
    if column is None:
        return matching[::-1] if order.descending else matching
    return sorted(matching, key=lambda row: _sort_key(row[1][column]), reverse=order.descending)


def _sort_key(cell: str) -> tuple[int, float, str]:
    """Return the sort key: numbers by size, also at the start of a text such as `3 of 64`; then
    texts."""
    head = cell.strip().partition(" ")[0].replace(",", "")
    if head[:1].isdecimal():  # else nan and inf, which may be names, are numbers too
        with suppress(ValueError):
            return _NUMBER_FIRST, float(head), cell
    return _TEXT, 0.0, cell.strip().casefold()


def described(order: RowOrder, columns: tuple[str, ...]) -> str:
    """Return the differences from the service's order: `filter "shop", sorted by State,
    reversed`."""
    parts = [f'filter "{order.text}"'] if order.text else []
    if order.column is not None:
        parts.append(f"sorted by {columns[order.column]}")
    if order.descending:
        parts.append("reversed")
    return ", ".join(parts)
