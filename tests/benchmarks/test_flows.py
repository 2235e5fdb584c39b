"""The suite `flows`: the counted figures, and one round over the real service."""

from __future__ import annotations

from typing import Final

import pytest

from benchmarks.flows import ENTRY_QUEUE, LOGIN, NOTE, ROOT, Flow, RecordedCall, rows
from benchmarks.rows import Effort

READER: Final = ("a/read.py", "read", 1, 10, "reader", 1)
WRITER: Final = ("b/write.py", "write", 2, 0, "writer", 3)
CALLBACK: Final = ("b/write.py", "settle", 1, 11, ENTRY_QUEUE, 1)


def test_figures_count_changes_between_consecutive_calls() -> None:
    flow = Flow([RecordedCall(*each) for each in (READER, READER, WRITER, CALLBACK, READER)])
    assert flow.figures() == {
        "calls": 5,
        "functions": 3,
        "files": 2,
        "folders": 2,
        "changes of file": 2,
        "changes of folder": 2,
        "changes of thread": 2,
        "hand-overs": 2,  # reader to writer and back: trio's entry queue is no task of the service
        "deepest stack": 3,
    }


def test_trace_names_each_task_once_and_groups_by_file() -> None:
    flow = Flow([RecordedCall(*each) for each in (READER, READER, WRITER, READER)])
    assert list(flow.trace()) == [
        "1. task reader",
        "   a/read.py: read, read",
        "2. thread writer",
        "   b/write.py: write",
        "1. task reader",
        "   a/read.py: read",
    ]


def test_stretches_count_how_often_a_flow_enters_a_file() -> None:
    flow = Flow([RecordedCall(*each) for each in (READER, READER, WRITER, CALLBACK, READER)])
    assert flow.stretches() == [("a/read.py", 2), ("b/write.py", 1)]


@pytest.mark.timeout(180)
def test_rows_count_both_flows_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.flows.LEAST_RECORDED", 1)
    reported: list[str] = []
    found = rows(Effort(events=1, rounds=1, tell=reported.append), ROOT, trace=True)
    ours = {row.name: row.ours for row in found}
    assert set(ours) == {f"login/{each}" for each in LOGIN} | {f"note/{each}" for each in NOTE}
    assert ours["login/files"] > 20
    assert ours["note/files"] > ours["login/files"]
    login, note = reported
    assert "web/routes/access.py: AccessRoutes.sign_in" in login
    assert "web/routes/resource.py" in note
