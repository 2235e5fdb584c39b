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
            f"{row.ratio:.2f}",
            row.unit,
            row.reference_name,
        )
    return shown


def write_json(file: Path, rows: Sequence[BenchmarkRow]) -> None:
    """Write the rows to `file` as a JSON list of objects, one for each row."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(list(rows))) + b"\n")
