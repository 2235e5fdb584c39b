"""Operations of users on their own accounts, and of managers on the accounts of others.

Each operation writes an Audit Event in its transaction, naming the account and the actor.

Users change their own User record only through these operations, since nobody has write permission
on it (A-24). A request by API key may read and name its user; passwords, sessions and keys require
a session (A-264).

System Managers also see the state of accounts: invited, locked, last sign-in, sessions, roles. Each
group of accounts is read in a few statements, so that a page of a list costs little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access import recovery, sessions, users
from fw_actors.access.accounts import Accounts, has_password, lock_account
from fw_actors.access.api_keys import ApiKeys, KeyFacts, MadeKey
from fw_actors.access.attempts import IDENTIFIER, counter_key
from fw_actors.access.links import LinkKind, Links
from fw_actors.access.recovery import Invited, LinkMail, SentLink
from fw_actors.access.sessions import Caller, SessionFacts, used_since
from fw_actors.config import AuthPolicy
from fw_actors.documents import permissions, rows
from fw_actors.documents.core import APIKey, HasRole, User
from fw_actors.documents.handle import Fw
from fw_actors.documents.tables import table_of
from fw_actors.errors import AuthenticationError, PermissionDeniedError
from fw_actors.mail import LogTransport, NewKey, Notice, Template
from fw_actors.ops.audit import Action
from fw_actors.ops.mail_queue import MailQueue
from fw_actors.ops.site import Site
from fw_actors.rules.identifiers import UnusableIdentifierError, canonical
from fw_actors.runtime import Log
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import IDENTIFIER as KNOWN_IDENTIFIER
from fw_actors.store.schema import KNOWN_ADDRESS, LOGIN_ATTEMPT, PASSWORD, SESSION, TOKEN


@dataclass(frozen=True)
class Profile:
    """An account as its own user sees it (A-241)."""

    name: str
    email: str
    full_name: str
    language: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RevokedAccess:
    """The numbers of live sessions and API keys that ended; `keys` is None if not requested."""

    sessions: int
    keys: int | None


class UserAdministration:
    """Operations of System Managers on accounts, each in a transaction of the caller.

    All of them raise PermissionDeniedError unless the user is a System Manager.
    """

    def __init__(self, site: Site, links: Links, log: Log) -> None:
        """`log` gets the lines of mails, if the site writes mail to the log."""
        by_log = LogTransport(log) if site.config.mail.transport == "log" else None
        self._link_mail = LinkMail(links, site.mail_queue, by_log)
        self._accounts, self._keys, self._audit = site.accounts, site.api_keys, site.audit
        self._key, self._idle_days = site.installation_key, site.config.auth.session_idle_days

    def invite(
        self, fw: Fw, email: str, name: str | None, full_name: str, roles: Sequence[str]
    ) -> Invited:
        """Create an account and send its invitation. See `recovery.invite`."""
        with self._audit.suppressed(fw.tx):  # the invitation's event covers the account
            invited = recovery.invite(fw, self._link_mail, email, name, full_name, roles)
        self._audit.record(fw, Action.INVITE, invited.user, {"roles": list(dict.fromkeys(roles))})
        return invited

    def resend_invite(self, fw: Fw, user: str) -> SentLink:
        """Send an invitation again. See `recovery.resend`."""
        sent = recovery.resend(fw, self._link_mail, user)
        self._audit.record(fw, Action.RESEND_INVITE, user)
        return sent

    def send_password_reset(self, fw: Fw, user: str) -> SentLink:
        """Send a recovery link. See `recovery.send_reset`."""
        sent = recovery.send_reset(fw, self._link_mail, user)
        self._audit.record(fw, Action.SEND_RESET, user)
        return sent

    def revoke_sessions(self, fw: Fw, user: str, keys: bool = False) -> RevokedAccess:
        """End all sessions of a user, and with `keys` all API keys.

        Raises: PermissionDeniedError; NotFoundError.
        """
        sessions = users.revoke_sessions(fw, user, self._idle_days)
        ended = len(self._keys.end_all(fw, user)) if keys else None
        detail = {"sessions_ended": sessions} | ({} if ended is None else {"keys_ended": ended})
        self._audit.record(fw, Action.REVOKE_SESSIONS, user, detail)
        return RevokedAccess(sessions, ended)

    def sessions(self, fw: Fw, user: str) -> list[SessionFacts]:
        """Return the live sessions of a user. Raises: PermissionDeniedError; NotFoundError."""
        return users.sessions_of(fw, user, self._idle_days)

    def revoke_session(self, fw: Fw, user: str, handle: str) -> None:
        """End one session of a user by its handle. Raises: PermissionDeniedError; NotFoundError."""
        users.sessions_of(fw, user, self._idle_days)  # checks the permission
        sessions.revoke(fw.tx, user, handle, self._idle_days)
        self._audit.record(fw, Action.REVOKE_SESSIONS, user, {"sessions_ended": 1})

    def unlock(self, fw: Fw, identifier: str) -> None:
        """Lift a lockout early. See `users.unlock`."""
        user = users.unlock(fw, self._accounts, self._key, identifier)
        self._audit.record(fw, Action.UNLOCK, user)


class SelfService:
    """Operations of users on their own accounts, each in a transaction of the caller.

    All of them that require a session raise AuthenticationError if it has ended, or is no longer
    of the account of that name (A-240).
    """

    def __init__(
        self, policy: AuthPolicy, accounts: Accounts, keys: ApiKeys, mail_queue: MailQueue
    ) -> None:
        self._policy, self._accounts, self._keys = policy, accounts, keys
        self._mail_queue = mail_queue

    def profile(self, fw: Fw) -> Profile:
        """Return the user's own account."""
        row = fw.documents.registry.tables["User"].fetch(fw.tx, fw.user)
        if row is None:
            raise AuthenticationError
        roles = self._accounts.roles(fw.tx, fw.user)
        return Profile(
            row["name"], row["email"], row["fullName"] or "", row["language"] or "", roles
        )

    def update_profile(self, fw: Fw, full_name: str | None, language: str | None) -> Profile:
        """Update full name and language; None keeps a value, "" clears it.

        Raises: ValidationError for a value that is too long.
        """
        values = {"fullName": full_name, "language": language}
        doc = rows.load(fw.documents, fw, "User", fw.user, lock=True)  # concurrent updates merge
        for name, value in values.items():
            if value is not None:
                setattr(doc, name, value.strip() or None)
        doc.save(ignore_permissions=True)
        return self.profile(fw)

    def sessions(self, fw: Fw, caller: Caller) -> list[SessionFacts]:
        """Return the user's own live sessions."""
        _require_own(fw, caller)
        return sessions.of_user(fw.tx, fw.user, self._policy.session_idle_days)

    def revoke_session(self, fw: Fw, caller: Caller, handle: str) -> None:
        """End one of the user's own sessions. Raises: NotFoundError."""
        _require_own(fw, caller)
        sessions.revoke(fw.tx, fw.user, handle, self._policy.session_idle_days)

    def revoke_other_sessions(self, fw: Fw, caller: Caller) -> int:
        """End the user's other sessions, also that of a concurrent sign-in; return their number."""
        lock_account(fw.tx, fw.user)
        _require_own(fw, caller)
        return sessions.end_all(
            fw.tx, fw.user, caller.session, idle_days=self._policy.session_idle_days
        )

    def keys(self, fw: Fw, caller: Caller) -> list[KeyFacts]:
        """Return the user's own API keys."""
        _require_own(fw, caller)
        return self._keys.of_user(fw.tx, fw.user)

    def make_key(
        self, fw: Fw, caller: Caller, label: str, days: int | None, address: str = ""
    ) -> MadeKey:
        """Create an API key and notify its owner by mail: a key outlives its session.

        `address` is the client's, for that message.

        Raises: PermissionDeniedError if the policy forbids users to create keys;
            AuthenticationError if the session has just ended, for example by a recovery, which must
            leave no key behind; as `ApiKeys.make`.
        """
        require_session(caller)
        if not self._policy.self_service_api_keys:
            raise PermissionDeniedError("This site does not allow users to create API keys.")
        lock_account(fw.tx, fw.user)
        _require_own(fw, caller)
        key = self._keys.make(fw, label, days, self._policy.api_key_days)
        _mail_new_key(fw, self._mail_queue, key, fw.user, address)
        return key

    def revoke_key(self, fw: Fw, caller: Caller, name: str) -> None:
        """End one of the user's own API keys. Raises: NotFoundError."""
        _require_own(fw, caller)
        self._keys.revoke(fw, name)

    def revoke_all_keys(self, fw: Fw, caller: Caller) -> int:
        """End all of the user's own API keys; return the number of valid ones."""
        _require_own(fw, caller)
        return self._keys.revoke_all(fw)


def make_key_for(
    fw: Fw, keys: ApiKeys, mail_queue: MailQueue, policy: AuthPolicy, user: str, label: str,
    days: int | None,
) -> MadeKey:  # fmt: skip
    """Create an API key for an account, on behalf of a System Manager.

    The policy's lifetime of keys applies; its setting that lets users create keys does not. The
    owner gets a mail, except for an account without a password, which only gets invitations.

    Args:
        days: the validity, 1 to 3,650; None for the maximum of the policy.

    Raises: PermissionDeniedError; NotFoundError; as `ApiKeys.make`.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    account = fw.get_doc("User", user)
    permissions.require_account(fw, account)
    key = keys.make(fw, label, days, policy.api_key_days, owner=account.name)
    if has_password(fw.tx, account.name):
        _mail_new_key(fw, mail_queue, key, account.name, "")
    return key


def _mail_new_key(fw: Fw, mail_queue: MailQueue, key: MadeKey, owner: str, address: str) -> None:
    """Notify the owner of a new key by mail; `address` is that of the client, if any."""
    new = NewKey(key.label, key.name, fw.tx.now, key.expires, address)
    mail_queue.to_user(
        fw.tx, Template.API_KEY_MADE, owner, owner=fw.user, notice=Notice(new_key=new)
    )


def require_session(caller: Caller) -> str:
    """Return the handle of the caller's session. Raises: PermissionDeniedError for an API key."""
    if caller.session is None:
        raise PermissionDeniedError("This operation requires a session, not an API key. Sign in.")
    return caller.session


def _require_own(fw: Fw, caller: Caller) -> None:
    """Check that the caller's session still is one of the handle's user.

    Raises: PermissionDeniedError for an API key; AuthenticationError.
    """
    sessions.require_live(fw.tx, require_session(caller), fw.user)


MAX_LOCKED: Final = 30_000
"""The maximum number of locked accounts in a filter: SQLite binds 32,766 values."""


class AccountCondition(StrEnum):
    """The condition of an account: active, invited, locked or disabled."""

    ACTIVE = "active"
    LOCKED = "locked"
    INVITED = "invited"
    """Has no password yet, and a link to set one."""
    NO_PASSWORD = "no password"
    """Has neither a password nor a valid link to set one."""
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class AccountState:
    """The state of an account. Times in ms; None where there is none.

    `last_sign_in` is the start of the latest session that has not been ended, or else the latest
    sign-in recorded for an address (once a day, for 30 days). `sessions` and `keys` count valid
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
_USERS: Final = table_of(User).table
_U: Final = _USERS.c
_R: Final = table_of(HasRole).table.c
_K: Final = table_of(APIKey).table.c
_ACCOUNTS: Final = Statement(
    sa.select(_U.name, _U.email, _U.enabled, PASSWORD.c.hash.is_not(None))
    .select_from(_USERS.outerjoin(PASSWORD, PASSWORD.c.user == _U.name))
    .where(_U.name.in_(_NAMES))
)
_ROLES: Final = Statement(
    sa.select(_R.parent, _R.role)
    .where(_R.parent.in_(_NAMES), _R.parenttype == "User")
    .order_by(_R.parent, _R.idx)
)
_API_KEYS: Final = Statement(
    sa.select(_K.user, sa.func.count())
    .where(_K.user.in_(_NAMES), sa.or_(_K.expires.is_(None), _K.expires > _NOW))
    .group_by(_K.user)
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

    def __init__(self, installation_key: bytes, idle_days: int) -> None:
        """`idle_days` is the policy's `sessionIdleDays`."""
        self._key, self._idle_days = installation_key, idle_days

    def conditions(self, tx: Tx, condition: AccountCondition) -> tuple[sa.ColumnElement[bool], ...]:
        """Return the conditions on the columns of User for the accounts that are in a condition.

        Lock counters do not identify their accounts: while there are locks, the counters of all
        accounts are computed.
        """
        if condition is AccountCondition.DISABLED:
            return (_U.enabled == 0,)
        has_password = sa.exists().where(PASSWORD.c.user == _U.name)
        if condition in (AccountCondition.INVITED, AccountCondition.NO_PASSWORD):
            invited = _U.name.in_(
                sa.select(TOKEN.c.user).where(
                    TOKEN.c.kind == LinkKind.INVITATION.value,
                    TOKEN.c.spent.is_(None),
                    TOKEN.c.expires > tx.now,
                )
            )
            is_invited = condition is AccountCondition.INVITED
            return (_U.enabled == 1, ~has_password, invited if is_invited else ~invited)
        locked = _U.name.in_(self._all_locked(tx))
        is_locked = condition is AccountCondition.LOCKED
        return (_U.enabled == 1, has_password, locked if is_locked else ~locked)

    def _all_locked(self, tx: Tx) -> list[str]:
        """Return the accounts that are locked by their name or their e-mail."""
        keys = {bytes(key) for (key,) in tx.rows(_ALL_LOCKED, now=tx.now)}
        if not keys:
            return []
        users: set[str] = set()
        for identifier, user in tx.rows(_IDENTIFIERS):  # stored in canonical form
            if counter_key(self._key, IDENTIFIER, identifier) in keys:
                users.add(user)
        return sorted(users)[:MAX_LOCKED]

    def of(self, tx: Tx, names: Sequence[str]) -> dict[str, AccountState]:
        """Return the states of accounts by name; names without an account are left out."""
        if not names:
            return {}
        parameters = {"names": list(names)}
        accounts = tx.rows(_ACCOUNTS, **parameters)
        since = used_since(tx.now, self._idle_days)
        sessions = {
            user: (created, count)
            for user, created, count in tx.rows(
                _SESSIONS, now=tx.now, used_since=since, **parameters
            )
        }
        invited = _pairs(tx.rows(_INVITED, now=tx.now, **parameters))
        seen = _pairs(tx.rows(_SEEN, **parameters))
        keys = _pairs(tx.rows(_API_KEYS, now=tx.now, **parameters))
        locked = self._locked(tx, [(name, email) for name, email, _, _ in accounts])
        roles: dict[str, list[str]] = {}
        for user, role in tx.rows(_ROLES, **parameters):
            roles.setdefault(user, []).append(role)
        states = {}
        for name, _, enabled, with_password in accounts:
            created, count = sessions.get(name, (None, 0))
            signed_in = [each for each in (created, seen.get(name)) if each is not None]
            states[name] = AccountState(
                user=name,
                enabled=bool(enabled),
                has_password=bool(with_password),
                invited_until=invited.get(name),
                locked_until=locked.get(name),
                last_sign_in=max(signed_in, default=None),
                sessions=int(count),
                keys=keys.get(name, 0),
                roles=tuple(roles.get(name, ())),
            )
        return states

    def _locked(self, tx: Tx, accounts: Sequence[tuple[str, str]]) -> dict[str, int]:
        """Return for each locked account the time (ms) until which its name or e-mail is locked."""
        owners = {key: name for name, email in accounts for key in self._counters((name, email))}
        locked_until: dict[str, int] = {}
        if owners:
            for key, until in tx.rows(_LOCKED, keys=list(owners), now=tx.now):
                name = owners[bytes(key)]
                locked_until[name] = max(locked_until.get(name, 0), until)
        return locked_until

    def _counters(self, identifiers: Iterable[str | None]) -> list[bytes]:
        keys = []
        for identifier in identifiers:
            try:
                keys.append(counter_key(self._key, IDENTIFIER, canonical(identifier or "")))
            except UnusableIdentifierError:
                continue  # it cannot be used to sign in
        return keys


def _pairs(rows: Iterable[Sequence[Any]]) -> Mapping[str, int]:
    return {row[0]: row[1] for row in rows}
