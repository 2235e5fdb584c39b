"""Rows of measurements as a table for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from benchmarks.rows import BenchmarkRow, figure


def table(rows: Sequence[BenchmarkRow]) -> Table:
    """Return the rows as a table."""
    shown = Table()
    shown.add_column("benchmark", no_wrap=True)
    for heading in ("ours", "reference", "ratio"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("unit", no_wrap=True)
    shown.add_column("reference is")
    for row in rows:
        shown.add_row(
            f"{row.suite}/{row.name}",
            figure(row.ours),
            figure(row.reference),
            _ratio(row),
            row.unit,
            row.reference_name,
        )
    return shown


def _ratio(row: BenchmarkRow) -> str:
    """Return the ratio, and how it stands to the aim of the row."""
    if row.aim is None:
        return f"{row.ratio:.2f}"
    return f"{row.ratio:.2f} {'>=' if row.reaches_aim else '<'} {row.aim:.2f}"


def write_json(file: Path, rows: Sequence[BenchmarkRow]) -> None:
    """Write the rows to `file` as a JSON list of objects, one for each row."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(list(rows))) + b"\n")
