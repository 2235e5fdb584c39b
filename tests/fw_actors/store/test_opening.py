"""A cancelled start ends at once: ADR-017."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
import trio

from fw_actors.runtime.clock import SeededEntropy, SystemClock
from fw_actors.store import installation_key, open_sqlite
from fw_actors.store.executor import open_in_thread


class ClosableResource:
    """A resource that records when it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()


async def test_open_in_thread_closes_resource_of_cancelled_caller() -> None:
    resource, began, go_on = ClosableResource(), threading.Event(), threading.Event()

    def opening() -> ClosableResource:
        began.set()
        assert go_on.wait(60)
        return resource

    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_in_thread, opening, lambda resource: resource.closed.set())
        await trio.to_thread.run_sync(began.wait, 60)
        nursery.cancel_scope.cancel()
    go_on.set()  # only now, so the cancellation did not wait for it
    assert await trio.to_thread.run_sync(resource.closed.wait, 60)


async def test_open_in_thread_returns_resource_or_raises_error() -> None:
    closed: list[ClosableResource] = []
    resource = ClosableResource()
    assert await open_in_thread(lambda: resource, closed.append) is resource
    assert closed == []

    def failing() -> ClosableResource:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await open_in_thread(failing, closed.append)


async def test_open_sqlite_is_cancellable_while_database_is_locked(
    path: Path,
) -> None:
    async with open_sqlite(path, clock=SystemClock(), entropy=SeededEntropy(1)):
        pass
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("UPDATE fw_meta SET value = '1' WHERE key = 'schema_version'")
    other.execute("BEGIN IMMEDIATE")  # held until the cancellation is done
    try:
        with trio.move_on_after(0.05) as scope:
            async with open_sqlite(path, clock=SystemClock(), entropy=SeededEntropy(1)):
                raise AssertionError("it is locked")
    finally:
        other.close()
    assert scope.cancelled_caught


async def test_open_sqlite_of_a_migrated_store_waits_for_no_write(path: Path) -> None:
    """C-175"""
    async with open_sqlite(path, clock=SystemClock(), entropy=SeededEntropy(1)) as store:
        key = await store.read(installation_key)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with open_sqlite(path, clock=SystemClock(), entropy=SeededEntropy(2)) as store:
            assert await store.read(installation_key) == key
