"""Versions: what changed in a document, by whom, in which request. Source: interface §8.

Password and Vault fields, and those that no event shows, are absent (spec, Redaction): a change
of such a field alone leaves a Version that names no field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.document import DocType, rows_of
from fw_actors.documents.field import Field
from fw_actors.documents.fields import Table
from fw_actors.documents.handle import Fw
from fw_actors.documents.observers import Observer
from fw_actors.documents.records import Records
from fw_actors.documents.registry import Registry
from fw_actors.rules.redaction import is_secret
from fw_actors.runtime import Entropy
from fw_actors.store import Statement

Changed = dict[str, list[Any]]
_CHANGES: Final = frozenset({"on_update", "on_submit", "on_cancel", "db_set"})


class VersionRecorder(Observer):
    """Observes changes of documents that were there before."""

    def __init__(self, registry: Registry, entropy: Entropy) -> None:
        table = registry.tables["Version"].table
        self._records = Records(registry, "Version", entropy)
        self._shown = {
            meta.name: tuple(f for f in meta.columns if not is_secret(f.name, f.type))
            for meta in registry.metas.values()
        }
        about = sa.and_(
            table.c.ref_doctype == sa.bindparam("doctype"), table.c.docname == sa.bindparam("old")
        )
        self._carry = Statement(sa.update(table).where(about).values(docname=sa.bindparam("new")))

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Record what differs from the stored document; nothing where nothing does."""
        before = doc._before
        if event not in _CHANGES or before is None:
            return
        rows = [each for table in doc.meta.tables for each in self._rows(table, before, doc)]
        moved = before.docstatus != doc.docstatus
        if rows or moved or _differs(before, doc):
            changed = self._changed(before, doc)
            if moved:
                changed["docstatus"] = [before.docstatus, doc.docstatus]
            self._record(fw, doc.doctype, str(doc.name), {"changed": changed, "rows": rows})

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """What was recorded under the old name is found under the new one."""
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
                yield _told(table, row, "added", self._added(row))
            elif was.idx != row.idx or _differs(was, row):
                changed = self._changed(was, row)
                if was.idx != row.idx:
                    changed["idx"] = [was.idx, row.idx]
                yield _told(table, row, "changed", changed)
        for row in old.values():
            removed = {field: [value, None] for field, (_, value) in self._added(row).items()}
            yield _told(table, row, "removed", removed)

    def _changed(self, before: DocType, doc: DocType) -> Changed:
        return {
            f.name: [f.from_store(_stored(before, f)), f.from_store(_stored(doc, f))]
            for f in self._shown[doc.doctype]
            if _stored(before, f) != _stored(doc, f)
        }

    def _added(self, row: DocType) -> Changed:
        values = {f.name: f.from_store(_stored(row, f)) for f in self._shown[row.doctype]}
        return {name: [None, value] for name, value in values.items() if value is not None}


def _differs(before: DocType, doc: DocType) -> bool:
    if before._stored is doc._stored:
        return False  # a row that was not written
    return any(_stored(before, f) != _stored(doc, f) for f in doc.meta.columns)


def _stored(doc: DocType, field: Field) -> Any:
    """What the column holds: it tells a new secret from the old one, which a document does not."""
    return (doc._stored or {}).get(field.name)


def _told(table: Table, row: DocType, change: str, changed: Changed) -> dict[str, Any]:
    return {"table": table.name, "row": row.name, "change": change, "changed": changed}
