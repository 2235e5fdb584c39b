"""Permissions: roles, access scopes, and the documents that only managers may change.

Scopes name documents by DocType (A-310). A document is within the scopes if it is one of the named
documents of its DocType, and if every link of it and of its child rows to a DocType of the scopes
leads to a named document. An empty link limits nothing (A-311). Of User Permission, only the user's
own rows are within the scopes (A-319).

A user with access scopes cannot grant or withdraw more than they have. Therefore such a user, even
a System Manager, is refused every write that creates, removes or takes over a System Manager:
writes of the account, of its API keys, and of the role itself (A-321). The refusal is part of the
scopes, so `ignore_permissions` does not lift it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from fw_actors.documents.fields import Link, Table
from fw_actors.documents.handle import child_of, rows_of
from fw_actors.errors import PermissionDeniedError
from fw_actors.store import one_of

if TYPE_CHECKING:
    from fw_actors.documents.doctype import Meta
    from fw_actors.documents.fields import Field
    from fw_actors.documents.handle import DocType, Fw
    from fw_actors.documents.registry import Registry

SYSTEM_MANAGER: Final = "System Manager"
ADMINISTRATOR: Final = "Administrator"
GUEST: Final = "Guest"
MANAGERS_ONLY: Final = ("Webhook", "Webhook Delivery")
RECORDS: Final = ("Version", "Audit Event", "Email Delivery", "Error Log")
"""DocTypes with records about other documents, or about operations on them."""
USER_PERMISSION: Final = "User Permission"
_NONE: Final[Mapping[str, frozenset[str]]] = {}


@dataclass(frozen=True)
class Rights:
    """A user with roles, and the access scopes (User Permission rows) that limit them.

    `scopes`: the names of the permitted documents, by DocType. `borrowed`: a user with scopes acts
    as this user (`as_user`), so that no account counts as their own.
    """

    user: str
    roles: frozenset[str]
    scopes: Mapping[str, frozenset[str]] = dataclasses.field(
        default_factory=lambda: _NONE, hash=False
    )
    borrowed: bool = False

    @property
    def scoped(self) -> bool:
        """Whether access scopes limit the user."""
        return bool(self.scopes)

    @property
    def manages(self) -> bool:
        """Whether the user has every permission."""
        return self.user == ADMINISTRATOR or SYSTEM_MANAGER in self.roles

    @property
    def administers(self) -> bool:
        """Whether the user has every permission, and no access scopes."""
        return self.manages and not self.scoped

    def allows(self, meta: Meta, action: str) -> bool:
        """Whether a role of the user grants the action."""
        return self.manages or any(
            action in meta.permissions[role] for role in self.roles if role in meta.permissions
        )

    def require(self, meta: Meta, action: str) -> None:
        """Raises: PermissionDeniedError."""
        if not self.allows(meta, action):
            raise PermissionDeniedError(f"You may not {action} {meta.name}.")

    def require_in_scope(self, meta: Meta) -> None:
        """Refuse a DocType that scopes exclude. Raises: PermissionDeniedError."""
        if self.excludes(meta):
            raise PermissionDeniedError(f"Your access scopes do not include {meta.name}.")

    def require_document(self, meta: Meta, name: object) -> None:
        """Refuse a document by its name before it is looked up, so that the refusal does not tell
        whether it exists (D-19); and rows without their document, whose scopes apply to them.

        Raises: PermissionDeniedError.
        """
        named = self.scopes.get(meta.name)
        if named is not None and name not in named:
            raise PermissionDeniedError(f"Your access scopes do not include this {meta.name}.")
        self.require_rows(meta)

    def require_rows(self, meta: Meta) -> None:
        """Refuse a list of child rows. Raises: PermissionDeniedError."""
        if self.scoped and meta.child:
            raise PermissionDeniedError(
                f"With access scopes, {meta.name} rows can be read only in their document."
            )

    def require_writable(self, meta: Meta) -> None:
        """Refuse a DocType that users with scopes may never write: the excluded ones (A-314), and
        User Permission (A-319).

        Raises: PermissionDeniedError.
        """
        self.require_in_scope(meta)
        if not self.is_writable_in_scope(meta):
            raise PermissionDeniedError("A user with access scopes cannot change access scopes.")

    def is_writable_in_scope(self, meta: Meta) -> bool:
        """Whether scopes permit writing documents of this DocType, regardless of roles."""
        return not (self.excludes(meta) or (self.scoped and meta.name == USER_PERMISSION))

    def owns(self, account: object) -> bool:
        """Whether an account is the user's own."""
        return account == self.user and not self.borrowed

    def require_power_over_managers(self) -> None:
        """Refuse to create, change or remove a System Manager if the user has access scopes.

        Otherwise the user could create or take over an account without scopes. Raises:
        PermissionDeniedError.
        """
        if self.scoped:
            raise PermissionDeniedError(
                "Your access scopes do not let you create, change or sign out a System Manager."
            )

    def refuse_own_record(self, meta: Meta, name: str | None) -> None:
        """Refuse a write of the user's own User record, also for a System Manager: it contains the
        roles, so that writing it would allow self-promotion (A-24, A-25).

        Raises: PermissionDeniedError.
        """
        if meta.name == "User" and name == self.user:
            raise PermissionDeniedError(
                "You may not write your own User record; use the operations for your own account."
            )

    def sees_level(self, meta: Meta, level: int, action: str = "read") -> bool:
        """Whether the user may read (or write) fields of a permlevel."""
        return level == 0 or self.allows(meta, f"{action}:{level}")

    def excludes(self, meta: Meta) -> bool:
        """Whether scopes refuse this DocType altogether (A-314, A-320).

        This includes the records: they describe documents outside the scopes, Webhooks, and earlier
        contents of documents. It is part of the scopes, so `ignore_permissions` does not lift it.
        """
        return self.scoped and meta.name in (*MANAGERS_ONLY, *RECORDS)

    def within(self, other: Rights) -> Rights:
        """Return these rights, limited by the scopes of another user as well."""
        scopes = dict(self.scopes)
        for doctype, names in other.scopes.items():
            scopes[doctype] = scopes.get(doctype, names) & names
        borrowed = other.borrowed or (other.scoped and other.user != self.user)
        return replace(self, scopes=MappingProxyType(scopes), borrowed=borrowed)


def administering_error(rights: Rights, operation: str) -> PermissionDeniedError | None:
    """Return an error unless the user is a System Manager without access scopes; `operation` is the
    subject of its sentence.
    """
    if rights.administers:
        return None
    return PermissionDeniedError(
        f"{operation} requires the role System Manager without access scopes."
    )


def require_administering(rights: Rights, operation: str) -> None:
    """Refuse users other than System Managers without access scopes; `operation` as above.

    Raises: PermissionDeniedError.
    """
    error = administering_error(rights, operation)
    if error is not None:
        raise error


Scopes = Mapping[str, frozenset[str]]


def require_within(rights: Rights, doc: DocType) -> None:
    """Refuse a document outside the user's scopes. Raises: PermissionDeniedError with the
    reason."""
    scopes = rights.scopes
    if not scopes:
        return
    named = scopes.get(doc.doctype)
    if (named is not None and doc.name not in named) or _is_foreign_scope(rights, doc):
        raise PermissionDeniedError(f"Your access scopes do not include this {doc.doctype}.")
    for each in (doc, *(row for table in doc.meta.tables for row in rows_of(doc, table))):
        for field, _ in _scoped_links(each.meta, scopes):
            require_link_within(scopes, field, each.__dict__[field.name])


def require_link_within(scopes: Scopes, field: Field, value: Any) -> None:
    """Refuse a link to a document outside the scopes. Raises: PermissionDeniedError."""
    if not isinstance(field, Link) or not value:
        return
    if field.options in scopes and value not in scopes[field.options]:
        raise PermissionDeniedError(
            f"Your access scopes do not include the document that {field.name} links to."
        )


def conditions(rights: Rights, registry: Registry, meta: Meta) -> Iterator[Any]:
    """Yield the SQL conditions that restrict a query to documents within the user's scopes."""
    scopes = rights.scopes
    table = registry.tables[meta.name].table
    if scopes and meta.name == USER_PERMISSION:
        yield _is_own_scope(rights, table)
    if meta.name in scopes:
        yield one_of(table.c.name, scopes[meta.name])
    for field, allowed in _scoped_links(meta, scopes):
        yield _empty_or_in(table.c[field.name], allowed)
    for table_field in meta.tables:
        child = registry.tables[child_of(table_field).meta.name].table
        of_parent = sa.and_(
            child.c.parent == table.c.name,
            child.c.parenttype == meta.name,
            child.c.parentfield == table_field.name,
        )
        for field, allowed in _scoped_links(child_of(table_field).meta, scopes):
            beyond = sa.and_(of_parent, ~_empty_or_in(child.c[field.name], allowed))
            yield ~sa.select(child.c.name).where(beyond).exists()


def _is_foreign_scope(rights: Rights, doc: DocType) -> bool:
    if doc.doctype != USER_PERMISSION:
        return False
    row = doc.__dict__
    is_own_scope = row["for_value"] in rights.scopes.get(row["allow"], ())
    return row["user"] != rights.user or not is_own_scope


def _is_own_scope(rights: Rights, table: sa.Table) -> Any:
    """Return the condition for the user's own rows; with `as_user` these are the rows of both
    users."""
    c = table.c
    own_scopes = (
        sa.and_(c.allow == doctype, one_of(c.for_value, names))
        for doctype, names in sorted(rights.scopes.items())
    )
    return sa.and_(c.user == rights.user, sa.or_(*own_scopes))


def _scoped_links(meta: Meta, scopes: Scopes) -> Iterator[tuple[Link, frozenset[str]]]:
    for field in meta.columns:
        if isinstance(field, Link) and field.options in scopes:
            yield field, scopes[field.options]


def _empty_or_in(column: sa.Column[Any], allowed: frozenset[str]) -> Any:
    return sa.or_(column.is_(None), column == "", one_of(column, allowed))


_PROFILE: Final = frozenset({"fullName", "language"})  # written by self-service


def require_write(fw: Fw, doc: DocType) -> None:
    """Refuse an insert or a change that would make an account a System Manager.

    `doc` is the new document, `doc._before` the stored one. Every user may change their own full
    name and language. Raises: PermissionDeniedError.
    """
    if fw.rights.scoped and _concerns_managers(fw, doc) and not _changes_own_profile(fw, doc):
        fw.rights.require_power_over_managers()


def require_removal(fw: Fw, doc: DocType, new_name: object = None) -> None:
    """Refuse to delete or rename (to `new_name`) a document that makes an account a System Manager.

    Raises: PermissionDeniedError.
    """
    named_as_role = doc.doctype == "Role" and new_name == SYSTEM_MANAGER
    if fw.rights.scoped and (named_as_role or _concerns_managers(fw, doc)):
        fw.rights.require_power_over_managers()


def require_account(fw: Fw, account: DocType) -> None:
    """Refuse an operation on an account: sending a link, ending its sessions, or lifting its
    lockout.

    Raises: PermissionDeniedError for a System Manager's account, if the user has scopes.
    """
    if fw.rights.scoped and concerns_managers(fw, account.doctype, account.as_dict()):
        fw.rights.require_power_over_managers()


def leaves_writable(fw: Fw, meta: Meta, values: Mapping[str, Any]) -> bool:
    """Whether scopes permit the user to write a stored document; pages offer editing
    accordingly."""
    if not fw.rights.scoped:
        return True
    return fw.rights.is_writable_in_scope(meta) and not concerns_managers(fw, meta.name, values)


def concerns_managers(fw: Fw, doctype: str, values: Mapping[str, Any]) -> bool:
    """Whether a document belongs to a System Manager, or is the role itself; `values` as in JSON.

    A disabled or invited account counts too: it has the role once it is enabled. The user's own API
    key does not: it grants nothing that the user lacks.
    """
    if doctype == "Role":
        return bool(values["name"] == SYSTEM_MANAGER)
    if doctype == "User":
        return any(row["role"] == SYSTEM_MANAGER for row in values["roles"])
    if doctype == "API Key":
        return not fw.rights.owns(values["user"]) and _is_manager(fw, values["user"])
    return False


def _is_manager(fw: Fw, user: object) -> bool:
    filters = {"parent": user, "parenttype": "User", "role": SYSTEM_MANAGER}
    return fw.documents.lists.count(fw, "Has Role", filters) > 0


def _concerns_managers(fw: Fw, doc: DocType) -> bool:
    versions = (doc, doc._before)
    return any(concerns_managers(fw, doc.doctype, f.as_dict()) for f in versions if f is not None)


def _changes_own_profile(fw: Fw, doc: DocType) -> bool:
    """Whether only the profile of the handle's user differs from the stored document."""
    before = doc._before
    if doc.doctype != "User" or not fw.rights.owns(doc.name) or before is None:
        return False
    fields = (field for field in doc.meta.fields.values() if field.name not in _PROFILE)
    return all(
        _roles(doc) == _roles(before)
        if isinstance(field, Table)
        else doc.__dict__[field.name] == before.__dict__[field.name]
        for field in fields
    )


def _roles(user: DocType) -> list[str]:
    return [row["role"] for row in user.as_dict()["roles"]]
