"""Rules on User documents: e-mail addresses, the last manager, access scopes; and their import.

The last enabled System Manager cannot be disabled, deleted or lose the role (A-22). The same holds
for the last one without access scopes, who cannot be given scopes either (A-23), because a user
with scopes cannot remove them. A site whose managers all have scopes still opens; `Administrator`
repairs it on the command line.

Accounts of another system are imported with their password hashes. A hash is stored unchanged,
verified by its own scheme, and replaced at the owner's first sign-in, like a hash with outdated
parameters. An import may be repeated: existing accounts are skipped.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.access import attempts, sessions
from fw_actors.access.accounts import Accounts, lock_account
from fw_actors.access.passwords import set_password
from fw_actors.documents import permissions
from fw_actors.documents.core import HasRole, User, UserPermission
from fw_actors.documents.handle import DocType, Fw
from fw_actors.documents.hooks import DELETION, Observer
from fw_actors.documents.permissions import SYSTEM_MANAGER, USER_PERMISSION
from fw_actors.documents.query import names_of
from fw_actors.documents.registry import Registry
from fw_actors.documents.rows import load
from fw_actors.documents.tables import table_of
from fw_actors.errors import ConflictError, NotFoundError, PermissionDeniedError, ValidationError
from fw_actors.hashing import UnusableHashError, usable_hash
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
    *,
    enabled: bool = True,
) -> dict[str, Any]:
    """Create an account; without a hash it is an invited account, which rejects every sign-in.

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
        enabled=int(enabled),
        roles=[{"role": role} for role in dict.fromkeys(roles)],
    )
    user.insert()
    if password_hash is not None:
        set_password(fw.tx, user.name, password_hash)
    return summary(fw, user.name)


def list_users(fw: Fw) -> Iterator[dict[str, Any]]:
    """Yield the summaries of all accounts, ordered by name."""
    return (summary(fw, name) for name in names_of(fw, "User"))


def summary(fw: Fw, name: str) -> dict[str, Any]:
    """Return the fields of an account that tables show. Raises: NotFoundError."""
    user = fw.get_doc("User", name)
    return {
        "name": user.name,
        "email": user.email,
        "fullName": user.fullName or "",
        "enabled": bool(user.enabled),
        "roles": [row.role for row in user.roles],
        "created": user.creation,
    }


def find_user(fw: Fw, accounts: Accounts, identifier: str) -> Any:
    """Return the User document of a name or e-mail, in any spelling.

    Raises: PermissionDeniedError unless the user is a System Manager, and for an account outside
        the access scopes, also if there is none (A-312); NotFoundError.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    try:
        account = accounts.find(fw.tx, canonical(identifier))
    except UnusableIdentifierError:
        account = None
    if account is None:
        fw.rights.require_document(fw.documents.registry.meta("User"), identifier)
        raise NotFoundError(f"There is no user {identifier[:140]}.")
    return fw.get_doc("User", account.user)


def unlock(fw: Fw, accounts: Accounts, installation_key: bytes, identifier: str) -> str:
    """Lift the lockouts of an account's name and e-mail (A-293); return the user's name.

    Raises: as `find_user`; PermissionDeniedError as `permissions.require_account`.
    """
    user = find_user(fw, accounts, identifier)
    permissions.require_account(fw, user)
    attempts.unlock_account(fw.tx, installation_key, name=user.name, email=user.email)
    return str(user.name)


def revoke_sessions(fw: Fw, user: str, idle_days: int) -> int:
    """End all sessions of a user; return the number of live ones.

    A concurrent sign-in or rename of the account ends first: its sessions are among them, or the
    former name is not found. `idle_days` is the policy's `sessionIdleDays`.

    Raises: PermissionDeniedError; NotFoundError.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    lock_account(fw.tx, user)
    account = fw.get_doc("User", user)
    permissions.require_account(fw, account)
    return sessions.end_all(fw.tx, str(account.name), idle_days=idle_days)


def sessions_of(fw: Fw, user: str, idle_days: int) -> list[sessions.SessionFacts]:
    """Return the live sessions of a user, the most recently used first.

    `idle_days` is the policy's `sessionIdleDays`. Raises: PermissionDeniedError; NotFoundError.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    account = fw.get_doc("User", user)
    permissions.require_account(fw, account)
    return sessions.of_user(fw.tx, str(account.name), idle_days)


def set_enabled(fw: Fw, accounts: Accounts, identifier: str, enabled: bool) -> str:
    """Enable or disable an account; return its name. Disabling ends sessions, keys and links.

    Raises: as `find_user`; ConflictError for the last System Manager.
    """
    user = find_user(fw, accounts, identifier)
    lock_account(fw.tx, user.name)
    user.reload()  # a concurrent save must not make disabling fail
    if bool(user.enabled) is not enabled:
        user.enabled = int(enabled)
        user.save()
    return str(user.name)


_LOCK: Final = "the last System Manager"

_U: Final = table_of(User).table.c
_R: Final = table_of(HasRole).table.c
_S: Final = table_of(UserPermission).table.c
_IS_MANAGER: Final = sa.and_(
    _R.parent == _U.name, _R.parenttype == "User", _R.role == SYSTEM_MANAGER
)
_TWO_MANAGERS: Final = (
    sa.select(_U.name)
    .where(_U.enabled == 1, sa.select(_R.name).where(_IS_MANAGER).exists())
    .order_by(_U.name)
    .limit(2)  # enough to see whether there is another
)
_MANAGERS: Final = Statement(_TWO_MANAGERS)
_UNSCOPED: Final = Statement(
    _TWO_MANAGERS.where(~sa.select(_S.name).where(_S.user == _U.name).exists())
)


class LastManagerRule(Observer):
    """Keeps one enabled System Manager, and one without access scopes, on the site."""

    doctypes = frozenset({"User", USER_PERMISSION})

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Reject a write that would remove the last manager. Raises: ConflictError."""
        if doc.doctype == "User":
            stays = event != "on_trash" and _manages(doc)
            if not stays and doc._before is not None and _manages(doc._before):
                self._require_another(fw.tx, str(doc.name))
        elif event != "on_trash":
            self._require_another_unscoped(fw.tx, doc.__dict__["user"])

    def _require_another(self, tx: Tx, user: str) -> None:
        tx.lock(_LOCK)  # the second of two concurrent removals must see the first
        if tx.rows(_MANAGERS) == [(user,)]:
            raise ConflictError(
                "The last enabled System Manager cannot be removed. "
                "Give another account the role System Manager first."
            )
        if tx.rows(_UNSCOPED) == [(user,)]:
            raise ConflictError(
                "The last enabled System Manager without access scopes cannot be removed. "
                "Give another account without scopes the role System Manager first."
            )

    def _require_another_unscoped(self, tx: Tx, user: str) -> None:
        tx.lock(_LOCK)
        if tx.rows(_UNSCOPED) == [(user,)]:
            raise ConflictError(
                "The last enabled System Manager without access scopes cannot be given scopes. "
                "Give another account without scopes the role System Manager first."
            )


def _manages(user: Any) -> bool:
    return bool(user.enabled) and any(row.role == SYSTEM_MANAGER for row in user.roles)


_SCOPE: Final = "User Permission"
_KEY: Final = "API Key"


class ScopeRules(Observer):
    """Validates access scopes."""

    doctypes = frozenset({_SCOPE})

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Refuse a scope that names a missing DocType or document. Raises: ValidationError."""
        if event == DELETION:
            return
        doctype, value = doc.__dict__["allow"], doc.__dict__["for_value"]
        if doctype == _KEY:
            raise ValidationError(
                "allow must not be API Key, because keys expire and are revoked.", field="allow"
            )
        meta = self._registry.metas.get(doctype)
        if meta is None or meta.child:
            raise ValidationError(f"allow: there is no DocType {doctype}.", field="allow")
        if not self._registry.tables[doctype].lock_shared(fw.tx, value):
            raise ValidationError(f"for_value: there is no {doctype} {value}.", field="for_value")


_OF_USER: Final = Statement(
    sa.select(_S.name).where(_S.user == sa.bindparam("user")).order_by(_S.name)
)
_NAMES: Final = sa.and_(_S.allow == sa.bindparam("doctype"), _S.for_value == sa.bindparam("value"))
_NAMING: Final = Statement(sa.select(_S.name).where(_NAMES).order_by(_S.name).limit(1))
_RENAME: Final = Statement(
    sa.update(_S.name.table).where(_NAMES).values(for_value=sa.bindparam("new"))
)


class ScopeReferences(Observer):
    """Refuses to delete documents that access scopes name, and deletes the scopes of a deleted
    user."""

    events = frozenset({DELETION})

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Delete a deleted user's scopes. Raises: ConflictError for a document in a scope."""
        if doc.doctype == "User":  # without permissions: users with scopes may not delete scopes
            with self._audit.suppressed(fw.tx):  # covered by the User's deletion
                for (name,) in fw.tx.rows(_OF_USER, user=doc.name):
                    load(fw.documents, fw, _SCOPE, name).delete(ignore_permissions=True)
        if doc.doctype == _KEY:  # scopes that name it, from before A-325, stay and allow nothing
            return
        scope = fw.tx.scalar(_NAMING, doctype=doc.doctype, value=doc.name)
        if scope is not None:
            shown = (
                f"{_SCOPE} {scope}" if fw.documents.may_read(fw, _SCOPE, scope) else f"A {_SCOPE}"
            )
            raise ConflictError(
                f"{shown} names {doc.doctype} {doc.name}; delete the {_SCOPE} first."
            )

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Update the values of scopes that name the renamed document."""
        fw.tx.run(_RENAME, doctype=doctype, value=old, new=new)


MAX_LINE_BYTES: Final = 64 * 1024
_ROLES_SEPARATOR: Final = ";"
_YES: Final = frozenset({"", "1", "true", "t", "yes", "y", "on"})
_NO: Final = frozenset({"0", "false", "f", "no", "n", "off"})


class AccountToImport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An account from a line of the import file; without a hash it is invited."""

    name: str
    email: str
    full_name: str = ""
    roles: tuple[str, ...] = ()
    enabled: bool = True
    hash: str = ""

    def __repr__(self) -> str:
        return f"<AccountToImport {self.name}>"  # without the hash


def account_from_json(line: bytes) -> AccountToImport:
    """Return the account of a line of JSON; its hash is validated and in the stored form.

    Raises: ValidationError, which never quotes the hash.
    """
    try:
        account = msgspec.json.decode(line, type=AccountToImport)
    except (
        msgspec.ValidationError,
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
    ) as error:
        text = str(error).replace("`", "").removeprefix("Object ")
        raise ValidationError(f"A line must be an account as JSON: {text[:140]}.") from None
    return _checked(account)


def accounts_from_csv(text: str) -> Iterator[tuple[int, AccountToImport | ValidationError]]:
    """Yield the accounts of a CSV file by line; the first line names the columns.

    Roles are separated by semicolons. Raises: ValidationError for wrong columns.
    """
    rows = csv.DictReader(StringIO(text, newline=""), strict=True)
    field_names = [each.encode_name for each in msgspec.structs.fields(AccountToImport)]
    columns = rows.fieldnames or ()
    repeated = next((each for each in columns if columns.count(each) > 1), None)
    if repeated in field_names:
        raise ValidationError(f"The column {repeated} occurs twice.")
    unknown = [each for each in columns if each not in field_names]
    if unknown or not {"name", "email"} <= set(columns):
        *others, last = field_names[2:]
        raise ValidationError(
            f"The columns must be name and email, and optionally {', '.join(others)} and {last}."
        )
    try:
        for row in rows:
            yield rows.line_num, _from_row(row)
    except csv.Error as error:
        raise ValidationError(f"Line {rows.line_num} is not valid CSV: {error}.") from None


def _from_row(row: Mapping[str, Any]) -> AccountToImport | ValidationError:
    if None in row or None in row.values():
        return ValidationError("A line must have as many fields as the first one.")
    roles = [each.strip() for each in row.get("roles", "").split(_ROLES_SEPARATOR)]
    try:
        return _checked(
            AccountToImport(
                name=row["name"],
                email=row["email"],
                full_name=row.get("fullName", ""),
                roles=tuple(filter(None, roles)),
                enabled=_enabled(row.get("enabled", "")),
                hash=row.get("hash", ""),
            )
        )
    except ValidationError as error:
        return error


def _enabled(text: str) -> bool:
    """Return the state that a field of CSV names. Raises: ValidationError for any other text."""
    word = text.strip().lower()
    if word not in _YES | _NO:
        raise ValidationError("enabled must be true or false.", field="enabled")
    return word not in _NO


def _checked(account: AccountToImport) -> AccountToImport:
    if not account.hash:
        return account
    try:
        return msgspec.structs.replace(account, hash=usable_hash(account.hash))
    except UnusableHashError as error:
        raise ValidationError(f"{error}.", field="hash") from None


def import_account(fw: Fw, account: AccountToImport) -> bool:
    """Create an account; return False if it already exists, by name and e-mail.

    Raises: DuplicateError if another account has its name or its e-mail; ValidationError.
    """
    if fw.get_value("User", account.name, "email") == account.email:
        return False
    add_user(
        fw,
        account.name,
        account.email,
        account.full_name,
        account.roles,
        account.hash or None,
        enabled=account.enabled,
    )
    return True
