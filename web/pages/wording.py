"""What DocTypes and fields are called on pages, and how each DocType is best listed. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fw_actors.documents.doctype import Meta
from fw_actors.documents.fields import Field, Table, Text
from fw_actors.documents.special_fields import JSON

DOCUMENTS: Final = "Documents"
GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Webhooks": ("Webhook", "Webhook Delivery"),
        "Access": ("User", "Role", "User Permission", "API Key"),
        "Records": ("Audit Event", "Version", "Email Delivery", "Error Log"),
    }
)
"""The built-in DocTypes by what they are for; all others stand under Documents, before them."""

ABOUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Webhook": "Who receives which events, and how they are signed.",
        "Webhook Delivery": "What was sent to whom, how it went, and what is still to be sent.",
        "User": "Who may sign in, and in which roles.",
        "Role": "What people may be; DocTypes and functions say what each role may do.",
        "User Permission": "Limits a user to the documents that are named here.",
        "API Key": "What programs sign in with; made by their users under My account.",
        "Audit Event": "Who did, or was refused, what has to be accounted for.",
        "Version": "What changed in which document, when, and by whom.",
        "Email Delivery": "Which mail went to whom, and whether it arrived.",
        "Error Log": "Defects of the service and of apps, without secrets.",
    }
)
"""What the built-in DocTypes hold, for their readers; an app's says it in its docstring."""

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Webhook": ("url", "event_type", "webhook_doctype", "custom_event", "enabled"),
        "Webhook Delivery": (
            "event",
            "webhook",
            "status",
            "attempts",
            "response_status",
            "next_attempt",
            "creation",
        ),
        "User": ("name", "fullName", "email", "enabled", "modified"),
        "Role": ("name", "modified"),
        "Audit Event": ("action", "target", "actor", "creation"),
        "Version": ("docname", "ref_doctype", "modified_by", "creation"),
        "Email Delivery": ("recipient", "template", "status", "attempts", "creation"),
        "Error Log": ("method", "message", "creation"),
        "API Key": ("label", "user", "expires", "last_used"),
    }
)
"""What the lists of the built-in DocTypes show; the first column leads to the document."""

_STANDARD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "name": "Name",
        "owner": "Owner",
        "creation": "Created",
        "modified": "Changed",
        "modified_by": "Changed by",
        "docstatus": "State",
        "idx": "Order",
    }
)
_LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_STANDARD,
        "url": "URL",
        "fullName": "Full name",
        "email": "E-mail",
        "webhook_doctype": "DocType",
        "ref_doctype": "DocType",
        "reference_doctype": "About (DocType)",
        "reference_name": "About (name)",
        "docname": "Document",
        "duration_ms": "Duration (ms)",
        "timeout": "Timeout (seconds)",
        "max_attempts": "Tries at most",
        "next_attempt": "Due",
        "response_status": "Answer",
        "response_body": "Body of the answer",
        "request_id": "Request",
        "for_value": "Document",
        "allow": "DocType",
        "on_insert": "Inserted",
        "on_update": "Saved",
        "on_submit": "Submitted",
        "on_cancel": "Cancelled",
        "on_trash": "Deleted",
    }
)
DOCSTATUS: Final = ("Draft", "Submitted", "Cancelled")
TITLES: Final = ("title", "subject", "label", "full_name", "fullName")
MOST_COLUMNS: Final = 5
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def label_of(name: str) -> str:
    """Return what people read for a field's name: `due_date` and `dueDate` are `Due date`."""
    if name in _LABELS:
        return _LABELS[name]
    words = _CAMEL.sub(" ", name).replace("_", " ").split()
    return " ".join(words).capitalize() if words else name


def group_of(doctype: str) -> str:
    """Return the group under which a DocType stands."""
    return next((group for group, names in GROUPS.items() if doctype in names), DOCUMENTS)


def described(meta: Meta) -> str:
    """Return what a DocType holds: of an app's, the first line of what its class says."""
    return ABOUT.get(meta.name) or (meta.cls.__doc__ or "").strip().partition("\n")[0].replace(
        "`", ""
    )


def listable(field: Field) -> bool:
    """Say whether a field's values fit into a list."""
    return not (field.secret or isinstance(field, Table | Text | JSON))


def columns_of(meta: Meta, visible: Mapping[str, Field]) -> tuple[str, ...]:
    """Return the columns of a DocType's list; `visible` are the fields that the reader may see."""
    if meta.name in COLUMNS:
        return tuple(c for c in COLUMNS[meta.name] if c in visible or c in _STANDARD)
    title = next((name for name in TITLES if name in visible), None)
    # A random name says nothing to anybody: then the title leads to the document.
    head = () if title and meta.naming.kind == "random" else ("name",)
    if title and title != meta.naming.field:
        head = (*head, title)
    taken = {*head, meta.naming.field}
    rest = [f.name for f in visible.values() if listable(f) and f.name not in taken]
    state = ("docstatus",) if meta.submittable else ()
    return (*head, *rest[: MOST_COLUMNS - len(head)], *state, "modified")
