"""Two processes on one SQLite file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from fw_actors.errors import OverloadedError
from fw_actors.store import Store
from fw_actors.store.statement import SQLITE
from tests.fw_actors.store.conftest import OpenStore
from tests.fw_actors.store.notes import add, create_notes, texts
from tests.fw_actors.store.other_process import process

COMMIT = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1])
other.execute("INSERT INTO notes (owner, text) VALUES ('bob', 'from outside')")
other.commit()
"""

LOCK = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def kind() -> str:
    return SQLITE


async def commit_elsewhere(path: Path) -> None:
    await trio.run_process([sys.executable, "-c", COMMIT, str(path)])


async def test_external_commit_of_other_process_calls_listener(threaded: Store, path: Path) -> None:
    """A commit of another process is noticed within a second (O-17)."""
    noticed = trio.Event()
    threaded.on_external_commit(noticed.set)
    await commit_elsewhere(path)
    with trio.fail_after(10):
        await noticed.wait()
    assert await threaded.read(texts) == ["from outside"]


async def test_poll_ignores_commits_of_same_store(open_store: OpenStore) -> None:
    called: list[str] = []
    async with open_store(inline=True) as store:
        store.on_external_commit(lambda: called.append("noticed"))
        await store.write(create_notes)
        await store.write(add("a"))
        store.poll()
    assert called == []


async def test_poll_reports_external_commit_once_and_listener_unsubscribes(
    open_store: OpenStore, path: Path
) -> None:
    called: list[str] = []
    async with open_store(inline=True) as store:
        await store.write(create_notes)
        leave = store.on_external_commit(lambda: called.append("left"))
        store.on_external_commit(lambda: called.append("stays"))
        await commit_elsewhere(path)
        store.poll()
        store.poll()
        leave()
        leave()
        assert called == ["left", "stays"]
        assert store.statistics().external_commits == 1


async def test_locked_database_refuses_write_and_store_recovers(
    open_store: OpenStore, path: Path
) -> None:
    async with open_store(busy_seconds=0.2) as store:
        await store.write(create_notes)
        with process(LOCK, str(path)) as (_, said):
            assert await trio.to_thread.run_sync(said.readline) == "locked\n"
            with pytest.raises(OverloadedError, match="locked"):
                await store.write(add("a"))
            assert await store.read(texts) == [], "reads go on"
        await store.write(add("b"))
        assert await store.read(texts) == ["b"]
