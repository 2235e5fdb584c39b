"""The fields of a request's body, judged: their shape, and what the caller may write of them.

Source: interface §8, Documents: "403 on a changed write" above the caller's permlevel, "`read_only`
fields … 400 unless unchanged". Child rows come as whole lists; of a row that comes back by its
name, what the caller may not write stays as it is stored, whether or not it was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from fw_actors.documents.doctype import CHILD_STANDARD, STANDARD, Meta
from fw_actors.documents.document import (
    DocType,
    child_of,
    field_unknown,
    rows_of,
    shown_value,
)
from fw_actors.documents.field import CONTROLS_AND_BREAKS, Field, ShapeError
from fw_actors.documents.fields import CONFIGURED, Table, Vault
from fw_actors.documents.handle import Fw
from fw_actors.errors import BadRequestError, PermissionDeniedError, ValidationError

_NEVER: Final = ("docstatus", "owner", "creation", "modified", "modified_by", "idx")
_ECHOED: Final = ("doctype", *STANDARD, *CHILD_STANDARD)


def judged(fw: Fw, meta: Meta, body: Mapping[str, Any], doc: DocType | None) -> dict[str, Any]:
    """Return the fields of a body in their types; `doc` is what is saved, None for an insert.

    Raises: BadRequestError naming the key, PermissionDeniedError.
    """
    base = _Base(fw, meta.cls, doc)
    values: dict[str, Any] = {}
    for key, value in body.items():
        field = meta.fields.get(key)
        if field is not None:
            _require_writable(fw, meta, field, value, base)
            values[key] = _shaped(fw, meta, field, value, base)
        elif key == "name":
            values |= _given_name(meta, value, doc)
        elif key == "doctype":
            if value != meta.name:
                raise BadRequestError(f"The path says {meta.name}.", field=key)
        elif key in _NEVER:
            raise BadRequestError(f"{key} is not to be written.", field=key)
        else:
            raise field_unknown(meta, key)
    return values


class _Base:
    """What a body is judged against: the stored document, or the blank one of an insert."""

    def __init__(self, fw: Fw, cls: type[DocType], doc: DocType | None) -> None:
        self.stored = doc
        self._fw, self._cls = fw, cls

    @cached_property
    def doc(self) -> DocType:
        """The document; a blank one is made when it is first asked for, which is seldom."""
        return self._cls(self._fw) if self.stored is None else self.stored


def _given_name(meta: Meta, value: object, doc: DocType | None) -> dict[str, Any]:
    if not isinstance(value, str):
        raise BadRequestError("name takes text.", field="name")
    if doc is not None:
        if value != doc.name:
            raise BadRequestError("A name changes by /rename.", field="name")
        return {}
    if meta.naming.kind != "given":
        raise BadRequestError(f"{meta.name} makes its own names.", field="name")
    if CONTROLS_AND_BREAKS.search(value):
        raise BadRequestError("name holds a control character.", field="name")
    return {"name": value}


def _require_writable(fw: Fw, owner: Meta, field: Field, value: Any, base: _Base) -> None:
    """Rows follow the permissions of `owner`, their parent's DocType."""
    if _may_write(fw, owner, field) or _is_unchanged(field, value, base.doc):
        return
    if field.read_only:
        raise BadRequestError(f"{field.name} is not to be written.", field=field.name)
    raise PermissionDeniedError(f"You may not write {field.name}.")


def _may_write(fw: Fw, owner: Meta, field: Field) -> bool:
    return not field.read_only and fw.rights.sees_level(owner, field.permlevel, "write")


def _is_unchanged(field: Field, value: Any, base: DocType) -> bool:
    """Whether a value is what a read shows, in any of the forms that the field takes."""
    shown = shown_value(base, field)
    if field.is_same(value, shown):
        return True
    try:
        return not field.secret and field.is_same(field.hold(value), shown)
    except (ShapeError, ValidationError):
        return False


def _shaped(fw: Fw, owner: Meta, field: Field, value: Any, base: _Base) -> Any:
    if isinstance(field, Table):
        return _shaped_rows(fw, owner, field, value, base)
    if isinstance(field, Vault) and value == CONFIGURED:
        return dict(CONFIGURED)
    try:
        field.accept(value)
    except ShapeError as error:
        raise BadRequestError(str(error), field=field.name) from None
    return value


def _shaped_rows(
    fw: Fw, owner: Meta, table: Table, value: Any, base: _Base
) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise BadRequestError(f"{table.name} takes {table.wanted}.", field=table.name)
    child = child_of(table)
    stored = {} if base.stored is None else {r.name: r for r in rows_of(base.stored, table)}
    blank = _Base(fw, child, None)
    # What the caller may not write, and maybe not even see, is kept without being sent.
    kept = [field for field in child.meta.plan.limited if not _may_write(fw, owner, field)]
    rows = []
    for row in value:
        name = row.get("name")
        known = stored.get(name) if isinstance(name, str) else None
        before = blank if known is None else _Base(fw, child, known)
        rows.append(_shaped_row(fw, owner, child.meta, row, before, kept))
    return rows


def _shaped_row(
    fw: Fw, owner: Meta, meta: Meta, row: Mapping[str, Any], before: _Base, kept: list[Field]
) -> dict[str, Any]:
    shaped = {field.name: before.doc.__dict__[field.name] for field in kept}
    for key, value in row.items():
        field = meta.fields.get(key)
        if field is not None:
            _require_writable(fw, owner, field, value, before)
            if field not in kept:
                shaped[key] = _shaped(fw, owner, field, value, before)
        elif key == "name":
            if not isinstance(value, str | None):
                raise BadRequestError("A row's name is text.", field=key)
            shaped[key] = value
        elif key not in _ECHOED:  # a row that was read may come back whole
            raise field_unknown(meta, key)
    return shaped
