"""A document gets another name, and whatever names it follows, in one transaction.

A rename carries links, child rows, User Permission values and delivery references in one
transaction (D-103). It is no event and runs no hook (D-106); what rests outside of
links is carried by the observers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from fw_actors.documents.document import DocType, child_of, rows_of
from fw_actors.documents.fields import ShapeError
from fw_actors.documents.naming import validate_name
from fw_actors.documents.validation import check_value, fields_linking_to
from fw_actors.errors import DuplicateError, ValidationError
from fw_actors.store import Tx

if TYPE_CHECKING:
    from fw_actors.documents.lifecycle import Documents


def rename(documents: Documents, tx: Tx, doc: DocType, new: object) -> str:
    """Rename the document's rows and all that links to it; return the new name.

    The field that names a document (`naming="field:…"`) takes the new name too.

    Raises: ValidationError for a name that no document may have, or not its naming field;
        DuplicateError for a taken one.
    """
    old, meta = str(doc.name), doc.meta
    name = validate_name(new, meta)
    if documents.registry.table(meta.name).exists(tx, name):
        raise DuplicateError(f"{meta.name} {name} is there already.", field="name")
    values: dict[str, Any] = {"name": name}
    if meta.naming.kind == "field":
        values[meta.naming.field] = _accepted(doc, name)
    documents.registry.tables[meta.name].set_columns(tx, old, values)
    doc.__dict__.update(values)
    doc._stored = {**(doc._stored or {}), **values}
    _carry_children(documents, tx, doc, old, name)
    _carry_links(documents, tx, doc, old, name)
    if meta.naming.kind == "field":
        check_value(documents, tx, doc, meta.fields[meta.naming.field])
    return name


def _accepted(doc: DocType, name: str) -> object:
    field = doc.meta.fields[doc.meta.naming.field]
    try:
        return field.to_store(field.accept(name))
    except ShapeError as error:
        raise ValidationError(str(error), field=field.name) from None


def _carry_children(documents: Documents, tx: Tx, doc: DocType, old: str, new: str) -> None:
    for field in doc.meta.tables:
        table = documents.registry.tables[child_of(field).meta.name].table
        c = table.c
        of_parent = sa.and_(
            c.parent == old, c.parenttype == doc.doctype, c.parentfield == field.name
        )
        tx.run(sa.update(table).where(of_parent).values(parent=new))
        for row in rows_of(doc, field):
            row.parent = new
            row._stored = {**row._stored, "parent": new} if row._stored else None


def _carry_links(documents: Documents, tx: Tx, doc: DocType, old: str, new: str) -> None:
    """Links of the document, and of its rows, to itself follow on the object too."""
    own = [doc, *(row for table in doc.meta.tables for row in rows_of(doc, table))]
    for linking, field in fields_linking_to(documents, doc.doctype):
        table = documents.registry.tables[linking].table
        column = table.c[field.name]
        tx.run(sa.update(table).where(column == old).values({field.name: new}))
        for each in (each for each in own if each.doctype == linking):
            if each.__dict__[field.name] == old:
                each.__dict__[field.name] = new
            if each._stored is not None and each._stored[field.name] == old:
                each._stored = {**each._stored, field.name: new}
