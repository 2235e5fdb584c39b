"""Operations of users on their own accounts, and of managers on those of others.

Each operation leaves an Audit Event in its transaction: whose account it was, and who did it.

The only way to one's own User record, since nobody has write permission on it (A-24). A
request by an API key may see and name its user; passwords, sessions and keys are for who is there
in person (A-264).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fw_actors.access import recovery, sessions, users
from fw_actors.access.account_lock import hold
from fw_actors.access.accounts import Accounts
from fw_actors.access.api_keys import ApiKeys, KeyFacts, MadeKey
from fw_actors.access.recovery import Invited, LinkMail, SentLink
from fw_actors.access.sessions import SessionFacts
from fw_actors.access.types import Caller, Profile
from fw_actors.config import AuthPolicy
from fw_actors.documents import rows
from fw_actors.documents.handle import Fw
from fw_actors.errors import AuthenticationError, PermissionDeniedError
from fw_actors.mail import NewKey, Notice, Template
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.ops.mail_queue import Outbox


@dataclass(frozen=True, slots=True)
class RevokedAccess:
    """How many live sessions of an account ended, and how many API keys; None when keys were not
    asked for."""

    sessions: int
    keys: int | None


class UserAdministration:
    """The operations, each inside a transaction of its caller.

    All of them raise PermissionDeniedError for who is no System Manager.
    """

    def __init__(
        self,
        accounts: Accounts,
        link_mail: LinkMail,
        keys: ApiKeys,
        audit: AuditLog,
        installation_key: bytes,
    ) -> None:
        self._accounts, self._link_mail, self._key = accounts, link_mail, installation_key
        self._keys, self._audit = keys, audit

    def invite(
        self, fw: Fw, email: str, name: str | None, full_name: str, roles: Sequence[str]
    ) -> Invited:
        """Make an account and send its recovery. See `recovery.invite`."""
        with self._audit.suppressed(fw.tx):  # the account is a part of its invitation
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
        sessions = users.revoke_sessions(fw, user)
        ended = len(self._keys.end_all(fw, user)) if keys else None
        detail = {"sessions_ended": sessions} | ({} if ended is None else {"keys_ended": ended})
        self._audit.record(fw, Action.REVOKE_SESSIONS, user, detail)
        return RevokedAccess(sessions, ended)

    def unlock(self, fw: Fw, identifier: str) -> None:
        """Lift a lockout early. See `users.unlock`."""
        user = users.unlock(fw, self._accounts, self._key, identifier)
        self._audit.record(fw, Action.UNLOCK, user)


class SelfService:
    """The operations, each inside a transaction of its caller."""

    def __init__(
        self, policy: AuthPolicy, accounts: Accounts, keys: ApiKeys, outbox: Outbox
    ) -> None:
        self._policy, self._accounts, self._keys = policy, accounts, keys
        self._outbox = outbox

    def profile(self, fw: Fw) -> Profile:
        """Return the own account."""
        row = fw.documents.registry.tables["User"].fetch(fw.tx, fw.user)
        if row is None:
            raise AuthenticationError
        roles = self._accounts.roles(fw.tx, fw.user)
        return Profile(
            row["name"], row["email"], row["fullName"] or "", row["language"] or "", roles
        )

    def update_profile(self, fw: Fw, full_name: str | None, language: str | None) -> Profile:
        """Write the two fields that users write, as far as they are given; "" empties one.

        Raises: ValidationError for a value that is too long.
        """
        given = {"fullName": full_name, "language": language}
        doc = rows.load(fw.documents, fw, "User", fw.user, lock=True)  # of two at once both win
        for name, value in given.items():
            if value is not None:
                setattr(doc, name, value.strip() or None)
        doc.save(ignore_permissions=True)
        return self.profile(fw)

    def sessions(self, fw: Fw, caller: Caller) -> list[SessionFacts]:
        """Return the own live sessions."""
        in_person(caller)
        return sessions.of_user(fw.tx, fw.user, self._policy.session_idle_days)

    def revoke_session(self, fw: Fw, caller: Caller, handle: str) -> None:
        """End one of the own sessions. Raises: NotFoundError."""
        in_person(caller)
        sessions.revoke(fw.tx, fw.user, handle, self._policy.session_idle_days)

    def revoke_other_sessions(self, fw: Fw, caller: Caller) -> int:
        """End the own sessions but for this one; return how many."""
        in_person(caller)
        return sessions.end_all(fw.tx, fw.user, spare=caller.session)

    def keys(self, fw: Fw, caller: Caller) -> list[KeyFacts]:
        """Return the own API keys."""
        in_person(caller)
        return self._keys.of_user(fw.tx, fw.user)

    def make_key(
        self, fw: Fw, caller: Caller, label: str, days: int | None, address: str = ""
    ) -> MadeKey:
        """Make an API key, and tell its owner by mail: a key outlives the session that made it.

        `address` is the client's, for that message.

        Raises: PermissionDeniedError when the policy lets no user make keys; and as
            `ApiKeys.make`; AuthenticationError when the session was ended just now, by a recovery
            say, which is to leave no key behind.
        """
        session = in_person(caller)
        if not self._policy.self_service_api_keys:
            raise PermissionDeniedError("This site's users do not make API keys themselves.")
        hold(fw.tx, fw.user)
        sessions.require_live(fw.tx, session)
        made = self._keys.make(fw, label, days, self._policy.api_key_days)
        new = NewKey(made.label, made.name, fw.tx.now, made.expires, address)
        self._outbox.to_user(
            fw.tx, Template.API_KEY_MADE, fw.user, owner=fw.user, notice=Notice(new_key=new)
        )
        return made

    def revoke_key(self, fw: Fw, caller: Caller, name: str) -> None:
        """End one of the own API keys. Raises: NotFoundError."""
        in_person(caller)
        self._keys.revoke(fw, name)

    def revoke_all_keys(self, fw: Fw, caller: Caller) -> int:
        """End all of the own API keys; return how many still worked."""
        in_person(caller)
        return self._keys.revoke_all(fw)


def in_person(caller: Caller) -> str:
    """Return the handle of the caller's session. Raises: PermissionDeniedError for an API key."""
    if caller.session is None:
        raise PermissionDeniedError("An API key can't do this; sign in.")
    return caller.session
