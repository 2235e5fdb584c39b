"""Documents as JSON: what `/api/resource/…` does inside a transaction (interface §3, §8)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from fw_actors.documents import query
from fw_actors.documents.doctype import CHILD_STANDARD, STANDARD, Meta
from fw_actors.documents.document import CONFIGURED, DocType, child_of, field_unknown
from fw_actors.documents.field import Field, ShapeError
from fw_actors.documents.fields import Table, Vault
from fw_actors.documents.times import to_ms
from fw_actors.errors import BadRequestError, ConflictError, PermissionDeniedError
from fw_actors.rules.redaction import is_secret

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

DEFAULT_LIMIT: Final = 20
MOST: Final = 500
_NEVER: Final = ("docstatus", "owner", "creation", "modified_by", "idx")
_ECHOED: Final = ("doctype", *STANDARD, *CHILD_STANDARD)


def list_documents(fw: Fw, doctype: str, listing: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{"data": [...], "total": n}`; `listing` has the query's arguments."""
    meta = _open(fw, doctype)
    fw.rights.require(meta, "list")
    filters = listing.get("filters", [])
    if not isinstance(filters, list):
        raise BadRequestError("filters is a JSON list of triples.", field="filters")
    fields = listing.get("fields")
    if fields is not None and (not isinstance(fields, list) or not fields):
        raise BadRequestError("fields is a JSON list of names.", field="fields")
    limit, start = listing.get("limit", DEFAULT_LIMIT), listing.get("start", 0)
    if not 1 <= limit <= MOST:
        raise BadRequestError(f"limit is 1 to {MOST}.", field="limit")
    if start < 0:
        raise BadRequestError("start is 0 or more.", field="start")
    wanted = query.Query(fw, meta, filters, ignore_permissions=False)
    data = wanted.rows(fields, listing.get("order_by"), limit, start)
    short = len(data) < limit and (data or not start)  # the page tells the total by itself
    return {"data": data, "total": start + len(data) if short else wanted.count()}


def read(fw: Fw, doctype: str, name: str) -> dict[str, Any]:
    """Return the document as the user may see it."""
    _open(fw, doctype)
    return shown(fw, fw.get_doc(doctype, name))


def insert(fw: Fw, doctype: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Insert a document; `submit: true` beside the fields submits it too."""
    meta = _open(fw, doctype)
    body = dict(body)
    submit = body.pop("submit", False) if "submit" not in meta.fields else False
    if not isinstance(submit, bool):
        raise BadRequestError("submit is true or false.", field="submit")
    fw.rights.require(meta, "create")
    if submit:
        fw.rights.require(meta, "submit")
    values = _judged(fw, meta, body, None)
    doc: DocType = fw.new_doc(doctype, **values)
    doc.insert()
    if submit:
        doc.submit()
    return shown(fw, doc)


def save(fw: Fw, doctype: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Save the changed fields; with `modified`, only over that version."""
    meta = _open(fw, doctype)
    fw.rights.require(meta, "write")
    doc: DocType = fw.get_doc(doctype, name)
    body = dict(body)
    if "modified" in body:
        _same_version(doc, body.pop("modified"))
    for key, value in _judged(fw, meta, body, doc).items():
        setattr(doc, key, value)
    doc.save()
    return shown(fw, doc)


def submit(fw: Fw, doctype: str, name: str) -> dict[str, Any]:
    """Submit a draft."""
    meta = _open(fw, doctype)
    fw.rights.require(meta, "submit")
    return shown(fw, fw.get_doc(doctype, name).submit())


def cancel(fw: Fw, doctype: str, name: str) -> dict[str, Any]:
    """Cancel a submitted document."""
    meta = _open(fw, doctype)
    fw.rights.require(meta, "cancel")
    return shown(fw, fw.get_doc(doctype, name).cancel())


def delete(fw: Fw, doctype: str, name: str) -> dict[str, Any]:
    """Delete a document."""
    meta = _open(fw, doctype)
    fw.rights.require(meta, "delete")
    fw.get_doc(doctype, name).delete()
    return {"ok": True}


def rename(fw: Fw, doctype: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Give a document the name that the body says."""
    meta = _open(fw, doctype)
    for key in body:
        if key != "name":
            raise BadRequestError(f"A rename takes name alone, no {key[:60]}.", field=key[:60])
    new = body.get("name")
    if not isinstance(new, str):
        raise BadRequestError("name takes text.", field="name")
    fw.rights.require(meta, "write")
    return shown(fw, fw.get_doc(doctype, name).rename(new))


def export(fw: Fw, doctype: str, name: str) -> dict[str, Any]:
    """Return the bare document as the user may see it, without its secrets.

    Password and Vault fields, and those that no event shows, are absent (spec, Redaction).
    """
    meta = _open(fw, doctype)
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


def shown(fw: Fw, doc: DocType) -> dict[str, Any]:
    """Return a document's dict without what is above the user's permlevel."""
    return _without_hidden(fw, doc.meta, doc.meta, doc.as_dict())


def _without_hidden(fw: Fw, owner: Meta, meta: Meta, values: dict[str, Any]) -> dict[str, Any]:
    """Child rows follow the permissions of their parent's DocType."""
    for field in meta.fields.values():
        if field.permlevel and not fw.rights.sees_level(owner, field.permlevel):
            del values[field.name]
        elif isinstance(field, Table):
            for row in values[field.name]:
                _without_hidden(fw, owner, child_of(field).meta, row)
    return values


def _open(fw: Fw, doctype: str) -> Meta:
    """Return the Meta, or refuse a child DocType and who is shut out by scopes."""
    meta = fw.documents.registry.meta(doctype)
    if meta.child:
        raise BadRequestError(f"{doctype} rows are part of their parent's document.")
    fw.rights.require_reach(meta)
    return meta


def _judged(fw: Fw, meta: Meta, body: dict[str, Any], doc: DocType | None) -> dict[str, Any]:
    """Return the fields of a body in their types. Raises: BadRequestError naming the key."""
    values: dict[str, Any] = {}
    for key, value in body.items():
        field = meta.fields.get(key)
        if field is not None:
            _writable(fw, meta, field, value, doc)
            values[key] = _shaped(field, value)
        elif key == "name":
            values |= _given_name(meta, value, doc)
        elif key == "doctype":
            if value != meta.name:
                raise BadRequestError(f"The path says {meta.name}.", field=key)
        elif key in _NEVER or key == "modified":
            raise BadRequestError(f"{key} is not to be written.", field=key)
        else:
            raise field_unknown(meta, key)
    return values


def _given_name(meta: Meta, value: object, doc: DocType | None) -> dict[str, Any]:
    if not isinstance(value, str):
        raise BadRequestError("name takes text.", field="name")
    if doc is not None:
        if value != doc.name:
            raise BadRequestError("A name changes by /rename.", field="name")
        return {}
    if meta.naming.kind != "given":
        raise BadRequestError(f"{meta.name} makes its own names.", field="name")
    return {"name": value}


def _writable(fw: Fw, meta: Meta, field: Field, value: Any, doc: DocType | None) -> None:
    same = doc is not None and getattr(doc, field.name) == value
    if field.read_only and not same:
        raise BadRequestError(f"{field.name} is not to be written.", field=field.name)
    if field.permlevel and not same and not fw.rights.sees_level(meta, field.permlevel, "write"):
        raise PermissionDeniedError(f"You may not write {field.name}.")


def _shaped(field: Field, value: Any) -> Any:
    if isinstance(field, Table):
        return _shaped_rows(field, value)
    if isinstance(field, Vault) and value == CONFIGURED:
        return dict(CONFIGURED)
    try:
        field.accept(value)
    except ShapeError as error:
        raise BadRequestError(str(error), field=field.name) from None
    return value


def _shaped_rows(field: Table, value: Any) -> list[dict[str, Any]]:
    child = child_of(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise BadRequestError(f"{field.name} takes {field.wanted}.", field=field.name)
    rows = []
    for row in value:
        shaped = {}
        for key, item in row.items():
            if key in child.meta.fields:
                shaped[key] = _shaped(child.meta.fields[key], item)
            elif key == "name" and isinstance(item, str):
                shaped[key] = item
            elif key not in _ECHOED:  # a row that was read may come back whole
                raise field_unknown(child.meta, key)
        rows.append(shaped)
    return rows


def _same_version(doc: DocType, modified: object) -> None:
    try:
        if not isinstance(modified, str):
            raise ValueError
        given = to_ms(datetime.fromisoformat(modified))
    except (ValueError, OverflowError):
        raise BadRequestError("modified is a time as ISO 8601.", field="modified") from None
    if doc.modified is None or given != to_ms(datetime.fromisoformat(doc.modified)):
        raise ConflictError(f"{doc.doctype} {doc.name} was changed meanwhile; read it again.")
