"""Accounts: look-up by name or e-mail, passwords, renames.

The roles that the site itself names keep theirs: permissions are looked up by them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access import links, sessions
from fw_actors.access.account_lock import hold
from fw_actors.access.attempts import forget_user
from fw_actors.access.hash_costs import count_change
from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw
from fw_actors.documents.hooks import Observer
from fw_actors.documents.naming import NAME_CHARACTERS, is_name
from fw_actors.documents.permissions import ADMINISTRATOR, SYSTEM_MANAGER, Rights
from fw_actors.documents.registry import Registry
from fw_actors.errors import ConflictError, DuplicateError, NotFoundError, ValidationError
from fw_actors.rules.identifiers import UnusableIdentifierError, canonical
from fw_actors.store import Statement, Tx, UniqueViolation
from fw_actors.store.schema import IDENTIFIER, JOB, KNOWN_ADDRESS, PASSWORD, SESSION, TOKEN

_KEY: Final[sa.BindParameter[Any]] = sa.bindparam("key")
_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")
_AN_ACCOUNT, _A_ROLE, _A_SCOPE = 0, 1, 2  # what a row of rights tells of


@dataclass(frozen=True, slots=True)
class Account:
    """What sign-in needs of an account; `password_hash` is None for an invited one.

    `password_changed` (ms) tells a new password from the same one hashed anew: no two of an
    account have the same.
    """

    user: str
    full_name: str
    enabled: bool
    password_hash: str | None
    password_changed: int | None


class Accounts(Observer):
    """Looks accounts up, and observes User documents so that identifiers stay unique."""

    doctypes = frozenset({"User"})

    def __init__(self, registry: Registry) -> None:
        users = registry.tables["User"].table
        roles = registry.tables["Has Role"].table
        named = users.c.name == IDENTIFIER.c.user
        hashed = PASSWORD.c.user == users.c.name
        self._by_key = Statement(
            sa.select(
                users.c.name,
                users.c.fullName,
                users.c.enabled,
                PASSWORD.c.hash,
                PASSWORD.c.changed,
            )
            .select_from(IDENTIFIER.join(users, named).outerjoin(PASSWORD, hashed))
            .where(IDENTIFIER.c.key == _KEY)
        )
        of_user = sa.and_(roles.c.parent == _USER, roles.c.parenttype == "User")
        self._roles = Statement(sa.select(roles.c.role).where(of_user).order_by(roles.c.idx))
        self._rights = Statement(_rights_of(users, roles, registry.tables["User Permission"].table))

    def find(self, tx: Tx, key: str) -> Account | None:
        """Return the account of a canonical identifier (name or e-mail)."""
        row = tx.one(self._by_key, key=key)
        if row is None:
            return None
        return Account(row[0], row[1] or "", bool(row[2]), row[3], row[4])

    def roles(self, tx: Tx, user: str) -> tuple[str, ...]:
        """Return the roles of a user, in the order of the User document."""
        return tuple(row[0] for row in tx.rows(self._roles, user=user))

    def rights(self, tx: Tx, user: str) -> Rights:
        """Return what a user may do. Raises: NotFoundError for no such, or a disabled, user."""
        if user == ADMINISTRATOR:
            return Rights(user, frozenset())
        found = tx.rows(self._rights, user=user) if is_name(user) else []
        if all(kind != _AN_ACCOUNT for kind, _, _ in found):
            raise NotFoundError(f"There is no enabled user {str(user)[:NAME_CHARACTERS]}.")
        scopes: dict[str, frozenset[str]] = {}
        for kind, allow, value in found:
            if kind == _A_SCOPE:
                scopes[allow] = scopes.get(allow, frozenset()) | {value}
        roles = frozenset(value for kind, _, value in found if kind == _A_ROLE)
        return Rights(user, roles, MappingProxyType(scopes))

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Before a User is written: its name and e-mail are nobody else's."""
        if event == "on_trash":
            forget_identifiers(fw.tx, str(doc.name))
        else:
            claim_identifiers(fw.tx, str(doc.name), str(doc.__dict__["email"]))

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """After it: who was deleted has no password, and who is disabled is signed out."""
        if event == "on_trash":
            count_change(fw.tx, fw.tx.scalar(_FORGET_PASSWORD, user=doc.name), None)
            forget_user(fw.tx, str(doc.name))
        if event == "on_trash" or not getattr(doc, "enabled", 1):
            sessions.end_all(fw.tx, str(doc.name))


def _rights_of(users: sa.Table, roles: sa.Table, scopes: sa.Table) -> sa.CompoundSelect[Any]:
    """All that limits a user in one statement: it is run for every request."""
    nothing: sa.ColumnElement[str] = sa.literal_column("''")
    enabled = sa.and_(users.c.name == _USER, users.c.enabled == 1)
    of_user = sa.and_(roles.c.parent == _USER, roles.c.parenttype == "User")
    return sa.union_all(
        sa.select(sa.literal_column(str(_AN_ACCOUNT)), nothing, nothing).where(enabled),
        sa.select(sa.literal_column(str(_A_ROLE)), nothing, roles.c.role).where(of_user),
        sa.select(sa.literal_column(str(_A_SCOPE)), scopes.c.allow, scopes.c.for_value).where(
            scopes.c.user == _USER
        ),
    )


# A mailbox and a domain, nothing that could end a header; the mail server judges the rest.
_EMAIL: Final = re.compile(
    r'[^@\s<>(),;:"\[\]\\]+@[^@\s<>(),;:"\[\]\\.]+(\.[^@\s<>(),;:"\[\]\\.]+)*\Z'
)
_FORGET: Final = Statement(sa.delete(IDENTIFIER).where(IDENTIFIER.c.user == _USER))
_CLAIM: Final = Statement(sa.insert(IDENTIFIER).values(key=_KEY, user=_USER))
_FORGET_PASSWORD: Final = Statement(
    sa.delete(PASSWORD).where(PASSWORD.c.user == _USER).returning(PASSWORD.c.hash)
)
_REPLACE_PASSWORD: Final = Statement(
    sa.delete(PASSWORD)
    .where(PASSWORD.c.user == _USER)
    .returning(PASSWORD.c.changed, PASSWORD.c.hash)
)
_HAS_PASSWORD: Final = Statement(sa.select(PASSWORD.c.user).where(PASSWORD.c.user == _USER))
_REHASH: Final = Statement(
    sa.update(PASSWORD).where(PASSWORD.c.user == _USER).values(hash=sa.bindparam("new"))
)
_SET_PASSWORD: Final = Statement(
    sa.insert(PASSWORD).values(user=_USER, hash=sa.bindparam("new"), changed=sa.bindparam("at"))
)


def claim_identifiers(tx: Tx, user: str, email: str) -> None:
    """Make name and e-mail the account's, and none that it had before.

    Raises: ValidationError for one that can't be used; DuplicateError for another account's.
    """
    email_key, name_key = judged_email(email), _usable(user, "name")
    tx.run(_FORGET, user=user)
    _claim_identifier(tx, name_key, user, "name")
    if email_key != name_key:
        _claim_identifier(tx, email_key, user, "email")


def judged_email(email: str) -> str:
    """Return the canonical form of an e-mail address. Raises: ValidationError."""
    if not _EMAIL.match(email):
        raise ValidationError("An e-mail address is like name@example.org.", field="email")
    return _usable(email, "email")


def _usable(text: str, field: str) -> str:
    try:
        form = canonical(text)
    except UnusableIdentifierError as error:
        raise ValidationError(f"{field} {error}.", field=field) from None
    if not form:
        raise ValidationError(f"{field} is blank.", field=field)
    if form == canonical(ADMINISTRATOR):
        raise ValidationError("Administrator is a reserved name.", field=field)
    return form


def forget_identifiers(tx: Tx, user: str) -> None:
    """Nobody is found by a name or an e-mail of this user any more."""
    tx.run(_FORGET, user=user)


def _claim_identifier(tx: Tx, key: str, user: str, field: str) -> None:
    try:
        with tx.savepoint():
            tx.run(_CLAIM, key=key, user=user)
    except UniqueViolation:
        raise DuplicateError(f"Another account has this {field}.", field=field) from None


@dataclass(frozen=True, slots=True)
class PasswordSet:
    """What came of a new password: whether there was one before, and how many sessions ended."""

    replaced: bool
    sessions_ended: int


def set_password(tx: Tx, user: str, password_hash: str, spare: str | None = None) -> PasswordSet:
    """Store a password's hash; the sessions of the user but for the one with the handle `spare`
    end, and every open link (A-162, A-194).

    Writes no Audit Event: `Passwords` does, which also tells the owner and is what to call, and
    `users.add_user`, whose new account is the event.
    """
    hold(tx, user)
    row = tx.one(_REPLACE_PASSWORD, user=user)
    before, old_hash = (None, None) if row is None else row
    # Two may be set in one millisecond, and a clock be set back: a try at the old one ends by it.
    at = tx.now if before is None else max(tx.now, before + 1)
    tx.run(_SET_PASSWORD, user=user, new=password_hash, at=at)
    count_change(tx, old_hash, password_hash)
    links.end(tx, user)
    return PasswordSet(before is not None, sessions.end_all(tx, user, spare))


def has_password(tx: Tx, user: str) -> bool:
    """Whether an account has a password; one that was invited has none yet."""
    return tx.scalar(_HAS_PASSWORD, user=user) is not None


def rehash(tx: Tx, account: Account, password_hash: str) -> None:
    """Store the same password with the live parameters; nothing else changes.

    `account` was read in this transaction, and is held.
    """
    tx.run(_REHASH, user=account.user, new=password_hash)
    count_change(tx, account.password_hash, password_hash)


FIRST_ROLES: Final = (SYSTEM_MANAGER, "Event Publisher")


def _move(table: sa.Table) -> Statement:
    new: sa.BindParameter[Any] = sa.bindparam("new")
    return Statement(sa.update(table).where(table.c.user == sa.bindparam("old")).values(user=new))


_MOVES: Final = tuple(_move(table) for table in (PASSWORD, SESSION, TOKEN, JOB, KNOWN_ADDRESS))


class AccountRenames(Observer):
    """Observes renames."""

    doctypes = frozenset({"Role", "User"})

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
