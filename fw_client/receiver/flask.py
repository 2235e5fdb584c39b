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
        body = _bounded_body(receiver.max_body)
        headers = {name.lower(): value for name, value in request.headers.items()}
        reply = receiver.receive(headers, body)
        return Response(status=reply.status, headers=dict(reply.headers))

    return receive_webhook


def _bounded_body(limit: int) -> bytes | None:
    """Return the request's body, also if the app has read it before; None beyond `limit`."""
    if request.content_length is not None and request.content_length > limit:
        return None
    permitted, one_more = request.max_content_length, limit + 1
    # Flask ends a chunked body at its maximum without an error.
    request.max_content_length = one_more if permitted is None else min(one_more, permitted)
    body = request.get_data()
    return None if len(body) > limit else body
