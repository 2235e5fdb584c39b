"""Signed requests, and handlers that record their events."""

from __future__ import annotations

import fastapi as fastapi_library
import flask as flask_library
import httpx
import quart as quart_library

from fw_actors.rules.signing import key_of, mac_of, signed_headers
from fw_client.receiver import ReceivedEvent

NOW = 1_800_000_000
BODY = '{"type":"order.paid","timestamp":"2026-01-02T03:04:05.678Z","data":{"a":"ünï"}}'.encode()
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def signed(
    secret: str = SECRET, body: bytes = BODY, name: str = "msg_1", now: int = NOW
) -> dict[str, str]:
    """The headers with which the service sends a body."""
    made = signed_headers(mac_of(key_of(secret)), name, now * 1000, body)
    return {name.decode(): value.decode() for name, value in made}


class RecordingHandler:
    """A handler that records its events and raises the given errors."""

    def __init__(self, *errors: Exception) -> None:
        self.events: list[ReceivedEvent] = []
        self.errors = list(errors)

    def __call__(self, event: ReceivedEvent) -> None:
        self.events.append(event)
        if self.errors:
            raise self.errors.pop(0)


class RecordingAsyncHandler(RecordingHandler):
    """The same, to be awaited."""

    async def __call__(self, event: ReceivedEvent) -> None:  # type: ignore[override]
        super().__call__(event)


class ManualUnixClock:
    """Unix seconds that a test moves."""

    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


def post_flask(app: flask_library.Flask, body: bytes, headers: dict[str, str]) -> int:
    return app.test_client().post("/webhooks", data=body, headers=headers).status_code


async def post_quart(app: quart_library.Quart, body: bytes, headers: dict[str, str]) -> int:
    response = await app.test_client().post("/webhooks", data=body, headers=headers)
    return int(response.status_code)


async def post_asgi(app: fastapi_library.FastAPI, body: bytes, headers: dict[str, str]) -> int:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return (await client.post("/webhooks", content=body, headers=headers)).status_code
