"""The one way to a new password: stored, what it makes invalid ended, the owner told, and an Audit
Event written.

Source: spec, Authentication 5; interface §2 "a password set by an administrator clears name and
e-mail", §8: `password_changed` is sent whenever a password is set on an account that had one.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.registry import Registry
from fw_actors.mail import Template
from fw_actors.services import attempts
from fw_actors.services.accounts import set_password
from fw_actors.services.audit import Action, AuditLog
from fw_actors.services.mail import Outbox
from fw_actors.store import Statement, Tx

_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")


class Passwords:
    """Sets passwords whose hashes were made before. Plain, inside a transaction."""

    def __init__(
        self, registry: Registry, outbox: Outbox, audit: AuditLog, installation_key: bytes
    ) -> None:
        users = registry.tables["User"].table
        self._email = Statement(sa.select(users.c.email).where(users.c.name == _USER))
        self._outbox, self._audit, self._key = outbox, audit, installation_key

    def set(
        self,
        tx: Tx,
        user: str,
        password_hash: str,
        action: Action,
        *,
        owner: str,
        request_id: str = "",
        spare: str | None = None,
    ) -> int:
        """Store the hash; sessions but for the handle `spare` and all open links end, and a
        message goes to the account.

        `owner` is whose request it is, for the message's record and for the Audit Event, which
        says `action`. Returns: how many sessions ended.
        """
        ended = self._store(tx, user, password_hash, owner, spare)
        self._audit.record_by(tx, owner, request_id, action, user)
        return ended

    def set_and_unlock(
        self, tx: Tx, user: str, password_hash: str, *, owner: str, request_id: str = ""
    ) -> int:
        """The same by an administrator: a lockout of name or e-mail is over, too."""
        with self._audit.suppressed(tx):  # whatever else it ends is a part of this act
            ended = self._store(tx, user, password_hash, owner)
            attempts.unlock_account(tx, self._key, name=user, email=self.email(tx, user))
        self._audit.record_by(tx, owner, request_id, Action.SET_PASSWORD, user)
        return ended

    def email(self, tx: Tx, user: str) -> str:
        """Return an account's e-mail: no password may equal it."""
        return str(tx.scalar(self._email, user=user) or "")

    def _store(
        self, tx: Tx, user: str, password_hash: str, owner: str, spare: str | None = None
    ) -> int:
        done = set_password(tx, user, password_hash, spare)
        if done.replaced:
            self._outbox.to_user(tx, Template.PASSWORD_CHANGED, user, owner=owner)
        return done.sessions_ended
