"""Store.read: "It sees every write that was answered before the call"; short reads share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import outcome
import pytest

from fw_actors.errors import OverloadedError
from fw_actors.store import StatementError, Tx, sqlite_engine
from fw_actors.store.executor import WorkItem, run_alone
from fw_actors.store.sqlite_connection import SqliteConnection
from fw_actors.store.sqlite_engine import MAX_READS, GroupCommit, SnapshotReads
from tests.fw_actors.store.notes import add, create_notes, texts


@pytest.fixture
def snapshots(path: Path, engine: GroupCommit) -> SqliteConnection:
    return SqliteConnection(path, busy_seconds=1.0, writable=False)


@pytest.fixture
def reader(
    snapshots: SqliteConnection, engine: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SnapshotReads]:
    monkeypatch.setattr(sqlite_engine, "SNAPSHOT_SECONDS", 60.0)  # only its size ends a group
    run_alone(engine, create_notes, 0)
    reader = SnapshotReads(snapshots)
    yield reader
    reader.close()


def read(reader: SnapshotReads, *steps: Callable[[], WorkItem]) -> list[Any]:
    """Serve one group; each step makes the next call when the reader pulls it."""
    waiting = list(steps)

    def pull(*, to_refuse: bool = False) -> WorkItem:
        return waiting.pop(0)()

    items = reader.run(pull(), pull, lambda: not waiting)
    answers = [item.answer for item in items]
    return [a.error if isinstance(a, outcome.Error) else a and a.unwrap() for a in answers]


def test_snapshot_is_shared_by_reads_requested_before(
    reader: SnapshotReads, engine: GroupCommit
) -> None:
    """Both reads see a commit between them, or neither does."""
    first, second = WorkItem(texts, 0), WorkItem(texts, 0)

    def write_between() -> WorkItem:
        run_alone(engine, add("a"), 0)
        return second

    assert read(reader, lambda: first, write_between) == [[], []]
    assert read(reader, lambda: WorkItem(texts, 0)) == [["a"]]


def test_grouped_read_requested_after_commit_sees_commit(
    reader: SnapshotReads, engine: GroupCommit
) -> None:
    def write_then_ask() -> WorkItem:
        run_alone(engine, add("a"), 0)
        return WorkItem(texts, 0)

    assert read(reader, lambda: WorkItem(texts, 0), write_then_ask) == [[], ["a"]]


def test_failed_read_keeps_answers_of_grouped_reads(reader: SnapshotReads) -> None:
    def write(tx: Tx) -> None:
        add("a")(tx)

    items = [WorkItem(texts, 0), WorkItem(write, 0), WorkItem(texts, 0)]
    before, refused, after = read(reader, *(lambda c=c: c for c in items))
    assert (before, after) == ([], [])
    assert isinstance(refused, StatementError)


def test_snapshot_ends_with_bounded_group(reader: SnapshotReads, path: Path) -> None:
    """An old snapshot would keep the write-ahead log from being copied back."""
    items = [WorkItem(texts, 0) for _ in range(MAX_READS + 1)]
    read(reader, *(lambda c=c: c for c in items))
    assert not reader.is_reading
    assert items[-1].answer is None  # a group is bounded


def test_memory_error_refuses_read_and_keeps_reader_usable(
    reader: SnapshotReads, snapshots: SqliteConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sqlite3 raises MemoryError for SQLITE_NOMEM, which is no sqlite3.Error."""
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "cursor", Mock(**{"execute.side_effect": MemoryError}))
        (refused,) = read(reader, lambda: WorkItem(texts, 0))
    assert isinstance(refused, OverloadedError)
    assert read(reader, lambda: WorkItem(texts, 0)) == [[]]
