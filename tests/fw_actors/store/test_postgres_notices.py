"""The thread that sends and receives notices of commits survives errors of its connection."""

from __future__ import annotations

import fcntl
import os
import resource
import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from fw_actors.store import postgres
from fw_actors.store.postgres import NoticeThread

BEYOND_SELECT = 1024  # select(2) takes no descriptor from here on


class SocketConnection:
    """Stands in for a connection: readable after `say`; `descriptor` is `lowest` or higher."""

    def __init__(self, lowest: int = 0) -> None:
        mine, self._theirs = socket.socketpair()
        self.descriptor = fcntl.fcntl(mine, fcntl.F_DUPFD_CLOEXEC, lowest)
        mine.close()
        self.fault: Exception | None = None

    def say(self) -> None:
        self._theirs.send(b"!")

    def fileno(self) -> int:
        return self.descriptor

    def send(self) -> None:
        if self.fault is not None:
            raise self.fault

    def heard(self) -> bool:
        try:
            return bool(os.read(self.descriptor, 4096)) if self._is_readable() else False
        finally:
            if self.fault is not None:
                raise self.fault

    def _is_readable(self) -> bool:
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        os.close(self.descriptor)
        self._theirs.close()


@pytest.fixture
def _many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * BEYOND_SELECT, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class NoticeCounter:
    """Counts notices, and lets a test wait for the next one."""

    def __init__(self) -> None:
        self.count = 0
        self._came = trio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._came.set()
        self._came = trio.Event()

    async def once_more(self) -> None:
        before = self.count
        while self.count == before:
            await self._came.wait()


@pytest.mark.usefixtures("_many_descriptors")
async def test_notice_thread_handles_descriptors_beyond_select_limit() -> None:
    wire, noticed = SocketConnection(BEYOND_SELECT), NoticeCounter()
    settings: Any = None
    connection: Any = wire
    thread = NoticeThread(settings, connection, noticed)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(noticed.once_more)
        await trio.testing.wait_all_tasks_blocked()
        wire.say()
    assert noticed.count == 1
    await thread.close()  # the thread was still running


async def test_notice_thread_reconnects_on_unexpected_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, noticed = SocketConnection(), SocketConnection(), NoticeCounter()
    monkeypatch.setattr(postgres, "Notices", lambda settings: second)
    settings: Any = None
    connection: Any = first
    thread = NoticeThread(settings, connection, noticed)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(noticed.once_more)
        await trio.testing.wait_all_tasks_blocked()
        first.fault = ValueError("filedescriptor out of range in select()")
        thread.committed()
    assert noticed.count == 1, "a new connection was made, and notices sent meanwhile are counted"
    await thread.close()
