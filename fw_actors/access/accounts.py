"""Accounts: look-up by name or e-mail, the lock of an account's row, renames.

Passwords, sessions and links depend on the account's state but are stored in separate tables: for
example, no session may be created while the password is being replaced. Therefore every transaction
that changes one of them locks the account's row before it accesses the other tables.

Roles of the service and of apps cannot be renamed, because permissions refer to them by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access import sessions
from fw_actors.access.hash_costs import count_change
from fw_actors.access.known_origins import delete_known_origins
from fw_actors.documents.core import HasRole, User, UserPermission
from fw_actors.documents.handle import DocType, Fw
from fw_actors.documents.hooks import Observer
from fw_actors.documents.naming import NAME_CHARACTERS, is_name
from fw_actors.documents.permissions import ADMINISTRATOR, SYSTEM_MANAGER, Rights
from fw_actors.documents.tables import table_of
from fw_actors.errors import ConflictError, DuplicateError, NotFoundError, ValidationError
from fw_actors.mail.message import ENCODED_WORD
from fw_actors.rules.identifiers import UnusableIdentifierError, canonical
from fw_actors.store import Statement, Tx, UniqueViolation
from fw_actors.store.schema import (
    IDENTIFIER,
    KNOWN_ADDRESS,
    KNOWN_DEVICE,
    PASSWORD,
    SESSION,
    TOKEN,
)

_KEY: Final[sa.BindParameter[Any]] = sa.bindparam("key")
_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")
_USERS: Final = table_of(User).table
_U: Final = _USERS.c
_R: Final = table_of(HasRole).table.c
_S: Final = table_of(UserPermission).table.c
_NAME: Final = sa.select(_U.name).where(_U.name == _USER)
_LOCK: Final = Statement(_NAME.with_for_update(key_share=True))
_LOCK_SHARED: Final = Statement(_NAME.with_for_update(read=True, key_share=True))
_BY_KEY: Final = Statement(
    sa.select(_U.name, _U.fullName, _U.enabled, PASSWORD.c.hash, PASSWORD.c.changed)
    .select_from(
        IDENTIFIER.join(_USERS, _U.name == IDENTIFIER.c.user).outerjoin(
            PASSWORD, PASSWORD.c.user == _U.name
        )
    )
    .where(IDENTIFIER.c.key == _KEY)
)
_EMAIL_OF: Final = Statement(sa.select(_U.email).where(_U.name == _USER))
_ROLES_OF: Final = sa.and_(_R.parent == _USER, _R.parenttype == "User")
_ROLES: Final = Statement(sa.select(_R.role).where(_ROLES_OF).order_by(_R.idx))
_AN_ACCOUNT, _A_ROLE, _A_SCOPE = 0, 1, 2  # the kinds of rows of `_RIGHTS`
_NOTHING: Final[sa.ColumnElement[str]] = sa.literal_column("''")
_RIGHTS: Final = Statement(  # one statement, because every request runs it
    sa.union_all(
        sa.select(sa.literal_column(str(_AN_ACCOUNT)), _NOTHING, _NOTHING).where(
            _U.name == _USER, _U.enabled == 1
        ),
        sa.select(sa.literal_column(str(_A_ROLE)), _NOTHING, _R.role).where(_ROLES_OF),
        sa.select(sa.literal_column(str(_A_SCOPE)), _S.allow, _S.for_value).where(_S.user == _USER),
    )
)


@dataclass(frozen=True, slots=True)
class Account:
    """The columns of an account that sign-in needs; `password_hash` is None if invited.

    `password_changed` (ms) distinguishes a new password from a rehash of the same one: it is
    unique among the passwords of an account.
    """

    user: str
    full_name: str
    enabled: bool
    password_hash: str | None
    password_changed: int | None


class Accounts(Observer):
    """Looks accounts up, and observes User documents so that identifiers stay unique."""

    doctypes = frozenset({"User"})

    def find(self, tx: Tx, key: str) -> Account | None:
        """Return the account of a canonical identifier (name or e-mail)."""
        row = tx.one(_BY_KEY, key=key)
        if row is None:
            return None
        return Account(row[0], row[1] or "", bool(row[2]), row[3], row[4])

    def roles(self, tx: Tx, user: str) -> tuple[str, ...]:
        """Return the roles of a user, in the order of the User document."""
        return tuple(map(itemgetter(0), tx.rows(_ROLES, user=user)))

    def rights(self, tx: Tx, user: str) -> Rights:
        """Return a user's rights. Raises: NotFoundError for an unknown or disabled user."""
        if user == ADMINISTRATOR:
            return Rights(user, frozenset())
        rows = tx.rows(_RIGHTS, user=user) if is_name(user) else []
        if all(kind != _AN_ACCOUNT for kind, _, _ in rows):
            raise NotFoundError(f"There is no enabled user {str(user)[:NAME_CHARACTERS]}.")
        names_by_doctype: dict[str, set[str]] = {}
        for kind, allow, value in rows:
            if kind == _A_SCOPE:
                names_by_doctype.setdefault(allow, set()).add(value)
        scopes = {allow: frozenset(values) for allow, values in names_by_doctype.items()}
        roles = frozenset(value for kind, _, value in rows if kind == _A_ROLE)
        return Rights(user, roles, MappingProxyType(scopes))

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Before a User is written, check that no other account has its name or e-mail."""
        if event == "on_trash":
            delete_identifiers(fw.tx, str(doc.name))
            return
        email, before = str(doc.__dict__["email"]), doc._before
        if before is None or before.__dict__["email"] != email:
            _refuse_encoded_word(email)  # a stored one must not keep its account enabled
        claim_identifiers(fw.tx, str(doc.name), email)

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """After the write: delete the password of a deleted account, sign out a disabled one."""
        if event == "on_trash":
            count_change(fw.tx, fw.tx.scalar(_DELETE_PASSWORD, user=doc.name), None)
            delete_known_origins(fw.tx, str(doc.name))
        if event == "on_trash" or not getattr(doc, "enabled", 1):
            sessions.end_all(fw.tx, str(doc.name), idle_days=0)  # for the unused count


def lock_account(tx: Tx, user: str, *, limit_pauses: bool = False) -> None:
    """Lock the account's row until the transaction ends; SQLite needs no lock, since it has one
    writer.

    A missing account is not an error. Later reads see what earlier lock holders committed.
    `limit_pauses`: see `Tx.limit_pauses`.
    """
    if tx.locks_rows:
        if limit_pauses:
            tx.limit_pauses()
        tx.run(_LOCK, user=user)


def lock_account_shared(tx: Tx, user: str) -> bool:
    """Lock the account's row against deletion and renaming until the transaction ends.

    Required before writing a row that is later carried out as the user: a deletion or a rename that
    overlaps would not see the row, and another account could be given the name. Unlike
    `lock_account` it does not hold up sign-ins.

    Returns: whether the account still has this name; always for Administrator, who has no account.
    """
    if not tx.locks_rows or user == ADMINISTRATOR:
        return True
    return tx.one(_LOCK_SHARED, user=user) is not None


def email_of(tx: Tx, user: str) -> str:
    """Return the stored e-mail of an account; "" if there is no such account."""
    return tx.scalar(_EMAIL_OF, user=user) or ""


def disabled_account(user: str) -> ConflictError:
    """Return the error of an operation that requires an enabled account."""
    return ConflictError(f"{user[:140]} is disabled; enable the account first.")


def has_password(tx: Tx, user: str) -> bool:
    """Return whether an account has a password; an invited account has none yet."""
    return tx.scalar(_HAS_PASSWORD, user=user) is not None


# A mailbox and a domain without characters that end a header; the mail server checks the rest.
_EMAIL: Final = re.compile(
    r'[^@\s<>(),;:"\[\]\\]+@[^@\s<>(),;:"\[\]\\.]+(\.[^@\s<>(),;:"\[\]\\.]+)*\Z'
)
_DELETE_IDENTIFIERS: Final = Statement(sa.delete(IDENTIFIER).where(IDENTIFIER.c.user == _USER))
_CLAIM: Final = Statement(sa.insert(IDENTIFIER).values(key=_KEY, user=_USER))
_HAS_PASSWORD: Final = Statement(sa.select(PASSWORD.c.user).where(PASSWORD.c.user == _USER))
_DELETE_PASSWORD: Final = Statement(
    sa.delete(PASSWORD).where(PASSWORD.c.user == _USER).returning(PASSWORD.c.hash)
)
_REHASH: Final = Statement(
    sa.update(PASSWORD).where(PASSWORD.c.user == _USER).values(hash=sa.bindparam("new"))
)


def claim_identifiers(tx: Tx, user: str, email: str) -> None:
    """Assign name and e-mail to the account and release its previous identifiers.

    Raises: ValidationError for an invalid identifier; DuplicateError for one of another account.
    """
    email_key, name_key = canonical_email(email), _canonical_identifier(user, "name")
    tx.run(_DELETE_IDENTIFIERS, user=user)
    if email_key != name_key:  # else the error names the field that an invitation has
        _claim_identifier(tx, name_key, user, "name")
    _claim_identifier(tx, email_key, user, "email")


def canonical_email(email: str) -> str:
    """Return the canonical form of an e-mail address. Raises: ValidationError."""
    if not _EMAIL.match(email):
        raise ValidationError("email must have the form name@example.org.", field="email")
    return _canonical_identifier(email, "email")


def _refuse_encoded_word(email: str) -> None:
    if ENCODED_WORD in email:
        raise ValidationError(
            f"email must not contain {ENCODED_WORD}, which begins an encoded word.", field="email"
        )


def _canonical_identifier(text: str, field: str) -> str:
    try:
        key = canonical(text)
    except UnusableIdentifierError as error:
        raise ValidationError(f"{field} {error}.", field=field) from None
    if not key:
        raise ValidationError(f"{field} must not be blank.", field=field)
    if key == canonical(ADMINISTRATOR):
        raise ValidationError("Administrator is a reserved name.", field=field)
    return key


def delete_identifiers(tx: Tx, user: str) -> None:
    """Release the name and the e-mail of a user."""
    tx.run(_DELETE_IDENTIFIERS, user=user)


def _claim_identifier(tx: Tx, key: str, user: str, field: str) -> None:
    try:
        with tx.savepoint():
            tx.run(_CLAIM, key=key, user=user)
    except UniqueViolation:
        raise DuplicateError(f"Another account has this {field}.", field=field) from None


def rehash(tx: Tx, account: Account, password_hash: str) -> None:
    """Store the same password, hashed with the current parameters; nothing else changes.

    `account` must have been read and locked in this transaction.
    """
    tx.run(_REHASH, user=account.user, new=password_hash)
    count_change(tx, account.password_hash, password_hash)


FIRST_ROLES: Final = (SYSTEM_MANAGER, "Event Publisher")


def _move(table: sa.Table) -> Statement:
    new: sa.BindParameter[Any] = sa.bindparam("new")
    return Statement(sa.update(table).where(table.c.user == sa.bindparam("old")).values(user=new))


_OF_USERS: Final = (PASSWORD, SESSION, TOKEN, KNOWN_ADDRESS, KNOWN_DEVICE)
_MOVES: Final = tuple(map(_move, _OF_USERS))


class AccountRenames(Observer):
    """Moves the rows of a renamed User to its new name, and refuses to rename declared roles."""

    doctypes = frozenset({"Role", "User"})

    def __init__(self, app_roles: Iterable[str]) -> None:
        """`app_roles` are the roles that apps declare, which are not renamed either."""
        self._kept_roles = frozenset({*FIRST_ROLES, *app_roles})

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Move a renamed User's rows. Raises: ConflictError, and as `claim_identifiers`."""
        if doctype == "Role" and old in self._kept_roles:
            raise ConflictError(f"{old} is a role of the service or an app and cannot be renamed.")
        if doctype == "User":
            delete_identifiers(fw.tx, old)
            claim_identifiers(fw.tx, new, email_of(fw.tx, new))
            for move in _MOVES:
                fw.tx.run(move, old=old, new=new)
