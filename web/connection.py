"""One request as ASGI has it: what Quart-Trio is to any server, and to tests without one."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import trio
from quart_trio.asgi import TrioASGIHTTPConnection

from fw_actors.errors import FwError

if TYPE_CHECKING:
    from web.app import FrontEnd, FrontRequest
    from web.reply import Reply


class FrontConnection(TrioASGIHTTPConnection):
    """Answers in the task of its caller; another one takes the body in, and waits for the client
    to go away, which cancels the answering."""

    app: FrontEnd

    async def __call__(self, receive: Any, send: Any) -> None:
        """Answer one request, unless its client goes away."""
        request = self.request()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.handle_messages, nursery, request, receive)
            await send_reply(send, await self.app.reply_to(request))
            nursery.cancel_scope.cancel()

    def request(self) -> FrontRequest:
        """Return the request that the scope describes."""
        return cast("FrontRequest", self._create_request_from_scope(_push))


async def send_reply(send: Any, reply: Reply) -> None:
    """Send an answer as ASGI messages."""
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})

    async def send_part(part: bytes) -> None:
        await send({"type": "http.response.body", "body": part, "more_body": True})

    if reply.stream is not None:
        with suppress(FwError):  # the session has ended since; asking again, the client is told so
            await reply.stream(send_part)
    with trio.CancelScope(shield=True):
        await send({"type": "http.response.body", "body": reply.body, "more_body": False})


async def _push(*_: object) -> None:
    """HTTP/1.1 knows no push."""
