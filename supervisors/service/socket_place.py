"""Where a Unix socket lies that only its service's own user opens, and where that is told.

Not beside the data: a kill leaves a socket where it was, and many a tool copies no folder that has
one. So it has a folder of its own, and its path stands in a file where who looks for it knows it.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
BACKLOG: Final = 8
_NAME: Final = "socket"


@contextmanager
def listening(told: Path, run_folder: Path | None = None) -> Iterator[socket.socket]:
    """Listen at a path that is written to `told`, in a new folder, 0700, of `run_folder` or else
    of the system's folder for temporary files.

    The caller is the only one who writes `told`: what stands there is a killed process's, and goes
    with its socket.

    Raises: OSError, when there is no place for it.
    """
    forget(told)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.setblocking(False)
        path = Path(tempfile.mkdtemp(prefix="fw-console-", dir=run_folder)) / _NAME
        try:
            listener.bind(str(path))  # nobody else enters the folder meanwhile
            path.chmod(PRIVATE)
            listener.listen(BACKLOG)
            with open(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
                file.write(os.fsencode(path))
            yield listener
        finally:
            _remove(path)
            told.unlink(missing_ok=True)


def path_in(told: Path) -> Path:
    """Return the path that a service has written to `told`. Raises: OSError."""
    return Path(os.fsdecode(told.read_bytes()))


def forget(told: Path) -> None:
    """Remove the socket that `told` names, its folder, and `told`."""
    with suppress(OSError):
        path = path_in(told)
        if path.name == _NAME:  # and nothing else that may have been written there
            _remove(path)
    told.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    with suppress(OSError):  # somebody else has put something there
        path.parent.rmdir()
