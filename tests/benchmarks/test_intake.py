"""The suite `intake` at little effort: its rows, and that a wrong result fails."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import intake
from benchmarks.access.load import WrongAnswer
from benchmarks.intake import DATABASE, NotRecorded, recorded
from benchmarks.rows import Effort

pytestmark = pytest.mark.timeout(300)  # it starts a service, on a slow machine too
LITTLE = Effort(events=200, rounds=1, tell=print)


def test_intake_rows_have_aims_and_ratios() -> None:
    rows = list(intake.rows(LITTLE))
    assert [(row.suite, row.name, row.unit, row.aim) for row in rows] == [
        ("intake", "http_single", "events/s", 1.2),
        ("intake", "http_batch", "events/s", 0.35),
        ("intake", "library", "events/s", 0.35),
    ]
    for row in rows:
        assert row.ours > 0
        assert row.ratio == pytest.approx(row.ours / row.reference)


def test_intake_fails_if_its_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "api_key", lambda _: "fwk_unknown")
    monkeypatch.setattr(intake, "CONNECTIONS", 8)  # the fifty-first wrong key gets 429
    with pytest.raises(WrongAnswer, match=r"HTTP/1\.1 401 "):
        next(iter(intake.rows(LITTLE)))


@pytest.mark.parametrize("emitted", [2, 4])
def test_intake_fails_if_the_store_has_other_events(tmp_path: Path, emitted: int) -> None:
    (tmp_path / DATABASE.parent).mkdir()
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as store:
        store.execute("CREATE TABLE doc_webhook_delivery (name)")

        def emit(count: int) -> float:
            insert = "INSERT INTO doc_webhook_delivery VALUES (?)"
            store.executemany(insert, [(n,) for n in range(count)])
            return 7.0

        assert recorded(tmp_path, 3, lambda: emit(3)) == 7.0
        with pytest.raises(NotRecorded, match=f"Of 3 events {emitted} are recorded"):
            recorded(tmp_path, 3, lambda: emit(emitted))
