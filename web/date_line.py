"""The header line Date, made once a second (RFC 9110 6.6.1)."""

from __future__ import annotations

from email.utils import formatdate
from typing import Final

import trio

NAME: Final = b"date"


class DateLine:
    """Gives the header line of the present second."""

    def __init__(self) -> None:
        self._second = -1
        self._line = (NAME, b"")

    def line(self) -> tuple[bytes, bytes]:
        """Return the name and the value."""
        second = int(trio.current_time())
        if second != self._second:
            self._second = second
            self._line = (NAME, formatdate(usegmt=True).encode())
        return self._line
