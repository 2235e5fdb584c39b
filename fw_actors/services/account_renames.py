"""What rests beside a User document goes by its new name: identifiers, password, sessions, links.

The roles that the site itself names keep theirs: permissions are looked up by them.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.handle import Fw
from fw_actors.documents.observers import Observer
from fw_actors.documents.permissions import SYSTEM_MANAGER
from fw_actors.documents.registry import Registry
from fw_actors.errors import ConflictError
from fw_actors.services.accounts import claim_identifiers, forget_identifiers
from fw_actors.store import Statement
from fw_actors.store.schema import JOB, KNOWN_ADDRESS, PASSWORD, SESSION, TOKEN

FIRST_ROLES: Final = (SYSTEM_MANAGER, "Event Publisher")


def _move(table: sa.Table) -> Statement:
    new: sa.BindParameter[Any] = sa.bindparam("new")
    return Statement(sa.update(table).where(table.c.user == sa.bindparam("old")).values(user=new))


_MOVES: Final = tuple(_move(table) for table in (PASSWORD, SESSION, TOKEN, JOB, KNOWN_ADDRESS))


class AccountRenames(Observer):
    """Observes renames."""

    def __init__(self, registry: Registry) -> None:
        users = registry.tables["User"].table
        self._email = Statement(
            sa.select(users.c.email).where(users.c.name == sa.bindparam("user"))
        )
        self._kept_roles = frozenset({*FIRST_ROLES, *registry.roles()})

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """See the module. Raises: ConflictError, and as `claim_identifiers`."""
        if doctype == "Role" and old in self._kept_roles:
            raise ConflictError(f"The site itself names the role {old}; it keeps its name.")
        if doctype == "User":
            forget_identifiers(fw.tx, old)
            claim_identifiers(fw.tx, new, fw.tx.scalar(self._email, user=new))
            for move in _MOVES:
                fw.tx.run(move, old=old, new=new)
