"""The built-in DocTypes: access, webhooks, and records written by the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

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
from fw_actors.documents.handle import DocType, Fw
from fw_actors.errors import NotFoundError
from fw_actors.rules.receivers import MAX_RATE


class Role(DocType, naming="given"):
    """A role. DocTypes and whitelisted functions grant permissions to roles."""


class HasRole(DocType, name="Has Role", child=True):
    """One role of a user."""

    role = Link(options="Role", required=True, description="The role.")


class NewPassword(Password):
    """A password to be set: write-only, and stored only as its hash (A-294).

    The password policy validates it, not the rules for text: all characters except lone surrogates
    are allowed.
    """

    stored = False
    controls = SURROGATES


class User(DocType, naming="given"):
    """An account. Only a System Manager may write it; self-service uses operations."""

    email = Data(
        required=True,
        unique=True,
        description="The address for mails; the user can sign in with it.",
    )
    fullName = Data(description="Display name of the user.")
    language = Data(length=20, description="The user's language, such as `en`; for apps.")
    enabled = Check(default=1, description="Whether the user can sign in.")
    roles = Table(HasRole, description="Roles of the user.")
    new_password = NewPassword(
        description="Sets the password when the document is saved; never stored or shown."
    )

    def before_save(self, fw: Fw) -> None:
        """Keep one row for each role, the first."""
        first: dict[str, HasRole] = {}
        for row in self.roles:
            first.setdefault(row.role, row)
        self.roles = list(first.values())


class UserPermission(DocType, name="User Permission", naming="random"):
    """One document that a user may see. Rows of one user and DocType add up.

    A user with any row is scoped: for each DocType in `allow`, the user can access only the
    documents that the rows name and the documents that link to these. Webhook, Webhook Delivery,
    Version, Audit Event, Email Delivery and Error Log are inaccessible.
    """

    unique_together = (("allow", "for_value", "user"),)

    user = Link(options="User", required=True, description="The user who is limited.")
    allow = Data(required=True, description="The DocType of the document.")
    for_value = Data(
        required=True, description="The name of a document of that DocType which the user may see."
    )


class APIKey(DocType, name="API Key", naming="given"):
    """Created only by `core.services.api_keys.createMyAPIKey` and `fw key create`.

    If a System Manager deletes a key, it ends at once.
    """

    service_columns: ClassVar = ("last_used",)
    own_operations: ClassVar = True

    user = Link(
        options="User",
        required=True,
        read_only=True,
        description="The account that requests with the key act as.",
    )
    label = Data(required=True, read_only=True, description="Purpose of the key.")
    expires = Datetime(read_only=True, description="When the key ends; empty: never.")
    last_used = Datetime(read_only=True, description="When it was last used, to the minute.")


class AuditEvent(DocType, name="Audit Event", naming="random", read_only=True):
    """Written only by the service; `detail` never holds a payload or a secret."""

    # For queries: refusals of one actor in a minute; events of one document; events of one request.
    index_together = (("action", "actor", "creation"), ("target", "creation"), ("request_id",))

    action = Data(description="The action, such as `user.create`.")
    target = Data(description="The name of the affected document.")
    detail = JSON(description="The names of the changes; never a payload or a secret.")
    actor = Data(description="The user whose rights applied.")
    request_id = Data(description="The request; also in the log.")


STATES = ["Queued", "Retrying", "Sent", "Failed"]


class EmailDelivery(DocType, name="Email Delivery", naming="random", read_only=True):
    """Written only by the service; no part of a message's text or link is stored.

    `recipient` is empty until the account is known.
    """

    index_together = (("status", "creation"),)

    recipient = Data(description="The address; empty until the account is known.")
    template = Data(description="The kind of message.")
    subject = Data(length=300, description="Its subject.")
    status = Select(options=STATES, description="Queued, Retrying, Sent or Failed.")
    attempts = Int(default=0, description="The number of attempts.")
    error = Data(length=500, description="Why the last attempt failed.")
    sent = Datetime(description="When the mail server accepted it.")


class ErrorLogEntry(DocType, name="Error Log", naming="random", read_only=True):
    """Written only by the service; `message` never contains a secret."""

    index_together = (("request_id",),)

    method = Data(description="The route, hook or job that failed.")
    message = Text(description="The traceback, without secrets.")
    request_id = Data(description="The request; also in the log.")


class Version(DocType, naming="random", read_only=True):
    """Written only by the service; `owner` is the user who changed the document.

    `data` is `{"changed": {field: [old, new]}, "rows": [{"table", "row", "change", "changed"}]}`,
    where `change` is added, changed or removed. It never contains a secret.
    """

    index_together = (("ref_doctype", "docname"), ("request_id",))

    ref_doctype = Data(description="The DocType of the changed document.")
    docname = Data(description="The name of the changed document.")
    data = JSON(description="The changed fields, each with old and new value.")
    request_id = Data(description="The request; also in the log.")


DOCUMENT, CUSTOM = "Document", "Custom"
UNORDERED, BY_DOCUMENT = "none", "document"
DEFAULT_TIMEOUT, MAX_TIMEOUT = 10, 60  # B-26; seconds
DEFAULT_MAX_ATTEMPTS = 6  # B-27


class Webhook(DocType, naming="given"):
    """A receiver's subscription to events, with its secret.

    Only System Managers without access scopes have permissions on it.
    """

    service_columns: ClassVar = ("paused_since", "paused_until")
    # The last delivery that a deleted Webhook of the same name has left: neither it nor an earlier
    # one is of this Webhook.
    internal_columns: ClassVar[Mapping[str, str]] = {"former_delivery": ""}

    enabled = Check(default=1, description="Whether events are recorded for it.")
    disabled_reason = Data(
        length=300, read_only=True, description="Why the service has disabled it."
    )
    title = Data(description="Display name.")
    description = Text(description="A description for people.")
    url = Data(
        required=True,
        length=2048,
        description="The URL to which events are sent: https, or http on this machine.",
    )
    event_type = Select(
        options=[DOCUMENT, CUSTOM],
        required=True,
        description="Document: changes of one DocType. Custom: events that apps and programs emit.",
    )
    webhook_doctype = Data(description="The DocType, for event type Document.")
    on_insert = Check(description="Send `doc.on_insert` when a document is inserted.")
    on_update = Check(description="Send `doc.on_update` when a document is saved.")
    on_submit = Check(description="Send `doc.on_submit` when a document is submitted.")
    on_cancel = Check(description="Send `doc.on_cancel` when a document is cancelled.")
    on_trash = Check(description="Send `doc.on_trash` when a document is deleted.")
    custom_event = Data(description="The name of the event, for event type Custom.")
    secret = Vault(required=True, description="Signs the requests; never shown.")
    old_secret = Vault(read_only=True, description="Signs as well, until `old_secret_until`.")
    old_secret_until = Datetime(read_only=True, description="When the old secret stops signing.")
    client_certificate = Data(
        length=60,
        description="The `<NAME>` of the FW_CLIENT_CERT_<NAME> to present to the receiver.",
    )
    timeout = Int(
        default=DEFAULT_TIMEOUT,
        required=True,
        minimum=1,
        maximum=MAX_TIMEOUT,
        description="The time limit of an attempt, in seconds.",
    )
    max_attempts = Int(
        default=DEFAULT_MAX_ATTEMPTS,
        required=True,
        minimum=1,
        maximum=10,
        description="The number of attempts after which a delivery has failed.",
    )
    rate_limit = Int(
        default=0, minimum=0, maximum=MAX_RATE, description="Requests a second; 0: no limit."
    )
    ordering = Select(
        options=[UNORDERED, BY_DOCUMENT],
        default=UNORDERED,
        description="`document`: the events of one document are sent one after the other.",
    )
    paused_since = Datetime(read_only=True, description="When the pause began.")
    paused_until = Datetime(
        read_only=True, description="When the pause ends; empty: until it is resumed."
    )

    def before_save(self, fw: Fw) -> None:
        """Store the defaults of a limit and an ordering that were emptied: clients read a value."""
        self.rate_limit = self.rate_limit or 0
        self.ordering = self.ordering or UNORDERED


def missing_delivery(name: str) -> NotFoundError:
    """Return the error for a name that no Webhook Delivery has."""
    return NotFoundError(f"There is no Webhook Delivery {name[:140]}.")


class WebhookDelivery(DocType, name="Webhook Delivery", naming="random", read_only=True):
    """Written only by the service; its name is the `webhook-id` of every attempt.

    `webhook` and the reference are plain text, because a delivery outlives both. `payload` contains
    the exact bytes that are signed and sent. `key` makes an emit idempotent for each Webhook.
    `replay_run` is the last bulk replay of the delivery.
    """

    unique_together = (("webhook", "key"),)
    partial_unique: ClassVar = {("webhook", "key"): "key"}
    # `trace` has the steps and the request of the last attempt. A new row reserves space for it,
    # because rows that grow with their outcome would split most pages of SQLite. `replayed` is the
    # replay that the delivery belongs to; `trace_context` is that of its event.
    internal_columns: ClassVar[Mapping[str, str]] = {
        "trace": " " * 140,
        "replayed": "",
        "trace_context": "",
    }
    # For queries: by status and end (sweep, doctor); the newest deliveries of a Webhook, of a
    # status, and of both (pages).
    index_together = (
        ("status", "last_attempt"),
        ("status", "creation"),
        ("webhook", "creation"),
        ("webhook", "status", "creation"),
    )
    # For queries: by reference (rename, pages); the deliveries of a bulk replay, and failed
    # attempts (pages).
    partial_indexes: ClassVar = (
        (("reference_doctype", "reference_name"), "reference_doctype"),
        (("replay_run", "creation"), "replay_run"),
        (("replay_run", "status", "creation"), "replay_run"),
        (("last_attempt",), "error"),
        (("webhook", "last_attempt"), "error"),
    )
    former_indexes: ClassVar = (("reference_doctype", "reference_name"),)

    webhook = Data(description="The name of the Webhook; kept when the Webhook is deleted.")
    event = Data(description="The type of the event, such as `doc.on_insert`.")
    status = Select(options=STATES, description="Queued, Retrying, Sent or Failed.")
    attempts = Int(default=0, description="The number of attempts.")
    max_attempts = Int(description="The maximum number of attempts.")
    next_attempt = Datetime(description="When the next attempt is due.")
    last_attempt = Datetime(description="When the last attempt was made.")
    response_status = Int(
        description="The status of the answer to the last attempt; empty without an answer."
    )
    response_body = Text(description="The beginning of that answer.")
    error = Data(
        length=500,
        description="Why the last attempt failed; begins with the kind, such as `timeout:`.",
    )
    duration_ms = Int(description="Duration of the last attempt in milliseconds.")
    key = Data(description="The event's key: a Webhook receives each key once.")
    reference_doctype = Data(description="The DocType of the document that the event is about.")
    reference_name = Data(description="The name of that document.")
    payload = Text(description="The body as it is signed and sent.")
    sent = Datetime(description="When the receiver accepted it.")
    erased = Datetime(description="When payload and answer were erased.")
    replay_run = Data(description="The last bulk replay that sent it again.")


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
