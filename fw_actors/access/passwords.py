"""Passwords of accounts: stored hashes, policy, changes.

Sessions end (A-162); a password set by an administrator clears name and e-mail
(A-76); `password_changed` is sent whenever a password is set on an account that had one
(A-297); API keys outlive a change by their owner alone (A-249,
A-274).

A wrong `current` counts as a failed sign-in for the account name (A-244), shares that
name's budget and is answered 429 while it is locked (A-245). So a stolen session guesses
no further than the lock.

`new_password` is written only and sets the hash (A-294). One that comes over HTTP is hashed
before the transaction, one that app code sets inside it (A-295); it clears the
lockouts of name and e-mail (A-76).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access import attempts
from fw_actors.access.account_lock import hold
from fw_actors.access.accounts import Account, Accounts, set_password
from fw_actors.access.api_keys import ApiKeys
from fw_actors.access.hash_costs import RecentCosts
from fw_actors.access.types import PasswordChange, PasswordChanged
from fw_actors.config import Argon2, AuthPolicy
from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw
from fw_actors.documents.hooks import Observer
from fw_actors.documents.registry import Registry
from fw_actors.errors import (
    AuthenticationError,
    FwError,
    OverloadedError,
    PasswordPolicyError,
    TooManyRequestsError,
)
from fw_actors.hashing import Hasher, HashQueue, PreparedPassword
from fw_actors.mail import NamedKey, Notice, Template
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.ops.mail_queue import Outbox
from fw_actors.rules.concurrency import Requester
from fw_actors.rules.identifiers import canonical
from fw_actors.rules.lockout import Budget, may_verify
from fw_actors.rules.tokens import record_id
from fw_actors.runtime import Clock, Entropy
from fw_actors.runtime.clock import MS_PER_MINUTE
from fw_actors.store import Statement, Store, Tx

_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")


@dataclass(frozen=True, slots=True)
class EndedAccess:
    """How many live sessions and API keys of an account ended."""

    sessions: int
    keys: int


class Passwords:
    """Sets passwords whose hashes were made before. Plain, inside a transaction."""

    def __init__(
        self,
        registry: Registry,
        outbox: Outbox,
        keys: ApiKeys,
        audit: AuditLog,
        installation_key: bytes,
    ) -> None:
        users = registry.tables["User"].table
        self._email = Statement(sa.select(users.c.email).where(users.c.name == _USER))
        self._outbox, self._keys, self._audit = outbox, keys, audit
        self._key = installation_key

    def change(
        self, tx: Tx, user: str, password_hash: str, *, spare: str, request_id: str = ""
    ) -> int:
        """Store the hash of a password that the owner chose by the current one.

        All open links and the sessions but for the one with the handle `spare` end; API keys
        stay. A message goes to the account. Returns: how many sessions ended.
        """
        done = set_password(tx, user, password_hash, spare)
        if done.replaced:
            self._outbox.to_user(tx, Template.PASSWORD_CHANGED, user, owner=user)
        self._audit.record_by(tx, user, request_id, Action.CHANGE_PASSWORD, user)
        return done.sessions_ended

    def replace(self, fw: Fw, user: str, password_hash: str, action: Action) -> EndedAccess:
        """Store the hash of a password that was set without the current one: by a link, or by an
        administrator. Whoever had the old one, or a session of it, may have made API keys.

        All sessions, open links and API keys end. A message names the keys to the account; the
        handle's user is the one who asks for it. The Audit Event says `action`.
        """
        keys = self._keys.end_all(fw, user)
        done = set_password(fw.tx, user, password_hash)
        if done.replaced:
            ended = tuple(NamedKey(key.label, key.name) for key in keys)
            self._outbox.to_user(
                fw.tx,
                Template.PASSWORD_CHANGED,
                user,
                owner=fw.user,
                notice=Notice(ended_keys=ended),
            )
        detail = {"keys_ended": len(keys)} if keys else None
        self._audit.record(fw, action, user, detail)
        return EndedAccess(done.sessions_ended, len(keys))

    def replace_and_unlock(self, fw: Fw, user: str, password_hash: str) -> EndedAccess:
        """The same by an administrator: a lockout of name or e-mail is over, too."""
        ended = self.replace(fw, user, password_hash, Action.SET_PASSWORD)
        attempts.unlock_account(fw.tx, self._key, name=user, email=self.email(fw.tx, user))
        return ended

    def email(self, tx: Tx, user: str) -> str:
        """Return an account's e-mail: no password may equal it."""
        return str(tx.scalar(self._email, user=user) or "")


WRONG: Final = "The current password is wrong."
_ID_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class AdmittedChange:
    """A try that was charged and may be verified."""

    key: bytes
    charge: str
    charged_at: int
    account: Account
    decoy: Argon2 | None


class PasswordChanges:
    """The use case. Each step is a transaction or a hash; the LockoutActor puts them in order."""

    def __init__(
        self,
        store: Store,
        hasher: Hasher,
        directory: Accounts,
        passwords: Passwords,
        policy: AuthPolicy,
        clock: Clock,
        entropy: Entropy,
        installation_key: bytes,
    ) -> None:
        self._store, self._hasher, self._directory = store, hasher, directory
        self._clock = clock
        self._passwords, self._entropy, self._key = passwords, entropy, installation_key
        self._budget = Budget(policy.max_login_attempts, policy.lockout_minutes * MS_PER_MINUTE)
        self._costs = RecentCosts()

    def counter(self, user: str) -> bytes:
        """Return the counter of an account's name, the one that sign-ins by it have."""
        return attempts.counter_key(self._key, attempts.IDENTIFIER, canonical(user))

    async def admit(self, change: PasswordChange, key: bytes) -> AdmittedChange | FwError:
        """Charge the account's name. Raises: OverloadedError when that can't be written."""
        charge = record_id(self._entropy.bytes(_ID_BYTES))

        def work(tx: Tx) -> AdmittedChange | FwError:
            wait = attempts.charge(tx, charge, key, self._budget)
            if wait is not None:
                return TooManyRequestsError(wait)
            account = self._directory.find(tx, canonical(change.user))
            if account is None or not account.enabled:
                attempts.take_back(tx, charge)
                return AuthenticationError()
            return AdmittedChange(key, charge, tx.now, account, self._costs.get(tx).draw(key))

        return await self._store.write(work)

    async def verify(
        self, change: PasswordChange, admitted: AdmittedChange
    ) -> PasswordChanged | FwError:
        """Verify the current password, judge and hash the new one, settle and set it."""
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
            if not verified.ok:
                return await self._store.write(lambda tx: self._fail(tx, admitted))
            new = await self._hash(change, admitted)
        except OverloadedError as refusal:
            await self._store.write(lambda tx: attempts.take_back(tx, admitted.charge))
            return refusal
        return await self._store.write(lambda tx: self._succeed(tx, change, admitted, new))

    async def _hash(self, change: PasswordChange, admitted: AdmittedChange) -> str | FwError:
        user = admitted.account.user
        email = await self._store.read(lambda tx: self._passwords.email(tx, user), reserved=True)
        try:
            return await self._hasher.hash(
                change.password, name=user, email=email, requester=_requester(change)
            )
        except PasswordPolicyError as refusal:
            return refusal

    def _fail(self, tx: Tx, admitted: AdmittedChange) -> FwError:
        locked = attempts.settle_failure(tx, admitted.charge, admitted.key, self._budget)
        return AuthenticationError(WRONG) if locked is None else TooManyRequestsError(locked)

    def _succeed(
        self, tx: Tx, change: PasswordChange, admitted: AdmittedChange, new: str | FwError
    ) -> PasswordChanged | FwError:
        account = admitted.account
        hold(tx, account.user)
        now = self._directory.find(tx, canonical(change.user))
        if now is None or not now.enabled or now.password_changed != account.password_changed:
            return self._fail(tx, admitted)  # it changed while the hash ran
        attempts.clear(tx, admitted.charge, admitted.key)
        if isinstance(new, FwError):
            return new
        ended = self._passwords.change(
            tx, account.user, new, spare=change.session, request_id=change.request_id
        )
        return PasswordChanged(ended)


def _requester(change: PasswordChange) -> Requester:
    """An account has one share of a full queue, from wherever its sessions are."""
    return Requester(f"account {change.user}")


FIELD: Final = "new_password"


class NewPasswords(Observer):
    """Observes User documents; hashes for requests before they begin their transaction."""

    doctypes = frozenset({"User"})

    def __init__(self, hasher: Hasher, passwords: Passwords, audit: AuditLog) -> None:
        self._hasher, self._passwords, self._audit = hasher, passwords, audit

    async def prepare(self, body: Mapping[str, Any], account: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request's body with its new password hashed; `account` has the name and the
        e-mail of the User as it will be.

        Raises: PasswordPolicyError, OverloadedError.
        """
        name, email = str(account["name"] or ""), str(account["email"] or "")
        password = body[FIELD]
        hashed = await self._hasher.hash(password, name=name, email=email)
        return {**body, FIELD: PreparedPassword(password, hashed)}

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Judge it against the account as it will be. Raises: PasswordPolicyError."""
        if event == "on_trash":
            return
        values = doc.__dict__
        password, account = values[FIELD], {"name": str(doc.name), "email": str(values["email"])}
        if isinstance(password, PreparedPassword):
            self._hasher.validate(password, **account)
        elif password is not None:
            values[FIELD] = PreparedPassword(password, self._hasher.hash_now(password, **account))

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Set it; the document holds none any more."""
        password = doc.__dict__[FIELD]
        if not isinstance(password, PreparedPassword):
            return
        with self._audit.suppressed(fw.tx):  # the event of the save names the password
            self._passwords.replace_and_unlock(fw, str(doc.name), password.hash)
        doc.__dict__[FIELD] = None
