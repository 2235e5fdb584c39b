"""The output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

REFUSALS_SHOWN: Final = 20
_UNBOUNDED: Final = 1_000_000  # characters; wider than any table

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


def show(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str], *, json: bool) -> None:
    """Print rows: as complete JSON, or as a table of `columns`, an ordered mapping of headings.

    A table fits the terminal; piped into a program it is as wide as its content, so that no value
    is cut or folded.
    """
    if json:
        show_json(list(rows))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fw_actors.rules.safe_output import escaped

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in columns.values():
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(escaped(_cell(row.get(key)))) for key in columns))
    console = Console()
    if not sys.stdout.isatty():
        console = Console(width=Console(width=_UNBOUNDED).measure(table).maximum)
    console.print(table)


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
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping) and value.keys() == {"configured"}:  # a stored secret (B-91)
        return "configured" if value["configured"] else ""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)
