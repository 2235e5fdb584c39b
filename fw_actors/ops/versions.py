"""Versions: the changes of a document, with user and request (D-223).

Password and Vault fields, and fields that no event shows, are omitted (D-223): a change of such a
field alone writes a Version that names no field (D-224).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from fw_actors.documents.document import DocType, rows_of
from fw_actors.documents.fields import Field, Table
from fw_actors.documents.handle import Fw
from fw_actors.documents.hooks import CHANGES, Observer
from fw_actors.documents.registry import Registry
from fw_actors.documents.rows import SystemRows
from fw_actors.documents.validation import changed_columns
from fw_actors.rules.redaction import is_secret
from fw_actors.runtime import Entropy
from fw_actors.store import Statement

Changed = dict[str, list[Any]]


class VersionRecorder(Observer):
    """Records changes of existing documents."""

    events = frozenset(CHANGES)

    def __init__(self, registry: Registry, entropy: Entropy) -> None:
        table = registry.tables["Version"].table
        self._records = SystemRows(registry, "Version", entropy)
        about = sa.and_(
            table.c.ref_doctype == sa.bindparam("doctype"), table.c.docname == sa.bindparam("old")
        )
        self._carry = Statement(sa.update(table).where(about).values(docname=sa.bindparam("new")))

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Record the differences from the stored document, if any."""
        before = doc._before
        if before is None:
            return
        rows = [each for table in doc.meta.tables for each in self._rows(table, before, doc)]
        moved = before.docstatus != doc.docstatus
        different = changed_columns(before, doc)
        if rows or moved or different:
            changed = _changes(different, before, doc)
            if moved:
                changed["docstatus"] = [before.docstatus, doc.docstatus]
            self._record(fw, doc.doctype, str(doc.name), {"changed": changed, "rows": rows})

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Move the versions of the old name to the new one."""
        fw.tx.run(self._carry, doctype=doctype, old=old, new=new)
        self._record(fw, doctype, new, {"changed": {"name": [old, new]}, "rows": []})

    def _record(self, fw: Fw, doctype: str, name: str, data: dict[str, Any]) -> None:
        request = fw.request_id or None
        self._records.add(
            fw.tx, fw.user, ref_doctype=doctype, docname=name, data=data, request_id=request
        )

    def _rows(self, table: Table, before: DocType, doc: DocType) -> Iterator[dict[str, Any]]:
        old = {row.name: row for row in rows_of(before, table)}
        for row in rows_of(doc, table):
            was = old.pop(row.name, None)
            if was is None:
                yield _row_change(table, row, "added", _added(row))
            elif (different := changed_columns(was, row)) or was.idx != row.idx:
                changed = _changes(different, was, row)
                if was.idx != row.idx:
                    changed["idx"] = [was.idx, row.idx]
                yield _row_change(table, row, "changed", changed)
        for row in old.values():
            removed = {field: [value, None] for field, (_, value) in _added(row).items()}
            yield _row_change(table, row, "removed", removed)


def _added(row: DocType) -> Changed:
    stored = row._stored or {}
    shown = [f for f in row.meta.columns if not is_secret(f.name, f.type)]
    values = {f.name: f.from_store(stored.get(f.name)) for f in shown}
    return {name: [None, value] for name, value in values.items() if value is not None}


def _changes(different: list[Field], before: DocType, doc: DocType) -> Changed:
    """Return the old and new values of these fields, without secrets."""
    old, new = before._stored or {}, doc._stored or {}
    return {
        f.name: [f.from_store(old.get(f.name)), f.from_store(new.get(f.name))]
        for f in different
        if not is_secret(f.name, f.type)
    }


def _row_change(table: Table, row: DocType, change: str, changed: Changed) -> dict[str, Any]:
    return {"table": table.name, "row": row.name, "change": change, "changed": changed}
