"""Responses: headers, JSON, the error envelope, event streams.

Quart's Response does the same by way of a Headers object, an iterable body and a context manager,
which take longer than most operations behind them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec
import trio

from fw_actors.errors import FwError, OverloadedError
from fw_actors.runtime.clock import MS_PER_SECOND
from web.settings import Settings

ENCODER: Final = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """Return `value` as JSON in UTF-8. Raises TypeError for what JSON can't hold."""
    return ENCODER.encode(value)


def iso_time(milliseconds: int) -> str:
    """Return a time in ms since the epoch as JSON has it (H-35): 2026-02-28T12:00:00.000Z."""
    seconds, rest = divmod(milliseconds, MS_PER_SECOND)
    whole = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return f"{whole.isoformat()}.{rest:03d}Z"


JSON: Final = "application/json; charset=utf-8"

SendBody = Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]]
"""Sends a body part by part, by the function that it is given."""


@dataclass(frozen=True)
class Answer:
    """What a handler gives back: the response but for the headers that every response has.

    `cache` stands for the usual `Cache-Control: no-store`. `stream` sends the body part by part
    in place of `body`.
    """

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    cache: str | None = None
    stream: SendBody | None = None


def answer_json(value: Any, status: int = 200, *headers: tuple[str, str]) -> Answer:
    """Return `value` as JSON."""
    return Answer(encode(value), status, headers=headers)


def refusal(error: FwError) -> Answer:
    """Return the envelope of a refusal, with the headers that belong to it."""
    shown: dict[str, Any] = {"type": type(error).__name__, "message": error.message}
    if error.extra:
        shown["extra"] = error.extra
    return Answer(encode({"error": shown}), error.status, headers=tuple(error.headers.items()))


def refusal_in(error: BaseException) -> FwError | None:
    """Return the refusal that `error` is, or holds alone when nurseries have wrapped it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, FwError) else None


MOST: Final = 16
KIND: Final = "text/event-stream; charset=utf-8"
RETRY: Final = b"retry: 2000\n\n"

SendPart = Callable[[bytes], Awaitable[None]]
"""Sends a part of the answer's body; waits while the client does not read."""


class EventStreams:
    """The open streams of an application.

    An open one would hold a stop for its whole grace time: `end` ends them first.
    """

    def __init__(self) -> None:
        self._open: dict[trio.CancelScope, None] = {}
        self._over = False

    def __len__(self) -> int:
        return len(self._open)

    def answer(self, events: Callable[[SendPart], Awaitable[None]]) -> Answer:
        """Return an answer whose body is what `events` sends, until it returns or is ended.

        Raises: OverloadedError when there are 16 already, or the service is stopping.
        """
        if self._over or len(self._open) >= MOST:
            raise OverloadedError("Too many consoles are open. Close one and try again.")

        async def run(send: SendPart) -> None:
            with trio.CancelScope() as scope:
                self._open[scope] = None
                try:
                    if not self._over:
                        await send(RETRY)
                        await events(send)
                finally:
                    del self._open[scope]

        return Answer(b"", content_type=KIND, stream=run)

    def end(self) -> None:
        """End all, and open no more."""
        self._over = True
        for scope in self._open:
            scope.cancel()


def event(data: bytes) -> bytes:
    """Return one event; `data` is JSON on one line."""
    return b"data: " + data + b"\n\n"


Headers = tuple[tuple[str, str], ...]

FORWARDED: Final = "forwarded"
X_FORWARDED: Final = "x-forwarded-"
REQUEST_ID: Final = "X-Request-Id"
CSRF_HEADER: Final = "X-FW-CSRF"
CACHE_CONTROL: Final = "Cache-Control"
ALWAYS: Final[Headers] = (
    # No answer is the same for the next one who asks, errors included.
    (CACHE_CONTROL, "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    # Strict for pages; for JSON it forbids whatever a browser might make of it.
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
)
HSTS: Final = "Strict-Transport-Security"
HSTS_AGE: Final = "max-age=31536000"


def common_headers(settings: Settings) -> Headers:
    """Return what every answer of the site has."""
    if not settings.is_https:
        return ALWAYS
    subdomains = "; includeSubDomains" if settings.hsts_include_sub_domains else ""
    return (*ALWAYS, (HSTS, HSTS_AGE + subdomains))


def says_forwarded(names: Iterable[str]) -> bool:
    """Say whether one of a request's headers is what a proxy adds (RFC 7239, X-Forwarded-*)."""
    return any(n == FORWARDED or n.startswith(X_FORWARDED) for n in map(str.lower, names))


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
