"""The files that register the workers of a site on this machine: `data/workers/*.json`.

Each worker has one, which is locked while it runs. This identifies the file of a killed worker even
if another process has its number now, and also from another container.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from supervisors.service import site_files
from supervisors.service.site_files import PidFile, SitePaths, UnusableDataFolder, is_held


class RunningWorker(NamedTuple):
    """A running worker, and the time when it began (seconds since the epoch)."""

    process: PidFile
    began: float


@contextmanager
def registered(paths: SitePaths, version: str, url: str | None) -> Iterator[None]:
    """Register this process as a worker until the block ends.

    Raises: UnusableDataFolder.
    """
    record = site_files.own_pid_file(version, url)
    file = paths.workers / f"{record.pid}-{record.born or 0}.json"
    try:
        descriptor = _locked_file(file, msgspec.json.encode(record) + b"\n")
    except OSError as error:
        raise UnusableDataFolder(file, error) from error
    try:
        yield
    finally:
        site_files.remove(file)
        os.close(descriptor)


def _locked_file(file: Path, content: bytes) -> int:
    """Write a file and return its descriptor; it is locked before it is visible."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    draft = file.with_suffix(".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, content)
        os.replace(draft, file)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def running_workers(paths: SitePaths) -> list[RunningWorker]:
    """Return the workers of the site on this machine, in the order of their starts.

    Files of workers that were killed are removed. Raises: UnusableDataFolder.
    """
    found = []
    for file in paths.workers.glob("*.json"):
        if not is_held(file):
            site_files.remove(file)
            continue
        record = site_files.read(file)
        with contextlib.suppress(OSError):  # the worker has ended meanwhile
            if record is not None:
                found.append(RunningWorker(record, file.stat().st_mtime))
    return sorted(found, key=lambda worker: worker.began)
