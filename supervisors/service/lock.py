"""One serving process a site: an flock that the kernel takes back when its holder dies.

flock, since it needs no clean-up after a kill, and is not lost when some other part of the
process opens and closes the same file, as POSIX record locks are.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from supervisors.service.refusals import UnusableDataFolder


class ServeLock:
    """The lock of one site, held from a successful `acquire` until `release` or the process's end.

    A context manager that releases. Not re-entrant: a second lock on the same path, also in the
    same process, is refused.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Try once, without waiting; False when another process holds it, or looks at it.

        `is_held` takes a shared lock for a moment, so a caller tries for a little while.

        Raises: UnusableDataFolder.
        """
        if self.held:
            raise RuntimeError("this lock is held already")
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UnusableDataFolder(self._path, error) from error
        if not _try(descriptor, fcntl.LOCK_EX):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def release(self) -> None:
        """Give the lock back; without effect when it is not held."""
        if self._descriptor is not None:
            # Unlocked and not only closed: a child on its way to exec still holds a copy.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def is_held(path: Path) -> bool:
    """Whether some process serves the site; those who ask do not see each other.

    Raises: UnusableDataFolder, when the file is there and may not be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UnusableDataFolder(path, error) from error
    try:
        return not _try(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
