"""A subscription: which events go to which receiver. Source: spec, Webhook."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import Check, Data, Int, Select, Vault

DOCUMENT, CUSTOM = "Document", "Custom"
DEFAULT_TIMEOUT, DEFAULT_MAX_ATTEMPTS = 10, 6  # spec, Limits; seconds, and total tries


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
