"""The channel between a process of the service and its supervisor: requests in both directions.

A frame is its length in four bytes, then msgpack. Either side may send requests; answers may come
in any order. A side that does not read never blocks the other: beyond a limit, frames for it are
dropped, and dropped requests time out.
"""

from __future__ import annotations

import math
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec
import trio

MAX_WAITING: Final = 256
"""The maximum number of frames that the other side has not read; further ones are dropped."""
LONGEST_FRAME: Final = 16 << 20
_LENGTH: Final = struct.Struct("!I")
_RECEIVE_BYTES: Final = 64 << 10

Handler = Callable[[str, Any], Awaitable[object]]
"""Answers a request, given its name and its argument, in types of msgpack."""


class ChannelFailed(Exception):
    """Raised if a request gets no answer: the other side has ended, is too slow, or failed."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A request, its answer, or its failure; `id` relates them, and 0 means that no answer is
    expected."""

    kind: Literal["ask", "answer", "failed"]
    id: int
    name: str
    body: Any = None


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Frame)


class ControlChannel:
    """One side of the channel; `run` serves it until the other side has ended."""

    def __init__(self, own: socket.socket, handle: Handler) -> None:
        """`own` is one of a pair of Unix stream sockets."""
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(own))
        self._handle = handle
        self._outgoing, self._to_send = trio.open_memory_channel[bytes](MAX_WAITING)
        self._waiting: dict[int, tuple[trio.Event, list[Frame]]] = {}
        self._ids = 0
        self.closed = trio.Event()
        """Set when the other side has ended."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send and receive; return when the other side has ended."""
        try:
            async with self._stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._send_all)
                task_status.started()
                await self._receive_all(nursery)
                nursery.cancel_scope.cancel()
        finally:
            self.closed.set()
            for answered, _ in self._waiting.values():
                answered.set()

    async def ask(self, name: str, body: object = None, *, seconds: float = math.inf) -> Any:
        """Send a request and return the answer. Raises: ChannelFailed."""
        if self.closed.is_set():
            raise ChannelFailed("the other process has gone")
        self._ids += 1
        id, answered, found = self._ids, trio.Event(), list[Frame]()
        self._waiting[id] = answered, found
        try:
            self._put(Frame("ask", id, name, body))
            with trio.move_on_after(seconds):
                await answered.wait()
        finally:
            del self._waiting[id]
        if not found:
            raise ChannelFailed(f"the other process did not answer {name!r}")
        if found[0].kind == "failed":
            raise ChannelFailed(found[0].body)
        return found[0].body

    def tell(self, name: str, body: object = None) -> None:
        """Send a request that is not answered; it may be lost if the other side does not read."""
        self._put(Frame("ask", 0, name, body))

    def _put(self, frame: Frame) -> None:
        content = _ENCODER.encode(frame)
        if len(content) <= LONGEST_FRAME:
            with suppress(trio.WouldBlock):  # the request of a dropped frame times out
                self._outgoing.send_nowait(_LENGTH.pack(len(content)) + content)

    async def _send_all(self) -> None:
        try:
            async for content in self._to_send:
                await self._stream.send_all(content)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # `_receive_all` notices it too

    async def _receive_all(self, nursery: trio.Nursery) -> None:
        buffer = bytearray()
        while True:
            while len(buffer) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer)
                end = _LENGTH.size + length
                if len(buffer) < end:
                    break
                frame = _DECODER.decode(buffer[_LENGTH.size : end])
                del buffer[:end]
                self._take(frame, nursery)
            try:
                part = await self._stream.receive_some(_RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not part:
                return
            buffer += part

    def _take(self, frame: Frame, nursery: trio.Nursery) -> None:
        if frame.kind == "ask":
            nursery.start_soon(self._answer, frame)
        elif frame.id in self._waiting:
            answered, found = self._waiting[frame.id]
            found.append(frame)
            answered.set()

    async def _answer(self, asked: Frame) -> None:
        try:
            body = await self._handle(asked.name, asked.body)
        except Exception as error:
            if not asked.id:
                raise
            self._put(Frame("failed", asked.id, asked.name, f"{type(error).__name__}: {error}"))
        else:
            if asked.id:
                self._put(Frame("answer", asked.id, asked.name, body))
