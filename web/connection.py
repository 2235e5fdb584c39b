"""One request between Hypercorn and Quart-Trio: how its answer is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import trio
from quart.utils import encode_headers
from quart_trio.asgi import TrioASGIHTTPConnection

from fw_actors.errors import FwError
from web.event_streams import SendPart


class FrontConnection(TrioASGIHTTPConnection):
    """Sends an answer as one head and one body, and sees it through to its end.

    With the last part Hypercorn tells the application `http.disconnect`, upon which Quart-Trio
    cancels the task that is just sending. Unshielded, the connection would then neither be closed
    nor given its idle time. The shield is bounded by the deadlines of `ClientStream`.
    """

    async def _send_response(self, send: Any, response: Any) -> None:
        stream = getattr(response, "stream_body", None)
        if stream is not None:
            await self._send_stream(send, response, stream)
            return
        body = await response.get_data(as_text=False)
        headers = encode_headers(response.headers)
        await send(
            {"type": "http.response.start", "status": response.status_code, "headers": headers}
        )
        with trio.CancelScope(shield=True):
            await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _send_stream(
        self, send: Any, response: Any, stream: Callable[[SendPart], Awaitable[None]]
    ) -> None:
        """Send what has no end; a client that goes away cancels it, a failure cuts it off."""
        head = {"type": "http.response.start", "status": response.status_code}
        await send({**head, "headers": encode_headers(response.headers)})

        async def send_part(part: bytes) -> None:
            await send({"type": "http.response.body", "body": part, "more_body": True})

        with suppress(FwError):  # the session has ended since; asking again, the client is told so
            await stream(send_part)
        with trio.CancelScope(shield=True):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
