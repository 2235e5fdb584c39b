"""Labels of DocTypes and fields on pages, times, and the columns of lists. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from fw_actors.documents.doctype import Meta
from fw_actors.documents.fields import JSON, Field, Table, Text, iso

DOCUMENTS: Final = "Documents"
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Webhooks": ("Webhook", "Webhook Delivery"),
    "Access": ("User", "Role", "User Permission", "API Key"),
    "Records": ("Audit Event", "Version", "Email Delivery", "Error Log"),
}
"""The groups of built-in DocTypes; all others are under Documents, before them."""

DESCRIPTIONS: Final[Mapping[str, str]] = {
    "Webhook": "Receivers, their events and signing secrets.",
    "Webhook Delivery": "Events for each receiver: sent, failed and still due.",
    "User": "Accounts and their roles.",
    "Role": "Roles of users; DocTypes and functions define their permissions.",
    "User Permission": "Limits a user to certain documents.",
    "API Key": "Credentials of programs; users create them under My account.",
    "Audit Event": "Accountable actions, done or denied, and their actors.",
    "Version": "Changes of documents, with time and user.",
    "Email Delivery": "Mails, their recipients and delivery status.",
    "Error Log": "Defects of the service and of apps, without secrets.",
}
"""Descriptions of built-in DocTypes; those of apps have docstrings."""

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "Webhook": ("title", "url", "webhook_doctype", "custom_event", "enabled"),
    "Webhook Delivery": (
        "event",
        "status",
        "webhook",
        "error",
        "response_status",
        "reference_name",
        "creation",
    ),
    "User": ("name", "fullName", "email", "enabled"),
    "Role": ("name", "modified"),
    "Audit Event": ("creation", "action", "target", "detail", "actor", "request_id"),
    "Version": ("creation", "docname", "ref_doctype", "modified_by"),
    "Email Delivery": ("recipient", "template", "status", "attempts", "creation"),
    "Error Log": ("creation", "method", "message", "request_id"),
    "API Key": ("label", "user", "expires", "last_used"),
}
"""The columns of built-in DocTypes; the first one links to the document."""

_STANDARD: Final[Mapping[str, str]] = {
    "name": "Name",
    "owner": "Owner",
    "creation": "Created",
    "modified": "Changed",
    "modified_by": "Changed by",
    "docstatus": "State",
    "idx": "Order",
}
_LABELS: Final[Mapping[str, str]] = {
    **_STANDARD,
    "url": "URL",
    "fullName": "Full name",
    "email": "E-mail",
    "webhook_doctype": "DocType",
    "ref_doctype": "DocType",
    "reference_doctype": "About (DocType)",
    "reference_name": "About",
    "docname": "Document",
    "duration_ms": "Duration (ms)",
    "timeout": "Timeout (seconds)",
    "client_certificate": "Client certificate",
    "old_secret": "Old secret, while both sign",
    "old_secret_until": "Old secret valid until",
    "disabled_reason": "Reason for disabling",
    "max_attempts": "Maximum attempts",
    "next_attempt": "Due",
    "response_status": "Response",
    "response_body": "Response body",
    "replay_run": "Bulk replay",
    "request_id": "Request",
    "for_value": "Document",
    "allow": "DocType",
    "on_insert": "Inserted",
    "on_update": "Saved",
    "on_submit": "Submitted",
    "on_cancel": "Cancelled",
    "on_trash": "Deleted",
}
DOCSTATUS: Final = ("Draft", "Submitted", "Cancelled")
TITLES: Final = ("title", "subject", "label", "full_name", "fullName")
MAX_COLUMNS: Final = 5
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def label_of(name: str) -> str:
    """Return a field's label: `due_date` and `dueDate` are `Due date`."""
    if name in _LABELS:
        return _LABELS[name]
    words = _CAMEL.sub(" ", name).replace("_", " ").split()
    return " ".join(words).capitalize() if words else name


def sentence(error: str | None) -> str:
    """Return an error as a sentence, without its leading word, which is for programs."""
    text = (error or "").partition(": ")[2] or (error or "")
    return text[:1].upper() + text[1:]


def group_of(doctype: str) -> str:
    """Return the group of a DocType."""
    return next((group for group, names in GROUPS.items() if doctype in names), DOCUMENTS)


def time_or_empty(ms: int | None) -> str:
    """Return a time in ISO 8601, which scripts show in the browser's time zone; empty for None."""
    return "" if ms is None else iso(ms)


def described(meta: Meta) -> str:
    """Return a DocType's description; for a DocType of an app, the first line of its docstring."""
    return DESCRIPTIONS.get(meta.name) or (meta.cls.__doc__ or "").strip().partition("\n")[
        0
    ].replace("`", "")


def titles_of(meta: Meta) -> tuple[str, ...]:
    """Return the fields that may have a document's title, beginning with the class's
    `title_field`."""
    return TITLES if meta.title_field is None else (meta.title_field, *TITLES)


def listable(field: Field) -> bool:
    """Return whether a field's values fit into a list."""
    return not (field.secret or isinstance(field, Table | Text | JSON))


def columns_of(meta: Meta, visible: Mapping[str, Field]) -> tuple[str, ...]:
    """Return the columns of a DocType's list; `visible` are the fields that the user may see."""
    if meta.name in COLUMNS:
        return tuple(c for c in COLUMNS[meta.name] if c in visible or c in _STANDARD)
    title = next((name for name in titles_of(meta) if name in visible), None)
    # A random name means nothing to readers: then the title links to the document.
    head = () if title and meta.naming.kind == "random" else ("name",)
    if title and title != meta.naming.field:
        head = (*head, title)
    shown_names = {*head, meta.naming.field}
    rest = [f.name for f in visible.values() if listable(f) and f.name not in shown_names]
    state = ("docstatus",) if meta.submittable else ()
    return (*head, *rest[: MAX_COLUMNS - len(head)], *state, "modified")
