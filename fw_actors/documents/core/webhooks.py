"""The DocTypes Webhook and Webhook Delivery."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import Check, Data, Int, Select, Text, Vault
from fw_actors.documents.special_fields import Datetime

DOCUMENT, CUSTOM = "Document", "Custom"
DEFAULT_TIMEOUT, DEFAULT_MAX_ATTEMPTS = 10, 6  # B-26, B-27; seconds, and total tries


class Webhook(DocType, naming="random"):
    """Who receives which events, and how they are signed. For System Managers without scopes."""

    enabled = Check(default=1)
    url = Data(required=True, length=2048)
    event_type = Select(options=[DOCUMENT, CUSTOM], required=True)
    webhook_doctype = Data()
    on_insert = Check()
    on_update = Check()
    on_submit = Check()
    on_cancel = Check()
    on_trash = Check()
    custom_event = Data()
    secret = Vault(required=True)
    timeout = Int(default=DEFAULT_TIMEOUT, required=True, minimum=1, maximum=60)
    max_attempts = Int(default=DEFAULT_MAX_ATTEMPTS, required=True, minimum=1, maximum=10)


STATES = ["Queued", "Retrying", "Sent", "Failed"]


class WebhookDelivery(DocType, name="Webhook Delivery", naming="random", read_only=True):
    """Written by the service alone; its name is the `webhook-id` of every attempt.

    `webhook` and the reference are plain text: a delivery outlives both. `payload` holds the
    exact bytes that are signed and sent. `key` is what makes an emit idempotent per webhook.
    """

    unique_together = (("webhook", "key"),)
    # A rename finds them by their reference; the sweep and doctor by how they ended, and when.
    index_together = (("reference_doctype", "reference_name"), ("status", "last_attempt"))

    webhook = Data()
    event = Data()
    status = Select(options=STATES)
    attempts = Int(default=0)
    max_attempts = Int()
    next_attempt = Datetime()
    last_attempt = Datetime()
    response_status = Int()
    response_body = Text()
    error = Data(length=500)
    duration_ms = Int()
    key = Data()
    reference_doctype = Data()
    reference_name = Data()
    payload = Text()
    sent = Datetime()
