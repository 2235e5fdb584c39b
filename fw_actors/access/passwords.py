"""Passwords of accounts: stored hashes, policy, changes.

Sessions end (A-162); a password set by an administrator lifts the lockouts of name and e-mail
(A-76); `password_changed` is sent whenever an existing password is replaced (A-297); API keys
survive only a change by their owner (A-249, A-274).

A wrong `current` counts as a failed sign-in for the account name (A-244), shares that name's
budget and is answered with 429 while it is locked (A-245), so that a stolen session allows no more
guesses than the lockout.

`new_password` is write-only and sets the hash (A-294). A value received over HTTP is hashed before
the transaction, a value set by app code inside it (A-295); it lifts the lockouts of name and e-mail
(A-76).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access import attempts, links, sessions
from fw_actors.access.accounts import Account, email_of, lock_account
from fw_actors.access.api_keys import ApiKeys
from fw_actors.access.hash_costs import count_change
from fw_actors.access.sign_in import AttemptDependencies, CountedAttempts
from fw_actors.documents.handle import DocType, Fw
from fw_actors.documents.hooks import Observer
from fw_actors.errors import (
    AuthenticationError,
    FwError,
    OverloadedError,
    PasswordPolicyError,
    TooManyRequestsError,
)
from fw_actors.hashing import HashCost, Hasher, HashQueue, PreparedPassword
from fw_actors.mail import NamedKey, Notice, Template
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.ops.mail_queue import MailQueue
from fw_actors.rules.fair_queue import Requester
from fw_actors.rules.identifiers import canonical
from fw_actors.rules.lockout import may_verify
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import PASSWORD

_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")
_REPLACE_PASSWORD: Final = Statement(
    sa.delete(PASSWORD)
    .where(PASSWORD.c.user == _USER)
    .returning(PASSWORD.c.changed, PASSWORD.c.hash)
)
_SET_PASSWORD: Final = Statement(
    sa.insert(PASSWORD).values(user=_USER, hash=sa.bindparam("new"), changed=sa.bindparam("at"))
)


@dataclass(frozen=True)
class PasswordChange:
    """A user's request to change their own password, made in the session `session` (a handle)."""

    user: str
    session: str
    current: str = field(repr=False)
    password: str = field(repr=False)
    request_id: str = ""


@dataclass(frozen=True)
class PasswordChanged:
    """The result of a password change by its owner."""

    sessions_ended: int


@dataclass(frozen=True, slots=True)
class PasswordSet:
    """The result of setting a password: whether it replaced one, and how many sessions ended."""

    replaced: bool
    sessions_ended: int


def set_password(
    tx: Tx,
    user: str,
    password_hash: str,
    except_session: str | None = None,
    *,
    idle_days: int = 0,
) -> PasswordSet:
    """Store a password hash; end the user's other sessions and open links (A-162, A-194).

    The session with the handle `except_session` is kept. Sessions that had expired already, by
    the policy's `sessionIdleDays` too, are not counted. Writes no Audit Event: call `Passwords`,
    which does and also notifies the owner; for `users.add_user` the new account is the event.
    """
    lock_account(tx, user)
    row = tx.one(_REPLACE_PASSWORD, user=user)
    before, old_hash = (None, None) if row is None else row
    # It must differ from the old value even within one millisecond or after the clock was set back:
    # an attempt in flight detects by it that the password was replaced.
    at = tx.now if before is None else max(tx.now, before + 1)
    tx.run(_SET_PASSWORD, user=user, new=password_hash, at=at)
    count_change(tx, old_hash, password_hash)
    links.end(tx, user)
    ended = sessions.end_all(tx, user, except_session, idle_days=idle_days)
    return PasswordSet(before is not None, ended)


@dataclass(frozen=True, slots=True)
class EndedAccess:
    """The numbers of live sessions and API keys of an account that ended."""

    sessions: int
    keys: int


class Passwords:
    """Sets passwords from existing hashes, inside a transaction of the caller."""

    def __init__(
        self,
        mail_queue: MailQueue,
        keys: ApiKeys,
        audit: AuditLog,
        installation_key: bytes,
        idle_days: int,
    ) -> None:
        """`idle_days` is the policy's `sessionIdleDays`."""
        self._mail_queue, self._keys, self._audit = mail_queue, keys, audit
        self._key, self._idle_days = installation_key, idle_days

    def change(
        self, tx: Tx, user: str, password_hash: str, *, except_session: str, request_id: str = ""
    ) -> int:
        """Store the hash of a password that its owner changed by giving the current one.

        Open links end, and so do all sessions except the one with the handle `except_session`;
        API keys stay. The account is notified by mail. Returns: the number of ended sessions.
        """
        result = set_password(tx, user, password_hash, except_session, idle_days=self._idle_days)
        if result.replaced:
            self._mail_queue.to_user(tx, Template.PASSWORD_CHANGED, user, owner=user)
        self._audit.record_by(tx, user, request_id, Action.CHANGE_PASSWORD, user)
        return result.sessions_ended

    def replace(self, fw: Fw, user: str, password_hash: str, action: Action) -> EndedAccess:
        """Store the hash of a password that was set by a link or by an administrator.

        All sessions, open links and API keys end: someone with the old password, or a session of
        it, may have created keys. A mail to the account names the keys. The handle's user is the
        one who requested the change; the Audit Event records `action`.
        """
        keys = self._keys.end_all(fw, user)
        result = set_password(fw.tx, user, password_hash, idle_days=self._idle_days)
        if result.replaced:
            ended = tuple(NamedKey(key.label, key.name) for key in keys)
            self._mail_queue.to_user(
                fw.tx,
                Template.PASSWORD_CHANGED,
                user,
                owner=fw.user,
                notice=Notice(ended_keys=ended),
            )
        detail = {"keys_ended": len(keys)} if keys else None
        self._audit.record(fw, action, user, detail)
        return EndedAccess(result.sessions_ended, len(keys))

    def replace_and_unlock(self, fw: Fw, user: str, password_hash: str) -> EndedAccess:
        """Replace a password as an administrator; also lift lockouts of name and e-mail."""
        ended = self.replace(fw, user, password_hash, Action.SET_PASSWORD)
        attempts.unlock_account(fw.tx, self._key, name=user, email=email_of(fw.tx, user))
        return ended


WRONG: Final = "The current password is wrong."


@dataclass(frozen=True, slots=True)
class AdmittedChange:
    """A password change that was charged and may be verified."""

    key: bytes
    charge: str
    charged_at: int
    account: Account
    decoy: HashCost | None


class PasswordChanges(CountedAttempts):
    """The steps of a password change, each a transaction or a hash; LockoutActor orders them."""

    def __init__(self, dependencies: AttemptDependencies, passwords: Passwords) -> None:
        super().__init__(dependencies)
        self._passwords = passwords

    def counter(self, user: str) -> bytes:
        """Return the counter of an account's name, which sign-ins by that name share."""
        return attempts.counter_key(self._key, attempts.IDENTIFIER, canonical(user))

    async def admit(self, change: PasswordChange, key: bytes) -> AdmittedChange | FwError:
        """Charge the account's name. Raises: OverloadedError if the charge cannot be written."""
        charge = self._id()

        def work(tx: Tx) -> AdmittedChange | FwError:
            wait = attempts.charge(tx, charge, key, self._budget)
            if wait is not None:
                return TooManyRequestsError(wait)
            account = self._directory.find(tx, canonical(change.user))
            if account is None or not account.enabled:
                attempts.release(tx, charge)
                return AuthenticationError()
            return AdmittedChange(key, charge, tx.now, account, self._costs.get(tx).draw(key))

        return await self._store.write(work)

    async def verify(
        self, change: PasswordChange, admitted: AdmittedChange
    ) -> PasswordChanged | FwError:
        """Verify the current password, validate and hash the new one, settle and store it."""
        stored = admitted.account.password_hash
        try:
            verified = await self._hasher.verify(
                stored,
                change.current,
                HashQueue.RECOVERY,
                decoy=admitted.decoy,
                requester=_requester(change),
                may_begin=lambda: may_verify(admitted.charged_at, self._clock.now()),
            )
            new = await self._hash(change, admitted) if verified.ok else None
        except OverloadedError as error:
            await self._store.write(lambda tx: attempts.release(tx, admitted.charge))
            return error
        if new is None:  # a failure that cannot be written keeps its charge
            return await self._store.write(lambda tx: self._fail(tx, admitted))
        return await self._store.write(lambda tx: self._succeed(tx, change, admitted, new))

    async def _hash(self, change: PasswordChange, admitted: AdmittedChange) -> str | FwError:
        user = admitted.account.user
        email = await self._store.read(lambda tx: email_of(tx, user), reserved=True)
        try:
            return await self._hasher.hash(
                change.password, name=user, email=email, requester=_requester(change)
            )
        except PasswordPolicyError as error:
            return error

    def _fail(self, tx: Tx, admitted: AdmittedChange) -> FwError:
        locked = attempts.settle_failure(tx, admitted.charge, admitted.key, self._budget)
        return AuthenticationError(WRONG) if locked is None else TooManyRequestsError(locked)

    def _succeed(
        self, tx: Tx, change: PasswordChange, admitted: AdmittedChange, new: str | FwError
    ) -> PasswordChanged | FwError:
        account = admitted.account
        lock_account(tx, account.user, limit_pauses=True)
        current = self._directory.find(tx, canonical(change.user))
        if (
            current is None
            or not current.enabled
            or current.password_changed != account.password_changed
        ):
            return self._fail(tx, admitted)  # the account changed while the hash ran
        attempts.clear(tx, admitted.charge, admitted.key)
        try:
            sessions.require_live(tx, change.session, account.user)
        except AuthenticationError as error:  # not raised, so that the failures stay cleared
            return error
        if isinstance(new, FwError):
            return new
        ended = self._passwords.change(
            tx, account.user, new, except_session=change.session, request_id=change.request_id
        )
        return PasswordChanged(ended)


def _requester(change: PasswordChange) -> Requester:
    """Return the requester of a change: each account has one share of the hash queue."""
    return Requester(f"account {change.user}")


FIELD: Final = "new_password"


class NewPasswords(Observer):
    """Sets passwords from `new_password` of User documents; hashes before the transaction."""

    doctypes = frozenset({"User"})

    def __init__(self, hasher: Hasher, passwords: Passwords, audit: AuditLog) -> None:
        self._hasher, self._passwords, self._audit = hasher, passwords, audit

    async def prepare(self, body: Mapping[str, Any], account: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request's body with its new password hashed.

        `account` has the resulting name and e-mail of the User.

        Raises: PasswordPolicyError, OverloadedError.
        """
        name, email = str(account["name"] or ""), str(account["email"] or "")
        password = body[FIELD]
        hashed = await self._hasher.hash(password, name=name, email=email)
        return {**body, FIELD: PreparedPassword(password, hashed)}

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Validate `new_password` against the resulting account. Raises: PasswordPolicyError."""
        if event == "on_trash":
            return
        values = doc.__dict__
        password, account = values[FIELD], {"name": str(doc.name), "email": str(values["email"])}
        if isinstance(password, PreparedPassword):
            self._hasher.validate(password, **account)
        elif password is not None:
            values[FIELD] = PreparedPassword(password, self._hasher.hash_now(password, **account))

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Set the password, and clear `new_password` on the document."""
        password = doc.__dict__[FIELD]
        if not isinstance(password, PreparedPassword):
            return
        with self._audit.suppressed(fw.tx):  # covered by the save's event
            self._passwords.replace_and_unlock(fw, str(doc.name), password.hash)
        doc.__dict__[FIELD] = None
