"""Receiving webhooks in Flask."""

from __future__ import annotations

from collections.abc import Callable

from flask import Response, request

from fw_client.receiver.receiving import WebhookReceiver


def webhook_view(receiver: WebhookReceiver) -> Callable[[], Response]:
    """Return a view function for POST.

    Raises: TypeError for a receiver whose handler is a coroutine function.
    """
    if receiver.is_async:
        raise TypeError("Flask needs a handler that is a plain function.")

    def receive_webhook() -> Response:
        length = request.content_length
        body = None
        if length is None or length <= receiver.max_body:
            body = request.stream.read(receiver.max_body + 1)
        if body is not None and len(body) > receiver.max_body:
            body = None
        headers = {name.lower(): value for name, value in request.headers.items()}
        reply = receiver.receive(headers, body)
        return Response(status=reply.status, headers=dict(reply.headers))

    return receive_webhook
