"""What a System Manager does with others' accounts over HTTP (interface §2, users.*).

Each operation leaves an Audit Event in its transaction: whose account it was, and who did it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fw_actors.documents.handle import Fw
from fw_actors.services import invitation, recovery, users
from fw_actors.services.accounts import Accounts
from fw_actors.services.api_keys import ApiKeys
from fw_actors.services.audit import Action, AuditLog
from fw_actors.services.invitation import Invited
from fw_actors.services.link_mail import LinkMail, SentLink


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
        """Make an account and send its invitation. See `invitation.invite`."""
        with self._audit.suppressed(fw.tx):  # the account is a part of its invitation
            made = invitation.invite(fw, self._link_mail, email, name, full_name, roles)
        self._audit.record(fw, Action.INVITE, made.user, {"roles": list(roles)})
        return made

    def resend_invite(self, fw: Fw, user: str) -> SentLink:
        """Send an invitation again. See `invitation.resend`."""
        sent = invitation.resend(fw, self._link_mail, user)
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
