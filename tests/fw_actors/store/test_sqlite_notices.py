"""Notices of commits between processes on one SQLite file (O-17)."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest
import trio
import trio.testing

from fw_actors.runtime import SystemClock, SystemEntropy
from fw_actors.store import Store, executor, sqlite_engine, trio_sqlite
from fw_actors.store.trio_sqlite import CommitNotices, open_sqlite
from tests.fw_actors.store.store_kit import Gate


@pytest.fixture(autouse=True)
def polling_is_no_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "POLL_SECONDS", 3600.0)


def opened(path: Path) -> AbstractAsyncContextManager[Store]:
    return open_sqlite(path, clock=SystemClock(), entropy=SystemEntropy())


TELL = """
import sys, trio
from pathlib import Path
from fw_actors.runtime import SystemClock, SystemEntropy
from fw_actors.store.trio_sqlite import open_sqlite

async def main():
    path, clock, entropy = Path(sys.argv[1]), SystemClock(), SystemEntropy()
    async with open_sqlite(path, clock=clock, entropy=entropy) as store:
        await store.write(lambda tx: tx.raw("CREATE TABLE told (id INTEGER)"))
        store.tell_others()

trio.run(main)
"""


def tell(path: Path) -> None:
    subprocess.run([sys.executable, "-c", TELL, str(path)], check=True, timeout=60)


async def test_a_commit_that_is_told_is_noticed_without_a_poll(tmp_path: Path) -> None:
    """A commit that another process tells of is noticed at once (O-17)."""
    path, noticed = tmp_path / "fw.db", trio.Event()
    async with opened(path) as store:
        store.on_external_commit(noticed.set)
        await trio.to_thread.run_sync(tell, path)
        with trio.fail_after(30):
            await noticed.wait()


async def test_several_processes_are_told(tmp_path: Path) -> None:
    """Each process that serves the file is told (O-17)."""
    path = tmp_path / "fw.db"
    noticed = [trio.Event() for _ in range(3)]

    async def serve(event: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        async with opened(path) as store:
            store.on_external_commit(event.set)
            task_status.started()
            await event.wait()

    async with trio.open_nursery() as nursery:
        for event in noticed:
            await nursery.start(serve, event)
        await trio.to_thread.run_sync(tell, path)
        with trio.fail_after(30):
            for event in noticed:
                await event.wait()


@contextmanager
def notices_of(path: Path, receive: Callable[[], None] = lambda: None) -> Iterator[CommitNotices]:
    path.touch()
    notices = CommitNotices(path, receive)
    try:
        yield notices
    finally:
        notices.close()


def test_another_file_is_not_told(tmp_path: Path) -> None:
    """Notices belong to one file."""
    received: SimpleQueue[str] = SimpleQueue()
    one, other = tmp_path / "one.db", tmp_path / "other.db"
    with (
        notices_of(one, lambda: received.put("one")) as of_one,
        notices_of(other, lambda: received.put("other")) as of_other,
    ):
        of_one.listen()
        of_other.listen()
        of_other.send()
        assert received.get(timeout=30) == "other"
        assert received.empty()


def test_a_full_queue_of_notices_blocks_no_commit(tmp_path: Path) -> None:
    """A listener that does not read holds up nobody."""
    with (
        notices_of(tmp_path / "fw.db") as notices,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf,
    ):
        deaf.bind(trio_sqlite.socket_names(tmp_path / "fw.db")[0])
        for _ in range(10_000):
            notices.send()
        assert deaf.recv(10) == b"!"


def test_listeners_are_bounded_and_further_processes_poll(tmp_path: Path) -> None:
    """At most 8 processes are told; a further one hears nothing and polls."""
    received: SimpleQueue[int] = SimpleQueue()
    limit = trio_sqlite.MAX_LISTENERS
    with ExitStack() as stack:
        sender = stack.enter_context(notices_of(tmp_path / "fw.db"))
        for number in range(limit + 1):
            receive = partial(received.put, number)
            stack.enter_context(notices_of(tmp_path / "fw.db", receive)).listen()
        sender.send()
        assert {received.get(timeout=30) for _ in range(limit)} == set(range(limit))
        assert received.empty()


async def test_a_system_without_the_namespace_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store works without abstract sockets."""
    monkeypatch.setattr(trio_sqlite, "socket_names", lambda path: [])
    async with opened(tmp_path / "fw.db") as store:
        store.on_external_commit(lambda: None)
        store.tell_others()
        assert await store.write(lambda tx: 1) == 1


async def test_commits_of_one_run_of_the_loop_are_told_once(tmp_path: Path) -> None:
    """A hundred commits that are answered together are one notice, and the next ones another."""
    path = tmp_path / "fw.db"
    async with opened(path) as store:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.setblocking(False)
            listener.bind(trio_sqlite.socket_names(path)[0])
            for _ in range(2):
                for _ in range(100):
                    store.tell_others()
                await trio.testing.wait_all_tasks_blocked()
                assert listener.recv(10) == b"!"
                with pytest.raises(BlockingIOError):
                    listener.recv(10)


@pytest.mark.parametrize("notices", [1, 50])
async def test_notice_during_write_is_heard_after_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: int
) -> None:
    """The group of the write goes on meanwhile, and takes further writes (O-17)."""
    monkeypatch.setattr(sqlite_engine, "MAX_SECONDS", 60.0)
    path, noticed, gate = tmp_path / "fw.db", trio.Event(), Gate()
    async with opened(path) as store:
        store.on_external_commit(noticed.set)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("CREATE TABLE of_another_process (id INTEGER)")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.write, gate)
            await gate.entered()
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                for _ in range(notices):
                    sender.sendto(b"!", trio_sqlite.socket_names(path)[0])
            await trio.sleep(0.05)  # in which the notices arrive: nothing tells of it
            for number in range(5):
                nursery.start_soon(store.write, lambda tx, number=number: number)
            await trio.testing.wait_all_tasks_blocked()
            gate.open()
        with trio.fail_after(30):
            await noticed.wait()
        assert store.statistics().largest_group == 6
