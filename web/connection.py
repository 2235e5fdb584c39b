"""One request between Hypercorn and Quart-Trio: how its answer is sent."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio
from quart_trio.asgi import TrioASGIHTTPConnection

from fw_actors.errors import FwError
from web.envelope import SendBody

if TYPE_CHECKING:
    from web.app import FrontEnd
    from web.reply import Reply


class FrontConnection(TrioASGIHTTPConnection):
    """Answers in the task that Hypercorn has started, and sees an answer through to its end.

    Another task beside it takes the body in and waits for the client to go away, which cancels
    the answering. With the last part of an answer Hypercorn says `http.disconnect` itself, to a
    task that is just sending. Unshielded, the connection would then neither be closed nor given
    its idle time. The shield is bounded by the deadlines of `ClientStream`.
    """

    app: FrontEnd

    async def __call__(self, receive: Any, send: Any) -> None:
        """Answer one request, unless its client goes away."""
        request = self._create_request_from_scope(send)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.handle_messages, nursery, request, receive)
            await _send(send, await self.app.reply_to(request))
            nursery.cancel_scope.cancel()


async def _send(send: Any, reply: Reply) -> None:
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
    if reply.stream is not None:
        await _send_stream(send, reply.stream)
        return
    with trio.CancelScope(shield=True):
        await send({"type": "http.response.body", "body": reply.body, "more_body": False})


async def _send_stream(send: Any, stream: SendBody) -> None:
    """Send what has no end; a client that goes away cancels it, a failure cuts it off."""

    async def send_part(part: bytes) -> None:
        await send({"type": "http.response.body", "body": part, "more_body": True})

    with suppress(FwError):  # the session has ended since; asking again, the client is told so
        await stream(send_part)
    with trio.CancelScope(shield=True):
        await send({"type": "http.response.body", "body": b"", "more_body": False})
