"""An answer as it goes over the wire: its status, its header lines in bytes, its body.

Quart's Response does the same by way of a Headers object, an iterable body and a context manager,
which take longer than most operations behind them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from web.envelope import Answer, SendBody
from web.headers import CACHE_CONTROL, REQUEST_ID, Headers

Line = tuple[bytes, bytes]

LINE_END: Final = re.compile("[\r\n\0]")
CACHE: Final = CACHE_CONTROL.lower().encode()
ID: Final = REQUEST_ID.lower().encode()


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent. `stream` sends the body part by part in place of `body`."""

    status: int
    headers: list[Line]
    body: bytes
    stream: SendBody | None


class Replies:
    """Makes replies with the headers that every answer of a site has."""

    def __init__(self, common: Headers) -> None:
        self._common = lines(common)
        self._uncached = [line for line in self._common if line[0] != CACHE]

    def of(self, answer: Answer, request_id: str) -> Reply:
        """Return the reply for an answer. Raises: ValueError for a header that holds a line end."""
        headers = [(b"content-type", answer.content_type.encode())]
        if answer.stream is None and answer.status != HTTPStatus.NO_CONTENT:
            headers.append((b"content-length", b"%d" % len(answer.body)))
        if answer.cache is None:
            headers += self._common
        else:
            headers += self._uncached
            headers.append((CACHE, answer.cache.encode()))
        if answer.headers:
            headers += lines(answer.headers)
        headers.append((ID, request_id.encode()))
        return Reply(answer.status, headers, answer.body, answer.stream)


def lines(headers: Iterable[tuple[str, str]]) -> list[Line]:
    """Return headers as ASGI wants them. Raises: ValueError for one that holds a line end."""
    found = []
    for name, value in headers:
        if LINE_END.search(value):
            raise ValueError(f"The header {name} would hold a line end.")
        found.append((name.lower().encode(), value.encode()))
    return found
