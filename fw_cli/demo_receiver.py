"""Receivers for `fw demo`: small HTTP servers over h11 that verify each signature.

They verify with independent code, written from the Standard Webhooks specification, so that a wrong
signature would be noticed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import h11
import trio

_READ_BYTES = 65_536


@dataclass(frozen=True)
class DemoPost:
    """A received POST: its `webhook-id`, whether its signature is valid, and the response."""

    receiver: str
    delivery: str
    verified: bool
    status: int


@dataclass
class DemoReceiver:
    """Answers with `answers` in order, then repeats the last; calls `seen` for each POST."""

    name: str
    secret: str
    answers: Sequence[int]
    seen: Callable[[DemoPost], None]
    posts: list[DemoPost] = field(default_factory=list)
    url: str = ""

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Listen at a free port of this machine until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/{self.name}"
        await trio.serve_listeners(self._converse, listeners, task_status=task_status)  # type: ignore[arg-type]

    async def _converse(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER)
        headers: dict[str, str] = {}
        body = bytearray()
        async with stream:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    try:
                        connection.receive_data(await stream.receive_some(_READ_BYTES))
                    except trio.BrokenResourceError:
                        return
                elif isinstance(event, h11.Request):
                    headers = {k.decode(): v.decode() for k, v in event.headers}
                    body.clear()
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    await stream.send_all(self._answer(connection, headers, bytes(body)))
                    connection.start_next_cycle()
                else:  # the sender disconnected
                    return

    def _answer(self, connection: h11.Connection, headers: dict[str, str], body: bytes) -> bytes:
        status = self.answers[min(len(self.posts), len(self.answers) - 1)]
        verified = verifies(self.secret, headers, body)
        post = DemoPost(self.name, headers.get("webhook-id", ""), verified, status)
        self.posts.append(post)
        self.seen(post)
        head = h11.Response(status_code=status, headers=[("content-length", "0")])
        return (connection.send(head) or b"") + (connection.send(h11.EndOfMessage()) or b"")


def verifies(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Return whether `webhook-signature` is valid for the body, as a receiver checks it."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers.get('webhook-id')}.{headers.get('webhook-timestamp')}.".encode() + body
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return hmac.compare_digest(headers.get("webhook-signature", ""), f"v1,{expected}")
