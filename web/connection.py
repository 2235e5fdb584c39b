"""One request between Hypercorn and Quart-Trio: how its answer is sent."""

from __future__ import annotations

from typing import Any

import trio
from quart.utils import encode_headers
from quart_trio.asgi import TrioASGIHTTPConnection


class FrontConnection(TrioASGIHTTPConnection):
    """Sends an answer as one head and one body, and sees it through to its end.

    With the last part Hypercorn tells the application `http.disconnect`, upon which Quart-Trio
    cancels the task that is just sending. Unshielded, the connection would then neither be closed
    nor given its idle time. The shield is bounded by the deadlines of `ClientStream`.
    """

    async def _send_response(self, send: Any, response: Any) -> None:
        body = await response.get_data(as_text=False)
        headers = encode_headers(response.headers)
        await send(
            {"type": "http.response.start", "status": response.status_code, "headers": headers}
        )
        with trio.CancelScope(shield=True):
            await send({"type": "http.response.body", "body": body, "more_body": False})
