"""The suite `runtime` at little effort: each row is measured on both sides."""

from __future__ import annotations

from benchmarks import runtime
from benchmarks.__main__ import SUITES
from benchmarks.rows import Effort


def test_runtime_suite_measures_rows_on_both_sides() -> None:
    lines: list[str] = []
    rows = list(runtime.rows(Effort(events=200, rounds=1, tell=lines.append)))
    assert [row.name for row in rows] == [
        "tell", "tell_nowait", "ask", "ask_100", "spawn",
        "busy_neighbour", "chain_2", "keyed_stream", "fan_out", "restart",
    ]  # fmt: skip
    assert all(row.ours > 0 and row.reference > 0 and row.suite == "runtime" for row in rows)
    assert len(lines) == 10


def test_runtime_suite_is_registered() -> None:
    assert SUITES["runtime"] is runtime.rows
