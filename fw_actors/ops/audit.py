"""Audit Events: operations, denied operations, and every change of rights. Versions of documents.

One verb on one document is one operation and writes one event. Side effects (the keys and scopes of
a deleted User, a new password in a save) belong to that operation. An event contains names (of
fields, roles, users, DocTypes and documents), never the values of other fields: a URL may contain
a token.

A Version has the changes of a document, with user and request. Password and Vault fields, and
fields that no event shows, are omitted (D-223): a change of such a field alone writes a Version
that names no field (D-224).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.core import DOCUMENT, AuditEvent, Version
from fw_actors.documents.fields import Field, Table
from fw_actors.documents.handle import DocType, Fw, rows_of
from fw_actors.documents.hooks import CHANGES, DELETION, Observer
from fw_actors.documents.permissions import administering_error
from fw_actors.documents.rows import SystemRows
from fw_actors.documents.tables import table_of
from fw_actors.documents.validation import changed_columns
from fw_actors.errors import PermissionDeniedError
from fw_actors.rules.lockout import RECORDED_PER_MINUTE, minute_of, refusals_beyond_limit
from fw_actors.rules.safe_output import is_secret
from fw_actors.runtime import Entropy
from fw_actors.runtime.clock import MS_PER_DAY
from fw_actors.store import Statement, Tx

DOCTYPE: Final = "Audit Event"
TARGET_CHARACTERS: Final = 140
MORE: Final = "more"
"""The key, in the detail of a Denied event, of the number of denials it counts."""


class Action(StrEnum):
    """The operation of an Audit Event: `<subject>.<verb>`, in lower case with underscores.

    The subject is a DocType, `console`, `job` or `site`; the verbs create, change, rename and
    delete apply to documents, any other verb is an operation. `Denied` (O-81) is the one exception.
    """

    REPLAY = "webhook.replay"
    DENIED = "Denied"
    CONSOLE_PAUSE = "console.pause"
    CONSOLE_RESUME = "console.resume"
    CONSOLE_RESTART = "console.restart"
    CONSOLE_TRACE = "console.trace"
    CONSOLE_UNLOCK = "console.unlock"
    JOB_RETRY = "job.retry"
    JOB_CANCEL = "job.cancel"
    RESTORE = "site.restore"
    INVITE = "user.invite"
    RESEND_INVITE = "user.resend_invite"
    SEND_RESET = "user.send_password_reset"
    REVOKE_SESSIONS = "user.revoke_sessions"
    REVOKE_KEYS = "user.revoke_keys"
    UNLOCK = "user.unlock"
    SET_PASSWORD = "user.set_password"
    CHANGE_PASSWORD = "user.change_password"
    RESET_PASSWORD = "user.reset_password"
    ACCEPT_INVITE = "user.accept_invite"
    USER_CREATE = "user.create"
    USER_CHANGE = "user.change"
    USER_RENAME = "user.rename"
    USER_DELETE = "user.delete"
    ROLE_CREATE = "role.create"
    ROLE_RENAME = "role.rename"
    ROLE_DELETE = "role.delete"
    SCOPE_CREATE = "user_permission.create"
    SCOPE_CHANGE = "user_permission.change"
    SCOPE_RENAME = "user_permission.rename"
    SCOPE_DELETE = "user_permission.delete"
    KEY_CREATE = "api_key.create"
    KEY_CHANGE = "api_key.change"
    KEY_DELETE = "api_key.delete"
    DOCUMENT_DELETE = "document.delete"
    WEBHOOK_CREATE = "webhook.create"
    WEBHOOK_CHANGE = "webhook.change"
    WEBHOOK_RENAME = "webhook.rename"
    WEBHOOK_DELETE = "webhook.delete"
    ERASE = "webhook.erase"
    CANCEL_DELIVERY = "webhook.cancel"
    ROTATE = "webhook.rotate"
    ROTATION_END = "webhook.rotation_end"
    NOTICE = "webhook.notice"
    NOTICE_END = "webhook.notice_end"
    WEBHOOK_DISABLE = "webhook.disable"
    WEBHOOK_PAUSE = "webhook.pause"
    WEBHOOK_RESUME = "webhook.resume"


_EVENTS: Final = table_of(AuditEvent).table

DENIED_IN_MINUTE: Final = Statement(
    sa.select(_EVENTS.c.name, _EVENTS.c.detail)
    .where(
        _EVENTS.c.action == Action.DENIED.value,
        _EVENTS.c.actor == sa.bindparam("actor"),
        _EVENTS.c.creation >= sa.bindparam("begin"),
        _EVENTS.c.creation < sa.bindparam("end"),
    )
    .limit(RECORDED_PER_MINUTE + 1)
)
"""The denials of an actor in a minute, up to the maximum. The index on these columns serves it."""
_COUNT: Final = Statement(
    sa.update(_EVENTS)
    .where(_EVENTS.c.name == sa.bindparam("event"))
    .values(detail=sa.bindparam("content"), modified=sa.bindparam("now"))
)


class AuditLog:
    """Writes Audit Events in the transaction of the operation.

    The transaction of a denied operation therefore ends normally (see `denial`).
    """

    def __init__(self, entropy: Entropy) -> None:
        self._records = SystemRows(AuditEvent, entropy)
        self._suppressed: set[Tx] = set()

    def record(
        self, fw: Fw, action: Action, target: str, detail: Mapping[str, object] | None = None
    ) -> None:
        """Write one event, with the handle's user as actor and its request id.

        `target` is stored as requested, cut to 140 characters; `detail` is JSON and contains
        neither payloads nor secrets. Inside `suppressed` nothing is written.
        """
        self.record_by(fw.tx, fw.user, fw.request_id, action, target, detail)

    def record_by(
        self,
        tx: Tx,
        actor: str,
        request_id: str,
        action: Action,
        target: str,
        detail: Mapping[str, object] | None = None,
    ) -> None:
        """Write one event as `record`, for an actor without a handle."""
        if tx not in self._suppressed:
            self._add(tx, actor, request_id, action, target, detail)

    @contextmanager
    def suppressed(self, tx: Tx) -> Iterator[None]:
        """Write no events inside the block, for side effects of an operation with its own event.

        Denials are still recorded. Nested uses have no effect.
        """
        if tx in self._suppressed:
            yield
            return
        self._suppressed.add(tx)
        try:
            yield
        finally:
            self._suppressed.discard(tx)

    def deny(self, fw: Fw, target: str) -> None:
        """Record that the handle's user was denied an operation on `target`, without detail (O-81).

        After 20 in a clock minute, one event without a target counts the others in its detail:
        `{"more": n}`. Stored rows decide, so that restarts and other processes do not matter. The
        cost is constant: one look-up, one row written.
        """
        tx, actor = fw.tx, fw.user
        tx.lock(f"fw.denied.{actor}")
        begin, end = minute_of(tx.now)
        rows = tx.rows(DENIED_IN_MINUTE, actor=actor, begin=begin, end=end)
        counting = next((row for row in rows if row[1] is not None), None)
        before = None if counting is None else int(json.loads(counting[1])[MORE])
        more = refusals_beyond_limit(len(rows), before)
        if more is None:
            self._add(tx, actor, fw.request_id, Action.DENIED, target, None)
        elif counting is None:
            self._add(tx, actor, "", Action.DENIED, None, {MORE: more})
        else:
            tx.run(_COUNT, event=counting[0], content=json.dumps({MORE: more}), now=tx.now)

    def denial(self, fw: Fw, operation: str, target: str) -> PermissionDeniedError | None:
        """Return an error unless the user is a System Manager without access scopes; record it.

        The record requires a commit: the operation returns the error instead of raising it, and its
        caller raises it after the commit.

        Args:
            operation: as the subject of a sentence, such as "Erasing a delivery".
            target: as in `record`.
        """
        error = administering_error(fw.rights, operation)
        if error is not None:
            self.deny(fw, target)
        return error

    def _add(
        self,
        tx: Tx,
        actor: str,
        request_id: str,
        action: Action,
        target: str | None,
        detail: Mapping[str, Any] | None,
    ) -> None:
        self._records.add(
            tx,
            actor,
            action=action.value,
            target=None if target is None else target[:TARGET_CHARACTERS],
            detail=None if detail is None else dict(detail),
            actor=actor,
            request_id=request_id or None,
        )


Detail = dict[str, Any]
_RIGHTS_OF_USER: Final = frozenset({"email", "enabled"})
_NO_RIGHTS: Final = frozenset({"last_used"})  # of an API key


@dataclass(frozen=True, slots=True)
class AuditedDocType:
    """The subject of one DocType's actions, and the details of its events."""

    subject: str
    about: Callable[[DocType], Detail]
    """Return the detail of an insert or a deletion; empty for none."""
    changed: Callable[[DocType, DocType], Detail]
    """Return the detail of a change between two documents; empty if no right changed."""

    def action(self, verb: str) -> Action:
        """Return the action; an API key is never renamed and a Role has no fields to change."""
        return Action(f"{self.subject}.{verb}")


class DocumentAudit(Observer):
    """Observes the audited DocTypes, before `NewPasswords` takes a new password off the User."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit
        self.doctypes = frozenset(AUDITED)

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Record a write of an audited DocType; one that changes no right leaves nothing."""
        audited = AUDITED[doc.doctype]
        if event in ("on_insert", "on_trash"):
            verb, detail = ("create" if event == "on_insert" else "delete"), audited.about(doc)
        else:
            verb, detail = "change", _detail_of_change(audited, doc)
            if not detail:
                return
        self._audit.record(fw, audited.action(verb), str(doc.name), detail or None)

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Record the new name as target; events from before the rename keep the old one."""
        action = AUDITED[doctype].action("rename")
        self._audit.record(fw, action, new, {"old": old, "new": new})


class DeletionAudit(Observer):
    """Records deletions of documents whose DocType has no other audit actions (O-200)."""

    events = frozenset({DELETION})

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Record a deletion."""
        if doc.doctype not in AUDITED:
            detail = {"doctype": doc.doctype}
            self._audit.record(fw, Action.DOCUMENT_DELETE, str(doc.name), detail)


def _detail_of_change(audited: AuditedDocType, doc: DocType) -> Detail:
    before = doc._before
    return {} if before is None else audited.changed(before, doc)


def _about_user(user: DocType) -> Detail:
    return {"roles": sorted(_roles_of(user))}


def _changed_user(before: DocType, user: DocType) -> Detail:
    """Return the changed rights; changes of the profile leave no event."""
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
    """Return a detail with the values of these fields, which must be names."""
    return lambda doc: {name: doc.__dict__[name] for name in fields}


def _changed(about: Callable[[DocType], Detail]) -> Callable[[DocType, DocType], Detail]:
    """Return a detail with the names of all changed fields, and the fields of `about`."""

    def changed(before: DocType, doc: DocType) -> Detail:
        fields = sorted({field.name for field in changed_columns(before, doc)} - _NO_RIGHTS)
        return {"changed": fields, **about(doc)} if fields else {}

    return changed


_about_role: Final = _about()
_about_scope: Final = _about("user", "allow", "for_value")
_about_key: Final = _about("user")

AUDITED: Final[Mapping[str, AuditedDocType]] = {
    "User": AuditedDocType("user", _about_user, _changed_user),
    "Role": AuditedDocType("role", _about_role, _changed(_about_role)),
    "User Permission": AuditedDocType("user_permission", _about_scope, _changed(_about_scope)),
    "API Key": AuditedDocType("api_key", _about_key, _changed(_about_key)),
    "Webhook": AuditedDocType("webhook", _about_webhook, _changed(_about_webhook)),
}


_OLDEST: Final = Statement(
    sa.select(_EVENTS.c.name)
    .where(_EVENTS.c.creation <= sa.bindparam("before"))
    .order_by(_EVENTS.c.creation)
    .limit(sa.bindparam("limit"))
    .with_for_update(skip_locked=True)  # two sweepers (PostgreSQL) get different rows
)
# By name: PostgreSQL joins the result of a subquery with a whole table of 100,000 rows.
_DELETE: Final = Statement(sa.delete(_EVENTS).where(_EVENTS.c.name == sa.bindparam("event")))


def delete_old(tx: Tx, retention_days: int, limit: int) -> int:
    """Delete at most `limit` Audit Events after `retention_days`, the oldest first; return how many
    were deleted."""
    names = tx.rows(_OLDEST, before=tx.now - retention_days * MS_PER_DAY, limit=limit)
    if names:
        tx.run_many(_DELETE, [{"event": name} for (name,) in names])
    return len(names)


Changed = dict[str, list[Any]]


_VERSIONS: Final = table_of(Version).table
_RENAME_VERSIONS: Final = Statement(
    sa.update(_VERSIONS)
    .where(
        _VERSIONS.c.ref_doctype == sa.bindparam("doctype"),
        _VERSIONS.c.docname == sa.bindparam("old"),
    )
    .values(docname=sa.bindparam("new"))
)


class VersionRecorder(Observer):
    """Records changes of existing documents."""

    events = frozenset(CHANGES)

    def __init__(self, entropy: Entropy) -> None:
        self._records = SystemRows(Version, entropy)

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Record the differences from the stored document, if any."""
        before = doc._before
        if before is None:
            return
        rows = [each for table in doc.meta.tables for each in self._rows(table, before, doc)]
        status_changed = before.docstatus != doc.docstatus
        fields = changed_columns(before, doc)
        if rows or status_changed or fields:
            changed = _changes(fields, before, doc)
            if status_changed:
                changed["docstatus"] = [before.docstatus, doc.docstatus]
            self._record(fw, doc.doctype, str(doc.name), {"changed": changed, "rows": rows})

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Move the versions of the old name to the new one."""
        fw.tx.run(_RENAME_VERSIONS, doctype=doctype, old=old, new=new)
        self._record(fw, doctype, new, {"changed": {"name": [old, new]}, "rows": []})

    def _record(self, fw: Fw, doctype: str, name: str, data: dict[str, Any]) -> None:
        request = fw.request_id or None
        self._records.add(
            fw.tx, fw.user, ref_doctype=doctype, docname=name, data=data, request_id=request
        )

    def _rows(self, table: Table, before: DocType, doc: DocType) -> Iterator[dict[str, Any]]:
        old = {row.name: row for row in rows_of(before, table)}
        for row in rows_of(doc, table):
            old_row = old.pop(row.name, None)
            if old_row is None:
                yield _row_change(table, row, "added", _added(row))
            elif (fields := changed_columns(old_row, row)) or old_row.idx != row.idx:
                changed = _changes(fields, old_row, row)
                if old_row.idx != row.idx:
                    changed["idx"] = [old_row.idx, row.idx]
                yield _row_change(table, row, "changed", changed)
        for row in old.values():
            removed = {field: [value, None] for field, (_, value) in _added(row).items()}
            yield _row_change(table, row, "removed", removed)


def _added(row: DocType) -> Changed:
    stored = row._stored or {}
    fields = [f for f in row.meta.columns if not is_secret(f.name, f.type)]
    values = {f.name: f.from_store(stored.get(f.name)) for f in fields}
    return {name: [None, value] for name, value in values.items() if value is not None}


def _changes(fields: list[Field], before: DocType, doc: DocType) -> Changed:
    """Return the old and new values of these fields, without secrets."""
    old, new = before._stored or {}, doc._stored or {}
    return {
        f.name: [f.from_store(old.get(f.name)), f.from_store(new.get(f.name))]
        for f in fields
        if not is_secret(f.name, f.type)
    }


def _row_change(table: Table, row: DocType, change: str, changed: Changed) -> dict[str, Any]:
    return {"table": table.name, "row": row.name, "change": change, "changed": changed}
