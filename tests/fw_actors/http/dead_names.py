"""A name server on a real socket that never answers queries for dead names."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import trio

from fw_actors.http import Address

GIVES_UP_SECONDS = 120.0  # as a resolver does, long after every deadline of a test


class DeadNames:
    """Answers 127.0.0.1, but never answers for names that begin with `dead`.

    `lookup` blocks in its thread as the system's look-up does. A question is a datagram with the
    name; `give_up`, or leaving the block, answers what was swallowed and what comes later, so that
    no thread is left behind.
    """

    def __init__(self) -> None:
        self._server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._server.bind(("127.0.0.1", 0))
        self._place = self._server.getsockname()
        self._changed = threading.Condition()
        self._swallowed: list[tuple[str, int]] = []
        self._gives_up = False
        self._thread = threading.Thread(target=self._serve)

    @property
    def swallowed(self) -> int:
        """The number of queries that were not answered so far."""
        with self._changed:
            return len(self._swallowed)

    async def have_swallowed(self, count: int) -> None:
        """Wait until so many questions were swallowed."""

        def wait() -> None:
            with self._changed:
                assert self._changed.wait_for(lambda: len(self._swallowed) >= count, 60)

        await trio.to_thread.run_sync(wait)

    def give_up(self) -> None:
        """Answer all questions, also those to come, that there is no answer."""
        with self._changed:
            self._gives_up = True
            for waiting in self._swallowed:
                self._server.sendto(b"", waiting)
            self._swallowed.clear()

    def lookup(self, host: str, port: int) -> Sequence[Address]:
        """Ask for a name, and wait."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(GIVES_UP_SECONDS)
            asking.sendto(host.encode(), self._place)
            answer = asking.recv(100).decode()
        if not answer:
            raise socket.gaierror(socket.EAI_AGAIN, "the name server gave up")
        return [(socket.AF_INET, (answer, port))]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.give_up()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as telling:
            telling.sendto(b"", self._place)
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        while True:
            name, place = self._server.recvfrom(300)
            if not name:
                return
            if not name.startswith(b"dead"):
                self._server.sendto(b"127.0.0.1", place)
                continue
            with self._changed:
                if self._gives_up:
                    self._server.sendto(b"", place)
                else:
                    self._swallowed.append(place)
                    self._changed.notify_all()
