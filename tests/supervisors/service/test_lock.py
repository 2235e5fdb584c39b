"""One serving process a site (O-30)."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from supervisors.service.site_files import ServeLock, SitePaths, UnusableDataFolder, is_held

HOLD = """
import pathlib, subprocess, sys
from supervisors.service.site_files import ServeLock
lock = ServeLock(pathlib.Path(sys.argv[1]))
print(lock.acquire(), flush=True)
if "parent" in sys.argv:
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=2, close_fds=False)
    print(child.pid, flush=True)
sys.stdin.read()
"""


def holder(path: Path, *options: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD, str(path), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def test_serve_lock_is_refused_until_its_holder_is_killed(paths: SitePaths) -> None:
    first = holder(paths.lock)
    with ServeLock(paths.lock) as lock:
        assert not lock.acquire()
        assert is_held(paths.lock)
        first.kill()
        first.communicate()
        assert not is_held(paths.lock)
        assert lock.acquire()


def test_serve_lock_is_exclusive_within_a_process(paths: SitePaths) -> None:
    with ServeLock(paths.lock) as first, ServeLock(paths.lock) as second:
        assert first.acquire()
        assert not second.acquire()
        first.release()
        assert second.acquire()


def test_serve_lock_is_released_by_its_block(paths: SitePaths) -> None:
    with ServeLock(paths.lock) as lock:
        lock.acquire()
    assert not is_held(paths.lock)


def test_serve_lock_is_not_inherited_by_children(paths: SitePaths) -> None:
    first = holder(paths.lock, "parent")
    assert first.stdout is not None
    child = int(first.stdout.readline())
    first.kill()
    first.communicate()
    try:
        os.kill(child, 0)  # it still runs
        assert not is_held(paths.lock)
    finally:
        os.kill(child, signal.SIGKILL)


def test_is_held_takes_no_lock_and_makes_no_file(paths: SitePaths) -> None:
    assert not is_held(paths.lock)
    assert not paths.lock.exists()
    assert not is_held(paths.folder / "no" / "such" / "folder")


def test_serve_lock_file_is_private(paths: SitePaths) -> None:
    with ServeLock(paths.lock) as lock:
        lock.acquire()
    assert stat.S_IMODE(paths.lock.stat().st_mode) == 0o600


def test_unusable_data_folder_is_reported(tmp_path: Path) -> None:
    blocked = SitePaths(tmp_path)
    blocked.data.write_text("a file where the folder has to be")
    with pytest.raises(UnusableDataFolder, match="data: File exists"):
        blocked.prepare()
    with (
        ServeLock(blocked.lock) as lock,
        pytest.raises(UnusableDataFolder, match="Not a directory"),
    ):
        lock.acquire()
