"""The examination of an SQLite file from outside."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fw_actors.store import backup
from fw_actors.store.backup import check_integrity


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t (a); CREATE INDEX i ON t (a);")
    connection.executemany("INSERT INTO t VALUES (?)", [(str(n) * 50,) for n in range(999)])
    connection.commit()
    connection.close()
    return path


def test_check_integrity_finds_no_fault_in_intact_file(file: Path) -> None:
    found = check_integrity(file)
    assert (found.faults, found.thorough, found.size) == ((), True, file.stat().st_size)


def test_check_integrity_reports_damaged_pages(file: Path) -> None:
    """O-144."""
    content = bytearray(file.read_bytes())
    content[4096 * 3 : 4096 * 6] = b"\xff" * 4096 * 3
    file.write_bytes(content)
    assert check_integrity(file).faults


def test_check_integrity_reports_file_not_a_database(file: Path) -> None:
    file.write_bytes(b"nothing of the kind" * 500)
    assert check_integrity(file).faults == ("file is not a database",)


def test_check_integrity_skips_thorough_check_of_large_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "WHOLE_CHECK_BYTES", 1000)
    assert check_integrity(file).thorough is False
