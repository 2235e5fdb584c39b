"""Rows of documents: read, written and renamed, and rows that the service itself inserts.

A rename updates links, child rows, User Permission values and delivery references in one
transaction (D-103, D-132). It is not an event and runs no hook (D-106). References other than links
are updated by observers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from fw_actors.documents.doctype import ROW_ID, STANDARD
from fw_actors.documents.fields import Field, ShapeError, Table, Vault, ms_of, shown_vault
from fw_actors.documents.handle import DocType, Fw, child_of, rows_of
from fw_actors.documents.naming import NAME_CHARACTERS, is_name, random_name, validate_name
from fw_actors.documents.tables import DocTable, RowsOfParent, all_rows_of, table_of
from fw_actors.documents.validation import check_value, fields_linking_to
from fw_actors.errors import (
    BadRequestError,
    ConflictError,
    DuplicateError,
    NotFoundError,
    ValidationError,
)
from fw_actors.runtime import Entropy
from fw_actors.store import Statement, Tx
from fw_actors.store.statement import STATEMENT_CACHE_SIZE

if TYPE_CHECKING:
    from fw_actors.documents.lifecycle import Documents


def load(documents: Documents, fw: Fw, doctype: str, name: str, *, lock: bool = False) -> DocType:
    """Return a document with its child rows. Raises: NotFoundError.

    `lock`: other writers of it wait until this transaction ends.
    """
    table = documents.registry.table(doctype)
    row = table.fetch(fw.tx, name, lock=lock) if is_name(name) else None
    if row is None:
        raise NotFoundError(f"There is no {doctype} {str(name)[:NAME_CHARACTERS]}.")
    doc: DocType = table.meta.cls.from_row(fw, row)  # type: ignore[attr-defined]
    for field in table.meta.tables:
        doc.__dict__[field.name] = _load_rows(documents, fw, doc, field)
    return doc


def clone(doc: DocType) -> DocType:
    """Return another object of the same stored document."""
    copy = _copy_of(doc)
    for field in doc.meta.tables:
        copy.__dict__[field.name] = [_copy_of(row) for row in rows_of(doc, field)]
    return copy


def _copy_of(doc: DocType) -> DocType:
    assert doc._stored is not None
    copy = type(doc).__new__(type(doc))
    state = copy.__dict__
    state.update(doc.__dict__)
    for name, read in doc.meta.groups.decoded:
        state[name] = read(doc._stored[name])  # a copy: a JSON value may be changed in place
    return copy


def _load_rows(documents: Documents, fw: Fw, doc: DocType, field: Table) -> list[DocType]:
    child = child_of(field)
    table = documents.registry.tables[child.meta.name]
    stored = table.child_rows(fw.tx, doc.name or "", doc.doctype, field.name)
    return [child.from_row(fw, row) for row in stored]


def insert(documents: Documents, tx: Tx, doc: DocType) -> None:
    """Write a new document's rows."""
    row = _row_of(documents, doc)
    documents.registry.tables[doc.meta.name].insert(tx, row)
    doc._stored = row
    for field in doc.meta.tables:
        _write_children(documents, tx, doc, field, {})


def update(documents: Documents, tx: Tx, doc: DocType, stored: DocType) -> None:
    """Write a changed document's row, and the child rows that differ from the stored ones.

    Raises: ConflictError if `stored` is not the stored version any more.
    """
    row = _row_of(documents, doc)
    table = documents.registry.tables[doc.doctype]
    if not table.replace(tx, doc.name or "", row, stored._stored or {}):
        raise _conflict_with_hook(doc)
    doc._stored = row
    for field in doc.meta.tables:
        before = {row.name or "": row for row in rows_of(stored, field)}
        _write_children(documents, tx, doc, field, before)


def _conflict_with_hook(doc: DocType) -> ConflictError:
    """Return the error for a document whose row, which is locked, was written by its own hook."""
    return ConflictError(
        f"{doc.doctype} {doc.name} cannot be written: a hook has already written it through "
        "another object. Until it is written, a hook must change only the object that it gets."
    )


def restore(doc: DocType, stored: DocType) -> None:
    """Reset the object to the stored document."""
    for name in doc.meta.shown:
        doc.__dict__[name] = stored.__dict__[name]


def delete(documents: Documents, tx: Tx, doc: DocType) -> None:
    """Delete a document's rows. Raises: ConflictError if they were deleted before."""
    parent = str(doc.name)
    for table_rows in _all_rows(documents, tx, doc, parent):
        table_rows.delete(tx, parent, doc.doctype)
    if not documents.registry.tables[doc.doctype].delete(tx, doc.name or ""):
        raise _conflict_with_hook(doc)


def assign(doc: DocType, name: object, value: Any) -> Field:
    """Set one column's value on a document. Raises: BadRequestError, ValidationError."""
    field = doc.meta.fields.get(name) if isinstance(name, str) else None
    if field is None or field not in doc.meta.columns:
        shown = str(name)[:60]
        raise BadRequestError(f"{doc.doctype} has no stored field {shown}.", field=shown)
    try:
        doc.__dict__[field.name] = field.hold(value)
    except ShapeError as error:
        raise ValidationError(str(error), field=field.name) from None
    return field


def write_field(documents: Documents, tx: Tx, doc: DocType, field: Field) -> None:
    """Write one column of a stored document and its `modified`. Raises: UniqueViolation."""
    assert doc._stored is not None
    row_id = _row_id(documents, doc)
    if isinstance(field, Vault):
        value = _sealed_value(documents, doc, field, row_id)
    else:
        value = field.to_store(doc.__dict__[field.name])
    values = {
        field.name: value,
        ROW_ID: row_id,
        "modified": _ms(doc.modified),
        "modified_by": doc.modified_by,
    }
    documents.registry.tables[doc.doctype].set_columns(tx, doc.name or "", values)
    doc._stored = {**doc._stored, **values}


def _child_table(documents: Documents, field: Table) -> DocTable:
    return documents.registry.tables[child_of(field).meta.name]


def _all_rows(documents: Documents, tx: Tx, doc: DocType, parent: str) -> Iterator[RowsOfParent]:
    declared = (_child_table(documents, field) for field in doc.meta.tables)
    return all_rows_of(tx, parent, doc.doctype, declared, documents.registry.tables.values())


def _write_children(
    documents: Documents, tx: Tx, doc: DocType, field: Table, before: dict[str, DocType]
) -> None:
    """Update the stored rows `before`, by name, to the document's current rows."""
    table = _child_table(documents, field)
    obsolete, added = dict(before), []
    for index, row in enumerate(rows_of(doc, field), start=1):
        old = obsolete.pop(row.name or "", None)
        if old is None:
            row.name = random_name(documents.entropy)  # because another parent's row may have it
        row.parent, row.parenttype, row.parentfield = doc.name, doc.doctype, field.name
        row.idx, row.docstatus = index, doc.docstatus
        created = (doc.modified_by, doc.modified) if old is None else (old.owner, old.creation)
        row.owner, row.creation = created
        if old is not None and _is_untouched(row, old):
            continue
        content = _changed_row(documents, doc, row, old)
        if content is None:
            continue
        row._stored = content
        if old is not None and not table.has_unique:
            table.update(tx, str(row.name), content, old._stored or {})
            continue
        if old is not None:  # two rows may swap values: delete both before inserting either
            obsolete[str(row.name)] = old
        added.append(content)
    for name in obsolete:
        table.delete(tx, name)
    table.insert_many(tx, added)


def _is_untouched(row: DocType, old: DocType) -> bool:
    """Whether a row is obviously unchanged; it may differ in JSON's 1 and true, which compare
    equal."""
    return not row.meta.groups.encoded and row.__dict__ == old.__dict__


def _changed_row(
    documents: Documents, doc: DocType, row: DocType, old: DocType | None
) -> dict[str, Any] | None:
    """Return the new content of a child row; None when it is unchanged, so that its times are
    kept."""
    if old is not None:
        row.modified, row.modified_by = old.modified, old.modified_by
    content = _row_of(documents, row)
    if old is not None and content == old._stored:
        return None
    row.modified, row.modified_by = doc.modified, doc.modified_by
    return {**content, "modified": _ms(doc.modified), "modified_by": doc.modified_by}


def _row_of(documents: Documents, doc: DocType) -> dict[str, Any]:
    """Return the table row of a document, with secrets sealed or kept as stored."""
    state, groups = doc.__dict__, doc.meta.groups
    row = {name: state[name] for name in groups.same}
    row["creation"], row["modified"] = _ms(state["creation"]), _ms(state["modified"])
    for name, write in groups.encoded:
        row[name] = write(state[name])
    row[ROW_ID] = row_id = _row_id(documents, doc)
    for field in groups.sealed:
        row[field.name] = _sealed_value(documents, doc, field, row_id)
    return row


def _row_id(documents: Documents, doc: DocType) -> str | None:
    """Return the id to which Vault values of the row are bound; it is created with the first
    value."""
    row_id: str | None = (doc._stored or {}).get(ROW_ID)
    if row_id is None and documents.registry.tables[doc.meta.name].has_vault:
        row_id = random_name(documents.entropy)
    return row_id


def _sealed_value(documents: Documents, doc: DocType, field: Vault, row_id: Any) -> Any:
    value = doc.__dict__[field.name]
    if isinstance(value, dict):
        return doc._stored[field.name] if doc._stored else None
    sealed = documents.vault.seal(value, doc.doctype, field.name, row_id) if value else None
    doc.__dict__[field.name] = shown_vault(sealed)
    return sealed


def _ms(text: str | None) -> int | None:
    return None if text is None else ms_of(text)


@lru_cache(STATEMENT_CACHE_SIZE)
def _insertion(table: sa.Table, names: tuple[str, ...]) -> Statement:
    return Statement(sa.insert(table).values({name: sa.bindparam(name) for name in names}))


class RowInserter:
    """Inserts rows of one DocType that the service itself writes, with their standard columns.

    Args:
        table: of the DocType.
        fields: the fields that the rows have; the others are null.
    """

    def __init__(self, table: sa.Table, fields: Sequence[str]) -> None:
        self._table = table
        self._names = (*STANDARD, *fields)
        self._insert = _insertion(self._table, self._names)

    def reading(
        self,
        select: Callable[[Sequence[sa.ColumnElement[Any]]], sa.Select[Any]],
        **read_values: sa.ColumnElement[Any],
    ) -> sa.Insert:
        """Return an insert that reads values from another row.

        Its parameters are `name`, those of `standard_columns`, the other fields, and those of the
        query.

        Args:
            select: makes the query for that row; if there is none, nothing is inserted.
            read_values: the values that are read.
        """
        table = self._table.c
        values = [read_values.get(n, sa.bindparam(n, type_=table[n].type)) for n in self._names]
        return sa.insert(self._table).from_select(list(self._names), select(values))

    def insert(self, tx: Tx, name: str, owner: str, **values: Any) -> None:
        """Write a row for `owner`; `values` as the columns hold them. Raises: UniqueViolation."""
        tx.run(self._insert, name=name, **standard_columns(tx, owner), **values)

    def insert_many(self, tx: Tx, owner: str, rows: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Write rows for `owner`, each given as its name and values. Raises: UniqueViolation."""
        if len(rows) == 1:
            self.insert(tx, rows[0][0], owner, **rows[0][1])
            return
        standard = standard_columns(tx, owner)
        tx.run_many(self._insert, [{"name": name, **standard, **row} for name, row in rows])


def standard_columns(tx: Tx, owner: str) -> dict[str, Any]:
    """Return the standard columns of a new row, except its name; `owner` is the writing user."""
    return {
        "owner": owner,
        "creation": tx.now,
        "modified": tx.now,
        "modified_by": owner,
        "docstatus": 0,
        "idx": 0,
    }


class SystemRows:
    """Adds rows with random names to the table of one DocType."""

    def __init__(self, doctype: type, entropy: Entropy) -> None:
        """`doctype`: a DocType of the framework."""
        self._entropy = entropy
        table = table_of(doctype)
        self._fields = table.fields
        self._rows = RowInserter(table.table, [field.name for field in self._fields])

    def add(self, tx: Tx, owner: str, **values: Any) -> str:
        """Write a row for `owner`; return its name.

        `values` are the fields as in a document; omitted fields are null.
        """
        name = random_name(self._entropy)
        stored = {f.name: f.to_store(values.get(f.name)) for f in self._fields}
        self._rows.insert(tx, name, owner, **stored)
        return name


def rename(
    documents: Documents, tx: Tx, doc: DocType, new: object, ignore_permissions: bool
) -> str:
    """Rename the document's rows and update all links to it; return the new name.

    The field that names a document (`naming="field:…"`) gets the new name too.

    Raises: ValidationError for an invalid name, or one that the naming field does not accept;
        DuplicateError for a taken name.
    """
    old, meta = str(doc.name), doc.meta
    name = validate_name(new, meta)
    if documents.registry.table(meta.name).exists(tx, name):
        raise DuplicateError(f"{meta.name} {name} already exists.", field="name")
    values: dict[str, Any] = {"name": name}
    if meta.naming.kind == "field":
        values[meta.naming.field] = _accepted_name(doc, name)
    documents.registry.tables[meta.name].set_columns(tx, old, values)
    doc.__dict__.update(values)
    doc._stored = {**(doc._stored or {}), **values}
    _rename_in_children(documents, tx, doc, old, name)
    _rename_in_links(documents, tx, doc, old, name)
    if meta.naming.kind == "field":
        check_value(documents, tx, doc, meta.fields[meta.naming.field], ignore_permissions)
    return name


def _accepted_name(doc: DocType, name: str) -> object:
    field = doc.meta.fields[doc.meta.naming.field]
    try:
        return field.to_store(field.accept(name))
    except ShapeError as error:
        raise ValidationError(str(error), field=field.name) from None


def _rename_in_children(documents: Documents, tx: Tx, doc: DocType, old: str, new: str) -> None:
    for table_rows in _all_rows(documents, tx, doc, old):
        table_rows.move(tx, old, doc.doctype, new)
    for field in doc.meta.tables:
        for row in rows_of(doc, field):
            row.parent = new
            row._stored = {**row._stored, "parent": new} if row._stored else None


def _rename_in_links(documents: Documents, tx: Tx, doc: DocType, old: str, new: str) -> None:
    """Update the object's own links, and those of its rows, that lead to the document itself."""
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
