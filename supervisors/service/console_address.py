"""The console's socket: its path and the check of its owner. A separate module, so that clients
start fast."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Final, Protocol

_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid: Linux's ucred


def path_in(address_file: Path) -> Path:
    """Return the path that a service has written to `address_file`. Raises: OSError."""
    return Path(os.fsdecode(address_file.read_bytes()))


class HasOptions(Protocol):
    """A connected socket of any library."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...


def peer_user(connected: HasOptions) -> int:
    """Return the user id of the connected peer, as reported by the kernel."""
    size = _CREDENTIALS.size
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, user, _ = _CREDENTIALS.unpack(credentials)
    return int(user)
