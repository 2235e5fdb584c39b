"""A request's body: kept up to a limit while it arrives, and due at a least rate."""

from __future__ import annotations

from typing import Final

import trio
from quart_trio.wrappers.request import TrioBody

from fw_actors.errors import PayloadTooLargeError, RequestTimeoutError

KIB: Final = 1024
MIB: Final = 1024 * KIB
MOST_KEPT: Final = MIB
MOST_DROPPED: Final = 8 * MIB
FIRST_SECONDS: Final = 10.0
LEAST_BYTES_PER_SECOND: Final = 500
MOST_SECONDS: Final = 30.0
LINGER_SECONDS: Final = 2.0
NONE_READ: Final = -1


def body_due(began: float, received: int) -> float:
    """Return when more of an unfinished body must have come, `received` bytes after `began`.

    10 s at first, a second more for each 500 bytes, and 30 s for all of it: what Apache's
    mod_reqtimeout calls a minimum rate.
    """
    return began + min(FIRST_SECONDS + received / LEAST_BYTES_PER_SECOND, MOST_SECONDS)


class LimitedBody(TrioBody):
    """Takes the place of Quart's body, which keeps all that comes.

    The connection appends the parts as they arrive. What goes beyond the limit is counted and
    dropped, so that memory stays bounded.
    """

    def __init__(
        self, expected_content_length: int | None = None, max_content_length: int | None = None
    ) -> None:
        self._kept = bytearray()
        self._limit = MOST_KEPT
        self._received = 0
        self._keeping = True
        self._late = False
        self._ended = False
        self._moved: trio.Event | None = None

    @property
    def ended(self) -> bool:
        """Whether all of it has arrived."""
        return self._ended

    @property
    def late(self) -> bool:
        """Whether it was given up because it came too slowly."""
        return self._late

    @property
    def received(self) -> int:
        """How many bytes have arrived."""
        return self._received

    @property
    def kept(self) -> int:
        """How many bytes are kept."""
        return len(self._kept)

    def append(self, data: bytes) -> None:
        """Take a part that has arrived."""
        self._received += len(data)
        if self._keeping and self._received <= self._limit:
            self._kept += data
        else:
            self._kept.clear()
        self._tell()

    def set_complete(self) -> None:
        """Note that nothing follows."""
        self._ended = True
        self._tell()

    def set_late(self) -> None:
        """Note that it came too slowly, and is not waited for any more."""
        self._late = True

    def read(self, limit: int) -> bytes:
        """Return the body.

        Raises: PayloadTooLargeError when it has more than `limit` bytes; RequestTimeoutError when
            it is not whole.
        """
        if self._received > limit:
            self._kept.clear()
            raise PayloadTooLargeError(limit)
        if not self._ended:
            raise RequestTimeoutError
        return bytes(self._kept)

    async def drop(self, seconds: float = LINGER_SECONDS) -> None:
        """Let what still arrives arrive, for a while, and forget it.

        A client that is answered and cut off while it still sends may never read the response: TCP
        resets a connection that is closed with bytes unread.
        """
        self._kept.clear()
        self._keeping = False
        with trio.move_on_after(seconds):
            while not self._ended and self._received <= MOST_DROPPED:
                self._moved = trio.Event()
                await self._moved.wait()

    def _tell(self) -> None:
        if self._moved is not None:
            self._moved.set()
            self._moved = None
