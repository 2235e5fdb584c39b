"""A request's body: kept up to a limit while it arrives, and never waited for without an end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import trio
from quart_trio.wrappers.request import TrioBody

from fw_actors.errors import PayloadTooLargeError, RequestTimeoutError

KIB: Final = 1024
MIB: Final = 1024 * KIB
MOST_KEPT: Final = MIB
MOST_DROPPED: Final = 8 * MIB
SECONDS: Final = 30.0
LINGER_SECONDS: Final = 2.0


class LimitedBody(TrioBody):
    """Takes the place of Quart's body, which waits for the end before it says "too large".

    Quart calls `append` and `set_complete` as the parts arrive, whatever the handler does; what
    goes beyond the limit is counted and dropped, so that memory stays bounded.
    """

    def __init__(
        self, expected_content_length: int | None = None, max_content_length: int | None = None
    ) -> None:
        self._kept = bytearray()
        self._limit = MOST_KEPT
        self._received = 0
        self._ended = False
        self._keeping = True
        self._moved = trio.Event()

    @property
    def ended(self) -> bool:
        """Say whether all of it has arrived."""
        return self._ended

    def append(self, data: bytes) -> None:
        """Take a part that has arrived."""
        self._received += len(data)
        if self._keeping and self._received <= self._limit:
            self._kept += data
        else:
            self._kept.clear()
        self._moved.set()

    def set_complete(self) -> None:
        """Take note that nothing follows."""
        self._ended = True
        self._moved.set()

    def set_result(self, data: bytes) -> None:
        """Take all of it at once."""
        self.append(data)
        self.set_complete()

    def clear(self) -> None:
        """Forget what is kept."""
        self._kept.clear()

    def __await__(self) -> Generator[Any, None, Any]:
        return self.read(self._limit).__await__()

    async def read(self, limit: int, seconds: float = SECONDS) -> bytes:
        """Return the body once it is whole.

        Raises: PayloadTooLargeError as soon as more than `limit` bytes have come;
            RequestTimeoutError when it is not whole `seconds` from now.
        """
        self._limit = limit
        if not self._ended:  # most often it came with the head
            await self._arrival(seconds)
        if self._received > limit:
            self._kept.clear()
            raise PayloadTooLargeError(limit)
        if not self._ended:
            raise RequestTimeoutError
        return bytes(self._kept)

    async def drop(self, seconds: float = LINGER_SECONDS) -> None:
        """Let what still arrives arrive, for a while, and forget it.

        Whoever is answered and cut off in the midst of sending may never read the answer: TCP
        resets a connection that is closed with bytes unread.
        """
        self._kept.clear()
        self._limit = MOST_DROPPED
        self._keeping = False
        await self._arrival(seconds)

    async def _arrival(self, seconds: float) -> None:
        """Wait until all is there, or more than the limit, or the time is over."""
        with trio.move_on_after(seconds):
            while not self._ended and self._received <= self._limit:
                await self._moved.wait()
                self._moved = trio.Event()
