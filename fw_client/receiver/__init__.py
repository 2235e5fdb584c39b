"""Receiving the webhooks of fw: verifying, handling each once, and adapters for web frameworks.

The adapters are `fw_client.receiver.flask`, `.quart` and `.fastapi`.
"""

from __future__ import annotations

from fw_client.receiver.receiving import ReceiverReply, RejectEvent, WebhookReceiver
from fw_client.receiver.seen import (
    ClaimResult,
    SeenClaim,
    SeenEvents,
    SeenInMemory,
    SeenInSqlite,
)
from fw_client.receiver.signatures import NotAnEvent, NotGenuine, ReceivedEvent, signing_key, verify

__all__ = [
    "ClaimResult",
    "NotAnEvent",
    "NotGenuine",
    "ReceivedEvent",
    "ReceiverReply",
    "RejectEvent",
    "SeenClaim",
    "SeenEvents",
    "SeenInMemory",
    "SeenInSqlite",
    "WebhookReceiver",
    "signing_key",
    "verify",
]
