"""Receiving webhooks in FastAPI, and in any other application of Starlette."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from fw_client.receiver.bounded_body import read_bounded
from fw_client.receiver.receiving import BlockingCall, WebhookReceiver


def webhook_endpoint(receiver: WebhookReceiver) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint for POST. A handler that is a plain function runs in a thread."""

    async def receive_webhook(request: Request) -> Response:
        length = request.headers.get("content-length")
        body = await read_bounded(request.stream(), length, receiver.max_body)
        reply = await receiver.receive_async(dict(request.headers), body, _in_thread)
        return Response(status_code=reply.status, headers=dict(reply.headers))

    return receive_webhook


async def _in_thread(work: BlockingCall) -> Any:
    return await run_in_threadpool(work)
