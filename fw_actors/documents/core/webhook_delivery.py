"""What is owed to a receiver for one event, and how it went. Source: spec, Webhook Delivery."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import Data, Int, Select, Text
from fw_actors.documents.time_fields import Datetime

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
