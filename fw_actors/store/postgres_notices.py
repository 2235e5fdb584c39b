"""Word of commits between processes on one PostgreSQL database: LISTEN and NOTIFY.

A NOTIFY inside a transaction makes all such commits wait for each other, disk included (measured:
16 writers 3,600 transactions/s without, 570 with). So it is sent after the commit, for several at
once, on a connection of its own; a process that dies in between owes the others a second at most,
since nobody waits for work without looking.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import ceil
from typing import Final

import psycopg
import trio

from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store.postgres_connection import (
    PostgresConnection,
    PostgresSettings,
    ReconnectBackoff,
    one_line,
)

CHANNEL: Final = "fw_commit"
BETWEEN_NOTICES_SECONDS: Final = 0.05

_LISTEN: Final = f"LISTEN {CHANNEL}".encode()
_NOTIFY: Final = f"NOTIFY {CHANNEL}".encode()
_log: Final = logging.getLogger(__name__)


class Notices:
    """A connection that receives notices of external commits and sends ours.

    Raises: psycopg.Error from every method when the connection is lost.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        # A NOTIFY writes a commit record; no caller waits for it.
        self._connection = PostgresConnection(replace(settings, durable=False))
        self._connection.execute(_LISTEN)

    def fileno(self) -> int:
        """Readable when there may be something to hear."""
        return self._connection.raw.fileno()

    def tell(self) -> None:
        """Tell the other processes that something was committed."""
        self._connection.execute(_NOTIFY)

    def heard(self) -> bool:
        """Return whether another process has sent a notice since the last call."""
        own = self._connection.raw.info.backend_pid
        told = [notice.pid != own for notice in self._connection.raw.notifies(timeout=0)]
        return any(told)  # read to the end before

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class InlineNotices:
    """Tells and hears on the caller's own task, for stores without threads.

    Args:
        noticed: called by `poll` when another process has committed.
    """

    def __init__(
        self, settings: PostgresSettings, notices: Notices, noticed: Callable[[], None]
    ) -> None:
        self._settings, self._notices, self._noticed = settings, notices, noticed

    def committed(self) -> None:
        """Tell the others."""
        with suppress(psycopg.Error):
            self._notices.tell()

    def poll(self) -> None:
        """Receive notices; a lost connection is replaced, and counts as a notice."""
        try:
            heard = self._notices.heard()
        except psycopg.Error:
            self._notices.close()
            with suppress(psycopg.Error):
                self._notices = Notices(self._settings)
            heard = True
        if heard:
            self._noticed()

    async def close(self) -> None:
        """Close the connection."""
        self._notices.close()


class NoticeThread:
    """Tells and hears in a thread of its own, over restarts of the server.

    Args:
        notices: the first connection.
        noticed: called on trio's thread when another process has committed, and once after a
            reconnection, since what was told meanwhile is lost.
    """

    def __init__(
        self, settings: PostgresSettings, notices: Notices, noticed: Callable[[], None]
    ) -> None:
        self._settings, self._noticed = settings, noticed
        self._notices: Notices | None = notices
        self._backoff = ReconnectBackoff()
        self._notify_pending = threading.Event()
        self._closing = threading.Event()
        self._notified_at = 0.0
        self._wake_socket, self._woken = socket.socketpair()
        self._wake_socket.setblocking(False)
        self._token = trio.lowlevel.current_trio_token()
        self._ended = trio.Event()
        threading.Thread(target=self._serve, name="fw-notices", daemon=True).start()

    def committed(self) -> None:
        """Tell the others soon. Called from any thread."""
        if not self._notify_pending.is_set():
            self._notify_pending.set()
            self._wake()

    def poll(self) -> None:
        """Do nothing: notices are received at once."""

    async def close(self) -> None:
        """Tell what is owed, and end."""
        self._closing.set()
        self._wake()
        with trio.CancelScope(shield=True):
            await self._ended.wait()

    def _wake(self) -> None:
        with suppress(OSError):  # a full buffer wakes as well; a closed one has ended
            self._wake_socket.send(b"!")

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                self._step()
            except Exception as error:  # any error: this thread serves until it is closed
                self._disconnect(error)
        if self._notices is not None:
            with suppress(psycopg.Error):
                if self._notify_pending.is_set():
                    self._notices.tell()
            self._notices.close()
        self._wake_socket.close()
        self._woken.close()
        self._send(self._ended.set)

    def _step(self) -> None:
        if self._notices is None:
            self._sleep([], self._backoff.remaining())
            if not self._closing.is_set() and self._backoff.remaining() <= 0:
                self._connect()
            return
        until_next = self._notified_at + BETWEEN_NOTICES_SECONDS - time.monotonic()
        if self._notify_pending.is_set() and until_next <= 0:
            self._notify_pending.clear()  # first, so that a later commit is notified again
            self._notices.tell()
            self._notified_at = time.monotonic()
        elif not self._heard(self._notices):
            self._sleep([self._notices], until_next if self._notify_pending.is_set() else None)

    def _heard(self, notices: Notices) -> bool:
        heard = notices.heard()
        if heard:
            self._send(self._noticed)
        return heard

    def _connect(self) -> None:
        self._notices = Notices(self._settings)
        self._backoff.succeeded()
        self._send(self._noticed)

    def _disconnect(self, error: Exception) -> None:
        if self._notices is not None:
            self._notices.close()
            self._notices = None
        self._notify_pending.set()  # the last notice may not have been sent
        if self._backoff.failed():
            _log.warning("lost the connection for notices of commits: %s", one_line(error))

    def _sleep(self, sources: list[Notices], seconds: float | None) -> None:
        """Wait for a commit of ours, something to hear, or the time."""
        wait = None if seconds is None else ceil(max(0.0, seconds) * MS_PER_SECOND)
        watched = select.poll()  # select() takes no descriptor above 1023
        watched.register(self._woken, select.POLLIN)
        for source in sources:
            watched.register(source, select.POLLIN)
        ready = watched.poll(wait)
        if any(descriptor == self._woken.fileno() for descriptor, _ in ready):
            self._woken.recv(4096)

    def _send(self, fn: Callable[[], None]) -> None:
        with suppress(trio.RunFinishedError):  # trio has ended
            self._token.run_sync_soon(fn)
