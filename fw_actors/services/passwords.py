"""The one way to a new password: stored, what it makes invalid ended, the owner told, and an Audit
Event written.

Source: spec, Authentication 5; interface §2 "a password set by an administrator clears name and
e-mail", §8: `password_changed` is sent whenever a password is set on an account that had one, and
API keys outlive a change by their owner alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.handle import Fw
from fw_actors.documents.registry import Registry
from fw_actors.mail import NamedKey, Notice, Template
from fw_actors.services import attempts
from fw_actors.services.accounts import set_password
from fw_actors.services.api_keys import ApiKeys
from fw_actors.services.audit import Action, AuditLog
from fw_actors.services.mail import Outbox
from fw_actors.store import Statement, Tx

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
