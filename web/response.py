"""Responses: headers, cookies, JSON, the error envelope, event streams.

Quart's Response does the same with a Headers object, an iterable body and a context manager, which
take longer than most operations.

A sibling host (evil.example.org next to fw.example.org) can set another cookie `sid` for the common
parent domain, or for a path. The browser sends both without distinguishing them, so all of them are
cleared.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec
import trio

from fw_actors.errors import FwError, OverloadedError, too_many_consoles
from web.settings import Settings

ENCODER: Final = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """Return `value` as JSON in UTF-8. Raises: TypeError for values without a form in JSON."""
    return ENCODER.encode(value)


JSON: Final = "application/json; charset=utf-8"

SendPart = Callable[[bytes], Awaitable[None]]
"""Sends a part of the body; waits while the client does not read."""
SendBody = Callable[[SendPart], Awaitable[None]]
"""Sends a body part by part, through the function that it is called with."""


@dataclass(frozen=True)
class Response:
    """A handler's response, without the headers that every response has.

    `cache` replaces `Cache-Control: no-store`. `stream` sends the body part by part in place of
    `body`.
    """

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    cache: str | None = None
    stream: SendBody | None = None


def json_response(value: Any, status: int = 200, *headers: tuple[str, str]) -> Response:
    """Return a response with `value` as JSON."""
    return Response(encode(value), status, headers=headers)


def error_response(error: FwError) -> Response:
    """Return the envelope of an error, with the error's headers.

    The status is the class's: an app may have set the attribute on the error for its own use.
    """
    status = type(error).status
    return Response(encode({"error": error.details}), status, headers=tuple(error.headers.items()))


def error_in(error: BaseException) -> FwError | None:
    """Return `error` itself, or the only error in its groups, if that is an FwError."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, FwError) else None


MAX_STREAMS: Final = 16
EVENT_STREAM: Final = "text/event-stream; charset=utf-8"
UNBUFFERED: Final = (("X-Accel-Buffering", "no"),)
"""Has nginx pass each event on at once; it collects those of other responses in its buffers."""
RECONNECT: Final = b"retry: 2000\n\n"
"""The first bytes of a stream: a client whose stream ended connects again after two seconds."""


class EventStreams:
    """The open streams of an application.

    A stop ends them first by `end`; otherwise each would last for the whole drain time.
    """

    def __init__(self) -> None:
        self._open: dict[trio.CancelScope, None] = {}
        self._over = False

    def __len__(self) -> int:
        return len(self._open)

    def open(self, events: SendBody) -> Response:
        """Return a response whose body is sent by `events`, until that returns or is ended.

        Raises: OverloadedError when `MAX_STREAMS` are open, or the service is stopping.
        """
        if self._over:
            raise OverloadedError("The service is stopping. Try again in a moment.")
        if len(self._open) >= MAX_STREAMS:
            raise too_many_consoles(MAX_STREAMS)

        async def run(send: SendPart) -> None:
            with trio.CancelScope() as scope:
                # Others may have begun since `open`: a request waits for the rest of its body.
                is_full = len(self._open) >= MAX_STREAMS
                self._open[scope] = None
                try:
                    if not self._over:
                        await send(RECONNECT)
                        if not is_full:
                            await events(send)
                finally:
                    del self._open[scope]

        return Response(b"", content_type=EVENT_STREAM, headers=UNBUFFERED, stream=run)

    def end(self) -> None:
        """End all streams, and open no more."""
        self._over = True
        for scope in self._open:
            scope.cancel()


def sse_event(data: bytes, name: bytes = b"") -> bytes:
    """Return one server-sent event, a `message` without a name; `data` is JSON on one line."""
    head = b"event: " + name + b"\n" if name else b""
    return head + b"data: " + data + b"\n\n"


Headers = tuple[tuple[str, str], ...]

REQUEST_ID: Final = "X-Request-Id"
CSRF_HEADER: Final = "X-FW-CSRF"
USER_HEADER: Final = "X-FW-User"
"""The user that a request is meant for, percent-encoded; its session must be that user's (H-83)."""
CACHE_CONTROL: Final = "Cache-Control"
ALWAYS: Final[Headers] = (
    # No response is valid for another client, errors included.
    (CACHE_CONTROL, "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    # The page of another site that opened a tab could replace its content at any later time, for
    # example with a copy of the sign-in page.
    ("Cross-Origin-Opener-Policy", "same-origin"),
    # Strict for pages; a response in JSON cannot be rendered or executed by a browser.
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
)
HSTS: Final = "Strict-Transport-Security"
HSTS_AGE: Final = "max-age=31536000"


def common_headers(settings: Settings) -> Headers:
    """Return the headers of every response of the site."""
    if not settings.is_https:
        return ALWAYS
    subdomains = "; includeSubDomains" if settings.hsts_include_sub_domains else ""
    return (*ALWAYS, (HSTS, HSTS_AGE + subdomains))


HeaderLine = tuple[bytes, bytes]

LINE_END: Final = re.compile("[\r\n\0]")
CACHE_CONTROL_LINE: Final = CACHE_CONTROL.lower().encode()
REQUEST_ID_LINE: Final = REQUEST_ID.lower().encode()


@dataclass(frozen=True, slots=True)
class WireResponse:
    """A response with all its header lines; `stream` sends the body in place of `body`."""

    status: int
    headers: list[HeaderLine]
    body: bytes
    stream: SendBody | None


class ResponseEncoder:
    """Completes responses with the headers that all responses of a site have."""

    def __init__(self, common: Headers) -> None:
        self._common = header_lines(common)
        self._uncached = [line for line in self._common if line[0] != CACHE_CONTROL_LINE]

    def encode(self, response: Response, request_id: str) -> WireResponse:
        """Return a response as sent. Raises: ValueError for a line end in a header."""
        headers = [(b"content-type", response.content_type.encode())]
        if response.stream is None and response.status != HTTPStatus.NO_CONTENT:
            headers.append((b"content-length", b"%d" % len(response.body)))
        if response.cache is None:
            headers += self._common
        else:
            headers += self._uncached
            headers.append((CACHE_CONTROL_LINE, response.cache.encode()))
        if response.headers:
            headers += header_lines(response.headers)
        headers.append((REQUEST_ID_LINE, request_id.encode()))
        return WireResponse(response.status, headers, response.body, response.stream)

    def encode_status(self, status: int, request_id: str) -> WireResponse:
        """Return a response without a body, to input that is not an HTTP request."""
        headers = [(b"content-length", b"0"), *self._common]
        headers.append((REQUEST_ID_LINE, request_id.encode()))
        return WireResponse(status, headers, b"", None)


def header_lines(headers: Iterable[tuple[str, str]]) -> list[HeaderLine]:
    """Return headers in the format of h11. Raises: ValueError for a line end in a header."""
    lines = []
    for name, value in headers:
        if LINE_END.search(value):
            raise ValueError(f"The header {name} must not contain a line end.")
        lines.append((name.lower().encode(), value.encode()))
    return lines


COOKIE: Final = "sid"
MAX_DOMAINS: Final = 5
MAX_CLEARING_BYTES: Final = 2_400  # proxies such as nginx accept 4 KiB of header lines
PATH_SAFE: Final = "/:@!$&'()*+,=~"


def set_cookie(sid: str, max_age: int, *, secure: bool) -> str:
    """Return the value of Set-Cookie for a session that lasts `max_age` seconds."""
    return _line(sid, max_age, secure)


def clear_cookie(*, secure: bool) -> str:
    """Return the value of Set-Cookie that clears the cookie."""
    return _line("", 0, secure)


def clear_every_cookie(site_url: str, path: str) -> list[str]:
    """Return the values of Set-Cookie that clear every cookie `sid` a request could bring.

    Args:
        site_url: where browsers reach the site; a cookie may be for its host or a parent domain.
        path: of the request, unquoted; a cookie may be for it or a folder above it.

    The shortest paths come first; values beyond 2,400 bytes together are left out.
    """
    domains = ["", *(f"; Domain={domain}" for domain in _domains(site_url))]
    lines: list[str] = []
    remaining = MAX_CLEARING_BYTES
    for folder in _folders(quote(path, safe=PATH_SAFE)):
        for domain in domains:
            line = f"{COOKIE}=; Max-Age=0; Path={folder}{domain}"
            remaining -= len("set-cookie: \r\n") + len(line)
            if remaining < 0:
                return lines
            lines.append(line)
    return lines


def _domains(site_url: str) -> Iterator[str]:
    """Yield the host of a URL and its parent domains; none for an address or a single name.

    Public suffixes need not be known: a browser ignores them.
    """
    host = (urlsplit(site_url).hostname or "").rstrip(".")
    try:
        ip_address(host)
    except ValueError:
        names = host.split(".")
        yield from islice((".".join(names[at:]) for at in range(len(names) - 1)), MAX_DOMAINS)


def _folders(path: str) -> Iterator[str]:
    """Yield every cookie path that matches `path`, the shortest first (RFC 6265 5.1.4)."""
    yield "/"
    for at, letter in enumerate(path):
        if letter == "/" and at > 0:
            yield path[:at]
            yield path[: at + 1]
    if len(path) > 1 and path[-1] != "/":
        yield path


def _line(value: str, max_age: int, secure: bool) -> str:
    end = "; Secure" if secure else ""
    return f"{COOKIE}={value}; Max-Age={max_age}; Path=/; HttpOnly; SameSite=Lax{end}"
