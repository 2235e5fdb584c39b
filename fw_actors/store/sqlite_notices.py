"""Notices of commits between processes on one SQLite file: datagrams on Unix sockets.

A process that serves the file polls it once a second for commits of others. A notice only makes it
poll at once, so that one that is lost, or sent by a stranger, does no harm. The sockets have names
in Linux's abstract namespace: there is no file that a killed process would leave behind. Where
there is no such namespace, or the processes don't share one, polling remains.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_LISTENERS: Final = 8
"""Processes that listen for notices of one file; further ones poll."""


def socket_names(path: Path) -> list[bytes]:
    """Return the names of the sockets of the file's listeners."""
    if sys.platform != "linux":
        return []
    file = os.stat(path)
    return [b"\0fw-%d-%d-%d" % (file.st_dev, file.st_ino, n) for n in range(MAX_LISTENERS)]


class CommitNotices:
    """Sends notices of this process's commits, and receives those of others once it listens.

    Args:
        path: of the database; it exists.
        received: called in another thread for one or more notices.
    """

    def __init__(self, path: Path, received: Callable[[], None]) -> None:
        self._names = socket_names(path)
        self._received = received
        self._sender: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._closing = False

    def send(self) -> None:
        """Tell the listening processes that something was committed."""
        if self._sender is None:
            self._sender = _datagram_socket()
        for name in self._names:
            with suppress(OSError):  # nobody has this name, or a full queue that says it already
                self._sender.sendto(b"!", name)

    def listen(self) -> None:
        """Receive notices from now on; the second call does nothing."""
        if self._listener is not None:
            return
        for name in self._names:
            listener = _datagram_socket()
            try:
                listener.bind(name)
            except OSError:
                listener.close()
                continue
            self._listener = listener
            listener.setblocking(True)
            threading.Thread(
                target=self._serve, args=(listener,), name="fw-notices", daemon=True
            ).start()
            return

    def close(self) -> None:
        """End the listening."""
        self._closing = True
        if self._listener is not None:
            self.send()  # wakes the thread
        if self._sender is not None:
            self._sender.close()

    def _serve(self, listener: socket.socket) -> None:
        with listener:
            while not self._closing:
                listener.recv(1)
                with suppress(BlockingIOError):
                    while True:
                        listener.recv(1, socket.MSG_DONTWAIT)
                if not self._closing:
                    self._received()


def _datagram_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made
