"""The record of a serving process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from supervisors.service import site_files
from supervisors.service.process import ServingRecord, ServingState, start_time
from supervisors.service.run import KEEP_SECONDS, OwnPidFile
from supervisors.service.site_files import SitePaths, UnusableDataFolder


def test_pid_file_is_read_as_written(paths: SitePaths) -> None:
    said = site_files.own_pid_file("1.2", "http://127.0.0.1:8000")
    site_files.write(paths.pid, said)
    assert site_files.read(paths.pid) == said
    assert (said.pid, said.start_ticks) == (os.getpid(), start_time(os.getpid()))


def test_own_pid_file_keeps_address_and_processes(paths: SitePaths) -> None:
    """Each of its two writers sets its own part; `began` stays the start of the service."""
    own = OwnPidFile(paths.pid, "1.2", 2)
    own.write()
    first = site_files.read(paths.pid)
    assert first is not None
    assert (first.url, first.processes, first.serving) == (None, 2, ())
    ready = ServingRecord(1, ServingState.READY, 7, 8), ServingRecord(2, ServingState.STARTING)
    own.serving(ready)
    own.accepting("http://127.0.0.1:8000")
    now = site_files.read(paths.pid)
    assert now is not None
    assert (now.url, now.serving, now.began) == ("http://127.0.0.1:8000", ready, first.began)
    own.remove()
    own.serving(ready)
    assert site_files.read(paths.pid) is None  # nothing has changed, so nothing is written


@pytest.mark.parametrize("content", [None, b"{}"])
async def test_pid_file_of_a_running_service_is_restored(
    paths: SitePaths, content: bytes | None, autojump_clock: MockClock
) -> None:
    """O-49: without it no command finds the process, not even to stop it."""
    own = OwnPidFile(paths.pid, "1.2")
    own.accepting("http://127.0.0.1:8000")
    known = site_files.read(paths.pid)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(own.keep)
        paths.data.rename(paths.data.with_name("moved"))  # it cannot be written either
        await trio.sleep(2 * KEEP_SECONDS)
        paths.data.with_name("moved").rename(paths.data)
        if content is None:
            paths.pid.unlink()
        else:
            paths.pid.write_bytes(content)
        await trio.sleep(2 * KEEP_SECONDS)
        nursery.cancel_scope.cancel()
    assert site_files.read(paths.pid) == known


def test_pid_file_is_private_and_replaced_whole(paths: SitePaths) -> None:
    paths.pid.write_text("old " * 1000)
    paths.pid.chmod(0o644)
    site_files.write(paths.pid, site_files.own_pid_file("1.2"))
    assert stat.S_IMODE(paths.pid.stat().st_mode) == 0o600
    assert [path.name for path in paths.data.iterdir()] == [paths.pid.name]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"123\n",
        b"{",
        b'{"pid": "7"}',
        b"[]",
        b'{"pid": 1}',
        b"\xff\xfe",
        b'{"version": "\xff"}',
    ],
)
def test_pid_file_with_other_content_is_ignored(paths: SitePaths, content: bytes) -> None:
    paths.pid.write_bytes(content)
    assert site_files.read(paths.pid) is None


def test_pid_file_may_be_removed_twice(paths: SitePaths) -> None:
    site_files.write(paths.pid, site_files.own_pid_file("1.2"))
    site_files.remove(paths.pid)
    site_files.remove(paths.pid)
    assert site_files.read(paths.pid) is None


def test_pid_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnusableDataFolder, match="No such file or directory"):
        site_files.write(tmp_path / "gone" / "serve.json", site_files.own_pid_file("1.2"))
