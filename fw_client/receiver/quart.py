"""Receiving webhooks in Quart, on asyncio and, by Quart-Trio, on trio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from quart import Response, current_app, request

from fw_client.receiver.bounded_body import read_bounded
from fw_client.receiver.receiving import BlockingCall, WebhookReceiver


def webhook_view(receiver: WebhookReceiver) -> Callable[[], Awaitable[Response]]:
    """Return a view function for POST. A handler that is a plain function runs in a thread."""

    async def receive_webhook() -> Response:
        length = request.headers.get("content-length")
        body = await read_bounded(request.body, length, receiver.max_body)
        headers = {name.lower(): value for name, value in request.headers.items()}
        reply = await receiver.receive_async(headers, body, _in_thread)
        return Response(b"", status=reply.status, headers=dict(reply.headers))

    return receive_webhook


async def _in_thread(work: BlockingCall) -> Any:
    return await current_app.ensure_async(work)()
