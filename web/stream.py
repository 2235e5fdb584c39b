"""A connection's socket, with an end to every wait for a client that does not read."""

from __future__ import annotations

from typing import Final

import trio

SEND_SECONDS: Final = 30.0
PART_BYTES: Final = 256 * 1024
LINGER_SECONDS: Final = 1.0
LINGER_PARTS: Final = 64


class ClientStream(trio.abc.HalfCloseableStream):
    """A socket stream as Hypercorn's TCPServer wants it.

    Sends are shielded from cancellation: without a deadline, a client that stops reading would
    hold its request's place for ever, and the stop of the service too. So each part of an answer
    has `SEND_SECONDS`, and `cut` ends whatever is under way.
    """

    def __init__(self, inner: trio.SocketStream) -> None:
        self._inner = inner
        self.socket = inner.socket  # TCPServer asks it for the two addresses
        self._closing = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`, whatever cancels its sender: who is answered gets all of it.

        Raises: BrokenResourceError when the client takes none of it.
        """
        with memoryview(data) as whole:
            for start in range(0, len(whole), PART_BYTES):
                deadline = trio.current_time() + SEND_SECONDS
                with trio.CancelScope(deadline=deadline, shield=True) as scope:
                    await self._send(whole[start : start + PART_BYTES])
                if scope.cancelled_caught:
                    raise trio.BrokenResourceError("The client does not read.")

    async def _send(self, part: memoryview) -> None:
        try:
            await self._inner.send_all(part)
        except trio.BusyResourceError:  # Hypercorn is just saying that nothing more will come
            raise trio.BrokenResourceError("The connection is closing.") from None

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room to send."""
        await self._inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return what has arrived. Raises: ClosedResourceError while and after it closes."""
        if self._closing:
            raise trio.ClosedResourceError
        return await self._inner.receive_some(max_bytes)

    async def send_eof(self) -> None:
        """Say that nothing more will be sent."""
        await self._inner.send_eof()

    async def aclose(self) -> None:
        """Close; first let what the client is still sending run out, for a moment.

        TCP resets a connection that is closed with bytes unread, and the client would lose the
        answer that it has not read yet.
        """
        self._closing = True
        try:
            with trio.move_on_after(LINGER_SECONDS):
                for _ in range(LINGER_PARTS):
                    if not await self._inner.receive_some(PART_BYTES):
                        break
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            pass  # gone already, or its reader is at work and sees the end itself
        finally:
            await self._inner.aclose()

    def cut(self) -> None:
        """Close at once; whoever waits on it, shielded or not, gets ClosedResourceError."""
        self.socket.close()
