"""The rule that somebody can always administer the site.

The last enabled System Manager cannot be disabled, deleted or lose the role (interface §3). The
last one without access scopes cannot either, nor be given scopes: nobody with scopes can lift
them. A site on which all have scopes still opens; `Administrator`, by the command line, mends it.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw
from fw_actors.documents.observers import Observer
from fw_actors.documents.permissions import SYSTEM_MANAGER, USER_PERMISSION
from fw_actors.documents.registry import Registry
from fw_actors.errors import ConflictError
from fw_actors.store import Statement, Tx

_LOCK: Final = "the last System Manager"


class LastManagerRule(Observer):
    """Observes User and User Permission documents."""

    def __init__(self, registry: Registry) -> None:
        users = registry.tables["User"].table.c
        roles = registry.tables["Has Role"].table.c
        scopes = registry.tables[USER_PERMISSION].table.c
        is_manager = sa.and_(
            roles.parent == users.name, roles.parenttype == "User", roles.role == SYSTEM_MANAGER
        )
        managers = (
            sa.select(users.name)
            .where(users.enabled == 1, sa.select(roles.name).where(is_manager).exists())
            .order_by(users.name)
            .limit(2)  # enough to tell whether there is another
        )
        is_scoped = sa.select(scopes.name).where(scopes.user == users.name).exists()
        self._managers = Statement(managers)
        self._unscoped = Statement(managers.where(~is_scoped))

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Judge a write before it is made. Raises: ConflictError."""
        if doc.doctype == "User":
            stays = event != "on_trash" and _manages(doc)
            if not stays and doc._before is not None and _manages(doc._before):
                self._require_another(fw.tx, str(doc.name))
        elif doc.doctype == USER_PERMISSION and event != "on_trash":
            self._require_another_unscoped(fw.tx, doc.__dict__["user"])

    def _require_another(self, tx: Tx, user: str) -> None:
        tx.lock(_LOCK)  # of two that go at once, the second sees the first one gone
        if tx.rows(self._managers) == [(user,)]:
            raise ConflictError("The last enabled System Manager stays one; make another first.")
        if tx.rows(self._unscoped) == [(user,)]:
            raise ConflictError(
                "The last enabled System Manager without access scopes stays one; "
                "make another first."
            )

    def _require_another_unscoped(self, tx: Tx, user: str) -> None:
        tx.lock(_LOCK)
        if tx.rows(self._unscoped) == [(user,)]:
            raise ConflictError(
                "The last enabled System Manager without access scopes gets none; "
                "make another first."
            )


def _manages(user: Any) -> bool:
    return bool(user.enabled) and any(row.role == SYSTEM_MANAGER for row in user.roles)
