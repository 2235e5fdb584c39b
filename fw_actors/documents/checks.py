"""The rules of the fields of a document: types, required, links that lead somewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.document import DocType, rows_of
from fw_actors.documents.field import LARGEST_INTEGER, Field, ShapeError
from fw_actors.documents.fields import CONFIGURED, Link, Password, Select, Table, Vault
from fw_actors.documents.handle import Documents
from fw_actors.errors import ConflictError, DuplicateError, ValidationError
from fw_actors.store import Tx, UniqueViolation

MOST_ROWS: Final = 5000  # of one table: whoever writes more holds up all other writers for seconds
_LINKS_MAY_DANGLE = ("Webhook",)  # its deliveries outlive it (interface §8, Documents)


def normalize(doc: DocType) -> None:
    """Bring every value into the form its field holds. Raises: ValidationError."""
    state, meta, name = doc.__dict__, doc.meta, ""
    if type(state["idx"]) is not int or abs(state["idx"]) > LARGEST_INTEGER:
        raise ValidationError("idx takes a whole number.", field="idx")
    try:
        for name, accept in meta.plan.accepted:
            state[name] = accept(state[name])
    except ShapeError as error:
        raise ValidationError(str(error), field=name) from None
    for field in meta.plan.secrets:
        state[field.name] = _accepted_secret(doc, field, state[field.name])
    for table in meta.tables:
        rows = rows_of(doc, table)
        if len(rows) > MOST_ROWS:
            raise ValidationError(f"{table.name} has at most {MOST_ROWS} rows.", field=table.name)
        for row in rows:
            normalize(row)


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
    """null and `{"configured": true}` leave a stored Vault value as it is; "" empties it."""
    if value is not None and value != CONFIGURED:
        raise ValidationError(f"{field.name} takes text.", field=field.name)
    return CONFIGURED if (doc._stored or {}).get(field.name) else None


def check_name(doc: DocType) -> None:
    """Refuse another name on a document that is stored. Raises: ValidationError."""
    if doc._stored is not None and doc.name != doc._stored["name"]:
        raise ValidationError("name is not to be written: rename changes it.", field="name")


def check_standard(doc: DocType, stored: DocType) -> None:
    """Refuse changes of what the service alone writes. Raises: ValidationError."""
    for name in ("owner", "creation", "docstatus"):
        if doc.__dict__[name] != stored.__dict__[name]:
            raise ValidationError(f"{name} is not to be written.", field=name)


def check_values(documents: Documents, tx: Tx, doc: DocType) -> None:
    """Refuse missing required values and links that lead nowhere. Raises: ValidationError."""
    for field in doc.meta.plan.checked:
        check_value(documents, tx, doc, field)


def check_value(documents: Documents, tx: Tx, doc: DocType, field: Field) -> None:
    """The same of one field and its rows. Raises: ValidationError."""
    value = doc.__dict__[field.name]
    if field.required and field.is_missing(value):
        raise ValidationError(f"{field.name} is missing.", field=field.name)
    if isinstance(field, Table):
        for row in rows_of(doc, field):
            check_values(documents, tx, row)
    elif isinstance(field, Link) and value:
        if not documents.registry.table(field.options).holds(tx, value):
            raise ValidationError(
                f"{field.name}: there is no {field.options} {value}.", field=field.name
            )
    elif isinstance(field, Select) and value == "":
        doc.__dict__[field.name] = None


def check_links(documents: Documents, tx: Tx, doc: DocType) -> None:
    """Refuse to delete what another document links to. Raises: ConflictError naming the first."""
    if doc.doctype in _LINKS_MAY_DANGLE:
        return
    for doctype, field in fields_linking_to(documents, doc.doctype):
        c = documents.registry.tables[doctype].table.c
        child = documents.registry.metas[doctype].child
        whose = (c.parenttype, c.parent) if child else (sa.literal(doctype), c.name)
        found = tx.one(
            sa.select(*whose)
            .where(
                c[field.name] == doc.name, ~sa.and_(whose[0] == doc.doctype, whose[1] == doc.name)
            )
            .order_by(*whose)
            .limit(1)
        )
        if found is not None:
            raise ConflictError(f"{found[0]} {found[1]} links to {doc.doctype} {doc.name}.")


def fields_linking_to(documents: Documents, doctype: str) -> Iterator[tuple[str, Field]]:
    """Yield the Link fields that lead to a DocType, each with the DocType that has it."""
    for name, meta in documents.registry.metas.items():
        for field in meta.columns:
            if isinstance(field, Link) and field.options == doctype:
                yield name, field


@contextmanager
def duplicates_refused(doc: DocType) -> Iterator[None]:
    """Give a taken unique value its refusal. Raises: DuplicateError naming the field."""
    try:
        yield
    except UniqueViolation as taken:
        raise DuplicateError(
            f"Another {doc.doctype} has this {', '.join(taken.columns)}.", field=taken.columns[0]
        ) from None
