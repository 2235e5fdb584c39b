"""Features of the store on SQLite alone: shared commits, the disk, the file."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import threading
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from sqlalchemy import text as sql

from fw_actors.errors import ConfigurationError, OverloadedError
from fw_actors.store import Store, Tx
from fw_actors.store.sqlite_connection import SqliteConnection
from fw_actors.store.sqlite_engine import SqliteTx
from fw_actors.store.statement import SQLITE
from tests.fw_actors.store.conftest import OpenStore
from tests.fw_actors.store.notes import (
    NoteRefused,
    add,
    add_then_refuse,
    answers_of_callers,
    create_notes,
    texts,
)


@pytest.fixture
def kind() -> str:
    return SQLITE


async def test_concurrent_writes_share_commits_and_get_own_answers(threaded: Store) -> None:
    answers = await answers_of_callers(threaded, 100)
    assert answers == {number: number for number in range(100)}
    statistics = threaded.statistics()
    assert statistics.commits < statistics.committed == 202  # two of them made the tables


async def test_sqlite_connection_uses_wal_with_full_synchronous(threaded: Store) -> None:
    """Architecture, The store: answered only after the commit is durable."""

    def settings(tx: Tx) -> list[object]:
        names = ("synchronous", "journal_mode", "foreign_keys")
        return [tx.scalar(sql(f"PRAGMA {name}")) for name in names]

    assert await threaded.write(settings) == [2, "wal", 1]


async def test_sqlite_overwrites_deleted_text_whatever_the_library_does_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-360: an erased body stays neither in the file nor in a backup."""
    connect = sqlite3.connect

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.execute("PRAGMA secure_delete=OFF")
        return connection

    monkeypatch.setattr(sqlite3, "connect", connected)
    file = tmp_path / "fw.db"
    file.touch()
    with closing(SqliteConnection(file, busy_seconds=1)) as connection:
        connection.raw.execute("CREATE TABLE note (body TEXT)")
        connection.raw.executemany(
            "INSERT INTO note VALUES (?)", [("mark" * n,) for n in (9, 9999)]
        )
        connection.raw.execute("UPDATE note SET body = NULL")
        connection.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert b"mark" not in file.read_bytes()


async def test_sqlite_read_that_sorts_all_rows_holds_few_of_them(threaded: Store) -> None:
    """O-21: the page at the end of a list sorts the rows of all pages before it."""
    rows, size = 30_000, 2_000

    def fill(tx: Tx) -> None:
        tx.run(sql("CREATE TABLE sorted (n INTEGER PRIMARY KEY, t TEXT)"))
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)"
        tx.run(
            sql(f"INSERT INTO sorted {numbers} SELECT i, hex(zeroblob(:half)) FROM n"),
            rows=rows,
            half=size // 2,
        )

    await threaded.write(fill)
    last = sql("SELECT n, t FROM sorted ORDER BY -n, t LIMIT 1 OFFSET :before")
    before = _memory_now()
    [row] = await threaded.read(lambda tx: tx.rows(last, before=rows - 1))
    assert row[0] == 1
    assert _highest_memory() - before < rows * size / 2


def _memory_now() -> int:
    """Return the resident memory of this process in bytes, and forget its highest value."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _highest_memory() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


async def test_open_sqlite_refuses_file_not_a_database(path: Path, open_store: OpenStore) -> None:
    await trio.Path(path.parent).mkdir()
    await trio.Path(path).write_bytes(b"not a database, but long enough to be read as one" * 100)
    with pytest.raises(ConfigurationError, match="not an intact SQLite database"):
        async with open_store():
            pass


async def test_open_sqlite_refuses_database_not_in_utf8(path: Path, open_store: OpenStore) -> None:
    """PostgreSQL refuses it too: the bytes of a text are those that are sent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    other = sqlite3.connect(path)
    other.execute("PRAGMA encoding='UTF-16le'")
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(ConfigurationError, match="not in UTF-8"):
        async with open_store():
            pass


async def test_open_sqlite_refuses_uncreatable_folder(path: Path, open_store: OpenStore) -> None:
    await trio.Path(path.parent).write_text("a file where the folder should be")
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        async with open_store():
            pass


async def test_open_sqlite_names_read_only_file_system(
    path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-28: it is not a matter of permissions. Only root could mount one for the test."""
    async with open_store():
        pass
    facts = os.statvfs(path)
    mounted = os.statvfs_result((*facts[:8], facts.f_flag | os.ST_RDONLY, *facts[9:]))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "statvfs", lambda path: mounted)
    with pytest.raises(ConfigurationError, match="cannot be opened: Read-only file system"):
        async with open_store():
            pass


async def test_sqlite_files_and_folder_are_private_to_owner(
    path: Path, open_store: OpenStore
) -> None:
    """O-23."""
    async with open_store():
        assert path.parent.stat().st_mode & 0o777 == 0o700
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes["fw.db"] == modes["fw.db-wal"] == 0o600


async def test_group_commit_syncs_durable_writes_only(
    open_store: OpenStore,
) -> None:
    """`synchronous=FULL`; a lease may do with less (O-16)."""
    full, normal = 2, 1
    gate, inside = threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        inside.set()
        assert gate.wait(10)

    def level(tx: Tx) -> int:
        connection = cast("SqliteTx", tx).connection.raw
        return connection.execute("PRAGMA synchronous").fetchone()[0]  # type: ignore[no-any-return]

    found: dict[int, int] = {}

    async def write(number: int, durable: bool) -> None:
        found[number] = await store.write(level, durable=durable)

    expected = [True, False, False, True, False, True, True]
    async with open_store() as store, trio.open_nursery() as nursery:
        nursery.start_soon(store.write, hold)
        await trio.to_thread.run_sync(inside.wait, 10)
        for number, durable in enumerate(expected):
            nursery.start_soon(write, number, durable)
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert [found[number] for number in range(len(expected))] == [
        full if durable else normal for durable in expected
    ]


@pytest.mark.parametrize(("durable", "seen"), [(False, True), (True, False)])
async def test_non_durable_write_is_committed_before_later_write(
    open_store: OpenStore, path: Path, durable: bool, seen: bool
) -> None:
    """Outcomes that arrive while a claim runs must not delay its answer."""
    gate, inside = threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        add("first")(tx)
        inside.set()
        assert gate.wait(10)

    def others_see(tx: Tx) -> bool:
        other = sqlite3.connect(path)
        try:
            count = "SELECT count(*) FROM notes WHERE text = 'first'"
            return bool(other.execute(count).fetchone()[0])
        finally:
            other.close()

    async with open_store() as store:
        await store.write(create_notes)
        found: list[bool] = []

        async def second() -> None:
            found.append(await store.write(others_see, durable=durable))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(store.write, hold, durable=durable))
            await trio.to_thread.run_sync(inside.wait, 10)
            nursery.start_soon(second)
            await trio.testing.wait_all_tasks_blocked()
            gate.set()
    assert found == [seen], "whether the first was committed when the second began"


@pytest.mark.parametrize("durable", [(False, False), (True, True), (True, False)])
async def test_waiting_writes_are_refused_together_on_locked_database(
    open_store: OpenStore, path: Path, durable: tuple[bool, bool]
) -> None:
    """Waiting writes do not wait for the lock in sequence."""
    async with open_store(busy_seconds=1.0) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        began, refused = trio.current_time(), []

        async def write(number: int) -> None:
            await trio.sleep(number * 0.05)
            with pytest.raises(OverloadedError):
                await store.write(add("a"), durable=durable[number % 2])
            refused.append(trio.current_time() - began)

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(write, number)
        other.close()
    assert max(refused) - min(refused) < 0.5, refused


class LogSyncs:
    """Counts the syncs of the log to disk beyond SQLite's own commits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waits = 0
        self.fails = False
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, log: int) -> None:
        assert os.readlink(f"/proc/self/fd/{log}").endswith("fw.db-wal")
        self.waits += 1
        if self.fails:
            raise OSError(errno.EIO, "Input/output error")


def nothing(tx: Tx) -> None:
    """Write nothing."""


async def test_empty_durable_write_syncs_earlier_lazy_writes(
    threaded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Store.write`: a power failure undoes no write that precedes a durable one."""
    disk = LogSyncs(monkeypatch)
    await threaded.write(nothing)
    await threaded.write(nothing, durable=False)
    await threaded.write(nothing)
    assert disk.waits == 0  # there was nothing to wait for
    await threaded.write(add("lazy"), durable=False)
    await threaded.write(nothing)
    assert disk.waits == 1
    await threaded.write(nothing)
    assert disk.waits == 1  # the log is on disk
    await threaded.write(add("lazier"), durable=False)
    await threaded.write(add("durable"))
    await threaded.write(nothing)
    assert disk.waits == 1  # SQLite waited


async def test_undone_durable_write_syncs_earlier_lazy_writes(
    threaded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change_of_mind(tx: Tx) -> None:
        with suppress(NoteRefused), tx.savepoint():
            add_then_refuse(tx)

    disk = LogSyncs(monkeypatch)
    await threaded.write(add("lazy"), durable=False)
    await threaded.write(change_of_mind)
    assert disk.waits == 1


async def test_undone_savepoint_keeps_lazy_write_pending_for_sync(
    threaded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Store.write`: a power failure undoes no write that precedes a durable one."""

    def add_and_think_again(tx: Tx) -> None:
        add("lazy")(tx)
        with suppress(NoteRefused), tx.savepoint():
            add_then_refuse(tx)

    disk = LogSyncs(monkeypatch)
    await threaded.write(add_and_think_again, durable=False)
    await threaded.write(nothing)
    assert disk.waits == 1


async def test_symlinked_database_syncs_log_beside_link_target(
    path: Path, open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "volume"
    await trio.Path(elsewhere).mkdir()
    await trio.Path(path.parent).mkdir()
    await trio.Path(path).symlink_to(elsewhere / "fw.db")
    disk = LogSyncs(monkeypatch)
    async with open_store() as store:
        await store.write(create_notes)
        await store.write(add("lazy"), durable=False)
        await store.write(nothing)
    assert disk.waits == 1


async def test_failed_disk_sync_is_reported_and_repeated(
    threaded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LogSyncs(monkeypatch)
    await threaded.write(add("lazy"), durable=False)
    disk.fails = True
    with pytest.raises(OverloadedError):
        await threaded.write(nothing)
    disk.fails = False
    await threaded.write(nothing)
    assert disk.waits == 2
    assert await threaded.read(texts) == ["lazy"]


async def test_second_store_closing_keeps_log_of_first_store(
    path: Path, open_store: OpenStore
) -> None:
    """A process may open two stores (mail by an app's function) beside a short command, which must
    not delete the log that the process still writes."""
    program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM fw_meta')"
    async with open_store() as first:
        async with open_store():
            await trio.run_process([sys.executable, "-c", program, str(path)])
        await first.write(lambda tx: tx.run(sql("INSERT INTO fw_meta VALUES ('x', 'kept')")))
        with closing(sqlite3.connect(path)) as other:
            found = other.execute("SELECT value FROM fw_meta WHERE key = 'x'").fetchall()
    assert found == [("kept",)]
