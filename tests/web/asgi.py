"""A client that speaks ASGI to an application in memory, part by part where a test wants so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import trio

from web.app import FrontEnd

Pair = tuple[str, str]


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: list[Pair]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The envelope's inside; fails where the answer is no envelope."""
        assert set(self.json) == {"error"}
        found: dict[str, Any] = self.json["error"]
        assert set(found) <= {"type", "message", "extra"}
        assert found["message"].endswith((".", "?"))
        return found

    def header(self, name: str) -> str | None:
        """The value of the one header of that name; None without."""
        found = [value for key, value in self.headers if key == name.lower()]
        assert len(found) <= 1
        return found[0] if found else None


class Client:
    """Asks an application as Hypercorn would."""

    def __init__(self, app: FrontEnd, peer: str = "203.0.113.9") -> None:
        self.app = app
        self.peer = peer

    async def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        headers: Sequence[Pair] = (),
        csrf: bool = True,
        sid: str | None = None,
        kind: str | None = "application/json",
    ) -> Reply:
        """Send one request whose body comes whole: bytes as they are, anything else as JSON."""
        raw = body if isinstance(body, bytes) else b"" if body is None else _dumped(body)
        lines = list(headers)
        if body is not None:
            lines.append(("Content-Length", str(len(raw))))
            if kind is not None:
                lines.append(("Content-Type", kind))
        if csrf and method not in ("GET", "HEAD", "OPTIONS"):
            lines.append(("X-FW-CSRF", "1"))
        if sid is not None:
            lines.append(("Cookie", f"sid={sid}"))
        return await self.send(method, target, lines, [raw])

    async def send(
        self,
        method: str,
        target: str,
        headers: Sequence[Pair],
        parts: Iterable[bytes],
        *,
        ends: bool = True,
    ) -> Reply:
        """Send a request part by part; without `ends`, the last part is never followed."""
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "asgi": {"spec_version": "2.1", "version": "3.0"},
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in headers],
            "client": (self.peer, 50000),
            "server": ("127.0.0.1", 8000),
            "state": {},
            "extensions": {},
        }
        messages = _messages(parts, ends)
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            async for message in messages:
                return message
            await trio.sleep_forever()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            await trio.lowlevel.checkpoint()
            sent.append(message)

        await self.app(scope, receive, send)  # type: ignore[arg-type]
        head = sent[0]
        return Reply(
            head["status"],
            [(k.decode(), v.decode()) for k, v in head["headers"]],
            b"".join(m.get("body", b"") for m in sent[1:]),
        )


async def _messages(parts: Iterable[bytes], ends: bool) -> AsyncIterator[dict[str, Any]]:
    for part in parts:
        await trio.lowlevel.checkpoint()
        yield {"type": "http.request", "body": part, "more_body": True}
    if ends:
        await trio.lowlevel.checkpoint()
        yield {"type": "http.request", "body": b"", "more_body": False}


def _dumped(body: object) -> bytes:
    return json.dumps(body).encode()
