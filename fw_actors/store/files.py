"""Creates files atomically, and opens databases without blocking cancellation.

Another process may hold the lock of a migration for half a minute, and a server may not answer: a
start that is cancelled meanwhile ends at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import trio

from fw_actors.errors import ConfigurationError

_BESIDE = ("", "-wal", "-shm", "-journal")  # what SQLite makes next to the file it writes


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield a draft beside `target`, for its owner only, that gets its name when the block ends.

    It is on the disk then. When the block raises, nothing is left behind.

    Raises: ConfigurationError when `target` exists or can't be written.
    """
    draft = _draft_of(target)
    try:
        # One that a kill has left may be a whole file by another name: it is not written into.
        remove_draft_of(target)
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            yield draft
            _sync(draft)
            os.link(draft, target)  # unlike a rename it never takes the place of another file
            _sync(target.parent)
        finally:
            remove_draft_of(target)
    except FileExistsError:
        raise ConfigurationError([f"{target} is there already; name another file."]) from None
    except OSError as error:
        raise ConfigurationError([f"{target} can't be written: {error.strerror}."]) from error


def remove_draft_of(target: Path) -> None:
    """Remove what a process that was killed has left beside `target`: half of it, or all."""
    for end in _BESIDE:
        Path(f"{_draft_of(target)}{end}").unlink(missing_ok=True)


def _draft_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.part")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


T = TypeVar("T")


async def open_in_thread(opening: Callable[[], T], close: Callable[[T], None]) -> T:
    """Run `opening` in a thread and return what it opened; raises what it raises.

    Cancelled, what it opens yet is closed again by `close`, by whoever comes last.
    """
    opened: list[T] = []
    ticket = [None]

    def is_first() -> bool:
        try:
            ticket.pop()  # atomic
        except IndexError:
            return False
        return True

    def work() -> T:
        found = opening()
        opened.append(found)
        if not is_first():
            close(found)
        return found

    try:
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    except trio.Cancelled:
        if not is_first():
            close(opened[0])
        raise
