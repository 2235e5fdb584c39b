"""The state of accounts for System Managers: invited, locked, last sign-in, sessions, roles.

Each group of accounts is read in a few statements, so that a page of a list costs little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access.attempts import IDENTIFIER, counter_key
from fw_actors.access.sessions import used_since
from fw_actors.access.types import LinkKind
from fw_actors.documents.registry import Registry
from fw_actors.rules.identifiers import UnusableIdentifierError, canonical
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import IDENTIFIER as KNOWN_IDENTIFIER
from fw_actors.store.schema import KNOWN_ADDRESS, LOGIN_ATTEMPT, PASSWORD, SESSION, TOKEN

MAX_LOCKED: Final = 30_000
"""The most locked accounts that a list is limited to: SQLite binds 32,766 values."""


class AccountCondition(StrEnum):
    """The condition of an account: active, invited, locked or disabled."""

    ACTIVE = "active"
    LOCKED = "locked"
    INVITED = "invited"
    """Has no password yet, and a link to choose one."""
    NO_PASSWORD = "no password"
    """Has neither a password nor a link to choose one that works."""
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class AccountState:
    """The state of an account. Times in ms; None where there is none.

    `last_sign_in` is that of the latest session that has not been ended, or else the latest one
    that was noted for an address: once a day, and for 30 days. `sessions` and `keys` are valid
    ones.
    """

    user: str
    enabled: bool
    has_password: bool
    invited_until: int | None
    locked_until: int | None
    last_sign_in: int | None
    sessions: int
    keys: int
    roles: tuple[str, ...]

    @property
    def condition(self) -> AccountCondition:
        """The first of these that applies: disabled, without password, locked."""
        if not self.enabled:
            return AccountCondition.DISABLED
        if not self.has_password:
            invited = self.invited_until is not None
            return AccountCondition.INVITED if invited else AccountCondition.NO_PASSWORD
        locked = self.locked_until is not None
        return AccountCondition.LOCKED if locked else AccountCondition.ACTIVE


_NAMES: Final[sa.BindParameter[Any]] = sa.bindparam("names", expanding=True)
_KEYS: Final[sa.BindParameter[Any]] = sa.bindparam("keys", expanding=True)
_NOW: Final[sa.BindParameter[Any]] = sa.bindparam("now", type_=sa.BigInteger())
_INVITED: Final = Statement(
    sa.select(TOKEN.c.user, sa.func.max(TOKEN.c.expires))
    .where(TOKEN.c.user.in_(_NAMES), TOKEN.c.kind == LinkKind.INVITATION.value)
    .where(TOKEN.c.spent.is_(None), TOKEN.c.expires > _NOW)
    .group_by(TOKEN.c.user)
)
_LOCKED: Final = Statement(
    sa.select(LOGIN_ATTEMPT.c.key, sa.func.max(LOGIN_ATTEMPT.c.until))
    .where(LOGIN_ATTEMPT.c.key.in_(_KEYS), LOGIN_ATTEMPT.c.until > _NOW)
    .group_by(LOGIN_ATTEMPT.c.key)
)
_ALL_LOCKED: Final = Statement(
    sa.select(LOGIN_ATTEMPT.c.key).where(LOGIN_ATTEMPT.c.until > _NOW).distinct()
)
_IDENTIFIERS: Final = Statement(sa.select(KNOWN_IDENTIFIER.c.key, KNOWN_IDENTIFIER.c.user))
_VALID: Final = sa.and_(
    SESSION.c.expires > _NOW,
    SESSION.c.last_seen > sa.bindparam("used_since", type_=sa.BigInteger()),
)
_SESSIONS: Final = Statement(
    sa.select(
        SESSION.c.user,
        sa.func.max(SESSION.c.created),
        sa.func.coalesce(sa.func.sum(sa.case((_VALID, 1), else_=0)), 0),
    )
    .where(SESSION.c.user.in_(_NAMES))
    .group_by(SESSION.c.user)
)
_SEEN: Final = Statement(
    sa.select(KNOWN_ADDRESS.c.user, sa.func.max(KNOWN_ADDRESS.c.seen))
    .where(KNOWN_ADDRESS.c.user.in_(_NAMES))
    .group_by(KNOWN_ADDRESS.c.user)
)


class AccountStates:
    """Reads the states of accounts."""

    def __init__(self, registry: Registry, installation_key: bytes, idle_days: int) -> None:
        """`idle_days` is the policy's `sessionIdleDays`."""
        users, roles = (registry.tables[name].table for name in ("User", "Has Role"))
        keys = registry.tables["API Key"].table.c
        u, r = users.c, roles.c
        self._key, self._idle_days, self._users = installation_key, idle_days, users
        self._accounts = Statement(
            sa.select(u.name, u.email, u.enabled, PASSWORD.c.hash.is_not(None))
            .select_from(users.outerjoin(PASSWORD, PASSWORD.c.user == u.name))
            .where(u.name.in_(_NAMES))
        )
        self._roles = Statement(
            sa.select(r.parent, r.role)
            .where(r.parent.in_(_NAMES), r.parenttype == "User")
            .order_by(r.parent, r.idx)
        )
        self._api_keys = Statement(
            sa.select(keys.user, sa.func.count())
            .where(keys.user.in_(_NAMES), sa.or_(keys.expires.is_(None), keys.expires > _NOW))
            .group_by(keys.user)
        )

    def conditions(self, tx: Tx, condition: AccountCondition) -> tuple[sa.ColumnElement[bool], ...]:
        """Return the conditions on the columns of User for the accounts that are in a condition.

        The counters of locks do not tell whose they are: while there are some, those of all
        accounts are computed.
        """
        u = self._users.c
        if condition is AccountCondition.DISABLED:
            return (u.enabled == 0,)
        has_password = sa.exists().where(PASSWORD.c.user == u.name)
        if condition in (AccountCondition.INVITED, AccountCondition.NO_PASSWORD):
            invited = u.name.in_(
                sa.select(TOKEN.c.user).where(
                    TOKEN.c.kind == LinkKind.INVITATION.value,
                    TOKEN.c.spent.is_(None),
                    TOKEN.c.expires > tx.now,
                )
            )
            is_invited = condition is AccountCondition.INVITED
            return (u.enabled == 1, ~has_password, invited if is_invited else ~invited)
        locked = u.name.in_(self._all_locked(tx))
        is_locked = condition is AccountCondition.LOCKED
        return (u.enabled == 1, has_password, locked if is_locked else ~locked)

    def _all_locked(self, tx: Tx) -> list[str]:
        """Return the accounts that are locked by their name or their e-mail."""
        keys = {bytes(key) for (key,) in tx.rows(_ALL_LOCKED, now=tx.now)}
        if not keys:
            return []
        found: set[str] = set()
        for identifier, user in tx.rows(_IDENTIFIERS):  # in their canonical form already
            if counter_key(self._key, IDENTIFIER, identifier) in keys:
                found.add(user)
        return sorted(found)[:MAX_LOCKED]

    def of(self, tx: Tx, names: Sequence[str]) -> dict[str, AccountState]:
        """Return the states of accounts by name; names without an account are left out."""
        if not names:
            return {}
        given = {"names": list(names)}
        accounts = tx.rows(self._accounts, **given)
        since = used_since(tx.now, self._idle_days)
        sessions = {
            user: (created, count)
            for user, created, count in tx.rows(_SESSIONS, now=tx.now, used_since=since, **given)
        }
        invited = _pairs(tx.rows(_INVITED, now=tx.now, **given))
        seen = _pairs(tx.rows(_SEEN, **given))
        keys = _pairs(tx.rows(self._api_keys, now=tx.now, **given))
        locked = self._locked(tx, [(name, email) for name, email, _, _ in accounts])
        roles: dict[str, list[str]] = {}
        for user, role in tx.rows(self._roles, **given):
            roles.setdefault(user, []).append(role)
        found = {}
        for name, _, enabled, has_password in accounts:
            created, count = sessions.get(name, (None, 0))
            signed_in = [each for each in (created, seen.get(name)) if each is not None]
            found[name] = AccountState(
                user=name,
                enabled=bool(enabled),
                has_password=bool(has_password),
                invited_until=invited.get(name),
                locked_until=locked.get(name),
                last_sign_in=max(signed_in, default=None),
                sessions=int(count),
                keys=keys.get(name, 0),
                roles=tuple(roles.get(name, ())),
            )
        return found

    def _locked(self, tx: Tx, accounts: Sequence[tuple[str, str]]) -> dict[str, int]:
        """Return until when accounts are locked by their name or their e-mail."""
        owners = {key: name for name, email in accounts for key in self._counters((name, email))}
        found: dict[str, int] = {}
        if owners:
            for key, until in tx.rows(_LOCKED, keys=list(owners), now=tx.now):
                name = owners[bytes(key)]
                found[name] = max(found.get(name, 0), until)
        return found

    def _counters(self, identifiers: Iterable[str | None]) -> list[bytes]:
        found = []
        for identifier in identifiers:
            try:
                found.append(counter_key(self._key, IDENTIFIER, canonical(identifier or "")))
            except UnusableIdentifierError:
                continue  # nobody can sign in by it
        return found


def _pairs(rows: Iterable[Sequence[Any]]) -> Mapping[str, int]:
    return {row[0]: row[1] for row in rows}
