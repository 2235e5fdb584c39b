"""Notices clients that disconnect while the server does not read from them."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio
from trio.socket import SocketType

EVENTS_AT_ONCE: Final = 256


class DisconnectWatch:
    """Calls a function when the peer of a socket closes it, or the half in which it sends.

    One epoll instance reports this for all sockets, each registered once for its lifetime
    (edge-triggered): a request costs nothing, and no byte has to be read to notice its client's
    end. Where there is no epoll (systems other than Linux), or the kernel has no memory for one
    more socket, a disconnect is noticed only when the response is sent.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._running = trio.Lock()

    def add(self, socket: SocketType, disconnected: Callable[[], None]) -> None:
        """Call `disconnected` once, on trio's thread, when the peer of `socket` disconnects."""
        if self._epoll is not None:
            self._callbacks[socket.fileno()] = disconnected
            with suppress(OSError):
                self._epoll.register(socket.fileno(), select.EPOLLRDHUP | select.EPOLLET)

    def discard(self, socket: SocketType) -> None:
        """Forget a socket before it is closed, which removes it from the epoll instance."""
        self._callbacks.pop(socket.fileno(), None)

    async def run(self) -> None:
        """Call the functions, until cancelled. Of several calls, one runs and the others wait."""
        if self._epoll is None:
            return
        async with self._running:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                for descriptor, _ in self._epoll.poll(0, EVENTS_AT_ONCE):
                    if (disconnected := self._callbacks.pop(descriptor, None)) is not None:
                        disconnected()
