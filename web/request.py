"""A request as the operations see it: Quart's, made of the parts that HTTP/1.1 has."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from quart_trio.wrappers import TrioRequest
from werkzeug.datastructures import Headers

from web.body import LimitedBody

NO_PATH: Final = "*"
Address = tuple[str, int]


class FrontRequest(TrioRequest):
    """A request whose body is kept only up to a limit."""

    body_class = LimitedBody
    body: LimitedBody


def front_request(
    method: str,
    target: bytes,
    headers: list[tuple[bytes, bytes]],
    http_version: str,
    client: Address | None,
) -> FrontRequest:
    """Return a request; `client` is the peer's address and port.

    Quart stumbles over an empty path (`GET ?x`) and takes two leading slashes for one: both are
    made a path that nothing is served under.
    """
    raw_path, _, query = target.partition(b"?")
    path = unquote(raw_path.decode("ascii"))
    if path[:1] != "/" or path[:2] == "//":
        path = NO_PATH
    scope: Any = {"type": "http", "client": client}
    request = FrontRequest(
        method,
        "http",
        path,
        query,
        Headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]),
        "",
        http_version,
        scope,
        send_push_promise=_push,
    )
    request.method = method  # Werkzeug makes it upper-case
    return request


async def _push(*_: object) -> None:
    """HTTP/1.1 knows no push."""
