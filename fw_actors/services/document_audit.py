"""Audit Events of changed rights: every write of a User, a Role, an access scope, an API key or a
Webhook, whoever makes it, over HTTP, in Python or on the command line.

One verb of one document is one act, and leaves one event. What the service does along with it
(the keys and scopes of a deleted User, a new password in a save) is a part of that act. An event
holds names (of fields, roles, users, DocTypes and documents), never what other fields hold: a url
may have a token in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from fw_actors.documents.changes import changed_columns
from fw_actors.documents.core.webhook import DOCUMENT
from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw
from fw_actors.documents.observers import Observer
from fw_actors.services.audit import Action, AuditLog

Detail = dict[str, Any]
_RIGHTS_OF_USER: Final = frozenset({"email", "enabled"})
_NO_RIGHTS: Final = frozenset({"last_used"})  # of an API key


@dataclass(frozen=True, slots=True)
class AuditedDocType:
    """The actions of one DocType, None for what can't happen to it; and what its events tell."""

    create: Action
    change: Action | None
    rename: Action | None
    delete: Action
    about: Callable[[DocType], Detail]
    """The detail of an insert or a deletion; empty for none."""
    changed: Callable[[DocType, DocType], Detail]
    """The detail of a change from the first document to the second; empty where no right
    changed."""


class DocumentAudit(Observer):
    """Observes all documents. Has to be called before a new password is taken off the User."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Record a write of an audited DocType; one that changes no right leaves nothing."""
        audited = AUDITED.get(doc.doctype)
        if audited is None:
            return
        action: Action | None
        if event == "on_insert":
            action, detail = audited.create, audited.about(doc)
        elif event == "on_trash":
            action, detail = audited.delete, audited.about(doc)
        else:
            action, detail = audited.change, _detail_of_change(audited, doc)
            if not detail:
                return
        if action is not None:
            self._audit.record(fw, action, str(doc.name), detail or None)

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Record the new name as target; events from before the rename keep the old one."""
        audited = AUDITED.get(doctype)
        if audited is not None and audited.rename is not None:
            self._audit.record(fw, audited.rename, new, {"old": old, "new": new})


def _detail_of_change(audited: AuditedDocType, doc: DocType) -> Detail:
    before = doc._before
    return {} if before is None else audited.changed(before, doc)


def _about_user(user: DocType) -> Detail:
    return {"roles": sorted(_roles_of(user))}


def _changed_user(before: DocType, user: DocType) -> Detail:
    """What is no right, the profile, leaves no event."""
    old, new = _roles_of(before), _roles_of(user)
    columns = {field.name for field in changed_columns(before, user)} & _RIGHTS_OF_USER
    password = {"new_password"} if user.__dict__["new_password"] is not None else set()
    roles = {"roles"} if old != new else set()
    fields = sorted(columns | password | roles)
    detail: Detail = {"changed": fields} if fields else {}
    if "enabled" in fields:
        detail["enabled"] = bool(user.__dict__["enabled"])
    if new - old:
        detail["roles_added"] = sorted(new - old)
    if old - new:
        detail["roles_removed"] = sorted(old - new)
    return detail


def _roles_of(user: DocType) -> set[str]:
    return {row.role for row in user.__dict__["roles"]}


def _about_webhook(webhook: DocType) -> Detail:
    values = webhook.__dict__
    watched = "webhook_doctype" if values["event_type"] == DOCUMENT else "custom_event"
    return {"event_type": values["event_type"], watched: values[watched]}


def _about(*fields: str) -> Callable[[DocType], Detail]:
    """Tell what these fields hold, which are names."""
    return lambda doc: {name: doc.__dict__[name] for name in fields}


def _changed(about: Callable[[DocType], Detail]) -> Callable[[DocType, DocType], Detail]:
    """Tell the names of all fields that differ, and what an event tells in any case."""

    def changed(before: DocType, doc: DocType) -> Detail:
        fields = sorted({field.name for field in changed_columns(before, doc)} - _NO_RIGHTS)
        return {"changed": fields, **about(doc)} if fields else {}

    return changed


_about_role: Final = _about()
_about_scope: Final = _about("user", "allow", "for_value")
_about_key: Final = _about("user")

AUDITED: Final[Mapping[str, AuditedDocType]] = MappingProxyType(
    {
        "User": AuditedDocType(
            create=Action.USER_CREATE,
            change=Action.USER_CHANGE,
            rename=Action.USER_RENAME,
            delete=Action.USER_DELETE,
            about=_about_user,
            changed=_changed_user,
        ),
        "Role": AuditedDocType(
            create=Action.ROLE_CREATE,
            change=None,  # it has no field
            rename=Action.ROLE_RENAME,
            delete=Action.ROLE_DELETE,
            about=_about_role,
            changed=_changed(_about_role),
        ),
        "User Permission": AuditedDocType(
            create=Action.SCOPE_CREATE,
            change=Action.SCOPE_CHANGE,
            rename=Action.SCOPE_RENAME,
            delete=Action.SCOPE_DELETE,
            about=_about_scope,
            changed=_changed(_about_scope),
        ),
        "API Key": AuditedDocType(
            create=Action.KEY_CREATE,
            change=Action.KEY_CHANGE,
            rename=None,  # refused: the name is a part of the key
            delete=Action.KEY_DELETE,
            about=_about_key,
            changed=_changed(_about_key),
        ),
        "Webhook": AuditedDocType(
            create=Action.WEBHOOK_CREATE,
            change=Action.WEBHOOK_CHANGE,
            rename=Action.WEBHOOK_RENAME,
            delete=Action.WEBHOOK_DELETE,
            about=_about_webhook,
            changed=_changed(_about_webhook),
        ),
    }
)
