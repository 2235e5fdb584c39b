"""A connection's socket, with an end to every wait for a client that does not read."""

from __future__ import annotations

import os
from typing import Final

import trio

SEND_SECONDS: Final = 30.0
PART_BYTES: Final = 256 * 1024


class ClientStream(trio.abc.HalfCloseableStream):
    """A socket stream whose sends and reads all have an end.

    Sends are shielded from cancellation: without a deadline, a client that stops reading would
    hold its connection for ever, and the stop of the service too. So each part of an answer has
    `SEND_SECONDS`, and `cut` ends whatever is under way.
    """

    def __init__(self, inner: trio.SocketStream) -> None:
        self._inner = inner
        self.socket = inner.socket

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`, whatever cancels its sender: who is answered gets all of it.

        No checkpoint where all of it goes at once.

        Raises: BrokenResourceError when the client takes none of it.
        """
        await self.send_rest(data, self.send_now(data))

    async def send_rest(self, data: bytes | bytearray | memoryview, sent: int) -> None:
        """Send what is left of `data` after its first `sent` bytes.

        Raises: BrokenResourceError when the client takes none of it.
        """
        with memoryview(data) as whole:
            for start in range(sent, len(whole), PART_BYTES):
                deadline = trio.current_time() + SEND_SECONDS
                with trio.CancelScope(deadline=deadline, shield=True) as scope:
                    await self._send(whole[start : start + PART_BYTES])
                if scope.cancelled_caught:
                    raise trio.BrokenResourceError("The client does not read.")

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Send what goes without waiting: nearly always all of it; return how many bytes that were.

        By way of trio's stream an answer waits for a pass of the scheduler, and costs several
        times as much.
        """
        try:
            return os.write(self.socket.fileno(), data)
        except OSError:
            return 0  # no room, or gone: found out below

    async def _send(self, part: memoryview) -> None:
        try:
            await self._inner.send_all(part)
        except trio.BusyResourceError:  # nothing more will come: it is just being said
            raise trio.BrokenResourceError("The connection is closing.") from None

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room to send."""
        await self._inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return what has arrived. Raises: ClosedResourceError while and after it closes.

        Waits first: a client sends its next request when it has the answer to the last one.
        """
        while self.socket.fileno() >= 0:
            await trio.lowlevel.wait_readable(self.socket)
            try:
                return os.read(self.socket.fileno(), max_bytes or PART_BYTES)
            except BlockingIOError:
                continue  # epoll may be wrong: a segment with a bad checksum, say
            except OSError:
                break
        raise trio.ClosedResourceError

    async def send_eof(self) -> None:
        """Say that nothing more will be sent."""
        await self._inner.send_eof()

    async def aclose(self) -> None:
        """Close. Unread bytes make it a reset: read what the client still sends before."""
        await self._inner.aclose()

    def cut(self) -> None:
        """Close at once; whoever waits on it, shielded or not, gets ClosedResourceError."""
        self.socket.close()
