"""Webhooks of a running service, and the deliveries that it has recorded."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.live_site import SECRET


def make_webhook(client: httpx.Client, url: str, **fields: Any) -> str:
    """Make a Webhook that watches Note; return its name."""
    body = {
        "url": url, "event_type": "Document", "webhook_doctype": "Note", "on_insert": 1,
        "secret": SECRET, **fields,
    }  # fmt: skip
    answer = client.post("/api/resource/Webhook", json=body)
    assert answer.status_code == 201, answer.text
    name: str = answer.json()["data"]["name"]
    return name


def deliveries(client: httpx.Client, **filters: str) -> list[dict[str, Any]]:
    """Return the deliveries, oldest first."""
    params = {
        "fields": '["name", "status", "attempts", "response_status", "error"]',
        "filters": json.dumps([[key, "=", value] for key, value in filters.items()]),
        "order_by": "creation asc",
        "limit": "500",
    }
    rows: list[dict[str, Any]] = client.get("/api/resource/Webhook Delivery", params=params).json()[
        "data"
    ]
    return rows
