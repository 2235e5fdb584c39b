"""The output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final, cast

import click

if TYPE_CHECKING:
    from rich.table import Table

REFUSALS_SHOWN: Final = 20
_GAP: Final = " | "  # as wide as what rich puts between two columns
_ROWS_AT_ONCE: Final = 500
_BYTES_IN_MEMORY: Final = 1 << 20

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
"""The option of every command that prints a table (C-102)."""


def counted(number: int, unit: str) -> str:
    """Return a number with its unit, in the plural unless it is one."""
    from fw_actors.rules import safe_output

    return safe_output.counted(number, unit)


def json_text(value: object, fallback: Callable[[Any], Any] | None = None) -> str:
    """Return `value` as JSON on one line; `fallback` converts values that JSON does not support.

    Characters that would control a terminal are escaped, as in tables.

    Raises: msgspec's errors for an unsupported value: TypeError, ValueError.
    """
    import msgspec

    from fw_actors.rules.safe_output import escaped_json

    return escaped_json(msgspec.json.encode(value, enc_hook=fallback).decode())


def say(text: str) -> None:
    """Print a sentence, escaping what would control a terminal: it contains names and paths."""
    from fw_actors.rules.safe_output import escaped

    click.echo(escaped(text))


def show_json(value: object) -> None:
    """Print facts as indented JSON."""
    import msgspec

    click.echo(msgspec.json.format(json_text(value), indent=2))


def show_sections(sections: Mapping[str, Iterable[Any]], lists: Collection[str]) -> None:
    """Print an object of sections as indented JSON.

    Those named in `lists` are of texts; the others are objects, whose members are pairs of a name
    and a value.
    """
    for position, (section, members) in enumerate(sections.items()):
        click.echo(f"{',' if position else '{'}\n  {json_text(section)}: ", nl=False)
        if section in lists:
            _show_members(map(json_text, members), "[]", 2)
        else:
            pairs = (f"{json_text(name)}: {_indented(value, 4)}" for name, value in members)
            _show_members(pairs, "{}", 2)
    click.echo("\n}")


def _show_members(texts: Iterator[str], brackets: str, indent: int) -> None:
    """Print the members of an object or a list, each on lines of its own."""
    opening, closing = brackets[0], brackets[1]
    line = "\n" + " " * indent
    before = opening
    while page := list(islice(texts, _ROWS_AT_ONCE)):
        click.echo(f"{before}{line}  " + f",{line}  ".join(page), nl=False)
        before = ","
    click.echo(brackets if before == opening else f"{line}{closing}", nl=False)


def _indented(value: object, indent: int) -> str:
    import msgspec

    text: str = msgspec.json.format(json_text(value), indent=2)
    return text.replace("\n", "\n" + " " * indent)


class SpooledRows:
    """Rows as JSON in a temporary file, in which they stay until they are shown.

    A command thus holds one page of them in memory, however many there are, and no transaction
    while a pager waits for its reader.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def fill(self, rows: Iterable[object]) -> int:
        """Add rows; called in the transaction that yields them. Returns how many they were."""
        import msgspec

        count = 0
        for row in rows:
            self._file.write(msgspec.json.encode(row) + b"\n")
            count += 1
        return count

    def __iter__(self) -> Iterator[Any]:
        import msgspec

        self._file.seek(0)
        return map(msgspec.json.decode, self._file)


@contextmanager
def spool() -> Iterator[SpooledRows]:
    """Provide an empty `SpooledRows`; its file is deleted at the end."""
    with SpooledTemporaryFile(max_size=_BYTES_IN_MEMORY) as file:
        yield SpooledRows(cast("IO[bytes]", file))


def show(rows: Iterable[Mapping[str, object]], columns: Mapping[str, str], *, json: bool) -> None:
    """Print rows: as complete JSON, or as a table of `columns`, an ordered mapping of headings.

    A table fits the terminal; piped into a program it is as wide as its content, so that no value
    is cut or folded. `rows` are read twice for a table: first for the widths of its columns.
    """
    if json:
        _show_members((_indented(row, 2) for row in rows), "[]", 0)
        click.echo()
        return
    from rich.cells import cell_len
    from rich.console import Console

    widths = list(map(cell_len, columns.values()))
    for row in rows:
        lengths = (cell_len(_cell(row.get(key))) for key in columns)
        widths = list(map(max, widths, lengths))
    console = Console()
    gaps = len(_GAP) * (len(widths) - 1)
    if sys.stdout.isatty():
        _narrow(widths, console.width - gaps)
    else:
        console = Console(width=max(sum(widths) + gaps, 1))
    pages = iter(rows)
    page = list(islice(pages, _ROWS_AT_ONCE))
    console.print(_table(columns, widths, page, header=True))
    while page := list(islice(pages, _ROWS_AT_ONCE)):
        console.print(_table(columns, widths, page, header=False))


def _narrow(widths: list[int], room: int) -> None:
    """Narrow the widest columns until they fit the room; none is narrower than a character."""
    while sum(widths) > room and (widest := max(widths)) > 1:
        second = max((width for width in widths if width < widest), default=1)
        columns = [place for place, width in enumerate(widths) if width == widest]
        excess = -(-(sum(widths) - room) // len(columns))
        for place in columns:
            widths[place] = max(second, widest - excess, 1)


def _table(
    columns: Mapping[str, str],
    widths: Sequence[int],
    rows: Sequence[Mapping[str, object]],
    *,
    header: bool,
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=header)
    for heading, width in zip(columns.values(), widths, strict=True):
        table.add_column(heading, overflow="fold", width=width)
    for row in rows:
        table.add_row(*(Text(_cell(row.get(key))) for key in columns))
    return table


def show_refusals(refused: Sequence[Mapping[str, Any]], total: int | None = None) -> None:
    """Print the first refused lines of a file, each a `line` and an `error`, and count the rest.

    `total`: their number, if not all are given.
    """
    for refusal in refused[:REFUSALS_SHOWN]:
        say(f"Line {refusal['line']:,}: {refusal['error']}")
    count = len(refused) if total is None else total
    if count > REFUSALS_SHOWN:
        listed = "all" if count == len(refused) else f"the first {len(refused):,}"
        say(f"… and {count - REFUSALS_SHOWN:,} more; --json lists {listed}.")


def _cell(value: object) -> str:
    """Return the text of a cell, escaped."""
    from fw_actors.rules.safe_output import escaped

    return escaped(_plain_cell(value))


def _plain_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping) and value.keys() == {"configured"}:  # a stored secret (B-91)
        return "configured" if value["configured"] else ""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)
