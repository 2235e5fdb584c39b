"""Prepares and validates a document before it is saved, and compares it with the stored one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from fw_actors.documents.fields import (
    CONFIGURED,
    MAX_INTEGER,
    Data,
    Field,
    Link,
    Password,
    Select,
    ShapeError,
    Table,
    Text,
    Vault,
    shown_vault,
)
from fw_actors.documents.handle import DocType, Fw, child_of, rows_of
from fw_actors.documents.hooks import run_hook
from fw_actors.documents.permissions import require_link_within
from fw_actors.errors import ConflictError, ValidationError
from fw_actors.rules.identifiers import is_invisible
from fw_actors.store import Tx

if TYPE_CHECKING:
    from fw_actors.documents.lifecycle import Documents

# Of one table field: writing more would block all other writers for seconds.
MAX_CHILD_ROWS: Final = 5000
_LINKS_MAY_DANGLE = ("Webhook", "API Key")
"""Deliveries outlive their Webhook, and nothing may keep a key alive (D-128)."""


def prepare(
    documents: Documents, fw: Fw, doc: DocType, stored: DocType | None, ignore_permissions: bool
) -> None:
    """Prepare a document for writing; `stored` is the version that it replaces.

    The rules are checked after `before_save`, so they also apply to its changes.

    Raises: ValidationError, PermissionDeniedError as `check_values`, and what the hooks raise.
    """
    normalize(doc)
    if not doc.meta.hooks.isdisjoint(("before_validate", "validate")):
        run_hook(fw, doc, "before_validate")
        for table in doc.meta.tables:
            rows_of(doc, table)  # the next hook sees objects
        run_hook(fw, doc, "validate")
        _settle(doc, stored)
    check_values(documents, fw.tx, doc, ignore_permissions)
    if "before_save" in doc.meta.hooks:
        run_hook(fw, doc, "before_save")
        _settle(doc, stored)
        check_values(documents, fw.tx, doc, ignore_permissions)


def _settle(doc: DocType, stored: DocType | None) -> None:
    """Normalise the values that hooks have written, and merge rows that they replaced by name."""
    if stored is not None:
        merge_rows(stored, doc)
    normalize(doc)


def merge_rows(stored: DocType, doc: DocType) -> None:
    """Match rows of a replaced list to the stored rows by name, so that their secrets are kept."""
    for field in doc.meta.tables:
        by_name = {row.name: row for row in rows_of(stored, field)}
        for row in rows_of(doc, field):
            if not isinstance(row.__dict__["name"], str):
                row.name = None  # no row has this name
            before = by_name.get(row.name) if row._stored is None else None
            if before is not None:
                row._stored = before._stored
                row.owner, row.creation = before.owner, before.creation


def normalize(doc: DocType) -> None:
    """Normalise every value of a document. Raises: ValidationError."""
    state, meta, name = doc.__dict__, doc.meta, ""
    if type(state["idx"]) is not int or abs(state["idx"]) > MAX_INTEGER:
        raise ValidationError("idx must be a whole number.", field="idx")
    try:
        for name, accept in meta.groups.accepted:
            state[name] = accept(state[name])
    except ShapeError as error:
        raise ValidationError(str(error), field=name) from None
    for field in meta.groups.secrets:
        state[field.name] = _accepted_secret(doc, field, state[field.name])
    for table in meta.tables:
        rows = rows_of(doc, table)
        if len(rows) > MAX_CHILD_ROWS:
            raise ValidationError(
                f"{table.name} must have at most {MAX_CHILD_ROWS:,} rows.", field=table.name
            )
        for number, row in enumerate(rows, 1):
            try:
                normalize(row)
            except ValidationError as error:
                error.locate(table.name, number)
                raise


def _accepted_secret(doc: DocType, field: Field, value: Any) -> Any:
    if isinstance(field, Vault) and (value is None or isinstance(value, dict)):
        return _kept_vault(doc, field, value)
    if isinstance(field, Password) and value is None:
        return (doc._stored or {}).get(field.name)
    try:
        return field.accept(value)
    except ShapeError as error:
        raise ValidationError(str(error), field=field.name) from None


def _kept_vault(
    doc: DocType, field: Field, value: dict[str, object] | None
) -> dict[str, object] | None:
    """null and `{"configured": true}` keep a stored Vault value; "" clears it."""
    if value is not None and value != CONFIGURED:
        raise ValidationError(f"{field.name} must be text.", field=field.name)
    return shown_vault((doc._stored or {}).get(field.name))


def check_standard(doc: DocType, stored: DocType) -> None:
    """Refuse changes of fields that only the service writes. Raises: ValidationError."""
    for name in ("owner", "creation", "docstatus"):
        if doc.__dict__[name] != stored.__dict__[name]:
            raise ValidationError(f"{name} cannot be written.", field=name)


def keep_service_columns(doc: DocType, stored: DocType) -> None:
    """Keep what the service has written since the document was read, such as a pause."""
    for name in doc.meta.service_columns:
        doc.__dict__[name] = stored.__dict__[name]


def check_values(documents: Documents, tx: Tx, doc: DocType, ignore_permissions: bool) -> None:
    """Refuse missing required values and links to missing documents.

    Raises: ValidationError; PermissionDeniedError for a link beyond the user's access scopes.
    """
    for field in doc.meta.groups.checked:
        check_value(documents, tx, doc, field, ignore_permissions)


def check_value(
    documents: Documents, tx: Tx, doc: DocType, field: Field, ignore_permissions: bool
) -> None:
    """Check one field and its rows, as `check_values` does. Raises: as `check_values`."""
    value = doc.__dict__[field.name]
    if field.required:
        _require_value(doc, field, value)
    if isinstance(field, Table):
        for number, row in enumerate(rows_of(doc, field), 1):
            try:
                check_values(documents, tx, row, ignore_permissions)
            except ValidationError as error:
                error.locate(field.name, number)
                raise
    elif isinstance(field, Link) and value:
        scopes = doc._fw.rights.scopes
        if not ignore_permissions:  # before the look-up: a later fault must not tell what exists
            require_link_within(scopes, field, value)
        if not documents.registry.table(field.options).lock_shared(tx, value):
            require_link_within(scopes, field, value)  # the same refusal for app code
            raise ValidationError(
                f"{field.name}: there is no {field.options} {value}.", field=field.name
            )
    elif isinstance(field, Select) and value == "":
        doc.__dict__[field.name] = None


def _require_value(doc: DocType, field: Field, value: Any) -> None:
    if not value and field.is_missing(value):
        raise ValidationError(f"{field.name} is missing.", field=field.name)
    if isinstance(field, Data | Text) and is_invisible(value):
        if doc._stored is not None and doc._stored[field.name] == value:
            return  # it was stored before this rule (D-65)
        raise ValidationError(f"{field.name} must have a visible character.", field=field.name)


def check_links(documents: Documents, tx: Tx, doc: DocType) -> None:
    """Refuse to delete a document to which another one links.

    As in columns of removed fields, links in rows of removed table fields do not count (D-132): no
    document shows them.

    Raises: ConflictError naming the first, if the user may read it (D-128).
    """
    if doc.doctype in _LINKS_MAY_DANGLE:
        return
    for doctype, field in fields_linking_to(documents, doc.doctype):
        c = documents.registry.tables[doctype].table.c
        child = documents.registry.metas[doctype].child
        parent_or_self = (c.parenttype, c.parent) if child else (sa.literal(doctype), c.name)
        row = tx.one(
            sa.select(*parent_or_self)
            .where(
                c[field.name] == doc.name,
                ~sa.and_(parent_or_self[0] == doc.doctype, parent_or_self[1] == doc.name),
                *([_is_of_declared_field(documents, doctype)] if child else ()),
            )
            .order_by(*parent_or_self)
            .limit(1)
        )
        if row is not None:
            is_readable = documents.may_read(doc._fw, *row)
            linking = f"{row[0]} {row[1]}" if is_readable else "Another document"
            raise ConflictError(f"{linking} links to {doc.doctype} {doc.name}.")


def _is_of_declared_field(documents: Documents, child: str) -> sa.ColumnElement[bool]:
    c = documents.registry.tables[child].table.c
    declared = (
        sa.and_(c.parenttype == meta.name, c.parentfield == field.name)
        for meta in documents.registry.metas.values()
        for field in meta.tables
        if child_of(field).meta.name == child
    )
    return sa.or_(sa.false(), *declared)


def fields_linking_to(documents: Documents, doctype: str) -> Iterator[tuple[str, Field]]:
    """Yield the Link fields to a DocType, each with the name of the DocType that declares it."""
    for name, meta in documents.registry.metas.items():
        for field in meta.columns:
            if isinstance(field, Link) and field.options == doctype:
                yield name, field


def changed_columns(before: DocType, doc: DocType) -> list[Field]:
    """Return the columns that a write has changed. Stored values are compared, because documents
    do not show whether a secret has changed.
    """
    old, new = before._stored or {}, doc._stored or {}
    if old is new:
        return []  # a row that was not written
    return [f for f in doc.meta.columns if old.get(f.name) != new.get(f.name)]


def changes_once_submitted(stored: DocType, doc: DocType) -> bool:
    """Whether a submitted document has changed at all.

    A table that is not `allow_on_submit` must keep its rows; only their `allow_on_submit` fields
    may change. Raises: ValidationError naming a field that may not change.
    """
    changed = False
    for field in doc.meta.fields.values():
        if isinstance(field, Table) and not field.allow_on_submit:
            changed |= _rows_change(stored, doc, field)
        elif _differs(stored, doc, field):
            _require_allowed(field, doc)
            changed = True
    return changed


def _rows_change(stored: DocType, doc: DocType, table: Table) -> bool:
    before, after = rows_of(stored, table), rows_of(doc, table)
    if [row.name for row in before] != [row.name for row in after]:
        _require_allowed(table, doc)
    changed = False
    for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
        for field in _differing(old, new):
            try:
                _require_allowed(field, doc)
            except ValidationError as error:
                error.locate(table.name, number)
                raise
            changed = True
    return changed


def _require_allowed(field: Field, doc: DocType) -> None:
    if not field.allow_on_submit:
        raise ValidationError(
            f"{field.name} cannot change once {doc.doctype} {doc.name} is submitted.",
            field=field.name,
        )


def _differs(old: DocType, new: DocType, field: Field) -> bool:
    if not isinstance(field, Table):
        return not field.is_same(old.__dict__[field.name], new.__dict__[field.name])
    before, after = rows_of(old, field), rows_of(new, field)
    return [row.name for row in before] != [row.name for row in after] or any(
        next(_differing(one, other), None) for one, other in zip(before, after, strict=True)
    )


def _differing(old: DocType, new: DocType) -> Iterator[Field]:
    return (field for field in new.meta.columns if _differs(old, new, field))
