"""Documents over HTTP: insert, update and list from untrusted input.

A changed value above the caller's permlevel is 403 (D-90), a changed `read_only` field 400 (D-92),
and so is a value that the caller may not read (D-91).
Child rows are sent as whole lists (D-14). In a row that is sent back with its name, fields that the
caller may not write keep their stored values, whether or not they were sent (D-95).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from fw_actors.documents import permissions, query, rows, schema
from fw_actors.documents.doctype import ACTIONS, CHILD_STANDARD, STANDARD, Meta
from fw_actors.documents.fields import (
    CONFIGURED,
    CONTROLS_AND_BREAKS,
    Field,
    ShapeError,
    Table,
    Vault,
    requested_time,
    to_ms,
)
from fw_actors.documents.handle import DocType, Fw, child_of, rows_of, shown_value, unknown_field
from fw_actors.documents.lifecycle import authorize_action, changed_meanwhile
from fw_actors.documents.permissions import Rights
from fw_actors.errors import BadRequestError, PermissionDeniedError, ValidationError
from fw_actors.rules.safe_output import is_secret

_NOT_WRITABLE: Final = ("docstatus", "owner", "creation", "modified", "modified_by", "idx")
_IGNORED_IN_ROWS: Final = ("doctype", *STANDARD, *CHILD_STANDARD)


def validated_values(
    fw: Fw, meta: Meta, body: Mapping[str, Any], doc: DocType | None
) -> dict[str, Any]:
    """Return the validated fields of a body; `doc` is the document to save, None for an insert.

    Raises: BadRequestError naming the key, PermissionDeniedError.
    """
    base = _Base(fw, meta.cls, doc)
    values: dict[str, Any] = {}
    for key, value in body.items():
        field = meta.fields.get(key)
        if field is not None:
            _require_writable(fw, meta, field, value, base)
            values[key] = _validated_value(fw, meta, field, value, base)
        elif key == "name":
            values |= _validated_name(meta, value, doc)
        elif key == "doctype":
            if value != meta.name:
                raise BadRequestError(f"doctype must be {meta.name}, as in the path.", field=key)
        elif key in _NOT_WRITABLE:
            raise BadRequestError(f"{key} cannot be written.", field=key)
        else:
            raise unknown_field(meta, key)
    return values


class _Base:
    """The document that a body is validated against: the stored one, or a blank one."""

    def __init__(self, fw: Fw, cls: type[DocType], doc: DocType | None) -> None:
        self.stored = doc
        self._fw, self._cls = fw, cls

    @cached_property
    def doc(self) -> DocType:
        """The document. A blank one is made at the first access, because it is rarely needed."""
        return self._cls(self._fw) if self.stored is None else self.stored


def _validated_name(meta: Meta, value: object, doc: DocType | None) -> dict[str, Any]:
    if not isinstance(value, str):
        raise BadRequestError("name must be text.", field="name")
    if doc is not None:
        if value != doc.name:
            raise BadRequestError("Use /rename to change the name.", field="name")
        return {}
    if meta.naming.kind != "given":
        raise BadRequestError(f"{meta.name} generates its own names.", field="name")
    if CONTROLS_AND_BREAKS.search(value):
        raise BadRequestError("name must not contain a control character.", field="name")
    return {"name": value}


def _require_writable(fw: Fw, owner: Meta, field: Field, value: Any, base: _Base) -> None:
    """Refuse a field that the caller may not write; `owner` is the parent's DocType for a child
    row.

    A value that the caller may not read is refused even if it is the stored one: otherwise the
    stored one could be guessed.
    """
    if _may_write(fw, owner, field):
        return
    readable = base.stored is None or fw.rights.sees_level(owner, field.permlevel)
    if readable and _is_unchanged(fw, owner, field, value, base.doc):
        return
    if field.read_only:
        raise BadRequestError(f"{field.name} cannot be written.", field=field.name)
    raise PermissionDeniedError(f"You may not write {field.name}.")


def _may_write(fw: Fw, owner: Meta, field: Field) -> bool:
    return not field.read_only and fw.rights.sees_level(owner, field.permlevel, "write")


def _is_unchanged(fw: Fw, owner: Meta, field: Field, value: Any, base: DocType) -> bool:
    """Whether a value equals the one in the caller's responses, in any form that the field
    accepts."""
    shown = shown_value(base, field)
    if isinstance(field, Table):
        shown = [_without_hidden(fw, owner, child_of(field).meta, row) for row in shown]
    if field.is_same(value, shown):
        return True
    try:
        return not field.secret and field.is_same(field.hold(value), shown)
    except (ShapeError, ValidationError):
        return False


def _validated_value(fw: Fw, owner: Meta, field: Field, value: Any, base: _Base) -> Any:
    if isinstance(field, Table):
        return _validated_rows(fw, owner, field, value, base)
    if isinstance(field, Vault) and value == CONFIGURED:
        return dict(CONFIGURED)
    try:
        field.accept(value)
    except ShapeError as error:
        raise BadRequestError(str(error), field=field.name) from None
    return value


def _validated_rows(
    fw: Fw, owner: Meta, table: Table, value: Any, base: _Base
) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise BadRequestError(f"{table.name} must be {table.expected}.", field=table.name)
    child = child_of(table)
    stored = {} if base.stored is None else {r.name: r for r in rows_of(base.stored, table)}
    blank = _Base(fw, child, None)
    # Fields that the caller may not write, or even read, are kept without being sent.
    unwritable = [field for field in child.meta.groups.limited if not _may_write(fw, owner, field)]
    rows, used_names = [], set[Any]()
    for number, row in enumerate(value, 1):
        name = row.get("name")
        stored_row = stored.get(name) if isinstance(name, str) else None
        base_of_row = blank if stored_row is None else _Base(fw, child, stored_row)
        try:
            values = _validated_row(fw, owner, child.meta, row, base_of_row)
        except (BadRequestError, ValidationError) as error:
            error.locate(table.name, number)
            raise
        is_new = stored_row is None or name in used_names  # sent twice: the second is a new row
        source = (blank if is_new else base_of_row).doc
        rows.append({**{field.name: source.__dict__[field.name] for field in unwritable}, **values})
        used_names.add(name)
    return rows


def _validated_row(
    fw: Fw, owner: Meta, meta: Meta, row: Mapping[str, Any], before: _Base
) -> dict[str, Any]:
    """Return the fields of a row that its writer may write."""
    values: dict[str, Any] = {}
    for key, value in row.items():
        field = meta.fields.get(key)
        if field is not None:
            _require_writable(fw, owner, field, value, before)
            if _may_write(fw, owner, field):
                values[key] = _validated_value(fw, owner, field, value, before)
        elif key == "name":
            if not isinstance(value, str | None):
                raise BadRequestError("A row's name must be text.", field=key)
            values[key] = value
        elif key not in _IGNORED_IN_ROWS:  # a row may be sent back as it was read
            raise unknown_field(meta, key)
    return values


DEFAULT_LIMIT: Final = 20
MAX_PAGE_SIZE: Final = 500
_STATUSES: Final = ("submit", "cancel")  # actions of submittable DocTypes only
MAX_LIST_BYTES: Final = 8 << 20
"""The maximum size of a list's rows: many lists may be read at once."""


@dataclass(frozen=True)
class DocTypeDescription:
    """A DocType as available to a user: the actions, and JSON Schemas of requests and responses."""

    doctype: str
    actions: frozenset[str]
    shown: schema.Schema
    listed: schema.Schema
    inserted: schema.Schema
    saved: schema.Schema


def list_documents(fw: Fw, doctype: str, listing: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{"data": [...], "total": n}`; `listing` has the query's arguments.

    Raises: ValidationError if the rows have more than `MAX_LIST_BYTES`.
    """
    meta = _meta_of(fw, doctype)
    fw.rights.require(meta, "list")
    filters = listing.get("filters", [])
    if not isinstance(filters, list):
        raise BadRequestError("filters must be a JSON list of triples.", field="filters")
    fields = listing.get("fields")
    if fields is not None and (not isinstance(fields, list) or not fields):
        raise BadRequestError("fields must be a JSON list of names.", field="fields")
    limit, start = listing.get("limit", DEFAULT_LIMIT), listing.get("start", 0)
    if not 1 <= limit <= MAX_PAGE_SIZE:
        raise BadRequestError(f"limit must be between 1 and {MAX_PAGE_SIZE}.", field="limit")
    if start < 0:
        raise BadRequestError("start must be 0 or more.", field="start")
    matching = query.Query(fw, meta, filters, ignore_permissions=False)
    data = matching.rows(fields, listing.get("order_by"), limit, start, max_bytes=MAX_LIST_BYTES)
    is_last = len(data) < limit and (data or not start)  # the page shows the total
    return {"data": data, "total": start + len(data) if is_last else matching.count()}


def read(fw: Fw, doctype: str, name: str) -> dict[str, Any]:
    """Return the document as the user may see it."""
    _meta_of(fw, doctype)
    return shown(fw, fw.get_doc(doctype, name))


def insert(fw: Fw, doctype: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Insert a document; with `submit: true` next to the fields, also submit it."""
    doc, submit = _new(fw, doctype, body)
    fw.documents.insert(fw, doc, ignore_permissions=False, savepoint=False)
    if submit:
        doc.submit()
    return shown(fw, doc)


def save(fw: Fw, doctype: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Save the changed fields; with `modified` in the body, only if that is the stored version."""
    meta = _meta_of(fw, doctype)
    fw.rights.require(meta, "write")
    doc, stored = fw.documents.load_for_save(fw, doctype, name)
    _change(fw, doc, body)
    fw.documents.save(fw, doc, ignore_permissions=False, stored=stored)
    return shown(fw, doc)


def proposed_document(fw: Fw, doctype: str, name: str | None, body: Mapping[str, Any]) -> DocType:
    """Return the document that an insert (`name` None) or a save would write, without writing.

    For slow work before the transaction.

    Raises: the errors of the write that concern permissions and the form of the body.
    """
    if name is None:
        new = _new(fw, doctype, body)[0]
        permissions.require_write(fw, new)
        return new
    meta = _meta_of(fw, doctype)
    fw.rights.require(meta, "write")
    stored: DocType = fw.get_doc(doctype, name)
    doc = rows.clone(stored)
    doc._before = stored
    _change(fw, doc, body)
    authorize_action(fw, doc, "write", ignore_permissions=False)
    permissions.require_write(fw, doc)
    return doc


def submit(fw: Fw, doctype: str, name: str, version: int | None = None) -> dict[str, Any]:
    """Submit a draft; with a version (`version_of`), only if that is the stored one."""
    meta = _meta_of(fw, doctype)
    fw.rights.require(meta, "submit")
    doc = fw.documents.load_for_save(fw, doctype, name)[0]
    require_version(doc, version)
    return shown(fw, doc.submit())


def cancel(fw: Fw, doctype: str, name: str, version: int | None = None) -> dict[str, Any]:
    """Cancel a submitted document; `version` as for `submit`."""
    meta = _meta_of(fw, doctype)
    fw.rights.require(meta, "cancel")
    doc = fw.documents.load_for_save(fw, doctype, name)[0]
    require_version(doc, version)
    return shown(fw, doc.cancel())


def delete(fw: Fw, doctype: str, name: str, version: int | None = None) -> dict[str, Any]:
    """Delete a document; `version` as for `submit`."""
    meta = _meta_of(fw, doctype)
    fw.rights.require(meta, "delete")
    fw.documents.registry.tables[doctype].lock_exclusive(fw.tx, name)
    doc = fw.get_doc(doctype, name)
    require_version(doc, version)
    doc.delete()
    return {"ok": True}


def rename(
    fw: Fw, doctype: str, name: str, body: Mapping[str, Any], version: int | None = None
) -> dict[str, Any]:
    """Rename a document to the `name` in the body; `version` as for `submit`."""
    meta = _meta_of(fw, doctype)
    for key in body:
        if key != "name":
            raise BadRequestError(
                f"A rename accepts only name and modified, not {key[:60]}.", field=key[:60]
            )
    new = body.get("name")
    if not isinstance(new, str):
        raise BadRequestError("name must be text.", field="name")
    fw.rights.require(meta, "write")
    fw.documents.registry.tables[doctype].lock_exclusive(fw.tx, name)
    doc: DocType = fw.get_doc(doctype, name)
    require_version(doc, version)
    if meta.naming.kind == "field":  # it gets the new name too
        base = _Base(fw, meta.cls, doc)
        _require_writable(fw, meta, meta.fields[meta.naming.field], new, base)
    return shown(fw, doc.rename(new))


def export(fw: Fw, doctype: str, name: str) -> dict[str, Any]:
    """Return the document as the user may see it, without its secrets.

    Password and Vault fields, and fields that are omitted from events, are absent (D-16).
    """
    meta = _meta_of(fw, doctype)
    fw.rights.require(meta, "export")
    return _without_secrets(meta, shown(fw, fw.get_doc(doctype, name)))


def _without_secrets(meta: Meta, values: dict[str, Any]) -> dict[str, Any]:
    for field in meta.fields.values():
        if is_secret(field.name, field.type):
            values.pop(field.name, None)
        elif isinstance(field, Table):
            for row in values.get(field.name, ()):
                _without_secrets(child_of(field).meta, row)
    return values


def describe_doctypes(fw: Fw) -> list[DocTypeDescription]:
    """Return the DocTypes that the user may use, each with its actions and schemas."""
    rights = fw.rights
    descriptions = []
    for meta in sorted(fw.documents.registry.metas.values(), key=lambda meta: meta.name):
        actions = frozenset(a for a in ACTIONS if _is_possible(meta, a, rights))
        if actions and not meta.child and not rights.excludes(meta):
            descriptions.append(
                DocTypeDescription(
                    meta.name,
                    actions,
                    shown=schema.shown(meta, rights),
                    listed=schema.listed(meta, rights),
                    inserted=schema.accepted(meta, rights, new=True),
                    saved=schema.accepted(meta, rights, new=False),
                )
            )
    return descriptions


def _is_possible(meta: Meta, action: str, rights: Rights) -> bool:
    """Whether the DocType has the action and the user's permissions may allow it."""
    if not rights.allows(meta, action) or (action in _STATUSES and not meta.submittable):
        return False
    if meta.own_operations and action in ("create", "write"):
        return False
    writable = not meta.read_only and rights.is_writable_in_scope(meta)
    return writable or action in ("list", "read", "export")


def shown(fw: Fw, doc: DocType) -> dict[str, Any]:
    """Return a document's dict without fields above the user's permlevel."""
    return _without_hidden(fw, doc.meta, doc.meta, doc.as_dict())


def _without_hidden(fw: Fw, owner: Meta, meta: Meta, values: dict[str, Any]) -> dict[str, Any]:
    """Child rows follow the permissions of their parent's DocType."""
    for field in meta.groups.levelled:
        if not fw.rights.sees_level(owner, field.permlevel):
            del values[field.name]
    for table in meta.tables:
        child = child_of(table).meta
        if child.groups.levelled:
            for row in values.get(table.name, ()):
                _without_hidden(fw, owner, child, row)
    return values


def _meta_of(fw: Fw, doctype: str) -> Meta:
    """Return the Meta; refuse a child DocType, and a DocType that the user's scopes exclude."""
    meta = fw.documents.registry.meta(doctype)
    if meta.child:
        raise BadRequestError(f"{doctype} rows are part of their parent's document.")
    fw.rights.require_in_scope(meta)
    return meta


def _new(fw: Fw, doctype: str, body: Mapping[str, Any]) -> tuple[DocType, bool]:
    """Return the document to insert from a body, and whether to submit it."""
    meta = _meta_of(fw, doctype)
    body = dict(body)
    submit = body.pop("submit", False) if "submit" not in meta.fields else False
    if not isinstance(submit, bool):
        raise BadRequestError("submit must be true or false.", field="submit")
    fw.rights.require(meta, "create")
    if submit:
        fw.rights.require(meta, "submit")
    doc: DocType = meta.cls(fw, validated_values(fw, meta, body, None))
    return doc, submit


def _change(fw: Fw, doc: DocType, body: Mapping[str, Any]) -> None:
    """Write a body's fields to a document that was read."""
    body = dict(body)
    if "modified" in body:
        require_version(doc, version_of(body.pop("modified")))
    for key, value in validated_values(fw, doc.meta, body, doc).items():
        setattr(doc, key, value)


def version_of(modified: object) -> int:
    """Return the version that a request names by its `modified`, in ms. Raises: BadRequestError."""
    return requested_time(modified, "modified")


def require_version(doc: DocType, version: int | None) -> None:
    """Refuse a document of another version; None accepts any. Raises: ConflictError."""
    if version is None:
        return
    if doc.modified is None or version != to_ms(datetime.fromisoformat(doc.modified)):
        raise changed_meanwhile(doc)
