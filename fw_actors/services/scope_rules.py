"""Rules over User Permission rows: what they name is there, and they follow and go with it.

Source: interface §3, §8 "Documents" and "Scopes".
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw
from fw_actors.documents.observers import Observer
from fw_actors.documents.registry import Registry
from fw_actors.documents.rows import load
from fw_actors.errors import ConflictError, ValidationError
from fw_actors.services.audit import AuditLog
from fw_actors.store import Statement

_SCOPE: Final = "User Permission"


class ScopeRules(Observer):
    """Observes all documents, since any may be named by a scope."""

    def __init__(self, registry: Registry, audit: AuditLog) -> None:
        table = registry.tables[_SCOPE].table
        c = table.c
        self._registry, self._audit = registry, audit
        of_user = c.user == sa.bindparam("user")
        names = sa.and_(c.allow == sa.bindparam("doctype"), c.for_value == sa.bindparam("value"))
        self._naming = Statement(sa.select(c.name).where(names).order_by(c.name).limit(1))
        self._carry = Statement(sa.update(table).where(names).values(for_value=sa.bindparam("new")))
        self._of_user = Statement(sa.select(c.name).where(of_user).order_by(c.name))

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Judge a scope; hold on to what scopes name; take a deleted user's scopes along."""
        if event == "on_trash":
            self._going(fw, doc)
        elif doc.doctype == _SCOPE:
            self._judge(fw, doc.__dict__["allow"], doc.__dict__["for_value"])

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Values of scopes follow the document that they name."""
        fw.tx.run(self._carry, doctype=doctype, value=old, new=new)

    def _judge(self, fw: Fw, doctype: str, value: str) -> None:
        meta = self._registry.metas.get(doctype)
        if meta is None or meta.child:
            raise ValidationError(f"allow: there is no DocType {doctype}.", field="allow")
        if not self._registry.tables[doctype].holds(fw.tx, value):
            raise ValidationError(f"for_value: there is no {doctype} {value}.", field="for_value")

    def _going(self, fw: Fw, doc: DocType) -> None:
        if doc.doctype == "User":  # whoever is scoped may delete no scopes, these neither
            with self._audit.suppressed(fw.tx):  # a part of the User's deletion
                for (name,) in fw.tx.rows(self._of_user, user=doc.name):
                    load(fw.documents, fw, _SCOPE, name).delete(ignore_permissions=True)
        scope = fw.tx.scalar(self._naming, doctype=doc.doctype, value=doc.name)
        if scope is not None:
            raise ConflictError(f"{_SCOPE} {scope} names {doc.doctype} {doc.name}.")
