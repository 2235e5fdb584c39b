"""The built-in DocTypes: access, webhooks, and records written by the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import (
    JSON,
    SURROGATES,
    Check,
    Data,
    Datetime,
    Int,
    Link,
    Password,
    Select,
    Table,
    Text,
    Vault,
)
from fw_actors.rules.pacing import MAX_RATE


class Role(DocType, naming="given"):
    """A role, by which DocTypes and whitelisted functions grant permissions."""


class HasRole(DocType, name="Has Role", child=True):
    """One role of a user."""

    role = Link(options="Role", required=True)


class NewPassword(Password):
    """A password to be set: written only, kept nowhere but as its hash (A-294).

    Validated by the password policy, not by the rules of text: any character but half a pair.
    """

    stored = False
    controls = SURROGATES


class User(DocType, naming="given"):
    """An account. Only a System Manager writes it; self-service uses operations."""

    email = Data(required=True, unique=True)
    fullName = Data()
    language = Data(length=20)
    enabled = Check(default=1)
    roles = Table(HasRole)
    new_password = NewPassword()


class UserPermission(DocType, name="User Permission", naming="random"):
    """One document that a user may see. Rows of one user and DocType add up.

    A user with any row is scoped: of each DocType in `allow`, and of documents that link to it,
    only what the rows name is within reach; Webhook and Webhook Delivery are out of reach.
    """

    unique_together = (("allow", "for_value", "user"),)

    user = Link(options="User", required=True)
    allow = Data(required=True)
    for_value = Data(required=True)


class APIKey(DocType, name="API Key", naming="given"):
    """Made by `core.services.api_keys.createMyAPIKey` alone; its name is the key's public part.

    A System Manager may delete one, which ends it at once.
    """

    user = Link(options="User", required=True, read_only=True)
    label = Data(required=True, read_only=True)
    expires = Datetime(read_only=True)
    last_used = Datetime(read_only=True)


class AuditEvent(DocType, name="Audit Event", naming="random", read_only=True):
    """Written only by the service; `detail` never holds a payload or a secret."""

    # Refusals of one actor are counted by the minute; pages ask what was done with one document,
    # and what one request did.
    index_together = (("action", "actor", "creation"), ("target", "creation"), ("request_id",))

    action = Data()
    target = Data()
    detail = JSON()
    actor = Data()
    request_id = Data()


STATES = ["Queued", "Retrying", "Sent", "Failed"]


class EmailDelivery(DocType, name="Email Delivery", naming="random", read_only=True):
    """Written only by the service; no part of a message's text or link is stored.

    `recipient` is empty until it is known whose account was meant.
    """

    index_together = (("status", "creation"),)

    recipient = Data()
    template = Data()
    subject = Data(length=300)
    status = Select(options=STATES)
    attempts = Int(default=0)
    error = Data(length=500)
    sent = Datetime()


class ErrorLogEntry(DocType, name="Error Log", naming="random", read_only=True):
    """Written by the service alone; `message` has no secret in it."""

    index_together = (("request_id",),)

    method = Data()
    message = Text()
    request_id = Data()


class Version(DocType, naming="random", read_only=True):
    """Written only by the service; `owner` is the user who changed the document.

    `data` is `{"changed": {field: [old, new]}, "rows": [{"table", "row", "change", "changed"}]}`,
    where `change` is added, changed or removed. No secret is in it.
    """

    index_together = (("ref_doctype", "docname"), ("request_id",))

    ref_doctype = Data()
    docname = Data()
    data = JSON()
    request_id = Data()


DOCUMENT, CUSTOM = "Document", "Custom"
UNORDERED, BY_DOCUMENT = "none", "document"
DEFAULT_TIMEOUT, DEFAULT_MAX_ATTEMPTS = 10, 6  # B-26, B-27; seconds, and total tries


class Webhook(DocType, naming="given"):
    """A receiver's subscription to events, with its secret. For System Managers without scopes."""

    enabled = Check(default=1)
    disabled_reason = Data(length=300, read_only=True)
    title = Data()
    description = Text()
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
    old_secret = Vault(read_only=True)
    old_secret_until = Datetime(read_only=True)
    client_certificate = Data(length=60)
    timeout = Int(default=DEFAULT_TIMEOUT, required=True, minimum=1, maximum=60)
    max_attempts = Int(default=DEFAULT_MAX_ATTEMPTS, required=True, minimum=1, maximum=10)
    rate_limit = Int(default=0, minimum=0, maximum=MAX_RATE)  # requests a second; 0: no limit
    ordering = Select(options=[UNORDERED, BY_DOCUMENT], default=UNORDERED)
    paused_since = Datetime(read_only=True)
    paused_until = Datetime(read_only=True)  # None: until it is resumed


class WebhookDelivery(DocType, name="Webhook Delivery", naming="random", read_only=True):
    """Written by the service alone; its name is the `webhook-id` of every attempt.

    `webhook` and the reference are plain text: a delivery outlives both. `payload` holds the
    exact bytes that are signed and sent. `key` is what makes an emit idempotent per webhook.
    `replay_run` is the bulk replay that sent it again last.
    """

    unique_together = (("webhook", "key"),)
    # The course of the last attempt, for which a new row has room: rows that grow with their
    # outcome would split most pages of SQLite once more. And the replay that it belongs to.
    internal_columns: ClassVar[Mapping[str, str]] = {"trace": " " * 140, "replayed": ""}
    # A rename finds them by their reference; the sweep and doctor by how they ended, and when;
    # pages the newest of a Webhook, of a status, and of both.
    index_together = (
        ("reference_doctype", "reference_name"),
        ("status", "last_attempt"),
        ("status", "creation"),
        ("webhook", "creation"),
        ("webhook", "status", "creation"),
    )
    # Pages find the deliveries of a bulk replay, and the attempts that failed.
    partial_indexes: ClassVar = (
        (("replay_run", "creation"), "replay_run"),
        (("replay_run", "status", "creation"), "replay_run"),
        (("last_attempt",), "error"),
        (("webhook", "last_attempt"), "error"),
    )

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
    erased = Datetime()
    replay_run = Data()


CORE = (
    Role,
    HasRole,
    User,
    UserPermission,
    APIKey,
    Webhook,
    WebhookDelivery,
    EmailDelivery,
    AuditEvent,
    Version,
    ErrorLogEntry,
)
