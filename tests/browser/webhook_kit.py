"""Webhooks and events that tests of pages make."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

from tests.live_site import SECRET

HEADERS = {"X-FW-CSRF": "1"}


def make_webhook(page: Page, url: str, event: str, **fields: str | int) -> str:
    hook = {"event_type": "Custom", "custom_event": event, "secret": SECRET, "url": url, **fields}
    made = page.request.post("/api/resource/Webhook", data=hook, headers=HEADERS)
    assert made.ok, made.text()
    name: str = made.json()["data"]["name"]
    return name


def emit(page: Page, event: str, data: dict[str, Any]) -> str:
    body = {"name": event, "data": data}
    answer = page.request.post(
        "/api/method/core.services.webhooks.emit", data=body, headers=HEADERS
    )
    assert answer.ok, answer.text()
    (delivery,) = answer.json()["deliveries"]
    return str(delivery)


def status(page: Page, delivery: str) -> str:
    answer = page.request.get(f"/api/resource/Webhook Delivery/{delivery}")
    return str(answer.json()["data"]["status"])
