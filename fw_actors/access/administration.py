"""Operations of users on their own accounts, and of managers on the accounts of others.

Each operation writes an Audit Event in its transaction, naming the account and the actor.

Users change their own User record only through these operations, since nobody has write permission
on it (A-24). A request by API key may read and name its user; passwords, sessions and keys require
a session (A-264).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fw_actors.access import recovery, sessions, users
from fw_actors.access.accounts import Accounts, lock_account
from fw_actors.access.api_keys import ApiKeys, KeyFacts, MadeKey
from fw_actors.access.recovery import Invited, LinkMail, SentLink
from fw_actors.access.sessions import SessionFacts
from fw_actors.access.types import Caller, Profile
from fw_actors.config import AuthPolicy
from fw_actors.documents import permissions, rows
from fw_actors.documents.handle import Fw
from fw_actors.errors import AuthenticationError, PermissionDeniedError
from fw_actors.mail import NewKey, Notice, Template
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.ops.mail_queue import Outbox


@dataclass(frozen=True, slots=True)
class RevokedAccess:
    """The numbers of live sessions and API keys that ended; `keys` is None if not requested."""

    sessions: int
    keys: int | None


class UserAdministration:
    """Operations of System Managers on accounts, each in a transaction of the caller.

    All of them raise PermissionDeniedError unless the user is a System Manager.
    """

    def __init__(
        self,
        accounts: Accounts,
        link_mail: LinkMail,
        keys: ApiKeys,
        audit: AuditLog,
        installation_key: bytes,
        idle_days: int,
    ) -> None:
        """`idle_days` is the policy's `sessionIdleDays`."""
        self._accounts, self._link_mail, self._key = accounts, link_mail, installation_key
        self._keys, self._audit, self._idle_days = keys, audit, idle_days

    def invite(
        self, fw: Fw, email: str, name: str | None, full_name: str, roles: Sequence[str]
    ) -> Invited:
        """Create an account and send its invitation. See `recovery.invite`."""
        with self._audit.suppressed(fw.tx):  # the invitation's event covers the account
            made = recovery.invite(fw, self._link_mail, email, name, full_name, roles)
        self._audit.record(fw, Action.INVITE, made.user, {"roles": list(roles)})
        return made

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

    def sessions(self, fw: Fw, user: str, idle_days: int) -> list[SessionFacts]:
        """Return the live sessions of a user. Raises: PermissionDeniedError; NotFoundError."""
        return users.sessions_of(fw, user, idle_days)

    def revoke_session(self, fw: Fw, user: str, handle: str, idle_days: int) -> None:
        """End one session of a user by its handle. Raises: PermissionDeniedError; NotFoundError."""
        users.sessions_of(fw, user, idle_days)  # for the permission
        sessions.revoke(fw.tx, user, handle, idle_days)
        self._audit.record(fw, Action.REVOKE_SESSIONS, user, {"sessions_ended": 1})

    def unlock(self, fw: Fw, identifier: str) -> None:
        """Lift a lockout early. See `users.unlock`."""
        user = users.unlock(fw, self._accounts, self._key, identifier)
        self._audit.record(fw, Action.UNLOCK, user)


class SelfService:
    """Operations of users on their own accounts, each in a transaction of the caller."""

    def __init__(
        self, policy: AuthPolicy, accounts: Accounts, keys: ApiKeys, outbox: Outbox
    ) -> None:
        self._policy, self._accounts, self._keys = policy, accounts, keys
        self._outbox = outbox

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
        given = {"fullName": full_name, "language": language}
        doc = rows.load(fw.documents, fw, "User", fw.user, lock=True)  # concurrent updates merge
        for name, value in given.items():
            if value is not None:
                setattr(doc, name, value.strip() or None)
        doc.save(ignore_permissions=True)
        return self.profile(fw)

    def sessions(self, fw: Fw, caller: Caller) -> list[SessionFacts]:
        """Return the user's own live sessions."""
        require_session(caller)
        return sessions.of_user(fw.tx, fw.user, self._policy.session_idle_days)

    def revoke_session(self, fw: Fw, caller: Caller, handle: str) -> None:
        """End one of the user's own sessions. Raises: NotFoundError."""
        require_session(caller)
        sessions.revoke(fw.tx, fw.user, handle, self._policy.session_idle_days)

    def revoke_other_sessions(self, fw: Fw, caller: Caller) -> int:
        """End the user's other sessions; return how many."""
        require_session(caller)
        return sessions.end_all(
            fw.tx, fw.user, caller.session, idle_days=self._policy.session_idle_days
        )

    def keys(self, fw: Fw, caller: Caller) -> list[KeyFacts]:
        """Return the user's own API keys."""
        require_session(caller)
        return self._keys.of_user(fw.tx, fw.user)

    def make_key(
        self, fw: Fw, caller: Caller, label: str, days: int | None, address: str = ""
    ) -> MadeKey:
        """Create an API key and notify its owner by mail: a key outlives its session.

        `address` is the client's, for that message.

        Raises: PermissionDeniedError if the policy forbids users to create keys; as
            `ApiKeys.make`; AuthenticationError if the session has just ended, for example by a
            recovery, which must leave no key behind.
        """
        session = require_session(caller)
        if not self._policy.self_service_api_keys:
            raise PermissionDeniedError("This site does not allow users to create API keys.")
        lock_account(fw.tx, fw.user)
        sessions.require_live(fw.tx, session)
        made = self._keys.make(fw, label, days, self._policy.api_key_days)
        _announce(fw, self._outbox, made, fw.user, address)
        return made

    def revoke_key(self, fw: Fw, caller: Caller, name: str) -> None:
        """End one of the user's own API keys. Raises: NotFoundError."""
        require_session(caller)
        self._keys.revoke(fw, name)

    def revoke_all_keys(self, fw: Fw, caller: Caller) -> int:
        """End all of the user's own API keys; return how many were still valid."""
        require_session(caller)
        return self._keys.revoke_all(fw)


def make_key_for(
    fw: Fw, keys: ApiKeys, outbox: Outbox, policy: AuthPolicy, user: str, label: str,
    days: int | None, *, announce: bool = True,
) -> MadeKey:  # fmt: skip
    """Create an API key for an account, on behalf of a System Manager; its owner gets a mail.

    The policy's lifetime of keys limits it; that users may not create keys does not.

    Args:
        days: how long it is valid, 1 to 3,650; None for as long as the policy allows.
        announce: whether to send the mail.

    Raises: PermissionDeniedError; NotFoundError; as `ApiKeys.make`.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    account = fw.get_doc("User", user)
    permissions.require_account(fw, account)
    made = keys.make(fw, label, days, policy.api_key_days, owner=account.name)
    if announce:
        _announce(fw, outbox, made, account.name, "")
    return made


def _announce(fw: Fw, outbox: Outbox, made: MadeKey, owner: str, address: str) -> None:
    """Notify the owner of a new key by mail; `address` is that of the client, if any."""
    new = NewKey(made.label, made.name, fw.tx.now, made.expires, address)
    outbox.to_user(fw.tx, Template.API_KEY_MADE, owner, owner=fw.user, notice=Notice(new_key=new))


def require_session(caller: Caller) -> str:
    """Return the handle of the caller's session. Raises: PermissionDeniedError for an API key."""
    if caller.session is None:
        raise PermissionDeniedError("This operation requires a session, not an API key. Sign in.")
    return caller.session
