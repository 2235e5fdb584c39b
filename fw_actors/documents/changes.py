"""What differs between a document as it is stored and as it is to be; a submitted one may change
in few places only (interface §3: "takes changes to `allow_on_submit` fields only")."""

from __future__ import annotations

from collections.abc import Iterator

from fw_actors.documents.document import DocType, rows_of
from fw_actors.documents.field import Field
from fw_actors.documents.fields import Table
from fw_actors.errors import ValidationError


def changed_columns(before: DocType, doc: DocType) -> list[Field]:
    """Return the columns in which a document that was just written differs from the one that was
    stored before. By what is stored: that tells a new secret from the old one, which documents do
    not."""
    old, new = before._stored or {}, doc._stored or {}
    if old is new:
        return []  # a row that was not written
    return [f for f in doc.meta.columns if old.get(f.name) != new.get(f.name)]


def changes_once_submitted(stored: DocType, doc: DocType) -> bool:
    """Whether a submitted document changes at all.

    A table that is not `allow_on_submit` keeps its rows, and these change in their own
    `allow_on_submit` fields only. Raises: ValidationError naming a field that may not change.
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
    for old, new in zip(before, after, strict=True):
        for field in _differing(old, new):
            _require_allowed(field, doc)
            changed = True
    return changed


def _require_allowed(field: Field, doc: DocType) -> None:
    if not field.allow_on_submit:
        raise ValidationError(
            f"{field.name} can't change once {doc.doctype} {doc.name} is submitted.",
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
