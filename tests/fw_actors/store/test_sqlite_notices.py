"""Notices of commits between processes on one SQLite file (O-17)."""

from __future__ import annotations

import errno
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from fw_actors.runtime import SystemClock, SystemEntropy
from fw_actors.store import Store, executor, sqlite_engine, trio_sqlite
from fw_actors.store.trio_sqlite import CommitNotices, open_sqlite
from tests.fw_actors.store.store_kit import TransactionGate


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
        await store.write(lambda tx: tx.raw("CREATE TABLE other (id INTEGER)"))
        store.notify_others()

trio.run(main)
"""


def tell(path: Path) -> None:
    subprocess.run([sys.executable, "-c", TELL, str(path)], check=True, timeout=60)


async def test_commit_notice_reaches_store_without_polling(tmp_path: Path) -> None:
    """A notice from another process is received at once (O-17)."""
    path, noticed = tmp_path / "fw.db", trio.Event()
    async with opened(path) as store:
        store.on_external_commit(noticed.set)
        await trio.to_thread.run_sync(tell, path)
        with trio.fail_after(30):
            await noticed.wait()


async def test_commit_notice_reaches_every_open_store(tmp_path: Path) -> None:
    """Each process that serves the file gets the notice (O-17)."""
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


def test_commit_notice_is_limited_to_own_file(tmp_path: Path) -> None:
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


def test_commit_notices_never_block_sender(tmp_path: Path) -> None:
    """A listener that does not read blocks no sender."""
    with (
        notices_of(tmp_path / "fw.db") as notices,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf,
    ):
        deaf.bind(trio_sqlite.socket_names(tmp_path / "fw.db")[0])
        for _ in range(10_000):
            notices.send()
        assert deaf.recv(10) == b"!"


def test_commit_notice_is_skipped_at_limit_of_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Store` sends it in a callback of trio's loop, which an exception would end."""

    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    received: SimpleQueue[str] = SimpleQueue()
    with notices_of(tmp_path / "fw.db", lambda: received.put("notice")) as notices:
        notices.listen()
        with monkeypatch.context() as patched:
            patched.setattr(socket, "socket", refuse)
            notices.send()
        notices.send()
        assert received.get(timeout=30) == "notice"


def test_commit_notice_listeners_are_bounded(tmp_path: Path) -> None:
    """At most 8 processes get notices; a further one polls."""
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


def test_process_that_begins_to_listen_is_notified_after_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No notice goes to a free name for a tenth of a second after one that nobody received."""
    now = [100.0]
    monkeypatch.setattr(trio_sqlite, "time", SimpleNamespace(monotonic=lambda: now[0]))
    received: SimpleQueue[str] = SimpleQueue()
    path = tmp_path / "fw.db"
    with (
        notices_of(path) as sender,
        notices_of(path, lambda: received.put("early")) as early,
        notices_of(path, lambda: received.put("late")) as late,
    ):
        early.listen()
        sender.send()
        assert received.get(timeout=30) == "early"
        late.listen()
        sender.send()
        assert received.get(timeout=30) == "early"
        now[0] += trio_sqlite.UNHEARD_SECONDS
        sender.send()
        assert {received.get(timeout=30), received.get(timeout=30)} == {"early", "late"}
        assert received.empty()


def test_notices_listener_ends_though_its_name_was_unheard(tmp_path: Path) -> None:
    with notices_of(tmp_path / "fw.db") as notices:
        notices.send()
        others = set(threading.enumerate())  # the listener of an earlier test may be ending
        notices.listen()
        (listening,) = [
            each
            for each in threading.enumerate()
            if each.name == "fw-notices" and each not in others
        ]
    listening.join(30)
    assert not listening.is_alive()


async def test_store_works_without_abstract_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store works without abstract sockets."""
    monkeypatch.setattr(trio_sqlite, "socket_names", lambda path: [])
    async with opened(tmp_path / "fw.db") as store:
        store.on_external_commit(lambda: None)
        store.notify_others()
        assert await store.write(lambda tx: 1) == 1


async def test_commit_notices_are_merged_per_event_loop_run(tmp_path: Path) -> None:
    """A hundred commits answered together cause one notice, and the next ones another."""
    path = tmp_path / "fw.db"
    async with opened(path) as store:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.setblocking(False)
            listener.bind(trio_sqlite.socket_names(path)[0])
            for _ in range(2):
                for _ in range(100):
                    store.notify_others()
                await trio.testing.wait_all_tasks_blocked()
                assert listener.recv(10) == b"!"
                with pytest.raises(BlockingIOError):
                    listener.recv(10)


@pytest.mark.parametrize("notices", [1, 50])
async def test_notice_during_write_is_heard_after_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: int
) -> None:
    """The group of the write goes on meanwhile, and takes further writes (O-17)."""
    monkeypatch.setattr(sqlite_engine, "MAX_GROUP_SECONDS", 60.0)
    path, noticed, gate = tmp_path / "fw.db", trio.Event(), TransactionGate()
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
