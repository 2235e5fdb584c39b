"""Copies of a database in use: a backup of SQLite is an SQLite file (O-150)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fw_actors.errors import ConfigurationError
from fw_actors.store import backup
from fw_actors.store.backup import back_up_file


def nothing(done: int, total: int) -> None:
    """Ignore the progress."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (a)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 500,) for _ in range(2000)])
        connection.commit()
    return path


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        count: int = connection.execute("SELECT count(*) FROM t").fetchone()[0]
        return count


def test_back_up_file_copies_snapshot_despite_concurrent_commits(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "PAGES_AT_ONCE", 50)
    steps: list[tuple[int, int]] = []
    with closing(sqlite3.connect(source, isolation_level=None)) as busy:

        def commit(done: int, total: int) -> None:
            busy.execute("INSERT INTO t VALUES ('later')")
            steps.append((done, total))

        size = back_up_file(source, tmp_path / "copy.db", commit)
    assert len(steps) > 3
    assert steps == sorted(steps)  # the copy never restarted
    assert steps[-1][0] == steps[-1][1]
    assert (rows(tmp_path / "copy.db"), rows(source)) == (2000, 2000 + len(steps))
    assert size == (tmp_path / "copy.db").stat().st_size


def test_back_up_file_writes_single_private_file(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    back_up_file(source, folder / "copy.db", nothing)
    assert [file.name for file in folder.iterdir()] == ["copy.db"]
    assert (folder / "copy.db").stat().st_mode & 0o777 == 0o600


def test_back_up_file_refuses_existing_target(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("an older backup")
    with pytest.raises(ConfigurationError, match="already exists"):
        back_up_file(source, target, nothing)
    assert target.read_text() == "an older backup"


def test_back_up_file_refuses_damaged_database(source: Path, tmp_path: Path) -> None:
    content = bytearray(source.read_bytes())
    content[4096 * 4 : 4096 * 9] = b"\xff" * 4096 * 5
    source.write_bytes(content)
    before = set(tmp_path.iterdir())
    with pytest.raises(ConfigurationError):
        back_up_file(source, tmp_path / "copy.db", nothing)
    made = {file.name for file in set(tmp_path.iterdir()) - before}
    assert made <= {"source.db-wal", "source.db-shm"}


@pytest.mark.parametrize("target", ["no/such/folder/copy.db", "source.db/copy.db"])
def test_back_up_file_reports_unwritable_target(source: Path, tmp_path: Path, target: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        back_up_file(source, tmp_path / target, nothing)


def test_back_up_file_refuses_missing_database(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="There is no database"):
        back_up_file(tmp_path / "none.db", tmp_path / "copy.db", nothing)
