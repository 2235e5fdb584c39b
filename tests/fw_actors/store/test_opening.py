"""A start that is cancelled ends at once: ADR-017."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
import trio

from fw_actors.runtime.clock import SeededEntropy, SystemClock
from fw_actors.store import open_sqlite
from fw_actors.store.executor import open_in_thread


class Door:
    """A resource that records when it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()


async def test_what_is_opened_for_nobody_is_closed_again() -> None:
    door, began, go_on = Door(), threading.Event(), threading.Event()

    def opening() -> Door:
        began.set()
        assert go_on.wait(60)
        return door

    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_in_thread, opening, lambda door: door.closed.set())
        await trio.to_thread.run_sync(began.wait, 60)
        nursery.cancel_scope.cancel()
    go_on.set()  # only now: the cancellation has not waited for it
    assert await trio.to_thread.run_sync(door.closed.wait, 60)


async def test_what_is_opened_is_given_to_who_waits_and_what_fails_is_raised() -> None:
    closed: list[Door] = []
    door = Door()
    assert await open_in_thread(lambda: door, closed.append) is door
    assert closed == []

    def failing() -> Door:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await open_in_thread(failing, closed.append)


async def test_a_store_that_waits_for_another_process_is_given_up_when_it_is_cancelled(
    path: Path,
) -> None:
    async with open_sqlite(path, clock=SystemClock(), entropy=SeededEntropy(1)):
        pass
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # held until the cancellation is through
    try:
        with trio.move_on_after(0.05) as scope:
            async with open_sqlite(path, clock=SystemClock(), entropy=SeededEntropy(1)):
                raise AssertionError("it is locked")
    finally:
        other.close()
    assert scope.cancelled_caught
