"""Rules on User documents: e-mail addresses, the last manager, access scopes.

The last enabled System Manager cannot be disabled, deleted or lose the role (A-22). The
last one without access scopes cannot either, nor be given scopes (A-23): nobody with
scopes can lift them. A site on which all have scopes still opens; `Administrator`, by the command
line, mends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access import attempts, sessions
from fw_actors.access.account_lock import hold
from fw_actors.access.accounts import Accounts, set_password
from fw_actors.documents import permissions
from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw
from fw_actors.documents.hooks import Observer
from fw_actors.documents.permissions import SYSTEM_MANAGER, USER_PERMISSION
from fw_actors.documents.registry import Registry
from fw_actors.documents.rows import load
from fw_actors.errors import ConflictError, NotFoundError, PermissionDeniedError, ValidationError
from fw_actors.ops.audit import AuditLog
from fw_actors.rules.identifiers import UnusableIdentifierError, canonical
from fw_actors.store import Statement, Tx


def add_user(
    fw: Fw,
    name: str,
    email: str,
    full_name: str = "",
    roles: Sequence[str] = (),
    password_hash: str | None = None,
) -> dict[str, Any]:
    """Make an account; without a hash it is invited and refuses every sign-in.

    Raises: DuplicateError for a taken name or e-mail; ValidationError for an unknown role.
    """
    for role in roles:
        if not fw.exists("Role", role):
            raise ValidationError(f"There is no role {role[:140]}.", field="roles")
    user = fw.new_doc(
        "User",
        name=name,
        email=email,
        fullName=full_name or None,
        roles=[{"role": role} for role in dict.fromkeys(roles)],
    )
    user.insert()
    if password_hash is not None:
        set_password(fw.tx, user.name, password_hash)
    return summary(fw, user.name)


def list_users(fw: Fw) -> list[dict[str, Any]]:
    """Return every account by name, with its roles."""
    return [summary(fw, row["name"]) for row in fw.get_list("User", order_by="name asc")]


def summary(fw: Fw, name: str) -> dict[str, Any]:
    """Return an account as a table shows it. Raises: NotFoundError."""
    user = fw.get_doc("User", name)
    return {
        "name": user.name,
        "email": user.email,
        "fullName": user.fullName or "",
        "enabled": bool(user.enabled),
        "roles": [row.role for row in user.roles],
        "created": user.creation,
    }


def named(fw: Fw, accounts: Accounts, identifier: str) -> Any:
    """Return the User document that a name or an e-mail belongs to, in any spelling.

    Raises: PermissionDeniedError for who is no System Manager; NotFoundError.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    try:
        account = accounts.find(fw.tx, canonical(identifier))
    except UnusableIdentifierError:
        account = None
    if account is None:
        raise NotFoundError(f"There is no user {identifier[:140]}.")
    return fw.get_doc("User", account.user)


def unlock(fw: Fw, accounts: Accounts, installation_key: bytes, identifier: str) -> str:
    """Lift a lockout early, at both spellings (A-293); return the user's name.

    Raises: as `named`; PermissionDeniedError as `permissions.require_account`.
    """
    user = named(fw, accounts, identifier)
    permissions.require_account(fw, user)
    attempts.unlock_account(fw.tx, installation_key, name=user.name, email=user.email)
    return str(user.name)


def revoke_sessions(fw: Fw, user: str) -> int:
    """End all sessions of a user; return how many.

    Raises: PermissionDeniedError; NotFoundError.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    account = fw.get_doc("User", user)
    permissions.require_account(fw, account)
    return sessions.end_all(fw.tx, str(account.name))


def set_enabled(fw: Fw, accounts: Accounts, identifier: str, enabled: bool) -> str:
    """Close or open an account; return the user's name. Closing ends sessions, keys and links.

    Raises: as `named`; ConflictError for the last System Manager.
    """
    user = named(fw, accounts, identifier)
    hold(fw.tx, user.name)
    user.reload()  # as whoever was at it leaves it: closing an account must not have to be repeated
    if bool(user.enabled) is not enabled:
        user.enabled = int(enabled)
        user.save()
    return str(user.name)


_LOCK: Final = "the last System Manager"


class LastManagerRule(Observer):
    """Observes User and User Permission documents."""

    doctypes = frozenset({"User", USER_PERMISSION})

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
        elif event != "on_trash":
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
